//! A server, its clients, and the network between them: lossless, 100 us each way, in virtual time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quic::Outbox;

use super::client::ClientEnd;
use super::end::{Message, Setting, failed};
use super::server::ServerEnd;
use crate::{Error, limits};

/// One way.
const HALF_ROUND_TRIP: Duration = Duration::from_micros(100);

/// Longest jump to the next timer: far below every timeout that would end something.
const JUMP_MAX: Duration = Duration::from_millis(25);

/// For acknowledgements and the search for the path MTU, after which a new connection is idle.
const SETTLING: Duration = Duration::from_millis(60);

/// Between two bursts of a client that sends alone and pauses: longer than acknowledgements wait for company. Where
/// many take turns, each is silent for so long anyway: both have as many lone acknowledgements.
const PAUSE: Duration = Duration::from_millis(4);

/// For the last datagrams of a load to arrive.
const DRAINING: Duration = Duration::from_millis(5);

/// Round trips in which what is waited for has to come.
const TURNS_MAX: usize = 10_000;

/// Handshakes at once: fewer than the server lets be half open.
const HANDSHAKES: usize = 50;

/// Flows that are opened at once.
const OPENINGS: usize = 100;

const SERVER: ([u8; 4], u16) = ([198, 51, 100, 1], 443);

pub(super) struct World<'a> {
    setting: &'a Setting,
    now: Instant,
    pub(super) server: ServerEnd,
    pub(super) clients: Vec<ClientEnd>,
    /// Clients before those that there are.
    past: usize,
    /// The clients' timers, by their place.
    timers: BTreeSet<(Instant, usize)>,
    touched: Vec<usize>,
    to_server: Vec<Message>,
    to_clients: Vec<Message>,
    /// Of the client that is at work.
    outbox: Outbox,
    /// The client that sends next.
    next: usize,
    /// Messages so far, in both directions.
    messages: u64,
}

/// What became of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Processor time of the server.
    pub(super) busy: Duration,
    /// Datagrams that arrived at the server, and at clients.
    pub(super) up: u64,
    pub(super) down: u64,
    /// Datagrams and answers that did not arrive.
    pub(super) lost: u64,
    /// Messages of one or several packets that carried them, and acknowledgements.
    pub(super) messages: u64,
}

impl<'a> World<'a> {
    /// A server alone.
    pub(super) fn new(setting: &'a Setting) -> Result<Self, Error> {
        Ok(Self {
            setting,
            now: Instant::now(),
            server: ServerEnd::new(setting)?,
            clients: Vec::new(),
            past: 0,
            timers: BTreeSet::new(),
            touched: Vec::new(),
            to_server: Vec::new(),
            to_clients: Vec::new(),
            outbox: Outbox::default(),
            next: 0,
            messages: 0,
        })
    }

    /// A server and clients with so many open flows each, all idle and warmed up.
    pub(super) fn with(setting: &'a Setting, clients: usize, flows: usize) -> Result<Self, Error> {
        let mut world = World::new(setting)?;
        world.add_clients(clients, flows)?;
        let flows_all = clients * flows;
        for _ in 0..limits::SCALE_WARM_UPS * flows_all.div_ceil(limits::SCALE_BURST).max(clients) {
            world.send(clients, limits::SCALE_BURST)?;
        }
        world.settle()?;
        Ok(world)
    }

    /// Connects so many clients more and opens their flows, until they are idle.
    pub(super) fn add_clients(&mut self, count: usize, flows: usize) -> Result<(), Error> {
        let end = self.clients.len() + count;
        while self.clients.len() < end {
            let start = self.clients.len();
            for index in start..end.min(start + HANDSHAKES) {
                let number = (self.past + index) as u32;
                let client = ClientEnd::connect(self.setting, number, self.now, SERVER.into())?;
                self.clients.push(client);
                self.touch(index);
            }
            self.wait("the token check", |world| {
                world.clients[start..].iter().all(|client| client.is_up)
            })?;
            for first in (0..flows).step_by(OPENINGS) {
                let opened = flows.min(first + OPENINGS);
                for index in start..self.clients.len() {
                    self.clients[index].open(self.now, opened - first)?;
                    self.touch(index);
                }
                self.wait("the opening of flows", |world| {
                    world.clients[start..]
                        .iter()
                        .all(|client| client.accepted == opened)
                })?;
            }
        }
        self.settle()
    }

