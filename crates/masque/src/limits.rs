//! Every bound of this crate: those that a specification fixes first, then those we chose.

/// Bytes of the longest UDP payload that a proxy carries (RFC 9298 section 5): 65,535 less the UDP header.
pub const UDP_PAYLOAD_BYTES_MAX: usize = 65_527;

/// Largest Quarter Stream ID (RFC 9297 section 2.1): stream IDs end at 2^62 - 1.
pub const QUARTER_STREAM_ID_MAX: u64 = (1 << 60) - 1;

/// Largest integer of a structured field (RFC 8941 section 3.3.1).
pub const STRUCTURED_INTEGER_MAX: u64 = 999_999_999_999_999;

/// Fragments of one split payload: their index is one byte (SPLIT-3).
pub const FRAGMENTS_MAX: usize = 256;

/// Shortest latency of repair, in milliseconds (REPAIR-1).
pub const REPAIR_LATENCY_MS_MIN: u16 = 1;

/// Longest latency of repair, in milliseconds (REPAIR-1): who can wait longer can ask again.
pub const REPAIR_LATENCY_MS_MAX: u16 = 500;

/// Bytes of a domain name in text, with a trailing dot (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 254;

/// Bytes of one label of a domain name (RFC 1035 section 2.3.4).
pub const LABEL_BYTES_MAX: usize = 63;

/// Bytes of an encoded field section that is taken; a longer one is refused at its frame header.
pub const FIELD_SECTION_ENCODED_BYTES_MAX: u64 = 8 * 1024;

/// Size of a decoded field section as RFC 9114 section 4.2.2 counts it (32 more for each field), in bytes; announced
/// in SETTINGS. Our own requests take under 1 KiB.
pub const FIELD_SECTION_BYTES_MAX: u64 = 8 * 1024;

/// Bytes of a SETTINGS frame; real ones have under 100.
pub const SETTINGS_BYTES_MAX: u64 = 1024;

/// Bytes of a HELD_BACK frame's payload: two varints.
pub const HELD_BACK_BYTES_MAX: u64 = 16;

/// Unidirectional streams of a peer whose state is kept at a time: three are critical, the others must first say what
/// they are.
pub const UNIDIRECTIONAL_STREAMS_MAX: usize = 16;

/// Interim (1xx) responses skipped before a final one.
pub const INTERIM_RESPONSES_MAX: u32 = 8;

/// Bytes of a DATAGRAM capsule that is taken: a context ID and the longest UDP payload; a longer one is skipped.
pub const CAPSULE_BYTES_MAX: u64 = 65_536;

/// Bytes of the longest capsule about a context of a bound socket: its ID, a version, an IPv6 address and a port.
pub const BIND_CAPSULE_BYTES_MAX: u64 = 8 + 1 + 16 + 2;

/// Addresses in one ADDRESS_ASSIGN or ADDRESS_REQUEST capsule: a client needs one or two, a site a few more.
pub const ADDRESSES_MAX: usize = 64;

/// Ranges in one ROUTE_ADVERTISEMENT capsule: "everything but private networks" takes about 40, a company's list some
/// hundreds.
pub const ROUTES_MAX: usize = 1024;

/// Name servers of one DNS_ASSIGN capsule that are used: the C library asks three.
pub const NAME_SERVERS_MAX: usize = 3;

/// Bytes of a DNS_ASSIGN capsule that is read; a longer one is skipped.
pub const DNS_BYTES_MAX: u64 = 4_096;

/// Messages in reassembly at a time, for one [`crate::split::Reassembler`]. Senders finish a message before the next,
/// so this many are touched by reordering and loss only.
pub const REASSEMBLY_SLOTS: usize = 16;

/// Time after its first fragment within which a message must be complete: far above the reordering of any usable
/// path.
pub const REASSEMBLY_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);

/// Bytes that one reassembler holds at most.
pub const REASSEMBLY_BYTES_MAX: usize = REASSEMBLY_SLOTS * UDP_PAYLOAD_BYTES_MAX;

/// Networks that a server says it leases from: one or two for each IP version, and room for more.
pub const POOLS_MAX: usize = 8;

// A conforming list must never be refused for its encoded size: names, values and at most 32 bytes more for each
// field.
const _: () = assert!(FIELD_SECTION_ENCODED_BYTES_MAX >= FIELD_SECTION_BYTES_MAX);
const _: () = assert!(CAPSULE_BYTES_MAX as usize >= UDP_PAYLOAD_BYTES_MAX + packet::varint::LEN_MAX);
const _: () = assert!(REASSEMBLY_BYTES_MAX <= 1024 * 1024);
