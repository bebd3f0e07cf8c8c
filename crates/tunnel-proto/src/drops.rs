//! Why datagrams are not delivered, and the ledger that accounts for every one of them.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Serialize, Serializer};

/// The one reason why a datagram was not sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// Towards QUIC: the peer's queue holds as many bytes as it may.
    QueueFull,
    /// Towards QUIC: this flow holds its share of the peer's queue.
    FlowQuota,
    /// Towards QUIC: it waited longer than a queued datagram may.
    QueueExpired,
    /// Towards QUIC: its flow answers loss, and has made a queue that stands (RFC 8289).
    StandingDelay,
    /// Towards QUIC: the tunnel is down, and more waits for it than may.
    NoTunnel,
    /// Towards QUIC: it does not fit one DATAGRAM frame, and the peer or the settings do not split.
    TooLarge,
    /// Towards QUIC: the path MTU fell, or the connection ended, after it was queued.
    PathChanged,
    /// Towards QUIC: the server refused the session, or the session ended.
    SessionClosed,
    /// From QUIC, at a server: its user sends faster than it may.
    RateLimit,
    /// From QUIC: it names no session, or overtook its request by more than may wait.
    UnknownSession,
    /// It names a context that was not agreed on (RFC 9298 section 4), or goes between bound sockets of which one has no
    /// context for the other.
    UnknownContext,
    /// It is no HTTP Datagram (RFC 9297 section 2.1), no fragment, no IP packet, or no whole datagram of SOCKS5 (RFC
    /// 1928 section 7).
    Malformed,
    /// From QUIC: a fragment whose message did not become complete in time, or whose place was needed.
    ReassemblyExpired,
    /// From QUIC: a fragment that had come before.
    DuplicateFragment,
    /// From QUIC: a payload with repair that had come before, or had been rebuilt.
    AlreadyRepaired,
    /// To an inner socket: too large for the path to the target, which must not fragment (RFC 9298 section 3.1).
    TargetTooLarge,
    /// To an inner socket: nobody listens there.
    TargetRefused,
    /// To an inner socket: no route, or not permitted.
    TargetUnreachable,
    /// To an inner socket: its send buffer is full.
    SocketFull,
    /// To an inner socket: any other error.
    SocketError,
    /// An IP packet whose source is not what its sender was given, or not what this end was told to be reachable; a
    /// datagram at a relay of SOCKS5 that is not of the relay's program.
    SourceSpoofed,
    /// An IP packet to where no session and no route leads.
    NoRoute,
    /// An IP packet to where the rules do not let it: another client, the server itself, one link only.
    PolicyDenied,
    /// An IP packet whose hop limit ran out.
    HopLimit,
    /// An IP packet that only its sender can make smaller; it was told.
    PacketTooBig,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 25] = [
        Self::QueueFull,
        Self::FlowQuota,
        Self::QueueExpired,
        Self::StandingDelay,
        Self::NoTunnel,
        Self::TooLarge,
        Self::PathChanged,
        Self::SessionClosed,
        Self::RateLimit,
        Self::UnknownSession,
        Self::UnknownContext,
        Self::Malformed,
        Self::ReassemblyExpired,
        Self::DuplicateFragment,
        Self::AlreadyRepaired,
        Self::TargetTooLarge,
        Self::TargetRefused,
        Self::TargetUnreachable,
        Self::SocketFull,
        Self::SocketError,
        Self::SourceSpoofed,
        Self::NoRoute,
        Self::PolicyDenied,
        Self::HopLimit,
        Self::PacketTooBig,
    ];

    /// The name in `gramway status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::FlowQuota => "flow_quota",
            Self::QueueExpired => "queue_expired",
            Self::StandingDelay => "standing_delay",
            Self::NoTunnel => "no_tunnel",
            Self::TooLarge => "too_large",
            Self::PathChanged => "path_changed",
            Self::SessionClosed => "session_closed",
            Self::RateLimit => "rate_limit",
            Self::UnknownSession => "unknown_session",
            Self::UnknownContext => "unknown_context",
            Self::Malformed => "malformed",
            Self::ReassemblyExpired => "reassembly_expired",
            Self::DuplicateFragment => "duplicate_fragment",
            Self::AlreadyRepaired => "already_repaired",
            Self::TargetTooLarge => "target_too_large",
            Self::TargetRefused => "target_refused",
            Self::TargetUnreachable => "target_unreachable",
            Self::SocketFull => "socket_full",
            Self::SocketError => "socket_error",
            Self::SourceSpoofed => "source_spoofed",
            Self::NoRoute => "no_route",
            Self::PolicyDenied => "policy_denied",
            Self::HopLimit => "hop_limit",
            Self::PacketTooBig => "packet_too_big",
        }
    }
}

