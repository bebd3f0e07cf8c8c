//! Every bound of the tunnel, with its unit and its reason.

use std::time::Duration;

/// Receive buffer asked for on UDP sockets, in bytes: what arrives at 2.5 Gbit/s while the thread waits 10 ms for a
/// core, about doubled for the kernel's bookkeeping per datagram.
pub const SOCKET_RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Send buffer asked for on UDP sockets, in bytes: several full trains.
pub const SOCKET_SEND_BUFFER_BYTES: usize = 4 << 20;

/// A UDP session without traffic is closed after this; RFC 9298 section 3.1 says at least two minutes.
pub const UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(120);
