//! Where the cover is: its name is resolved in the background and again from time to time, and what is known stays
//! known while it cannot be resolved.
//!
//! One shard asks the resolver and publishes; the others and the thread for TCP look at a version number, and take the
//! lock only where it has changed. An address stays the one in use as long as the name has it and the cover answers
//! there: strangers are to meet the same machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::driver::resolver::{Purpose, Unresolved};
use crate::driver::server::own_addresses::OWN_PURPOSES;
use crate::limits;

/// The question for the cover's name; those of requests have smaller numbers.
pub(in crate::driver::server) const COVER_PURPOSE: Purpose = OWN_PURPOSES - 1;

/// The cover's addresses, for all threads of the process.
#[derive(Debug)]
pub(in crate::driver::server) struct CoverAddress {
    /// Name or address.
    host: String,
    port: u16,
    /// Of the server itself: it is not its own cover.
    listen: SocketAddr,
    /// Changes with `known`.
    version: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The one in use first.
    addresses: Vec<SocketAddr>,
    /// Where the cover answered last.
    met: Option<SocketAddr>,
    /// Why the last resolution found none.
    trouble: Option<&'static str>,
}

/// One reader's copy of the address in use.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::driver::server) struct AddressInUse {
    version: u64,
    address: Option<SocketAddr>,
}

/// When the name is resolved again; of the one shard that does it.
#[derive(Debug)]
pub(in crate::driver::server) struct Refreshing {
    due: Option<Instant>,
    retry: Duration,
}

impl Known {
    /// The cover is where it answered, as long as that is one of its addresses.
    fn settle(&mut self) {
        let used = |address: &SocketAddr| Some(*address) == self.met;
        if let Some(place) = self.addresses.iter().position(used) {
            self.addresses.swap(0, place);
        }
    }
}

impl CoverAddress {
    /// Of a cover that has just answered at `met`, or nowhere.
    pub(super) fn new(host: &str, port: u16, listen: SocketAddr, met: Option<SocketAddr>) -> Self {
        let cover = Self {
            host: host.to_owned(),
            port,
            listen,
            version: AtomicU64::new(0),
            known: Mutex::new(Known {
                met,
                ..Known::default()
            }),
        };
        if let Some(address) = cover.literal() {
            cover.publish(Ok(&[address]));
        }
        cover
    }

    /// Where the host is an address, nothing is to be resolved.
    fn literal(&self) -> Option<SocketAddr> {
        let address: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(address, self.port))
    }

    /// The cover answers at this address: it is used from here on.
    pub(super) fn meet(&self, address: SocketAddr) {
        let mut known = self.known();
        known.met = Some(address);
        known.settle();
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(in crate::driver::server) fn host(&self) -> &str {
        &self.host
    }

    pub(in crate::driver::server) fn port(&self) -> u16 {
        self.port
    }

    /// Enters what a resolution found.
    fn publish(&self, found: Result<&[SocketAddr], &'static str>) {
        let mut known = self.known();
        let found = found.and_then(|addresses| {
            let foreign: Vec<_> = addresses
                .iter()
                .filter(|address| !self.is_own(**address))
                .copied()
                .collect();
            if foreign.is_empty() {
                return Err("its name leads to this server itself");
            }
            Ok(foreign)
        });
        match found {
            Ok(addresses) => {
                let used = known.addresses.first().copied().or(known.met);
                *known = Known {
                    addresses,
                    met: used,
                    trouble: None,
                };
                known.settle();
            }
            Err(trouble) => known.trouble = Some(trouble),
        }
        // A reader that sees the new number finds the addresses of it or later ones.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Whether datagrams to this address come back to this server.
    fn is_own(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let listens_there = self.listen.ip().to_canonical() == ip
            || (self.listen.ip().is_unspecified() && is_of_this_machine(ip));
        address.port() == self.listen.port() && listens_there
    }

    /// All addresses, the one in use first.
    pub(super) fn all(&self) -> Vec<SocketAddr> {
        self.known().addresses.clone()
    }

    /// What is wrong, for people.
    pub(super) fn trouble(&self) -> Option<&'static str> {
        self.known().trouble
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each use leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the kernel would deliver there itself; nothing is sent.
fn is_of_this_machine(ip: IpAddr) -> bool {
    let unspecified: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        socket.connect((ip, limits::ANY_PORT))?;
        socket.local_addr()
    });
    ip.is_loopback() || source.is_ok_and(|source| source.ip() == ip)
}

impl AddressInUse {
    /// The address in use; no lock is taken unless it may have changed.
    pub(in crate::driver::server) fn get(&mut self, cover: &CoverAddress) -> Option<SocketAddr> {
        let version = cover.version.load(Ordering::Acquire);
        if self.version != version {
            *self = Self {
                version,
                address: cover.known().addresses.first().copied(),
            };
        }
        self.address
    }
}

impl Refreshing {
    pub(super) fn new(cover: &CoverAddress, now: Instant) -> Self {
        Self {
            due: cover.literal().is_none().then_some(now),
            retry: limits::COVER_RESOLUTION_RETRY,
        }
    }

