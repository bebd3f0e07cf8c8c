//! Helpers of the end-to-end tests: network namespaces, programs under guard, load from iperf3, a running tunnel.
//!
//! Helpers panic with a sentence when something that a test rests on fails. Whatever a helper starts or creates is
//! removed when its guard is dropped, after a panic too. A test that cannot run here says so by [`require_root!`] or
//! [`require_program!`] and returns.

pub mod conservation;
pub mod directory;
pub mod iperf;
pub mod limits;
pub mod namespace;
pub mod place;
pub mod port;
pub mod process;
pub mod program;
pub mod service;
pub mod skip;
pub mod source;
pub mod topology;
pub mod tunnel;
pub mod wait;
