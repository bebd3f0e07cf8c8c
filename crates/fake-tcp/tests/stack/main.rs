//! Two stacks and the path between them in virtual time: what gets lost, late, doubled or forged, and what a firewall
//! on the way thinks of it (specs/fake-tcp.md).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conntrack;
mod data;
mod end;
mod flood;
mod handshake;
mod hostile;
mod joined;
mod pair;
mod path;
mod phantun;
mod sealed;
mod silence;
