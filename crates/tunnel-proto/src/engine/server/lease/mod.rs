//! Which client has which addresses: leases that outlive sessions.
//!
//! A lease belongs to a client's name and has one address of each version for which there is a pool. While the client
//! has a session the lease is held; afterwards it is kept for the client's return, and given to somebody else only when
//! no address is left that nobody ever had: of the user who has most, the one that was free for longest. The first
//! address of every pool is the server's own. Time enters only as order, so that nothing here depends on clocks.

mod pool;
mod runs;
mod stored;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use masque::ip::Prefix;
use serde::Serialize;

use crate::access::UserId;
use crate::limits;
use pool::Pool;
pub use pool::own_address;
pub use runs::{Judged, Runs};
pub use stored::StoredLease;

/// Names a client over sessions: whose it is, and what it said of itself, or a number for a client that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientIdentity {
    /// The client's own name; two users' clients of the same name are two.
    Named(UserId, [u8; 16]),
    /// A client without a name; its lease ends with its session.
    Nameless(UserId, u64),
}

impl ClientIdentity {
    /// Whose client it is.
    #[must_use]
    pub fn user(self) -> UserId {
        match self {
            Self::Named(user, _) | Self::Nameless(user, _) => user,
        }
    }
}

/// The beginning of its name in hexadecimal digits, by which people tell clients apart.
impl fmt::Display for ClientIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(_, name) => formatter.write_str(&data_encoding::HEXLOWER.encode(&name[..4])),
            Self::Nameless(_, number) => write!(formatter, "without name {number}"),
        }
    }
}

/// One lease, for `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseSnapshot {
    /// The client's name, shortened.
    pub client: String,
    /// Whose client it is.
    pub user: UserId,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Sessions that hold it; none where the client is gone.
    pub sessions: u32,
}

/// The addresses of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Where there is an IPv4 pool.
    pub v4: Option<Ipv4Addr>,
    /// Where there is an IPv6 pool.
    pub v6: Option<Ipv6Addr>,
}

impl Lease {
    /// Both addresses, where there are such.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }
}

/// Why a client gets no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLease {
    /// Every address is held by a client that is there.
    #[error("every address of the pool is in use; give the server a larger --pool")]
    Exhausted,
    /// Clients that are there hold as many leases as their user may have.
    #[error("the user has as many leases as it may have; end a client, or raise the user's limit")]
    UserLimit,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    lease: Lease,
    /// Sessions that hold it.
    holders: u32,
    /// When it became free, as a number that grows.
    freed: u64,
}

/// All leases of a server.
#[derive(Debug)]
pub struct Leases {
    v4: Pool<Ipv4Addr>,
    v6: Pool<Ipv6Addr>,
    entries: HashMap<ClientIdentity, Entry>,
    /// How many of them each user has.
    by_user: HashMap<UserId, usize>,
    /// Leases that nobody holds, longest free first.
    free: BTreeSet<(u64, ClientIdentity)>,
    order: u64,
    changed: bool,
}

impl Leases {
    /// No leases yet, of these pools.
    #[must_use]
    pub fn new(pools: &[Prefix]) -> Self {
        Self {
            v4: Pool::new(pools),
            v6: Pool::new(pools),
            entries: HashMap::new(),
            by_user: HashMap::new(),
            free: BTreeSet::new(),
            order: 0,
            changed: false,
        }
    }

    /// Whether [`Leases::stored`] would give something else than when [`Self::take_changed`] was last asked.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// The same, and from here on it has not.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// A session of `client` begins: its lease, the one it had before where it still has it. Every acquired lease is
    /// released once.
    ///
    /// # Errors
    /// [`NoLease::Exhausted`].
    pub fn acquire(&mut self, client: ClientIdentity) -> Result<Lease, NoLease> {
        if let Some(entry) = self.entries.get_mut(&client) {
            if entry.holders == 0 {
                self.free.remove(&(entry.freed, client));
            }
            entry.holders += 1;
            // A pool that was added since.
            let lease = entry.lease;
            let completed = Lease {
                v4: lease.v4.or_else(|| self.v4.take()),
                v6: lease.v6.or_else(|| self.v6.take()),
            };
            if let Some(entry) = self.entries.get_mut(&client).filter(|_| completed != lease) {
                entry.lease = completed;
                self.changed = true;
            }
            return Ok(completed);
        }
        let lease = loop {
            let lease = Lease {
                v4: self.v4.take(),
                v6: self.v6.take(),
            };
            let is_whole = (self.v4.is_empty() || lease.v4.is_some())
                && (self.v6.is_empty() || lease.v6.is_some())
                && lease != Lease::default()
                && self.entries.len() < limits::LEASES_MAX;
            if is_whole {
                break lease;
            }
            self.return_addresses(lease);
            self.make_room_for(client.user())?;
        };
        let entry = Entry {
            lease,
            holders: 1,
            freed: 0,
        };
        self.insert(client, entry);
        self.changed = true;
        Ok(lease)
    }