    /// Whether the name is to be resolved now; [`Refreshing::resolved`] follows.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Enters an answer. What to tell people: that there is trouble, once until it is over.
    pub(super) fn resolved(
        &mut self,
        now: Instant,
        cover: &CoverAddress,
        found: Result<Vec<SocketAddr>, Unresolved>,
    ) -> Option<String> {
        let before = cover.trouble();
        cover.publish(match &found {
            Ok(addresses) => Ok(addresses),
            Err(Unresolved::Absent) => Err("its name has no address"),
            Err(Unresolved::Late | Unresolved::Unasked) => Err("no name server says where it is"),
        });
        let after = cover.trouble();
        let wait = match after {
            None => {
                self.retry = limits::COVER_RESOLUTION_RETRY;
                limits::COVER_RESOLUTION_INTERVAL
            }
            Some(_) => {
                let wait = self.retry;
                self.retry = (wait * 2).min(limits::COVER_RESOLUTION_INTERVAL);
                wait
            }
        };
        self.due = Some(now + wait);
        let text = after.filter(|_| before.is_none())?;
        let without = if cover.all().is_empty() {
            "; strangers get no answer until it is found"
        } else {
            "; it is sought where it was"
        };
        Some(format!(
            "the cover {} cannot be found: {text}{without}",
            cover.host
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn cover(host: &str) -> CoverAddress {
        CoverAddress::new(host, 443, "192.0.2.1:443".parse().unwrap(), None)
    }

    #[test]
    fn an_address_is_known_at_once_and_never_resolved() {
        let now = Instant::now();
        let cover = cover("2001:db8::7");
        let mut used = AddressInUse::default();
        assert_eq!(used.get(&cover), "[2001:db8::7]:443".parse().ok());
        assert!(!Refreshing::new(&cover, now).poll(now + limits::COVER_RESOLUTION_INTERVAL));
    }

    #[test]
    fn a_name_is_resolved_again_and_the_address_in_use_stays_while_the_name_has_it() {
        let now = Instant::now();
        let cover = cover("www.example.org");
        let (mut used, mut refreshing) = (AddressInUse::default(), Refreshing::new(&cover, now));
        assert_eq!(used.get(&cover), None);
        assert!(refreshing.poll(now) && !refreshing.poll(now));
        let two = addresses(&["203.0.113.1:443", "203.0.113.2:443"]);
        assert_eq!(refreshing.resolved(now, &cover, Ok(two.clone())), None);
        assert_eq!(used.get(&cover), Some(two[0]));
        let later = now + limits::COVER_RESOLUTION_INTERVAL;
        assert!(!refreshing.poll(later - Duration::from_millis(1)) && refreshing.poll(later));
        let turned = addresses(&["203.0.113.2:443", "203.0.113.1:443"]);
        assert_eq!(refreshing.resolved(later, &cover, Ok(turned)), None);
        assert_eq!(used.get(&cover), Some(two[0]));
        let other = addresses(&["203.0.113.2:443", "203.0.113.3:443"]);
        refreshing.resolved(later, &cover, Ok(other.clone()));
        assert_eq!(used.get(&cover), Some(other[0]));
        assert_eq!(cover.all(), other);
    }

    #[test]
    fn of_several_addresses_the_one_that_answers_is_used() {
        let now = Instant::now();
        let three = addresses(&["203.0.113.1:443", "203.0.113.2:443", "203.0.113.3:443"]);
        let listen = "192.0.2.1:443".parse().unwrap();
        let cover = CoverAddress::new("www.example.org", 443, listen, Some(three[1]));
        let (mut used, mut refreshing) = (AddressInUse::default(), Refreshing::new(&cover, now));
        refreshing.resolved(now, &cover, Ok(three.clone()));
        assert_eq!(used.get(&cover), Some(three[1]));
        cover.meet(three[2]);
        assert_eq!(used.get(&cover), Some(three[2]));
        refreshing.resolved(now, &cover, Ok(three.clone()));
        assert_eq!(used.get(&cover), Some(three[2]));
        // The name has lost it meanwhile.
        refreshing.resolved(now, &cover, Ok(three[..2].to_vec()));
        cover.meet(three[2]);
        assert_eq!(used.get(&cover), Some(three[0]));
        let mut left = cover.all();
        left.sort_unstable();
        assert_eq!(left, three[..2]);
    }

    #[test]
    fn trouble_is_told_once_and_what_was_known_is_kept() {
        let mut now = Instant::now();
        let cover = cover("www.example.org");
        let mut refreshing = Refreshing::new(&cover, now);
        let told = refreshing.resolved(now, &cover, Err(Unresolved::Absent)).unwrap();
        assert!(told.contains("has no address; strangers get no answer"), "{told}");
        assert_eq!(refreshing.resolved(now, &cover, Err(Unresolved::Late)), None);
        let found = addresses(&["203.0.113.1:443"]);
        refreshing.resolved(now, &cover, Ok(found.clone()));
        assert_eq!(cover.trouble(), None);
        let told = refreshing.resolved(now, &cover, Err(Unresolved::Late)).unwrap();
        assert!(told.contains("sought where it was"), "{told}");
        assert_eq!(AddressInUse::default().get(&cover), Some(found[0]));
        // The waits grow, up to that after a success.
        for _ in 0..20 {
            now += limits::COVER_RESOLUTION_INTERVAL;
            assert!(refreshing.poll(now));
            refreshing.resolved(now, &cover, Err(Unresolved::Late));
        }
        assert!(!refreshing.poll(now + limits::COVER_RESOLUTION_INTERVAL - Duration::from_millis(1)));
    }

    #[test]
    fn a_server_is_not_its_own_cover() {
        let now = Instant::now();
        let cover = cover("www.example.org");
        let mut refreshing = Refreshing::new(&cover, now);
        let own = addresses(&["192.0.2.1:443", "[::ffff:192.0.2.1]:443"]);
        assert!(
            refreshing
                .resolved(now, &cover, Ok(own))
                .unwrap()
                .contains("this server itself")
        );
        assert_eq!(AddressInUse::default().get(&cover), None);
        let everywhere = CoverAddress::new("127.0.0.1", 443, "[::]:443".parse().unwrap(), None);
        assert_eq!(everywhere.trouble(), Some("its name leads to this server itself"));
        let beside = CoverAddress::new("127.0.0.1", 8443, "[::]:443".parse().unwrap(), None);
        assert_eq!(beside.trouble(), None);
    }
}
