//! The addresses that a server has to give, of one version.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use masque::ip::Prefix;

/// The addresses of one version: those given back, and those that nobody ever had.
#[derive(Debug)]
pub(super) struct Pool<A> {
    networks: Vec<Prefix>,
    used: BTreeSet<A>,
    returned: BTreeSet<A>,
    /// The next address that nobody had: network and index.
    next: (usize, u64),
}

/// An address of one version.
pub(super) trait Address: Copy + Ord {
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
    pub(super) fn new(networks: &[Prefix]) -> Self {
        let networks = networks
            .iter()
            .filter(|network| A::of(network.address()).is_some())
            .copied()
            .collect();
        Self {
            networks,
            used: BTreeSet::new(),
            returned: BTreeSet::new(),
            next: (0, 0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// Whether a client may have the address.
    fn offers(&self, address: A) -> bool {
        let address = address.general();
        self.networks.iter().any(|network| {
            network.contains(address) && own_address(network) != Some(address) && is_usable(network, address)
        })
    }

    pub(super) fn take(&mut self) -> Option<A> {
        let address = match self.returned.pop_first() {
            Some(address) => address,
            None => self.never_used()?,
        };
        self.used.insert(address);
        Some(address)
    }

    fn never_used(&mut self) -> Option<A> {
        while let Some(network) = self.networks.get(self.next.0) {
            match nth(network, self.next.1) {
                Some(address) => {
                    self.next.1 += 1;
                    let address = A::of(address)?;
                    if self.offers(address) && !self.used.contains(&address) {
                        return Some(address);
                    }
                }
                None => self.next = (self.next.0 + 1, 0),
            }
        }
        None
    }

    /// Takes an address that a client had before.
    pub(super) fn take_this(&mut self, address: A) -> bool {
        if !self.offers(address) || self.used.contains(&address) {
            return false;
        }
        self.returned.remove(&address);
        self.used.insert(address);
        true
    }

    pub(super) fn give_back(&mut self, address: A) {
        if self.used.remove(&address) {
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
