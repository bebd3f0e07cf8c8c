//! A user of a server: a name, and an account of what it has, had, and was refused, which all shards share.
//!
//! The numbers are atomics that change when connections and sessions come and go, and every second; a packet touches
//! nothing here but the rate, and one that is relayed between peers its counter.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;

use super::rate::{Rate, Way};
use crate::limits;

/// Names a user, over restarts; leases are kept under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub [u8; 16]);

impl UserId {
    /// The owner of a server that has no other users.
    pub const OWNER: Self = Self([0; 16]);
}

/// `owner`, or hexadecimal digits.
impl fmt::Display for UserId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::OWNER {
            return formatter.write_str("owner");
        }
        formatter.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl Serialize for UserId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How much one user may have, in all shards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// QUIC connections at once.
    pub connections: u64,
    /// UDP sessions, TCP connections and IP sessions at once.
    pub sessions: u64,
    /// Leases that are kept; a new client of the user then gets the address of the one that is gone for longest.
    pub leases: usize,
    /// Bytes of QUIC packets in both directions, since the [`User`] was made. Looked at every second.
    pub bytes: u64,
}

/// The limits of a user for whom nothing less was said.
impl Default for UserLimits {
    fn default() -> Self {
        Self {
            connections: limits::USER_CONNECTIONS_MAX,
            sessions: limits::USER_SESSIONS_MAX,
            leases: limits::LEASES_MAX,
            bytes: limits::USER_BYTES_MAX,
        }
    }
}

/// Which limit of a user was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserLimit {
    /// [`UserLimits::connections`].
    Connections,
    /// [`UserLimits::sessions`].
    Sessions,
    /// [`UserLimits::leases`].
    Leases,
    /// [`UserLimits::bytes`].
    Bytes,
}

impl UserLimit {
    const ALL: [Self; 4] = [Self::Connections, Self::Sessions, Self::Leases, Self::Bytes];

    /// Its name in `status`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Sessions => "sessions",
            Self::Leases => "leases",
            Self::Bytes => "bytes",
        }
    }
}

/// Why a user may do nothing, although its credential is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// There is no such user any more.
    Removed,
    /// Its owner has said so.
    Disabled,
    /// Its time is over.
    Expired,
    /// It has used what it may use at present.
    QuotaReached,
    /// It has another token, and this is of one who came with the former.
    TokenReplaced,
    /// It may use or reach other things than it was granted; its client comes back for these.
    TermsChanged,
}

impl Exclusion {
    const ALL: [Self; 6] = [
        Self::Removed,
        Self::Disabled,
        Self::Expired,
        Self::QuotaReached,
        Self::TokenReplaced,
        Self::TermsChanged,
    ];

    /// What the user's client shows.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Removed => "this user was removed",
            Self::Disabled => "this user is disabled",
            Self::Expired => "this user has expired",
            Self::QuotaReached => "this user's quota is used up",
            Self::TokenReplaced => "this user has a new link",
            Self::TermsChanged => "what this user may do has changed",
        }
    }
}

/// A user and its account; a clone is the same account.
#[derive(Clone, Debug)]
pub struct User {
    id: UserId,
    account: Arc<Account>,
}

#[derive(Debug, Default)]
pub(super) struct Account {
    connections: Places,
    sessions: Places,
    bytes: AtomicU64,
    relayed_bytes: AtomicU64,
    rate: Rate,
    /// The server's line counts it.
    is_on_line: AtomicBool,
    /// Place in [`Exclusion::ALL`] and one; 0: none.
    exclusion: AtomicU8,
    refused: [AtomicU64; UserLimit::ALL.len()],
}

/// What is taken and given back.
#[derive(Debug, Default)]
struct Places {
    open: AtomicU64,
    total: AtomicU64,
}

impl Places {
    fn take(&self, places_max: u64) -> bool {
        let taken = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < places_max).then_some(open + 1)
            });
        if taken.is_ok() {
            self.total.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    fn give_back(&self) {
        let before = self.open.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a place is given back once");
    }

    fn counts(&self) -> (u64, u64) {
        (
            self.open.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        )
    }
}

impl Account {
    pub(super) fn rate(&self) -> &Rate {
        &self.rate
    }

    /// Says whether the server's line counts it, and tells whether it did. The line's lock is held.
    pub(super) fn set_on_line(&self, is_on_line: bool) -> bool {
        self.is_on_line.swap(is_on_line, Ordering::Relaxed)
    }

    /// Whether it has a connection, on any shard.
    pub(super) fn is_here(&self) -> bool {
        self.connections.counts().0 > 0
    }
}

impl User {
    /// A user who has had nothing yet.
    #[must_use]
    pub fn new(id: UserId) -> Self {
        Self {
            id,
            account: Arc::default(),
        }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Who it is.
    #[must_use]
    pub fn id(&self) -> UserId {
        self.id
    }

    /// Says that it may do nothing from here on, and why, or that it may again. All shards end its connections with the
    /// reason within a second or two, and take no new ones.
    pub fn exclude(&self, exclusion: Option<Exclusion>) {
        let number = exclusion.map_or(0, |exclusion| exclusion as u8 + 1);
        self.account.exclusion.store(number, Ordering::Relaxed);
    }

    /// Why it may do nothing.
    #[must_use]
    pub fn exclusion(&self) -> Option<Exclusion> {
        let number = usize::from(self.account.exclusion.load(Ordering::Relaxed));
        number.checked_sub(1).map(|place| Exclusion::ALL[place])
    }

    /// How fast it may be from here on, in bits per second of payload in each direction; `None`: as fast as it can.
    pub fn set_rate(&self, bits_per_second: Option<u64>) {
        self.account.rate.set(bits_per_second);
    }

    /// When it may have more by its rate; `None`: at once.
    pub(crate) fn free_at(&self, way: Way, now: Instant) -> Option<Instant> {
        self.account.rate.free_at(way, now)
    }

    /// So many bytes of payload go.
    pub(crate) fn charge(&self, way: Way, now: Instant, bytes: usize) {
        self.account.rate.charge(way, now, bytes);
    }

    /// Bytes of QUIC packets in both directions since this account was made, as of the last second.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.account.bytes.load(Ordering::Relaxed)
    }

