//! Helpers of the end-to-end tests: networks, a running tunnel, what it leads to, and the law that its counters obey.
//! What they stand on (namespaces, processes, iperf3, directories, waits) is crate `testbed`.
//!
//! Helpers panic with a sentence when something that a test rests on fails. Whatever a helper starts or creates is
//! removed when its guard is dropped, after a panic too. A test that cannot run here says so by [`require_root!`] or
//! [`require_program!`] and returns.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

pub mod book;
pub mod conservation;
pub mod cover;
pub mod flood;
pub mod go;
pub mod limits;
pub mod name_server;
pub mod program;
pub mod python;
pub mod service;
pub mod skip;
pub mod source;
pub mod topology;
pub mod tunnel;
pub mod underlay;
