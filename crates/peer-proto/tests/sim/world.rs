//! Two peers joined by a simulated path: it moves packets and time, and records what each end reports.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use packet::{Ecn, Path};
use peer_proto::{
    AddressSource, Attempt, CloseReason, Delivery, Event, Failure, KeyIdentity, Meeting, Outbox, Outcome,
    Parameters, PeerId, PeerKey, Peers, Received, SendError, StreamId, Ticket, is_relayed,
};
use sim::{Clock, LinkConfig, Network, Packet};

/// Most events of one drive, so that a livelock fails instead of hanging.
const EVENTS_MAX: usize = 2_000_000;

/// Packets that wait for a program that is suspended.
const SOCKET_PACKETS_MAX: usize = 100;

/// How the second end loses its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    /// The first one closes it.
    Closed,
    /// Nothing more is heard of the first one.
    TimedOut,
    /// The first one is another process, which knows nothing of it.
    Reset,
}

/// All of them.
pub(crate) const ENDINGS: [Ending; 3] = [Ending::Closed, Ending::TimedOut, Ending::Reset];

/// One end, and what it has reported.
pub(crate) struct End {
    pub(crate) peers: Peers,
    pub(crate) address: SocketAddr,
    /// Where a rendezvous relays for it.
    pub(crate) relayed: SocketAddr,
    pub(crate) outbox: Outbox,
    /// Peers that connect are accepted.
    pub(crate) accepts: bool,
    /// Messages are read as they come.
    pub(crate) reads: bool,
    /// Its program is stopped: its socket's buffer takes a few packets.
    pub(crate) is_suspended: bool,
    pub(crate) unread_packets: Vec<(Path, Ecn, Vec<u8>)>,
    pub(crate) connected: Vec<(PeerKey, PeerId, bool)>,
    pub(crate) tried: Vec<Vec<Attempt>>,
    pub(crate) failed: Vec<Vec<Failure>>,
    pub(crate) closed: Vec<CloseReason>,
    pub(crate) received: Vec<Received>,
    /// Of the last connection.
    pub(crate) ended: BTreeMap<Ticket, Outcome>,
    pub(crate) rooms: usize,
    /// Paths that were taken, and whether they are relayed.
    pub(crate) taken: Vec<(SocketAddr, bool)>,
    pub(crate) opened: Vec<StreamId>,
    pub(crate) stopped: Vec<(StreamId, u64)>,
    pub(crate) finished: Vec<StreamId>,
    /// What was told of the path.
    pub(crate) news: Vec<Event>,
    /// Packets sent.
    pub(crate) packets: u64,
}

pub(crate) fn identity(number: u8) -> KeyIdentity {
    KeyIdentity::from_seed(&[number; 32])
}

pub(crate) fn id(number: u8) -> PeerId {
    PeerId::from(identity(number).public_key())
}

pub(crate) fn parameters(number: u8) -> Parameters {
    Parameters::new(identity(number), [number; 32])
}

impl End {
    pub(crate) fn new(parameters: Parameters, address: &str) -> Self {
        Self {
            peers: Peers::new(parameters),
            address: address.parse().unwrap(),
            relayed: relayed(address),
            outbox: Outbox::default(),
            accepts: true,
            reads: true,
            is_suspended: false,
            unread_packets: Vec::new(),
            connected: Vec::new(),
            tried: Vec::new(),
            failed: Vec::new(),
            closed: Vec::new(),
            received: Vec::new(),
            ended: BTreeMap::new(),
            rooms: 0,
            taken: Vec::new(),
            opened: Vec::new(),
            stopped: Vec::new(),
            finished: Vec::new(),
            news: Vec::new(),
            packets: 0,
        }
    }

    /// The only connection.
    pub(crate) fn peer(&self) -> PeerKey {
        self.connected.last().unwrap().0
    }

    pub(crate) fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.peers.poll_event(now) {
            match event {
                Event::Connected {
                    peer,
                    id,
                    is_incoming,
                } => {
                    self.connected.push((peer, id, is_incoming));
                    if is_incoming && self.accepts {
                        self.peers.accept(peer);
                    }
                }
                Event::Tried { attempts, .. } => self.tried.push(attempts),
                Event::Failed { failures, .. } => self.failed.push(failures),
                Event::Closed { reason, .. } => self.closed.push(reason),
                Event::Received { peer } if self.reads => self.read_messages(now, peer),
                Event::Ended {
                    peer,
                    ticket,
                    outcome,
                } if peer == self.peer() => {
                    let before = self.ended.insert(ticket, outcome);
                    assert_eq!(before, None, "{ticket:?} ended twice");
                }
                Event::Room { .. } => self.rooms += 1,
                Event::PathChanged {
                    remote, is_relayed, ..
                } => self.taken.push((remote, is_relayed)),
                Event::StreamOpened { stream, .. } => self.opened.push(stream),
                Event::StreamStopped { stream, code, .. } => self.stopped.push((stream, code)),
                Event::StreamFinished { stream, .. } => self.finished.push(stream),
                Event::PathMtuChanged { .. } | Event::Congestion { .. } => {
                    self.news.push(event);
                }
                Event::Received { .. }
                | Event::Ended { .. }
                | Event::StreamReadable { .. }
                | Event::StreamWritable { .. }
                | Event::StreamsAvailable { .. } => {}
            }
        }
    }

    pub(crate) fn read_messages(&mut self, now: Instant, peer: PeerKey) {
        while let Some(received) = self.peers.read_message(now, peer) {
            self.received.push(received);
        }
    }
}

