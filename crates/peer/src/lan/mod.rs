//! Peers on the local network, by multicast DNS (`specs/lan.md`).
//!
//! An endpoint that is to be found has a thread that announces it ([`announcer`]); one that connects asks the network
//! for a few seconds ([`searcher`]). [`searches`] says for which peers, and [`names`] what is announced and which
//! answers are used. An answer proves nothing: whoever answers the handshake there proves the key, as everywhere.

mod announcer;
mod names;
mod searcher;
mod searches;

use std::net::SocketAddr;
use std::time::Instant;

use mdns_sd::{IfKind, ServiceDaemon};
use peer_proto::{AddressSource, PeerId, PeerKey, Peers};

use crate::companion::Companion;
use crate::limits::{LAN_METRICS_TIME_MAX, LAN_RECORDS_MAX, LAN_SEARCH_TIME};
use crate::wakers::Wakers;
pub(crate) use announcer::announce;
pub(crate) use searcher::begin as begin_search;
pub(crate) use searches::Searches;

/// What the endpoint does on the local network.
#[derive(Default)]
pub(crate) struct Lan {
    /// Peers are looked for there.
    pub(crate) finds: bool,
    pub(crate) searches: Searches,
    /// Who waits for the peer of a number.
    pub(crate) waiting: Wakers,
    /// The endpoint is announced.
    pub(crate) announcement: Companion<()>,
}

impl Lan {
    /// Looks for a peer that is being connected; whether a thread has to begin that.
    pub(crate) fn search(&mut self, now: Instant, peers: &mut Peers, peer: PeerKey, id: PeerId) -> bool {
        let until = now + LAN_SEARCH_TIME;
        let Some(known) = self.searches.begin(now, peer, id, until) else {
            peers.expect_no_more_addresses(now, peer, AddressSource::Lan);
            return false;
        };
        peers.expect_addresses(now, peer, AddressSource::Lan, until);
        peers.add_addresses(now, peer, AddressSource::Lan, &known);
        self.searches.take_start()
    }

    /// An answer names where a peer is, and for whom it waits.
    fn take_answer(
        &mut self,
        now: Instant,
        peers: &mut Peers,
        id: PeerId,
        addresses: &[SocketAddr],
        numbers: &[u32],
    ) {
        self.searches.found_numbers(now, id, numbers);
        for (peer, addresses) in self.searches.found(now, id, addresses) {
            peers.add_addresses(now, peer, AddressSource::Lan, &addresses);
        }
    }
}

/// The part of the machine that speaks multicast DNS, on all interfaces but its own.
fn daemon() -> Result<ServiceDaemon, mdns_sd::Error> {
    let daemon = ServiceDaemon::new()?;
    daemon.disable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
    Ok(daemon)
}

/// Whether it keeps more records of the network than it ever should, or is too busy to say (LAN-4).
fn is_flooded(daemon: &ServiceDaemon) -> bool {
    let metrics = daemon.get_metrics().ok();
    let metrics = metrics.and_then(|metrics| metrics.recv_timeout(LAN_METRICS_TIME_MAX).ok());
    metrics.is_none_or(|metrics| {
        let cached = metrics.iter().filter(|(name, _)| name.starts_with("cached-"));
        cached.map(|(_, count)| *count).sum::<i64>() > LAN_RECORDS_MAX
    })
}
