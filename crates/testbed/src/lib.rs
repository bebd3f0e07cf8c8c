//! What benchmarks and system tests stand on: network namespaces, processes under guard, iperf3, private directories,
//! free ports, waits with a deadline.
//!
//! Whatever is started or created is removed when its guard is dropped, after a panic too. What a killed owner left is
//! found by its process ID ([`leftovers`]). Everything fails by [`Error`], one sentence for people; `Debug` prints the
//! same sentence, so tests unwrap.

pub mod control_group;
pub mod directory;
mod error;
pub mod iperf;
pub mod leftovers;
pub mod limits;
pub mod machine;
pub mod namespace;
mod output;
pub mod place;
pub mod port;
pub mod process;
pub mod programs;
pub mod usage;
pub mod wait;

pub use error::Error;
