//! Every bound of this crate: those that the specification fixes first, then those we chose.

use std::time::Duration;

/// Payloads that one parity datagram covers at most (REPAIR-6).
pub const COUNT_MAX: usize = 128;

/// Numbers behind the highest one for which duplicates are recognized (REPAIR-5): far above the reordering of any
/// usable path.
pub const NUMBERS_REMEMBERED: usize = 4_096;

/// Bytes of parity, and of headers, for each hundred bytes of payload at most (REPAIR-10).
pub const EXTRA_PERCENT_MAX: usize = 50;

/// Payloads that our parity covers at most: from here on a longer window needs hardly less parity, and each payload of
/// it costs 0.1 us for each parity datagram.
pub const WINDOW_MAX: usize = 64;

/// Bytes that a QUIC packet adds to its datagram on the way, counted on the low side: IPv4 and UDP headers 28, QUIC
/// header 10, authentication tag 16.
pub const PACKET_OVERHEAD_BYTES: usize = 54;

/// Parity datagrams that the byte budget of a flow may have saved up: one that is due, and one for the end of a burst.
pub const SAVED_PARITY: usize = 2;

/// Part of the latency, in percent, after which a payload that no parity covers yet gets some although no further
/// payload came: what is left is for the jitter of timers.
pub const TAIL_PERCENT: u32 = 75;

/// Residual loss that a block code of the same window and parity may have by our reckoning: half of the 0.1 % that we
/// promise at 5 % of loss, as what a long window does not repair comes in clusters. The sliding window leaves about
/// half of it.
pub const RESIDUAL_LOSS_MAX: f64 = 0.000_5;

/// Loss below which no parity is sent: it is below what may be left.
pub const LOSS_MIN: f64 = 0.0005;

/// Loss above which parity within the byte budget repairs little; it is reckoned with at most.
pub const LOSS_MAX: f64 = 0.5;

/// How often loss is measured.
pub const LOSS_INTERVAL: Duration = Duration::from_millis(250);

/// What a measurement weighs after one more interval: half of it is forgotten in five seconds.
pub const LOSS_MEMORY: f64 = 0.966;

/// Packets from which on loss is known: a single lost packet says nothing about the path before.
pub const LOSS_PACKETS_MIN: f64 = 50.0;

/// Parity datagrams that wait for another one, with what is missing of their window, for each flow.
pub const ROWS_MAX: usize = 32;

/// Emptied parity whose memory is kept for the next, for each flow: what an ordinary path has waiting at a time.
pub const SPARE_ROWS: usize = 8;

/// Bytes that a decoder keeps of payloads and parity: the window of a flow with full packets three times, and less of a
/// flow with jumbo frames.
pub const DECODER_BYTES_MAX: usize = 512 << 10;

/// Parity datagrams that a decoder works on for each four payloads that came: half as many are sent at most, and losses
/// are shared by both. It bounds the work that a hostile peer can cause.
pub const PARITY_FOR_FOUR: u32 = 3;

/// Parity datagrams that a decoder works on without payloads.
pub const PARITY_AT_ONCE: u32 = 32;

const _: () = assert!(WINDOW_MAX <= COUNT_MAX);
const _: () = assert!(COUNT_MAX * 2 <= 256, "coefficients repeat after 256 numbers");
const _: () = assert!(NUMBERS_REMEMBERED.is_multiple_of(64) && NUMBERS_REMEMBERED >= COUNT_MAX);
const _: () = assert!(DECODER_BYTES_MAX >= 2 * COUNT_MAX * 1_500);
