//! One worker's connections: the table, the listener, timers, and what is to be sent.
//!
//! After each call the caller takes segments ([`Stack::poll_segment`]) and events ([`Stack::poll_event`]) until there
//! are none, and calls [`Stack::handle_timeout`] when [`Stack::poll_timeout`] says so.

mod listener;
mod table;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use packet::ip::IpView;
use packet::{Ecn, PrefixBudget};

use crate::connection::{Change, Checked, Connection, Outcome, Reply, Settings, Start, State};
use crate::headers::Headers;
use crate::lengths;
use crate::limits;
use crate::seal::Seal;
use crate::secret::Secret;
use crate::segment::Segment;
use crate::tuple::Tuple;
use crate::{Sequence, icmp};

use table::Table;
pub use types::{CloseReason, Config, ConnectError, ConnectionId, Counters, Data, Event, Refused, Transmit};

/// See the module's text.
pub struct Stack {
    config: Config,
    secret: Secret,
    table: Table,
    /// One entry for each connection with a deadline.
    timers: BTreeSet<(Instant, usize)>,
    segments: VecDeque<Transmit>,
    events: VecDeque<Event>,
    half_open: usize,
    quarantined: usize,
    /// Open connections that peers began, by customers' prefix.
    accepted: BTreeMap<IpAddr, u32>,
    syn_budget: PrefixBudget,
    reset_budget: PrefixBudget,
    /// Until when a cookie of ours may come back.
    cookies_until: Option<Instant>,
    frame_bytes_max: usize,
    counters: Counters,
}

const _: () =
    assert!(Table::ENTRY_BYTES_MAX + 2 * size_of::<(Instant, usize)>() <= limits::CONNECTION_BYTES_MAX);

