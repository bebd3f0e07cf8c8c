//! The firewall mark by which packets that must not enter the tunnel are known.

/// Mark of the sockets that keep beside a client's own tunnel: those of its connections to the server, and of its
/// questions to name servers. The bytes of "gram": neither wg-quick (0xca6c) nor Tailscale (0x80000) uses it, also not
/// as a mask.
pub const OUTER_MARK: u32 = 0x6772_616d;