/// One direction's account, in datagrams; where a payload is split, in fragments.
///
/// `accepted + split + parity_sent + repaired = sent + joined + parity_received + sum(drops) + waiting` at every moment
/// between two calls. Parity is made on the way into QUIC and ends on the way out of it, where payloads are rebuilt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Datagrams that came in.
    pub accepted: u64,
    /// Fragments beyond the first of each payload that was split.
    pub split: u64,
    /// Into QUIC: parity datagrams made and queued (specs/repair.md).
    pub parity_sent: u64,
    /// Bytes of these.
    pub parity_sent_bytes: u64,
    /// Out of QUIC: payloads that were lost and rebuilt from parity.
    pub repaired: u64,
    /// Datagrams sent on.
    pub sent: u64,
    /// Fragments beyond the first of each payload that was put together.
    pub joined: u64,
    /// Out of QUIC: parity datagrams, used or not.
    pub parity_received: u64,
    #[serde(serialize_with = "by_name")]
    drops: [u64; DropReason::ALL.len()],
}

/// Only what was dropped at all.
fn by_name<S: Serializer>(drops: &[u64; DropReason::ALL.len()], serializer: S) -> Result<S::Ok, S::Error> {
    dropped_by_name(drops).serialize(serializer)
}

fn dropped_by_name(drops: &[u64; DropReason::ALL.len()]) -> BTreeMap<&'static str, u64> {
    let all = DropReason::ALL.iter().zip(drops);
    all.filter(|(_, count)| **count > 0)
        .map(|(reason, count)| (reason.name(), *count))
        .collect()
}

impl Account {
    /// Counts `count` datagrams that are given up.
    pub fn drop(&mut self, reason: DropReason, count: u64) {
        self.drops[reason as usize] += count;
    }

    /// How many were given up for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// How many were given up altogether.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Whether the law holds with `waiting` datagrams in queues.
    #[must_use]
    pub fn is_balanced(&self, waiting: u64) -> bool {
        let came = self.accepted + self.split + self.parity_sent + self.repaired;
        let went = self.sent + self.joined + self.parity_received + self.dropped_total();
        came == went + waiting
    }

    /// What was given up, by the name of the reason; reasons with zero are left out.
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        dropped_by_name(&self.drops)
    }
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.split += other.split;
        self.parity_sent += other.parity_sent;
        self.parity_sent_bytes += other.parity_sent_bytes;
        self.repaired += other.repaired;
        self.sent += other.sent;
        self.joined += other.joined;
        self.parity_received += other.parity_received;
        for (sum, count) in self.drops.iter_mut().zip(other.drops) {
            *sum += count;
        }
    }
}

/// Both directions of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// From inner sockets into QUIC. Its `sent` is what QUIC counts as DATAGRAM frames sent.
    pub ingress: Account,
    /// From QUIC to inner sockets.
    pub egress: Account,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_number_and_name() {
        let mut names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::ALL.len());
    }

    #[test]
    fn an_account_balances_fragments_like_datagrams() {
        let mut account = Account {
            accepted: 3,
            split: 5,
            sent: 4,
            joined: 0,
            ..Account::default()
        };
        assert!(!account.is_balanced(1));
        account.drop(DropReason::QueueFull, 3);
        assert!(account.is_balanced(1));
        assert_eq!(account.drops(), BTreeMap::from([("queue_full", 3)]));
    }
}
