//! Load generators, sinks and benchmark matrices behind `gramway bench` and `gramway demo`.
//!
//! A benchmark starts the shipped program as child processes and reads its counters through `gramway status --json`,
//! so what is measured is what users run. Loads run as child processes too, so that CPU time is known per process.
//! Only `scale` links the tunnel's pure part: thousands of clients in one process show what the state of each costs.
//!
//! Entry points: [`Command::run`], [`demo::run`], and [`hidden::run`] for the child processes. With the feature
//! `rivals`, which only bench's own program has: `paths::run`, `peers::run`, `relayed::run`, `files::run`,
//! `front_door::run`, `rpc::run`, `scale::run`, `tcp_shape::run`, and `rivals::L3` for [`Command::run`].

#[cfg(feature = "rivals")]
mod check;
mod children;
mod command;
mod counters;
pub mod demo;
pub mod emulator;
mod error;
#[cfg(feature = "rivals")]
pub mod files;
mod flood;
pub mod floor;
mod flow;
pub mod forward;
#[cfg(feature = "rivals")]
pub mod front_door;
mod generator;
pub mod hidden;
pub mod l3;
mod latency;
pub mod limits;
mod machine;
mod matrix;
mod median;
mod network;
mod pacer;
#[cfg(feature = "rivals")]
pub mod paths;
mod payload;
#[cfg(feature = "rivals")]
pub mod peers;
mod programs;
mod relay;
#[cfg(feature = "rivals")]
pub mod relayed;
#[cfg(feature = "rivals")]
pub mod rivals;
#[cfg(feature = "rivals")]
pub mod rpc;
#[cfg(feature = "rivals")]
pub mod scale;
mod sink;
mod sweeper;
mod table;
mod tcp_load;
mod tcp_relay;
#[cfg(feature = "rivals")]
pub mod tcp_shape;
mod tracker;
mod tunnel;

pub use command::Command;
pub use error::Error;
pub use matrix::MatrixOptions;
pub use programs::Programs;
pub use tunnel::TunnelOptions;
