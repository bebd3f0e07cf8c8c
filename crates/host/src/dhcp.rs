//! Ports of DHCP, whose packets leave beside the tunnel: without a lease of its own this machine would have no uplink.

/// Of IPv4 (RFC 2131 section 4.1).
pub(crate) const CLIENT_PORT_V4: u16 = 68;
pub(crate) const SERVER_PORT_V4: u16 = 67;

/// Of IPv6 (RFC 9915 section 7.2).
pub(crate) const CLIENT_PORT_V6: u16 = 546;
pub(crate) const SERVER_PORT_V6: u16 = 547;
