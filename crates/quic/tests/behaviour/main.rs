//! What one shard's QUIC does, seen from outside, on virtual time and a link in memory.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

mod accounting;
mod acks;
mod basics;
mod certificates;
mod classifier;
mod fairness;
mod foreign;
mod front_door;
mod hostile;
mod incoming;
mod keys;
mod limits;
mod path_mtu;
mod peers;
mod profiles;
mod restart;
mod shards;
#[path = "../support/mod.rs"]
mod support;
