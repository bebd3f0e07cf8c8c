//! What only a client's shard does: its connection to the server, its listeners, its end of the TUN device.

pub(super) mod connection;
pub(super) mod listeners;
mod local;
pub(super) mod stripes;
pub(super) mod tun;
