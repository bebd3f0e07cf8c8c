//! Every bound of an endpoint's driver, with its unit and its reason.

use std::time::Duration;

/// Slots of the socket's receive batch: one system call brings at most so many coalesced messages of 64 KiB.
pub const RECEIVE_SLOTS: usize = 16;

/// Batches that are received before the endpoint sends what it has: acknowledgements do not wait for a full socket.
pub const RECEIVES_PER_TURN: usize = 4;

/// Outboxes that are sent before the endpoint looks at its socket again.
pub const FLUSHES_PER_TURN: usize = 4;

/// Connections that wait for [`crate::Endpoint::accept`]; one more is closed.
pub const ACCEPT_QUEUE_MAX: usize = 1_024;

/// Buffer of the socket in each direction, in bytes, as far as the system grants it.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// How long an endpoint that closes goes on sending what QUIC still says to its peers.
pub const CLOSE_TIME_MAX: Duration = Duration::from_millis(200);

/// Bytes of a key file: a key in hexadecimal, with room for white space.
pub const KEY_FILE_BYTES_MAX: u64 = 256;

/// A call of the program that comes so soon after one that sent in the sleeping thread's place wakes that: what is sent
/// so fast goes better in trains.
pub const CALLER_PAUSE: Duration = Duration::from_micros(25);
