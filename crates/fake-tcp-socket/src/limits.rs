//! Every limit of this crate, with its unit and reason.

use std::time::Duration;

/// Bytes of datagrams that wait for the handshake, for each connection: the first flight of a QUIC client, and as much
/// again. What exceeds it is lost, as on the way.
pub const HELD_BYTES_MAX: usize = 16 << 10;

/// How long a list of this machine's addresses is believed about one that is not in it, and about one that is.
pub const LOCALS_TIME: Duration = Duration::from_secs(1);
/// See [`LOCALS_TIME`].
pub const LOCALS_STALE: Duration = Duration::from_secs(10);

/// How long the MTU of an interface is believed; a new connection asks again.
pub const MTU_TIME: Duration = Duration::from_secs(5);

/// Interfaces whose MTU is remembered: more than a server has. Beyond, the list begins anew.
pub const MTUS_MAX: usize = 64;

/// Peers whose handshakes are not complete and to whom the way is remembered: as many as a worker's half-open
/// connections.
pub const HALF_OPEN_LINKS_MAX: usize = fake_tcp::limits::HALF_OPEN_MAX;

/// How long a route is believed while packets leave: a lookup takes some 20 microseconds, and users wait for another
/// way.
pub const ROUTE_TIME: Duration = Duration::from_secs(1);

/// Time from one question for a neighbour to the next, as the kernel has it divided by four: who waits for it is the
/// user.
pub const NEIGHBOUR_REPEAT: Duration = Duration::from_millis(250);

/// Times that a neighbour is asked for, until the route is looked up anew.
pub const NEIGHBOUR_QUESTIONS_MAX: u32 = 20;

/// Time until the first look for a neighbour's answer, and longest time between two; it doubles between them. A
/// neighbour answers within a millisecond.
pub const NEIGHBOUR_LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(32));

/// Ports that are tried until one has its flow at the right worker: of two workers every second one has.
pub const PORT_TRIES_MAX: usize = 4 * packet_io::RAW_GROUP_MAX;

/// Times that one call looks for data behind segments without any.
pub const RECEIVES_MAX: usize = 4;

/// Time until an ended connection of a carrier is opened again; it doubles up to the second.
pub const REOPEN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));

/// Trains of one batch for which there is room between two: those of ordinary traffic.
pub(crate) const TAKEN_OUT_KEPT: usize = 1_024;