    /// The same for a user who may keep `user_max` leases. A new client beyond them gets the place of that user's client
    /// which is gone for longest.
    ///
    /// # Errors
    /// [`NoLease`]; [`NoLease::UserLimit`] where all clients of the user's leases are there.
    pub fn acquire_within(&mut self, client: ClientIdentity, user_max: usize) -> Result<Lease, NoLease> {
        let user = client.user();
        if user_max < limits::LEASES_MAX && !self.entries.contains_key(&client) {
            let beyond = (self.of_user(user) + 1).saturating_sub(user_max);
            for _ in 0..beyond {
                let mut free = self.free.iter().copied();
                let (freed, gone) = free
                    .find(|(_, other)| other.user() == user)
                    .ok_or(NoLease::UserLimit)?;
                self.free.remove(&(freed, gone));
                self.forget(gone)?;
            }
        }
        self.acquire(client)
    }

    /// Leases that clients of `user` have, or had and may come back to.
    #[must_use]
    pub fn of_user(&self, user: UserId) -> usize {
        self.by_user.get(&user).copied().unwrap_or_default()
    }

    /// A session of `client` is over.
    pub fn release(&mut self, client: ClientIdentity) {
        let Some(entry) = self.entries.get_mut(&client) else {
            return;
        };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders > 0 {
            return;
        }
        if matches!(client, ClientIdentity::Nameless(..)) {
            if let Some(entry) = self.remove(client) {
                self.return_addresses(entry.lease);
            }
            return;
        }
        self.order += 1;
        entry.freed = self.order;
        self.free.insert((self.order, client));
        self.changed = true;
    }

    fn insert(&mut self, client: ClientIdentity, entry: Entry) {
        if self.entries.insert(client, entry).is_none() {
            *self.by_user.entry(client.user()).or_default() += 1;
        }
    }

    fn remove(&mut self, client: ClientIdentity) -> Option<Entry> {
        let entry = self.entries.remove(&client)?;
        if let Some(count) = self.by_user.get_mut(&client.user()) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&client.user());
            }
        }
        Some(entry)
    }

    /// Forgets a lease that nobody holds, for a new client of `user`: of the user who has most of them, the one that was
    /// free for longest. Who has its part gets none of a user who has no more.
    fn make_room_for(&mut self, user: UserId) -> Result<(), NoLease> {
        let own = self.of_user(user);
        let has_its_part = own * limits::LEASES_USER_PART >= self.entries.len();
        let may_give = |other: UserId| other == user || !has_its_part || self.of_user(other) > own;
        let free = self.free.iter().filter(|(_, client)| may_give(client.user()));
        let given = free.max_by_key(|(freed, client)| (self.of_user(client.user()), Reverse(*freed)));
        let (freed, client) = *given.ok_or(NoLease::Exhausted)?;
        self.free.remove(&(freed, client));
        self.forget(client)
    }

    fn forget(&mut self, client: ClientIdentity) -> Result<(), NoLease> {
        let entry = self.remove(client).ok_or(NoLease::Exhausted)?;
        self.return_addresses(entry.lease);
        self.changed = true;
        Ok(())
    }

    fn return_addresses(&mut self, lease: Lease) {
        if let Some(address) = lease.v4 {
            self.v4.give_back(address);
        }
        if let Some(address) = lease.v6 {
            self.v6.give_back(address);
        }
    }

    /// Whether a session of `client` is there.
    #[must_use]
    pub fn is_held(&self, client: ClientIdentity) -> bool {
        self.entries.get(&client).is_some_and(|entry| entry.holders > 0)
    }

    /// At most so many leases, the held ones first, each group by address.
    #[must_use]
    pub fn list(&self, count_max: usize) -> Vec<LeaseSnapshot> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_unstable_by_key(|(_, entry)| (entry.holders == 0, entry.lease.v4, entry.lease.v6));
        all.truncate(count_max);
        let snapshot = |(client, entry): (&ClientIdentity, &Entry)| LeaseSnapshot {
            client: client.to_string(),
            user: client.user(),
            addresses: entry.lease.addresses().collect(),
            sessions: entry.holders,
        };
        all.into_iter().map(snapshot).collect()
    }

    /// Leases that sessions hold, and all.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.entries.len() - self.free.len(), self.entries.len())
    }
}

#[cfg(test)]
mod tests;
