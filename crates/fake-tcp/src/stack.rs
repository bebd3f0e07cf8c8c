//! What a stack is told, and what it tells.

mod types;

pub use types::{CloseReason, Config, ConnectError, ConnectionId, Counters, Data, Event, Refused, Transmit};