/// The relayed address of the end at this one.
fn relayed(address: &str) -> SocketAddr {
    let address: SocketAddr = address.parse().unwrap();
    let last = address.to_string().bytes().map(u16::from).sum();
    SocketAddr::new(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, last).into(), 1)
}

/// What both ends and the rendezvous know of the connection that [`World::met`] is about to have.
pub(crate) const MEETING: Meeting = Meeting {
    transaction: [3; 12],
    key: [4; 16],
};

pub(crate) struct World {
    pub(crate) network: Network<Ecn>,
    pub(crate) ends: [End; 2],
    /// What somebody on the path has recorded of the first end, where one does.
    pub(crate) record: Option<Vec<Vec<u8>>>,
}

impl World {
    /// Two peers that are not connected.
    pub(crate) fn new(link: LinkConfig, seed: u64, parameters: [Parameters; 2]) -> Self {
        let [one, two] = parameters;
        let ends = [End::new(one, "192.0.2.1:4000"), End::new(two, "192.0.2.2:4000")];
        let mut network = Network::new(Clock::default(), seed);
        network.join(ends[0].address, ends[1].address, link);
        Self {
            network,
            ends,
            record: None,
        }
    }

    /// The first has connected to the second, whatever the path loses.
    pub(crate) fn connected(link: LinkConfig, seed: u64) -> Self {
        Self::connected_as(link, seed, [parameters(1), parameters(2)])
    }

    pub(crate) fn connected_as(link: LinkConfig, seed: u64, parameters: [Parameters; 2]) -> Self {
        let mut world = Self::new(LinkConfig { loss: 0.0, ..link }, seed, parameters);
        world.connect();
        world.drive_until(|world| world.ends.iter().all(|end| !end.connected.is_empty()));
        world.set_link(link);
        world
    }

    /// The first is about to connect to the second by a rendezvous that relays as well.
    pub(crate) fn meeting(direct: LinkConfig, relay: LinkConfig, seed: u64) -> Self {
        let mut world = Self::new(direct, seed, [parameters(1), parameters(2)]);
        let now = world.now();
        let [one, two] = world.ends.each_mut();
        world.network.join(one.relayed, two.relayed, relay);
        let addresses = [one.address, one.relayed];
        assert!(two.peers.send_checks(now, id(1), MEETING, &addresses));
        let until = now + Duration::from_secs(3);
        let key = one
            .peers
            .connect_and_meet(now, id(2), &[], MEETING, until)
            .unwrap();
        one.peers
            .add_addresses(now, key, AddressSource::Rendezvous, &[two.address, two.relayed]);
        one.peers
            .expect_no_more_addresses(now, key, AddressSource::Rendezvous);
        world
    }

    /// They have met.
    pub(crate) fn met(direct: LinkConfig, relay: LinkConfig, seed: u64) -> Self {
        let mut world = Self::meeting(direct, LinkConfig { loss: 0.0, ..relay }, seed);
        world.drive_until(|world| world.ends.iter().all(|end| !end.connected.is_empty()));
        world.set_relay(relay);
        world
    }

    /// The second end loses its connection.
    pub(crate) fn end_by(&mut self, ending: Ending) {
        match ending {
            Ending::Closed => {
                let (now, peer) = (self.now(), self.ends[0].peer());
                self.ends[0].peers.close(now, peer, 0, b"all is said");
            }
            Ending::TimedOut => self.set_link(LinkConfig {
                loss: 1.0,
                ..LinkConfig::default()
            }),
            Ending::Reset => {
                self.ends[0].peers = Peers::new(parameters(1));
                self.send(1, "are you there?", Delivery::unordered()).unwrap();
            }
        }
        self.drive_until(|world| !world.ends[1].closed.is_empty());
        let fits = match (ending, &self.ends[1].closed[..]) {
            (Ending::Closed, [CloseReason::ApplicationClosed { code, .. }]) => *code == 0,
            (Ending::TimedOut, [CloseReason::TimedOut]) | (Ending::Reset, [CloseReason::Reset]) => true,
            _ => false,
        };
        assert!(fits, "{ending:?}: {:?}", self.ends[1].closed);
    }

