//! The driver: event loops over `quic`, `masque` and `packet-io`, one for each shard, in the roles of server and client.

pub mod config;
pub mod core;
mod driver;
pub mod drops;
pub mod handle;
pub mod limits;
pub mod room;
pub mod secret;
pub mod snapshot;
pub mod target_rules;

/// Runs a server.
pub mod server {
    pub use crate::driver::start_server as start;
}

/// Runs a client.
pub mod client {
    pub use crate::driver::start_client as start;
}