    /// Lets everything come to rest.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        self.rest(SETTLING)
    }

    /// Forgets the clients, whose connections stay at the server.
    pub(super) fn forget_clients(&mut self) {
        self.past += self.clients.len();
        self.clients.clear();
        self.timers.clear();
        self.touched.clear();
        self.to_clients.clear();
        self.next = 0;
    }

    /// Has the first `senders` clients send bursts in turn until the server has worked for `span`.
    /// With `pauses`, time passes between bursts.
    pub(super) fn load(
        &mut self,
        senders: usize,
        burst: usize,
        pauses: bool,
        span: Duration,
    ) -> Result<Load, Error> {
        let (busy, up, down) = (self.server.busy, self.server.received, self.received());
        let messages = self.messages;
        let mut offered = 0;
        while self.server.busy - busy < span {
            self.send(senders, burst)?;
            if pauses {
                self.rest(PAUSE)?;
            }
            offered += burst as u64;
        }
        self.rest(DRAINING)?;
        let (up, down) = (self.server.received - up, self.received() - down);
        Ok(Load {
            busy: self.server.busy - busy,
            up,
            down,
            lost: (2 * offered).saturating_sub(up + down),
            messages: self.messages - messages,
        })
    }

    fn received(&self) -> u64 {
        self.clients.iter().map(|client| client.received).sum()
    }

    /// One round trip, with a burst of the next of the first `senders` clients.
    pub(super) fn send(&mut self, senders: usize, burst: usize) -> Result<(), Error> {
        self.next = (self.next + 1) % senders;
        self.clients[self.next].send(self.now, burst);
        self.touch(self.next);
        self.turn()?;
        Ok(())
    }

    /// Lets time pass without new datagrams.
    fn rest(&mut self, time: Duration) -> Result<(), Error> {
        let end = self.now + time;
        while self.now < end {
            self.turn_or_jump()?;
        }
        Ok(())
    }

    fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), Error> {
        for _ in 0..TURNS_MAX {
            if done(self) {
                return Ok(());
            }
            self.turn_or_jump()?;
        }
        Err(failed(&format!(
            "{what} did not come to its end in {TURNS_MAX} round trips"
        )))
    }

    /// One round trip; where nothing is on its way, time jumps towards the next timer.
    fn turn_or_jump(&mut self) -> Result<(), Error> {
        if !self.turn()? {
            let client = self.timers.first().map(|(due, _)| *due);
            let due = [client, self.server.poll_timeout()].into_iter().flatten().min();
            let latest = self.now + JUMP_MAX;
            self.now = self.now.max(due.map_or(latest, |due| due.min(latest)));
        }
        Ok(())
    }

    /// One round trip: the clients that have something to do, then the server. Whether anything was sent.
    fn turn(&mut self) -> Result<bool, Error> {
        self.now += HALF_ROUND_TRIP;
        let now = self.now;
        for message in std::mem::take(&mut self.to_clients) {
            if let Some(index) = self.place(message.peer) {
                let message = Message {
                    peer: SERVER.into(),
                    ..message
                };
                self.clients[index].take(now, message, &mut self.outbox);
                self.post(index);
                self.touch(index);
            }
        }
        while let Some((due, index)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            self.clients[index].timer = None;
            self.touch(index);
        }
        for index in std::mem::take(&mut self.touched) {
            self.work(index)?;
        }
        self.now += HALF_ROUND_TRIP;
        let was_sent = !self.to_server.is_empty();
        self.messages += self.to_server.len() as u64;
        if was_sent || self.server.poll_timeout().is_some_and(|due| due <= self.now) {
            self.server.turn(self.now, &mut self.to_server);
            self.server.post(|message| self.to_clients.push(message));
        }
        self.messages += self.to_clients.len() as u64;
        Ok(was_sent || !self.to_clients.is_empty())
    }

    fn touch(&mut self, index: usize) {
        if !std::mem::replace(&mut self.clients[index].is_touched, true) {
            self.touched.push(index);
        }
    }

    /// One client's turn.
    fn work(&mut self, index: usize) -> Result<(), Error> {
        self.clients[index].is_touched = false;
        self.clients[index].work(self.now)?;
        while self.clients[index].flush(self.now, &mut self.outbox) {
            self.post(index);
        }
        self.post(index);
        let client = &mut self.clients[index];
        let due = client.poll_timeout();
        let before = std::mem::replace(&mut client.timer, due);
        if let Some(before) = before {
            self.timers.remove(&(before, index));
        }
        if let Some(due) = due {
            self.timers.insert((due, index));
        }
        Ok(())
    }

    /// Puts what a client sends on its way.
    fn post(&mut self, index: usize) {
        let source = address(self.past + index);
        let messages = self.outbox.trains().iter();
        self.to_server
            .extend(messages.map(|train| Message::new(train, source)));
        self.outbox.release(usize::MAX);
    }

    /// The place of the client at this address; `None` where it is forgotten.
    fn place(&self, address: SocketAddr) -> Option<usize> {
        let SocketAddr::V4(address) = address else {
            return None;
        };
        let [_, high, low, _] = address.ip().octets();
        let place = usize::from(u16::from_be_bytes([high, low])).checked_sub(self.past)?;
        (place < self.clients.len()).then_some(place)
    }
}

/// Every client is in a network of its own.
fn address(number: usize) -> SocketAddr {
    let [high, low] = (number as u16).to_be_bytes();
    SocketAddr::from(([10, high, low, 1], 40_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::identity::Identity;

    #[test]
    fn every_datagram_of_every_flow_comes_back_and_idle_clients_stay_connected() {
        let setting = Setting::new(&Identity::new().unwrap()).unwrap();
        let mut world = World::with(&setting, 3, 5).unwrap();
        assert_eq!(world.server.open(), (15, 3));
        for (senders, burst) in [(3, limits::SCALE_BURST), (1, 1)] {
            let load = world.load(senders, burst, burst == 1, Duration::from_millis(5));
            let load = load.unwrap();
            assert!(load.up > 0 && load.up == load.down && load.lost == 0, "{load:?}");
            assert!(load.busy >= Duration::from_millis(5));
        }
        world.rest(Duration::from_secs(60)).unwrap();
        assert_eq!(world.server.open(), (15, 3));
    }

    #[test]
    fn the_connections_of_forgotten_clients_stay_at_the_server_for_a_while() {
        let setting = Setting::new(&Identity::new().unwrap()).unwrap();
        let mut world = World::new(&setting).unwrap();
        for number in 1..=2 {
            world.add_clients(2, 1).unwrap();
            assert_eq!(world.server.open(), (2 * number, 2 * number));
            world.forget_clients();
        }
        world.rest(Duration::from_secs(60)).unwrap();
        assert_eq!(world.server.open(), (0, 0));
    }
}
