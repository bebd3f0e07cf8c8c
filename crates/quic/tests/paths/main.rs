//! Long, lossy and shared paths, on virtual time: what the congestion controller makes of them.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

mod bbr;
mod cell;
mod changes;
mod cubic;
mod matrix;
mod party;
mod segments;
mod shared;
#[path = "../support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "helpers of other tests")]
mod support;
mod trace;
mod world;