    /// Changes the relayed path.
    pub(crate) fn set_relay(&mut self, link: LinkConfig) {
        let [one, two] = [self.ends[0].relayed, self.ends[1].relayed];
        self.network.set_config(one, two, link);
    }

    /// Whether both ends send by the relay, or both directly.
    pub(crate) fn is_relayed(&self) -> Option<bool> {
        let [one, two] = self
            .ends
            .each_ref()
            .map(|end| end.peers.path(end.peer()).unwrap().1);
        (one == two).then_some(one)
    }

    pub(crate) fn connect(&mut self) {
        let remote = self.ends[1].address;
        let now = self.now();
        let known = self.ends[1].peers.id();
        self.ends[0].peers.connect(now, known, &[remote]).unwrap();
    }

    pub(crate) fn now(&self) -> Instant {
        self.network.now()
    }

    pub(crate) fn set_link(&mut self, link: LinkConfig) {
        let [one, two] = [self.ends[0].address, self.ends[1].address];
        self.network.set_config(one, two, link);
    }

    pub(crate) fn send(
        &mut self,
        end: usize,
        body: impl Into<Bytes>,
        delivery: Delivery,
    ) -> Result<Ticket, SendError> {
        let (now, peer) = (self.now(), self.ends[end].peer());
        self.ends[end].peers.send(now, peer, body.into(), delivery)
    }

    /// Sends what both have to send, and sets their timers.
    fn flush(&mut self) {
        let now = self.now();
        for (index, end) in self.ends.iter_mut().enumerate() {
            if end.is_suspended {
                self.network.set_timer(end.address, None);
                continue;
            }
            for (path, ecn, packet) in std::mem::take(&mut end.unread_packets) {
                let packet = BytesMut::from(&packet[..]);
                end.peers
                    .handle_received(now, path, ecn, packet, 0, &mut end.outbox);
            }
            if end.peers.poll_timeout().is_some_and(|due| due < now) {
                end.peers.handle_timeout(now);
            }
            loop {
                let more = end.peers.flush(now, &mut end.outbox);
                let count = end.outbox.trains().len();
                for train in end.outbox.trains() {
                    for segment in packet::segments(&train.bytes, train.segment_size) {
                        let source = match is_relayed(train.destination) {
                            true => end.relayed,
                            false => end.address,
                        };
                        self.network
                            .send(source, train.destination, segment.to_vec(), train.ecn);
                        end.packets += 1;
                        if let Some(record) = self.record.as_mut().filter(|_| index == 0) {
                            record.push(segment.to_vec());
                        }
                    }
                }
                end.outbox.release(count);
                if !more {
                    break;
                }
            }
            end.handle_events(now);
            self.network.set_timer(end.address, end.peers.poll_timeout());
        }
    }

    /// Lets `duration` pass.
    pub(crate) fn drive(&mut self, duration: Duration) {
        let until = self.now() + duration;
        for _ in 0..EVENTS_MAX {
            self.flush();
            if !self.step(until) {
                return;
            }
        }
        panic!("the peers do not come to rest");
    }

    /// Drives until `condition` is true, within a minute.
    pub(crate) fn drive_until(&mut self, condition: impl Fn(&Self) -> bool) {
        let until = self.now() + Duration::from_secs(60);
        loop {
            self.flush();
            if condition(self) {
                return;
            }
            assert!(
                self.step(until),
                "the condition did not come true within a minute"
            );
        }
    }

    /// The next event up to `until`.
    fn step(&mut self, until: Instant) -> bool {
        let Some(event) = self.network.next_event(until) else {
            return false;
        };
        let now = self.now();
        match event {
            sim::Event::Timer(node) => {
                let end = self.ends.iter_mut().find(|end| end.address == node).unwrap();
                end.peers.handle_timeout(now);
            }
            sim::Event::Delivery(delivery) => {
                let end = self
                    .ends
                    .iter_mut()
                    .find(|end| [end.address, end.relayed].contains(&delivery.node))
                    .unwrap();
                let Packet { bytes, meta: ecn } = delivery.packet;
                let path = Path {
                    remote: delivery.source,
                    local: None,
                };
                if end.is_suspended {
                    if end.unread_packets.len() < SOCKET_PACKETS_MAX {
                        end.unread_packets.push((path, ecn, bytes));
                    }
                    return true;
                }
                let bytes = BytesMut::from(&bytes[..]);
                end.peers
                    .handle_received(now, path, ecn, bytes, 0, &mut end.outbox);
            }
        }
        true
    }
}