impl Stack {
    /// A stack without connections. `seed` is secret and another one for each worker.
    #[must_use]
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        let secret = Secret::new(&seed);
        Self {
            config,
            table: Table::new(secret.table()),
            secret,
            timers: BTreeSet::new(),
            segments: VecDeque::new(),
            events: VecDeque::new(),
            half_open: 0,
            quarantined: 0,
            accepted: BTreeMap::new(),
            syn_budget: PrefixBudget::new(limits::SYN_ANSWERS.0, limits::SYN_ANSWERS.1),
            reset_budget: PrefixBudget::new(limits::RESETS.0, limits::RESETS.1),
            cookies_until: None,
            frame_bytes_max: 0,
            counters: Counters::default(),
        }
    }

    /// Opens a connection; [`Event::Connected`] or [`Event::Closed`] follows.
    ///
    /// # Errors
    /// [`ConnectError`] where it can't begin.
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<ConnectionId, ConnectError> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::Families);
        }
        let tuple = Tuple { local, remote };
        if self.table.find(&tuple).is_some() {
            return Err(ConnectError::InUse);
        }
        if self.table.is_full() {
            return Err(ConnectError::Full);
        }
        let initial = self.initial_sequence(now, &tuple);
        let start = self.start(now, tuple, initial);
        let index = self.table.insert(Connection::open(now, start, self.settings()));
        self.transmit(index, Reply::Syn);
        self.schedule(index);
        Ok(self.table.id(index))
    }

    /// Takes a packet, from its IP header on: a TCP segment, or an ICMP message about one. Of a super-segment,
    /// `segment_size` says how many bytes of payload each segment has; without it the payload is one datagram. Its
    /// checksum was checked, by the kernel or with [`packet::checksum::verify`]. Gives what is for the user.
    pub fn receive(&mut self, now: Instant, packet: &[u8], segment_size: Option<u16>) -> Option<Data> {
        self.counters.received += 1;
        let Ok(view) = IpView::parse(packet) else {
            self.counters.malformed += 1;
            return None;
        };
        if icmp::is_icmp(&view) {
            self.receive_icmp(now, &view, packet);
            return None;
        }
        let Ok(mut segment) = Segment::parse_viewed(&view, packet) else {
            self.counters.malformed += 1;
            return None;
        };
        let tuple = Tuple {
            local: segment.destination,
            remote: segment.source,
        };
        let index = match self.table.find(&tuple) {
            Some(index) => index,
            None => self.receive_unknown(now, tuple, &segment)?,
        };
        let id = self.table.id(index);
        let size = segment_size.map_or(segment.payload.len(), usize::from);
        let opened = match self.table[index].check(&mut segment, packet, size) {
            Checked::AsItIs => None,
            Checked::Opened(trains) => Some(trains),
            Checked::HelloAgain => {
                self.act(index, |connection| connection.hello_again(now));
                return None;
            }
            Checked::Joined => {
                self.joined(now, index);
                return None;
            }
            Checked::Unproved => {
                self.counters.unproved += 1;
                self.act(index, |connection| connection.receive_unproved(now, &segment));
                return None;
            }
        };
        let has_lengths = self.table[index].has_lengths(&segment);
        let outcome = self.act(index, |connection| connection.receive(now, &segment));
        self.counters.outside += u64::from(outcome.is_outside);
        if outcome.change == Some(Change::Replaced) {
            self.remove(index);
            self.receive_unknown(now, tuple, &segment);
        }
        if !outcome.deliver {
            return None;
        }
        let mut data = self.data(id, &segment, size);
        if let Some(trains) = opened {
            data.trains = trains;
            data.payload.end = data.payload.start;
            self.counters.delivered += 1;
            return Some(data);
        }
        self.take_out(now, data, packet, has_lengths)
    }

    /// Headers for a train of datagrams, `payload` in segments of `segment_size`, of which the last may be shorter;
    /// zero means one datagram. Where `framed`, which is empty before, is not so any more, it is to be sent instead of
    /// the payload. The bytes count as sent: what the caller does not send is lost on the way.
    ///
    /// # Errors
    /// [`Refused`] where nothing may be sent.
    pub fn send(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        payload: &[u8],
        segment_size: usize,
        ecn: Ecn,
        framed: &mut Vec<u8>,
    ) -> Result<Headers, Refused> {
        let index = self.table.index(connection).ok_or(Refused::NotConnected)?;
        let probes = self.table[index].probe_window(now);
        probes.iter().for_each(|probe| self.transmit(index, *probe));
        let headers = self.table[index].send(now, payload, segment_size, ecn, framed);
        match headers {
            Ok(_) => self.counters.sent += 1,
            Err(_) => self.counters.refused += 1,
        }
        self.schedule(index);
        headers
    }

    /// The last train of a connection was not sent after all, of so many bytes, framed where it is; of several the last
    /// one comes back first.
    pub fn take_back(&mut self, connection: ConnectionId, payload_len: usize) {
        if let Some(index) = self.table.index(connection) {
            self.table[index].take_back(payload_len);
        }
    }

    /// From now on new connections are on a link of this MTU, in bytes of an IP packet.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.config.mtu = mtu;
    }

    /// A segment without data that is to be sent.
    pub fn poll_segment(&mut self) -> Option<Transmit> {
        self.segments.pop_front()
    }

    /// What happened to connections.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Stack::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due by `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, index)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, index));
            self.table.entry(index).scheduled = None;
            let due = self.table[index].deadline();
            // One that moved on in the meantime is found here.
            if due.is_none_or(|due| due > now) {
                self.schedule(index);
                continue;
            }
            let id = self.table.id(index);
            self.act(index, |connection| connection.handle_timeout(now));
            let is_same = self
                .table
                .index(id)
                .is_some_and(|index| self.table[index].deadline() == due);
            debug_assert!(!is_same, "a deadline that does not advance");
        }
    }

    /// Ends a connection in order, or gives up to open it; no event follows.
    pub fn close(&mut self, now: Instant, connection: ConnectionId) {
        if let Some(index) = self.table.index(connection) {
            self.act(index, |connection| connection.close(now));
        }
    }

    /// Longest datagram that the connection carries, as far as is known; `None` where it is gone.
    #[must_use]
    pub fn segment_bytes_max(&self, now: Instant, connection: ConnectionId) -> Option<usize> {
        let index = self.table.index(connection)?;
        Some(self.table[index].datagram_bytes_max(now))
    }

    /// Most bytes by which a datagram grows when it is framed.
    #[must_use]
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// Our address and the peer's; `None` where the connection is gone.
    #[must_use]
    pub fn addresses(&self, connection: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        let tuple = self.table[self.table.index(connection)?].tuple;
        Some((tuple.local, tuple.remote))
    }

    /// Connections, those included that are half open, closing or in quarantine.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Whether all connections are over, for the peers as well: at most addresses are in quarantine.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.table.len() == self.quarantined
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn settings(&self) -> Settings {
        Settings {
            profile: self.config.profile,
            keep_alive: self.config.keep_alive,
            idle: self.config.idle,
        }
    }

    fn start(&mut self, now: Instant, tuple: Tuple, initial: Sequence) -> Start {
        let headers = if tuple.local.is_ipv4() { 40 } else { 60 };
        Start {
            tuple,
            initial,
            label: self.secret.label(&tuple),
            timestamp: self.secret.timestamp(now, &tuple),
            mss: self.config.mtu.saturating_sub(headers),
            seal: (self.config.key).map(|key| Box::new(Seal::new(key, self.secret.salt()))),
        }
    }

    fn receive_icmp(&mut self, now: Instant, view: &IpView, packet: &[u8]) {
        let told = icmp::too_big(view, packet);
        let Some((told, index)) = told.and_then(|told| Some((told, self.table.find(&told.tuple)?))) else {
            return;
        };
        if self.table[index].limit_path_mtu(now, told.mtu, told.sequence) {
            let connection = self.table.id(index);
            let segment_bytes_max = self.table[index].datagram_bytes_max(now);
            self.tell(Event::PathMtu {
                connection,
                segment_bytes_max,
            });
        }
    }

    fn data(&mut self, connection: ConnectionId, segment: &Segment, size: usize) -> Data {
        let payload = segment.payload.clone();
        Data {
            connection,
            remote: segment.source,
            segment_size: if size == 0 {
                payload.len()
            } else {
                size.min(payload.len())
            },
            payload,
            trains: Vec::new(),
            ecn: segment.ecn,
        }
    }

    /// Datagrams as they were sent; `None` where nobody knows where one ends (FTCP-21).
    fn take_out(&mut self, now: Instant, mut data: Data, packet: &[u8], has_lengths: bool) -> Option<Data> {
        if has_lengths {
            let Some(found) = lengths::read(&packet[data.payload.clone()]) else {
                self.counters.joined += 1;
                return None;
            };
            let append = |(_, datagram)| lengths::append(&mut data.trains, datagram);
            found.into_iter().for_each(append);
            data.payload.end = data.payload.start;
        } else if let Some(index) = self.table.index(data.connection)
            && self.table[index].is_joined(data.segment_size)
        {
            self.joined(now, index);
            return None;
        }
        self.counters.delivered += 1;
        Some(data)
    }

    /// The path joined segments, which are lost.
    fn joined(&mut self, now: Instant, index: usize) {
        self.counters.joined += 1;
        self.act(index, |connection| connection.ask_for_lengths(now));
    }

    /// Has something happen to a connection, and carries out what follows from it.
    fn act(&mut self, index: usize, happen: impl FnOnce(&mut Connection) -> Outcome) -> Outcome {
        let before = self.facts(index);
        let outcome = happen(&mut self.table[index]);
        self.frame_bytes_max = self.frame_bytes_max.max(self.table[index].frame_bytes());
        self.account(index, before);
        if let Some(reply) = outcome.reply {
            self.transmit(index, reply);
        }
        match outcome.change {
            Some(Change::Ended(reason)) => self.ended(index, reason),
            Some(Change::Forgotten) => self.remove(index),
            Some(Change::Replaced) => {}
            None if self.is_one_too_many_in_quarantine(index) => self.remove(index),
            None => self.schedule(index),
        }
        outcome
    }

    fn ended(&mut self, index: usize, reason: CloseReason) {
        let connection = self.table.id(index);
        let (was_open, is_passive) = (self.table[index].was_open(), self.table[index].is_passive());
        if was_open || !is_passive {
            self.tell(Event::Closed { connection, reason });
        }
        if !was_open || self.is_one_too_many_in_quarantine(index) {
            self.remove(index);
        } else {
            self.schedule(index);
        }
    }

    fn is_one_too_many_in_quarantine(&self, index: usize) -> bool {
        self.quarantined > limits::QUARANTINED_MAX
            && matches!(self.table[index].state(), State::Quarantined { .. })
    }

    fn transmit(&mut self, index: usize, reply: Reply) {
        let connection = &mut self.table[index];
        let tuple = connection.tuple;
        let headers = connection.write(reply);
        let is_open = connection.was_open();
        let connection = is_open.then(|| self.table.id(index));
        self.counters.resets_sent += u64::from(matches!(reply, Reply::Reset(_)));
        self.push(connection, tuple, headers);
    }

    fn push(&mut self, connection: Option<ConnectionId>, tuple: Tuple, headers: Headers) {
        if self.segments.len() >= limits::WAITING_SEGMENTS_MAX {
            self.counters.overflown += 1;
            return;
        }
        self.segments.push_back(Transmit {
            connection,
            local: tuple.local,
            remote: tuple.remote,
            headers,
        });
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() < limits::WAITING_EVENTS_MAX {
            self.events.push_back(event);
        }
    }
}
