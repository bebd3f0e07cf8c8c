//! How long the helpers wait, generous because machines may be busy: a limit that passes is a failure, never a result.

use std::time::Duration;

/// For a program to print a line, answer or end.
pub const PROGRAM_LIMIT: Duration = Duration::from_secs(30);

/// Between two questions of a UDP source that has no answer.
pub const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes that hold every UDP payload.
pub const UDP_PAYLOAD_BUFFER: usize = 65_536;
