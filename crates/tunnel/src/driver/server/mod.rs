//! What only a server's shard does: targets of requests, its end of the TUN device.

pub(super) mod targets;
pub(super) mod tun;
