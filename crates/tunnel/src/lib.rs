//! The driver: one shard's event loop over `quic`, `masque` and `packet-io`, in the roles of server and client.

pub mod config;
pub mod handle;
pub mod limits;
pub mod secret;
pub mod snapshot;
pub mod target_rules;
