//! The first hop towards a peer: interface, local address and MTU by the kernel's routes, the hardware address by its
//! cache, and where it is not there, by asking.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use host::Network;
use packet_io::{Link, NeighbourSearch, SocketOptions, route_mtu};

use crate::limits::{NEIGHBOUR_LOOKS, NEIGHBOUR_QUESTIONS_MAX, NEIGHBOUR_REPEAT};

/// The first hop, found or being found.
pub(crate) struct Hop {
    /// Index of the interface.
    pub(crate) index: u32,
    /// The address that packets of this machine carry.
    pub(crate) source: IpAddr,
    /// Bytes of an IP packet.
    pub(crate) mtu: u16,
    /// `None` while it is asked for.
    pub(crate) link: Option<Link>,
    search: NeighbourSearch,
    /// When it is looked for an answer, and how long after the last time.
    look: (Instant, Duration),
    /// When it is asked again, and how often it was.
    ask: (Instant, u32),
}

impl Hop {
    /// The first hop to `remote`, from `local` where it is given.
    ///
    /// # Errors
    /// No route leads there, the capability CAP_NET_RAW is missing, or the kernel's refusal.
    pub(crate) fn find(
        now: Instant,
        local: Option<IpAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Self> {
        let mut network = Network::open().map_err(|error| io::Error::new(error.kind(), error))?;
        let over = options
            .interface
            .map(|interface| network.index_of(interface.as_str()))
            .transpose();
        let way = over.and_then(|over| network.way_towards(remote.ip(), over));
        let way = way.map_err(|error| io::Error::new(error.kind(), error))?;
        let nowhere = || {
            io::Error::new(
                io::ErrorKind::NetworkUnreachable,
                format!("no route leads to {remote}"),
            )
        };
        let way = way.ok_or_else(nowhere)?;
        let source = local.or(way.source).ok_or_else(nowhere)?;
        let neighbour = way.gateway.unwrap_or(remote.ip());
        let mut search = NeighbourSearch::open(way.index, source, neighbour)?;
        let known = network.neighbour(way.index, neighbour).ok().flatten();
        let link = search.answer().or(known.map(|hardware| search.link_to(hardware)));
        let mtu = route_mtu(remote, options.mark)?.min(u16::MAX.into()) as u16;
        Ok(Self {
            index: way.index,
            source,
            mtu,
            link,
            search,
            look: (now, NEIGHBOUR_LOOKS.0),
            ask: (now, 0),
        })
    }

    /// When [`Hop::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let is_searching = self.link.is_none() && self.ask.1 <= NEIGHBOUR_QUESTIONS_MAX;
        is_searching.then(|| self.ask.0.min(self.look.0))
    }

    /// Asks, and looks for an answer.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        self.link = self.search.answer();
        if self.link.is_none() && self.ask.0 <= now {
            // Where it cannot be asked now, it can be the next time.
            let _ = self.search.ask();
            self.ask = (now + NEIGHBOUR_REPEAT, self.ask.1 + 1);
            self.look.1 = NEIGHBOUR_LOOKS.0;
        }
        self.look = (now + self.look.1, (2 * self.look.1).min(NEIGHBOUR_LOOKS.1));
    }
}
