//! The driver: event loops over `tunnel-proto` and `packet-io`, one for each shard, in the roles of server and client.

pub mod config;
mod driver;
pub mod handle;
pub mod limits;
pub mod snapshot;

/// Runs a server.
pub mod server {
    pub use crate::driver::start_server as start;
}

/// Runs a client.
pub mod client {
    pub use crate::driver::start_client as start;
}
