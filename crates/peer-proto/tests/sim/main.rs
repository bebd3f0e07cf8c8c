//! Peers over simulated paths, in virtual time: the laws of messages under random faults, and streams.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

mod bounds;
mod crowd;
mod endings;
mod fairness;
mod identity;
mod laws;
mod matrix;
mod messages;
mod news;
mod paths;
mod relays;
mod replay;
mod round_trips;
mod routers;
mod rules;
mod streams;
mod suspended;
mod world;
