//! The driver: event loops over `tunnel-proto` and `packet-io`, one for each shard, in the roles of server and client.

pub mod carrier;
pub mod certificates;
pub mod config;
mod driver;
pub mod examination;
pub mod handle;
pub mod hook;
pub mod limits;
pub mod names;
mod notices;
pub mod qlog;
pub mod snapshot;

/// Parsers of bytes from outside, for fuzzing; not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::driver::fuzz_look_up as look_up;
    pub use crate::driver::fuzz_name_message as name_message;
}

/// Runs a server.
pub mod server {
    pub use crate::driver::start_server as start_over;

    use crate::carrier::UdpOrTcp;
    use crate::config::ServerConfig;
    use crate::handle::{Failure, Handle};

    /// Starts a server over UDP, and in TCP's shape where it is to listen so.
    ///
    /// # Errors
    /// As [`start_over`].
    pub fn start(config: ServerConfig) -> Result<Handle, Failure> {
        let carriers = UdpOrTcp { tcp: config.tcp };
        start_over(config, &carriers)
    }
}

/// Runs a client.
pub mod client {
    use std::sync::Arc;

    pub use crate::driver::start_client as start_over;

    use crate::carrier::{Carriers, UdpOrTcp};
    use crate::config::ClientConfig;
    use crate::handle::{Failure, Handle};

    /// Starts a client over UDP, in TCP's shape, or whichever answers first.
    ///
    /// # Errors
    /// As [`start_over`].
    pub fn start(config: ClientConfig) -> Result<Handle, Failure> {
        let carriers: Arc<dyn Carriers> = Arc::new(UdpOrTcp::default());
        start_over(config, &carriers)
    }
}
