//! What the interfaces towards addresses carry: the system is asked once for many connections, because it is asked
//! while others wait for the peers of the socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use crate::limits::{PAYLOAD_TIME, PAYLOADS_MAX};

#[derive(Debug)]
pub(crate) struct Payloads {
    ask: fn(SocketAddr) -> u16,
    /// By address without its port, and until when.
    known: BTreeMap<SocketAddr, (u16, Instant)>,
}

impl Payloads {
    pub(crate) fn new(ask: fn(SocketAddr) -> u16) -> Self {
        Self {
            ask,
            known: BTreeMap::new(),
        }
    }

    /// Largest UDP payload that the interface towards an address carries, in bytes.
    pub(crate) fn towards(&mut self, now: Instant, remote: SocketAddr) -> u16 {
        let mut place = remote;
        place.set_port(0);
        if let Some((bytes, until)) = self.known.get(&place)
            && now < *until
        {
            return *bytes;
        }
        if self.known.len() >= PAYLOADS_MAX {
            self.known.clear();
        }
        let bytes = (self.ask)(remote);
        self.known.insert(place, (bytes, now + PAYLOAD_TIME));
        bytes
    }

    /// Routes may have changed.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_machine_is_asked_for_once_a_while_and_what_is_known_is_bounded() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let asked = || ASKED.load(Ordering::Relaxed);
        let mut payloads = Payloads::new(|remote| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            if remote.is_ipv4() { 1_472 } else { 1_452 }
        });
        let now = sim::Clock::default().now();
        let towards = |text: &str| text.parse::<SocketAddr>().unwrap();
        for port in 1..100 {
            let remote = SocketAddr::from(([192, 0, 2, 1], port));
            assert_eq!(payloads.towards(now, remote), 1_472);
        }
        assert_eq!(asked(), 1);
        assert_eq!(payloads.towards(now, towards("[2001:db8::1]:1")), 1_452);
        // The same address on another link is another machine.
        for scope in ["[fe80::1%2]:1", "[fe80::1%3]:1"] {
            assert_eq!(payloads.towards(now, towards(scope)), 1_452);
        }
        assert_eq!(asked(), 4);
        payloads.towards(now + PAYLOAD_TIME, towards("192.0.2.1:1"));
        assert_eq!(asked(), 5);
        payloads.forget();
        payloads.towards(now, towards("192.0.2.1:1"));
        assert_eq!(asked(), 6);
        for number in 0..2 * PAYLOADS_MAX as u32 {
            payloads.towards(now, SocketAddr::from((Ipv4Addr::from_bits(number), 1)));
            assert!(payloads.known.len() <= PAYLOADS_MAX);
        }
    }
}
