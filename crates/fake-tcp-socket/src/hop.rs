//! The first hop towards a peer: interface, local address and MTU by the kernel's routes, the hardware address by its
//! cache, and where it is not there, by asking. The route is looked up again while packets leave.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use host::Network;
use packet_io::{Link, NeighbourSearch, SocketOptions, route_mtu};

use crate::limits::{NEIGHBOUR_LOOKS, NEIGHBOUR_QUESTIONS_MAX, NEIGHBOUR_REPEAT, ROUTE_TIME};

/// The first hop, found or being found.
pub(crate) struct Hop {
    /// The address that packets of this machine carry.
    pub(crate) source: IpAddr,
    /// Bytes of an IP packet.
    pub(crate) mtu: u16,
    /// `None` while it is asked for.
    pub(crate) link: Option<Link>,
    /// Index of the interface.
    pub(crate) index: u32,
    /// The next machine, on the link.
    neighbour: IpAddr,
    /// The neighbour's hardware address by the kernel's cache, when the route was last looked up.
    cached: Option<[u8; 6]>,
    route: Route,
    search: NeighbourSearch,
    /// When the route is looked up again, with the next packet.
    again: Instant,
    /// A connection got no answer: the neighbour is asked for again though the route is the same.
    is_doubted: bool,
    /// When it is looked for an answer, and how long after the last time.
    look: (Instant, Duration),
    /// When it is asked again, and how often it was.
    ask: (Instant, u32),
}

/// What decides where packets go.
struct Route {
    network: Network,
    remote: SocketAddr,
    local: Option<IpAddr>,
    over: Option<u32>,
    mark: Option<u32>,
}

/// Interface, address of this machine, and neighbour.
type Way = (u32, IpAddr, IpAddr);

impl Route {
    fn way(&mut self) -> io::Result<Way> {
        let remote = self.remote;
        let way = self.network.way_towards(remote.ip(), self.over);
        let way = way.map_err(|error| io::Error::new(error.kind(), error))?;
        let nowhere = || {
            io::Error::new(
                io::ErrorKind::NetworkUnreachable,
                format!("no route leads to {remote}"),
            )
        };
        let way = way.ok_or_else(nowhere)?;
        let source = self.local.or(way.source).ok_or_else(nowhere)?;
        Ok((way.index, source, way.gateway.unwrap_or(remote.ip())))
    }

    /// The hardware address of the neighbour of `way` in the kernel's cache.
    fn cached(&mut self, (index, _, neighbour): Way) -> Option<[u8; 6]> {
        self.network.neighbour(index, neighbour).ok().flatten()
    }

    /// A search for the neighbour of `way`, the link where it is known already, and the MTU.
    fn search(
        &mut self,
        (index, source, neighbour): Way,
        hardware: Option<[u8; 6]>,
    ) -> io::Result<(NeighbourSearch, Option<Link>, u16)> {
        let mut search = NeighbourSearch::open(index, source, neighbour)?;
        let link = search
            .answer()
            .or(hardware.map(|hardware| search.link_to(hardware)));
        let mtu = route_mtu(self.remote, self.mark)?.min(u16::MAX.into()) as u16;
        Ok((search, link, mtu))
    }
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
        let network = Network::open().map_err(|error| io::Error::new(error.kind(), error))?;
        let over = options
            .interface
            .map(|interface| network.index_of(interface.as_str()))
            .transpose();
        let mut route = Route {
            over: over.map_err(|error| io::Error::new(error.kind(), error))?,
            mark: options.mark,
            network,
            remote,
            local,
        };
        let way = route.way()?;
        let (index, source, neighbour) = way;
        let cached = route.cached(way);
        let (search, link, mtu) = route.search(way, cached)?;
        Ok(Self {
            source,
            mtu,
            link,
            index,
            neighbour,
            cached,
            route,
            search,
            again: now + ROUTE_TIME,
            is_doubted: false,
            look: (now, NEIGHBOUR_LOOKS.0),
            ask: (now, 0),
        })
    }

    /// The same for whoever keeps its address, whatever the route says later.
    pub(crate) fn at_its_address(mut self) -> Self {
        self.route.local = Some(self.source);
        self
    }

    /// Looks the route up again, where that is due; whether another hop is first from here on, or the same is asked for
    /// again. While no route leads there, nothing changes.
    pub(crate) fn look_again(&mut self, now: Instant) -> bool {
        if now < self.again {
            return false;
        }
        self.again = now + ROUTE_TIME;
        let Ok(way) = self.route.way() else {
            return false;
        };
        let cached = self.route.cached(way);
        let is_same = way == (self.index, self.source, self.neighbour);
        // The kernel's cache hears when another machine takes over an address, and forgets without a reason.
        let is_told = cached.is_some() && cached != self.cached;
        if is_same && !is_told && !self.is_doubted {
            return false;
        }
        // Nobody answered at what the kernel says: the neighbour is asked.
        let believed = cached.filter(|_| is_told || !is_same);
        let Ok((search, link, mtu)) = self.route.search(way, believed) else {
            return false;
        };
        self.cached = cached.or(self.cached.filter(|_| is_same));
        (self.index, self.source, self.neighbour) = way;
        (self.search, self.link, self.mtu) = (search, link, mtu);
        self.is_doubted = false;
        self.look = (now, NEIGHBOUR_LOOKS.0);
        self.ask = (now, 0);
        true
    }

    /// A connection got no answer, perhaps because another machine has the neighbour's address.
    pub(crate) fn doubt(&mut self) {
        self.is_doubted = true;
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
        if self.link.is_none() && self.ask.1 > NEIGHBOUR_QUESTIONS_MAX {
            self.link = self.cached.map(|hardware| self.search.link_to(hardware));
        }
        self.look = (now + self.look.1, (2 * self.look.1).min(NEIGHBOUR_LOOKS.1));
    }
}
