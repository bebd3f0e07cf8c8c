//! The firewall marks by which packets are known that are routed in their own way.

/// Mark of the sockets that keep beside a client's own tunnel: those of its connections to the server, and of its
/// questions to name servers. The bytes of "gram": neither wg-quick (0xca6c) nor Tailscale (0x80000) uses it, also not
/// as a mask.
pub const OUTER_MARK: u32 = 0x6772_616d;

/// Mark of packets of a router's network that are led to its transparent proxy.
pub(crate) const PROXY_MARK: u32 = 0x6772_616e;
