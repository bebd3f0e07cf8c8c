//! How long the helpers wait, generous because machines may be busy: a limit that passes is a failure, never a result.

use std::time::Duration;

/// For a program to print a line, answer or end.
pub const PROGRAM_LIMIT: Duration = Duration::from_secs(30);

/// Between two questions of a UDP source that has no answer.
pub const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes that hold every UDP payload.
pub const UDP_PAYLOAD_BUFFER: usize = 65_536;

/// How long a capture waits for a frame before it looks whether it is to end.
pub const CAPTURE_POLL: Duration = Duration::from_millis(20);

/// What a capture may fall behind, in bytes: none of the frames may be lost.
pub const CAPTURE_BUFFER_BYTES: usize = 8 << 20;

/// How long the last datagrams of a flood may be under way.
pub const FLOOD_END: Duration = Duration::from_millis(500);
