//! Which client has which addresses: leases that outlive sessions.
//!
//! A lease belongs to a client's name and has one address of each version for which there is a pool. While the client
//! has a session the lease is held; afterwards it is kept for the client's return, and given to somebody else only when
//! no address is left that nobody ever had: the one that was free for longest. The first address of every pool is the
//! server's own. Time enters only as order, so that nothing here depends on clocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use masque::ip::Prefix;
use serde::{Deserialize, Serialize};

use crate::access::UserId;
use crate::limits;

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

/// The addresses of one version: those given back, and those that nobody ever had.
#[derive(Debug)]
struct Pool<A> {
    networks: Vec<Prefix>,
    used: BTreeMap<A, ClientIdentity>,
    returned: BTreeSet<A>,
    /// The next address that nobody had: network and index.
    next: (usize, u64),
}

/// An address of one version.
trait Address: Copy + Ord {
    fn of(address: IpAddr) -> Option<Self>;
    fn general(self) -> IpAddr;
}

impl Address for Ipv4Addr {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        }
    }

    fn general(self) -> IpAddr {
        IpAddr::V4(self)
    }
}

impl Address for Ipv6Addr {
    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V6(v6) => Some(v6),
            IpAddr::V4(_) => None,
        }
    }

    fn general(self) -> IpAddr {
        IpAddr::V6(self)
    }
}

impl<A: Address> Pool<A> {
    fn new(networks: &[Prefix]) -> Self {
        let networks = networks
            .iter()
            .filter(|network| A::of(network.address()).is_some())
            .copied()
            .collect();
        Self {
            networks,
            used: BTreeMap::new(),
            returned: BTreeSet::new(),
            next: (0, 0),
        }
    }

    fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether a client may have the address.
    fn offers(&self, address: A) -> bool {
        let address = address.general();
        self.networks.iter().any(|network| {
            network.contains(address) && own_address(network) != Some(address) && is_usable(network, address)
        })
    }

    fn take(&mut self, client: ClientIdentity) -> Option<A> {
        let address = match self.returned.pop_first() {
            Some(address) => address,
            None => self.never_used()?,
        };
        self.used.insert(address, client);
        Some(address)
    }

    fn never_used(&mut self) -> Option<A> {
        while let Some(network) = self.networks.get(self.next.0) {
            match nth(network, self.next.1) {
                Some(address) => {
                    self.next.1 += 1;
                    let address = A::of(address)?;
                    if self.offers(address) && !self.used.contains_key(&address) {
                        return Some(address);
                    }
                }
                None => self.next = (self.next.0 + 1, 0),
            }
        }
        None
    }

    /// Takes an address that a client had before.
    fn take_this(&mut self, address: A, client: ClientIdentity) -> bool {
        if !self.offers(address) || self.used.contains_key(&address) {
            return false;
        }
        self.returned.remove(&address);
        self.used.insert(address, client);
        true
    }

    fn give_back(&mut self, address: A) {
        if self.used.remove(&address).is_some() {
            self.returned.insert(address);
        }
    }
}

/// The server's own address in a pool: the first that a host may have.
#[must_use]
pub fn own_address(pool: &Prefix) -> Option<IpAddr> {
    (0..2).find_map(|index| nth(pool, index).filter(|address| is_usable(pool, *address)))
}

/// The address at `index` from the first one; `None` beyond the last.
fn nth(network: &Prefix, index: u64) -> Option<IpAddr> {
    let address = match network.address() {
        IpAddr::V4(v4) => IpAddr::V4(v4.to_bits().checked_add(u32::try_from(index).ok()?)?.into()),
        IpAddr::V6(v6) => IpAddr::V6(v6.to_bits().checked_add(u128::from(index))?.into()),
    };
    network.contains(address).then_some(address)
}

/// The network's name and its broadcast address are no host's (RFC 919, RFC 4291 section 2.6.1), except in the smallest
/// networks (RFC 3021, RFC 6164).
fn is_usable(network: &Prefix, address: IpAddr) -> bool {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if network.length() + 1 >= bits {
        return true;
    }
    address != network.address() && (address.is_ipv6() || address != network.last())
}

/// One lease as the server's state keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// The user's name in hexadecimal digits; none for the owner.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<String>,
    /// The client's name in hexadecimal digits.
    pub client: String,
    /// Its IPv4 address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub v6: Option<Ipv6Addr>,
}