    /// Takes a place for a connection; false, and counted, where the limit is reached.
    pub(crate) fn take_connection(&self, limits: &UserLimits) -> bool {
        let is_taken = self.account.connections.take(limits.connections);
        self.count_unless(is_taken, UserLimit::Connections)
    }

    /// Whether it has a connection, on any shard.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.account.is_here()
    }

    pub(crate) fn give_connection_back(&self) {
        self.account.connections.give_back();
    }

    /// Takes a place for a session; false, and counted, where the limit is reached.
    pub(crate) fn take_session(&self, limits: &UserLimits) -> bool {
        let is_taken = self.account.sessions.take(limits.sessions);
        self.count_unless(is_taken, UserLimit::Sessions)
    }

    pub(crate) fn give_session_back(&self) {
        self.account.sessions.give_back();
    }

    /// Counts what it moved.
    pub fn add_bytes(&self, bytes: u64) {
        self.account.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts payload that was relayed to another peer for it.
    pub(crate) fn add_relayed_bytes(&self, bytes: u64) {
        self.account.relayed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether there are bytes left; where not, this is counted.
    pub(crate) fn has_bytes_left(&self, limits: &UserLimits) -> bool {
        let has_some = self.account.bytes.load(Ordering::Relaxed) < limits.bytes;
        self.count_unless(has_some, UserLimit::Bytes)
    }

    pub(crate) fn count_refused(&self, limit: UserLimit) {
        self.account.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn count_unless(&self, is_granted: bool, limit: UserLimit) -> bool {
        if !is_granted {
            self.count_refused(limit);
        }
        is_granted
    }

    /// The account at this moment.
    #[must_use]
    pub fn snapshot(&self) -> UserSnapshot {
        let (connections, connections_total) = self.account.connections.counts();
        let (sessions, sessions_total) = self.account.sessions.counts();
        let refused = UserLimit::ALL.map(|limit| {
            let count = self.account.refused[limit as usize].load(Ordering::Relaxed);
            (limit.name().to_owned(), count)
        });
        UserSnapshot {
            connections,
            connections_total,
            sessions,
            sessions_total,
            leases: 0,
            bytes: self.bytes(),
            relayed_bytes: self.account.relayed_bytes.load(Ordering::Relaxed),
            refused: refused.into_iter().filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// One user, as `gramway status` shows it: the numbers of all shards together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserSnapshot {
    /// QUIC connections open at present.
    pub connections: u64,
    /// QUIC connections since the start.
    pub connections_total: u64,
    /// UDP sessions, TCP connections and IP sessions open at present.
    pub sessions: u64,
    /// UDP sessions, TCP connections and IP sessions since the start.
    pub sessions_total: u64,
    /// Leases that are kept, of clients that are there and of those that were.
    pub leases: u64,
    /// Bytes of QUIC packets in both directions, as of the last second.
    pub bytes: u64,
    /// Bytes of sealed packets that the server relayed from its peers to others (`specs/rendezvous.md`).
    pub relayed_bytes: u64,
    /// How often each limit refused something.
    pub refused: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_for_all_clones_together_and_refusals_are_counted() {
        let (user, limits) = (
            User::new(UserId([7; 16])),
            UserLimits {
                connections: 2,
                sessions: 1,
                bytes: 100,
                ..UserLimits::default()
            },
        );
        let other_shard = user.clone();
        assert!(user.take_connection(&limits) && other_shard.take_connection(&limits));
        assert!(!user.take_connection(&limits));
        other_shard.give_connection_back();
        assert!(user.take_connection(&limits));
        assert!(user.take_session(&limits) && !other_shard.take_session(&limits));
        assert!(user.has_bytes_left(&limits));
        other_shard.add_bytes(100);
        assert!(!user.has_bytes_left(&limits));
        let snapshot = user.snapshot();
        assert_eq!((snapshot.connections, snapshot.connections_total), (2, 3));
        assert_eq!((snapshot.sessions, snapshot.sessions_total), (1, 1));
        assert_eq!(snapshot.bytes, 100);
        let refused: Vec<_> = snapshot
            .refused
            .iter()
            .map(|(name, count)| (&name[..], *count))
            .collect();
        assert_eq!(refused, [("bytes", 1), ("connections", 1), ("sessions", 1)]);
    }

    #[test]
    fn who_is_excluded_is_so_for_all_clones_until_it_is_taken_back() {
        let user = User::new(UserId([7; 16]));
        let other_shard = user.clone();
        assert_eq!(user.exclusion(), None);
        for exclusion in Exclusion::ALL {
            user.exclude(Some(exclusion));
            assert_eq!(other_shard.exclusion(), Some(exclusion));
        }
        user.exclude(None);
        assert_eq!(other_shard.exclusion(), None);
    }

    #[test]
    fn a_users_name_is_text() {
        assert_eq!(UserId::OWNER.to_string(), "owner");
        assert_eq!(UserId([0xab; 16]).to_string(), "ab".repeat(16));
    }
}
