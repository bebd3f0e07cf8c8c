//! Every bound of the front door, with its unit and its reason.

/// Bytes of a ClientHello message at most: a browser's with a post-quantum share has 1.8 KB.
pub const HELLO_BYTES_MAX: usize = 16 << 10;

/// Keys that a server answers to at once (QR1-1): the present and the previous one.
pub const SERVER_KEYS_MAX: usize = 2;
