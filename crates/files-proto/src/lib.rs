//! Files between peers (`specs/files.md`), sans-IO: what is offered, what is wanted, chunks that verify by themselves,
//! and codes by which two people meet.
//!
//! This crate does no I/O, reads no clock and takes its randomness as a seed. It never opens a file: who reads, hashes
//! and writes (crate `files`) asks it what to do, and tells it what was done.

pub mod code;
pub mod compress;
pub mod content;
pub mod doubt;
mod entry;
pub mod filter;
pub mod journal;
pub mod limits;
pub mod manifest;
pub mod message;
pub mod name;
pub mod offers;
pub mod pack;
pub mod plan;
mod ranges;
mod reason;
pub mod record;
mod wire;

pub use entry::{Attribute, Entry, EntryId, Kind};
pub use ranges::Ranges;
pub use reason::{FailReason, SkipReason};