/// Sixteen bytes in hexadecimal digits.
fn sixteen_bytes(text: &str) -> Option<[u8; 16]> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
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

    /// Takes up what [`Leases::stored`] gave, longest free first; what the pools do not offer any more is forgotten.
    pub fn restore(&mut self, stored: impl IntoIterator<Item = StoredLease>) {
        for one in stored.into_iter().take(limits::LEASES_MAX) {
            let user = one
                .user
                .as_deref()
                .map_or(Some(UserId::OWNER.0), sixteen_bytes)
                .map(UserId);
            let client = user
                .zip(sixteen_bytes(&one.client))
                .map(|(user, name)| ClientIdentity::Named(user, name));
            let Some(client) = client.filter(|client| !self.entries.contains_key(client)) else {
                continue;
            };
            let lease = Lease {
                v4: one.v4.filter(|address| self.v4.take_this(*address, client)),
                v6: one.v6.filter(|address| self.v6.take_this(*address, client)),
            };
            if lease == Lease::default() {
                continue;
            }
            self.order += 1;
            self.free.insert((self.order, client));
            let entry = Entry {
                lease,
                holders: 0,
                freed: self.order,
            };
            self.insert(client, entry);
        }
    }

    /// What should outlive the process, longest free first, those that are held last.
    #[must_use]
    pub fn stored(&self) -> Vec<StoredLease> {
        let mut named: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(client, entry)| match client {
                ClientIdentity::Named(user, name) => {
                    Some((entry.holders > 0, entry.freed, (*user, *name), entry.lease))
                }
                ClientIdentity::Nameless(..) => None,
            })
            .collect();
        named.sort_unstable_by_key(|(is_held, freed, client, _)| (*is_held, *freed, *client));
        named
            .into_iter()
            .map(|(_, _, (user, name), lease)| StoredLease {
                user: (user != UserId::OWNER).then(|| data_encoding::HEXLOWER.encode(&user.0)),
                client: data_encoding::HEXLOWER.encode(&name),
                v4: lease.v4,
                v6: lease.v6,
            })
            .collect()
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
                v4: lease.v4.or_else(|| self.v4.take(client)),
                v6: lease.v6.or_else(|| self.v6.take(client)),
            };
            if let Some(entry) = self.entries.get_mut(&client).filter(|_| completed != lease) {
                entry.lease = completed;
                self.changed = true;
            }
            return Ok(completed);
        }
        let lease = loop {
            let lease = Lease {
                v4: self.v4.take(client),
                v6: self.v6.take(client),
            };
            let is_whole = (self.v4.is_empty() || lease.v4.is_some())
                && (self.v6.is_empty() || lease.v6.is_some())
                && lease != Lease::default()
                && self.entries.len() < limits::LEASES_MAX;
            if is_whole {
                break lease;
            }
            self.return_addresses(lease);
            self.forget_longest_free()?;
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

    fn forget_longest_free(&mut self) -> Result<(), NoLease> {
        let (_, client) = self.free.pop_first().ok_or(NoLease::Exhausted)?;
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

    /// Leases that sessions hold, and all.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.entries.len() - self.free.len(), self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> ClientIdentity {
        ClientIdentity::Named(UserId::OWNER, [number; 16])
    }

    fn leases(pools: &[&str]) -> Leases {
        let pools: Vec<Prefix> = pools.iter().map(|pool| pool.parse().unwrap()).collect();
        Leases::new(&pools)
    }

    #[test]
    fn the_first_address_is_the_servers_and_a_client_gets_the_same_one_again() {
        let mut leases = leases(&["10.9.0.0/24", "fd09::/64"]);
        assert_eq!(
            own_address(&"10.9.0.0/24".parse().unwrap()),
            Some("10.9.0.1".parse().unwrap())
        );
        assert_eq!(
            own_address(&"fd09::/64".parse().unwrap()),
            Some("fd09::1".parse().unwrap())
        );
        let first = leases.acquire(client(1)).unwrap();
        assert_eq!(
            (first.v4, first.v6),
            (
                Some("10.9.0.2".parse().unwrap()),
                Some("fd09::2".parse().unwrap())
            )
        );
        let second = leases.acquire(client(2)).unwrap();
        assert_ne!(first, second);
        leases.release(client(1));
        assert_eq!(
            leases.acquire(client(3)).unwrap().v4,
            Some("10.9.0.4".parse().unwrap())
        );
        assert_eq!(leases.acquire(client(1)), Ok(first));
    }

    /// SESSION-4.
    #[test]
    fn a_full_pool_gives_the_address_that_was_free_for_longest_and_none_that_is_held() {
        // Five for clients: .2 to .6.
        let mut leases = leases(&["10.9.0.0/29"]);
        for number in 1..=5 {
            leases.acquire(client(number)).unwrap();
        }
        assert_eq!(leases.acquire(client(9)), Err(NoLease::Exhausted));
        leases.release(client(3));
        leases.release(client(2));
        let third = leases.entries[&client(3)].lease;
        assert_eq!(leases.acquire(client(9)), Ok(third));
        assert!(!leases.entries.contains_key(&client(3)));
        assert_eq!(leases.counts(), (4, 5));
        leases.acquire(client(3)).unwrap();
        assert_eq!(leases.acquire(client(2)), Err(NoLease::Exhausted));
    }

    /// SESSION-9.
    #[test]
    fn stripes_of_one_client_share_its_lease_until_the_last_one_ends() {
        let mut leases = leases(&["10.9.0.0/30"]);
        let lease = leases.acquire(client(1)).unwrap();
        assert_eq!(leases.acquire(client(1)), Ok(lease));
        leases.release(client(1));
        assert_eq!(leases.acquire(client(2)), Err(NoLease::Exhausted));
        leases.release(client(1));
        assert_eq!(leases.acquire(client(2)), Ok(lease));
    }

    /// SESSION-5.
    #[test]
    fn a_client_without_a_name_leaves_nothing_behind() {
        let mut leases = leases(&["10.9.0.0/30"]);
        for number in 0..10 {
            let nameless = ClientIdentity::Nameless(UserId::OWNER, number);
            assert_eq!(
                leases.acquire(nameless).unwrap().v4,
                Some("10.9.0.2".parse().unwrap())
            );
            leases.release(nameless);
        }
        assert!(leases.stored().is_empty());
    }

    /// SESSION-4.
    #[test]
    fn leases_come_back_after_a_restart_in_the_order_in_which_they_were_freed() {
        let mut before = leases(&["10.9.0.0/29", "fd09::/64"]);
        let first: Vec<Lease> = (1..=5)
            .map(|number| before.acquire(client(number)).unwrap())
            .collect();
        for number in [4, 2] {
            before.release(client(number));
        }
        assert!(before.take_changed());
        let mut after = leases(&["10.9.0.0/29", "fd09::/64"]);
        after.restore(before.stored());
        assert_eq!(after.counts(), (0, 5));
        assert_eq!(
            after.acquire(client(6)).unwrap().v4,
            first[3].v4,
            "the longest free one"
        );
        assert_eq!(after.acquire(client(1)), Ok(first[0]));
        assert!(!before.take_changed());
        // Another pool: what it does not offer is forgotten.
        let mut moved = leases(&["10.10.0.0/29"]);
        moved.restore(before.stored());
        assert_eq!(moved.counts(), (0, 0));
    }

    fn guest(number: u8) -> ClientIdentity {
        ClientIdentity::Named(UserId([7; 16]), [number; 16])
    }

    #[test]
    fn clients_of_two_users_with_one_name_are_two() {
        let mut before = leases(&["10.9.0.0/29", "fd09::/64"]);
        let (owners, guests) = (
            before.acquire(client(1)).unwrap(),
            before.acquire(guest(1)).unwrap(),
        );
        assert_ne!(owners, guests);
        // Both come back to their own after a restart, and the owner's leases are stored as ever.
        let stored = before.stored();
        let users: Vec<_> = stored.iter().map(|lease| lease.user.as_deref()).collect();
        assert_eq!(users, [None, Some(&"07".repeat(16)[..])]);
        let mut after = leases(&["10.9.0.0/29", "fd09::/64"]);
        after.restore(stored);
        assert_eq!(after.acquire(guest(1)), Ok(guests));
        assert_eq!(after.acquire(client(1)), Ok(owners));
    }

    #[test]
    fn a_user_keeps_no_more_leases_than_it_may_and_takes_none_of_others() {
        let mut leases = leases(&["10.9.0.0/24"]);
        let owners = leases.acquire(client(1)).unwrap();
        leases.release(client(1));
        for number in [1, 2] {
            leases.acquire_within(guest(number), 2).unwrap();
        }
        assert_eq!(leases.acquire_within(guest(3), 2), Err(NoLease::UserLimit));
        assert!(NoLease::UserLimit.to_string().contains("user"));
        // One that is there is not new.
        assert!(leases.acquire_within(guest(2), 2).is_ok());
        leases.release(guest(1));
        assert!(leases.acquire_within(guest(3), 2).is_ok());
        assert_eq!(leases.of_user(UserId([7; 16])), 2);
        assert!(!leases.entries.contains_key(&guest(1)));
        assert_eq!(leases.acquire(client(1)), Ok(owners));
        assert_eq!(leases.acquire_within(guest(9), 0), Err(NoLease::UserLimit));
    }

    #[test]
    fn churn_never_gives_one_address_to_two_clients() {
        let mut leases = leases(&["10.9.0.0/27", "10.9.1.0/28"]);
        let mut held: BTreeMap<u8, Lease> = BTreeMap::new();
        let mut state = 7_u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 24) as u8 % 100;
            if held.remove(&number).is_some() {
                leases.release(client(number));
            } else if let Ok(lease) = leases.acquire(client(number)) {
                assert!(held.values().all(|other| other.v4 != lease.v4));
                held.insert(number, lease);
            } else {
                assert_eq!(held.len(), 29 + 13, "only a full pool refuses");
            }
        }
    }
}
