//! The relay near the clients: each UDP peer has a connection, which is opened when it sends something, and again, from
//! another port, when it sends something after the last one ended.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fake_tcp_socket::{ConnectionId, Event, FakeTcpSocket, Held};
use packet_io::{DatagramSocket, Outgoing, Poller, ReceiveBatch, Received, SLOT_BYTES_MAX, UdpSocket};

use crate::counters::Counters;
use crate::flows::Flows;
use crate::limits::{BATCH_SLOTS, HELD_BYTES_ALL_MAX, HELD_BYTES_MAX, REOPEN};
use crate::trains::Trains;
use crate::worker::{READ, Side, TCP, UDP, earlier, longer, receive_or_pass};

/// A UDP peer, and which of our addresses it sends to.
type Peer = (SocketAddr, Option<IpAddr>);

/// How far a flow's connection is.
#[derive(Default)]
struct State {
    connection: Option<ConnectionId>,
    is_open: bool,
    had_one: bool,
    /// It may be opened again from here on.
    reopen_at: Option<Instant>,
    pause: Duration,
    /// Wants to be opened as soon as the way is known.
    is_waiting: bool,
    held: Vec<Held>,
    held_bytes: usize,
}

pub(crate) struct Client {
    udp: UdpSocket,
    tcp: FakeTcpSocket,
    batch: ReceiveBatch,
    trains: Trains,
    flows: Flows<Peer, State>,
    by_connection: HashMap<ConnectionId, usize>,
    /// Flows that wait for the way to the server.
    waiting: VecDeque<usize>,
    held_bytes: usize,
    is_closing: bool,
    counters: Counters,
}

impl Client {
    pub(crate) fn new(udp: UdpSocket, tcp: FakeTcpSocket, idle: Duration) -> Self {
        Self {
            udp,
            tcp,
            batch: ReceiveBatch::new(BATCH_SLOTS, SLOT_BYTES_MAX),
            trains: Trains::default(),
            flows: Flows::new(idle),
            by_connection: HashMap::new(),
            waiting: VecDeque::new(),
            held_bytes: 0,
            is_closing: false,
            counters: Counters::default(),
        }
    }

    /// One batch from UDP peers; `false` where nothing was there.
    fn receive_udp(&mut self, now: Instant) -> io::Result<bool> {
        let count = self.udp.receive(&mut self.batch)?;
        self.trains.clear();
        for index in 0..count {
            let meta = *self.batch.get(index).meta;
            let datagrams = meta.segments() as u64;
            self.counters.udp_received += datagrams;
            if meta.truncated || meta.len == 0 {
                self.counters.other += datagrams;
                continue;
            }
            let Some(flow) = self.flow(now, (meta.source, meta.local)) else {
                self.counters.no_flow += datagrams;
                continue;
            };
            self.flows.touch(now, flow);
            if self.flows.get(flow).is_some_and(|flow| flow.state.is_open) {
                self.trains.push(flow, &self.batch, index);
            } else {
                self.hold(flow, index);
                self.open(now, flow);
            }
        }
        self.send_tcp(now);
        Ok(count > 0)
    }

    fn send_tcp(&mut self, now: Instant) {
        if self.trains.is_empty() {
            return;
        }
        let (mut messages, mut connections, mut offered) = (Vec::new(), Vec::new(), 0);
        for (flow, message, count) in self.trains.messages(&self.batch) {
            messages.push(message);
            connections.push(self.flows.get(flow).and_then(|flow| flow.state.connection));
            offered += count;
        }
        let outcome = self.tcp.send_by(now, &messages, &connections);
        self.counters.tcp_sent += self.counters.sent(offered, &outcome);
    }

    /// One batch from connections; `false` where nothing was there.
    fn receive_tcp(&mut self, now: Instant) -> io::Result<bool> {
        let count = receive_or_pass(&mut self.tcp, now, &mut self.batch)?;
        self.trains.clear();
        for index in 0..count {
            let datagrams = self.batch.get(index).meta.segments() as u64;
            self.counters.tcp_received += datagrams;
            match self.find_connection(self.tcp.connection_of(index)) {
                Some(flow) => {
                    self.flows.touch(now, flow);
                    self.trains.push(flow, &self.batch, index);
                }
                None => self.counters.no_connection += datagrams,
            }
        }
        let (mut messages, mut offered) = (Vec::new(), 0);
        for (flow, message, count) in self.trains.messages(&self.batch) {
            let Some((peer, local)) = self.flows.get(flow).map(|flow| flow.key) else {
                continue;
            };
            messages.push(Outgoing {
                destination: Some(peer),
                source: local,
                ..message
            });
            offered += count;
        }
        if !messages.is_empty() {
            let outcome = self.udp.send(&messages)?;
            self.counters.udp_sent += self.counters.sent(offered, &outcome);
        }
        Ok(count > 0)
    }

    /// The flow of a peer; `None` where the table is full.
    fn flow(&mut self, now: Instant, peer: Peer) -> Option<usize> {
        if let Some(index) = self.flows.find(&peer) {
            return Some(index);
        }
        if self.flows.is_full() {
            return None;
        }
        self.counters.flows += 1;
        Some(self.flows.insert(now, peer, State::default()))
    }

    fn find_connection(&self, connection: ConnectionId) -> Option<usize> {
        self.by_connection.get(&connection).copied()
    }

    /// Opens the connection of a flow, where it has none and it is time.
    fn open(&mut self, now: Instant, index: usize) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let state = &mut flow.state;
        if state.connection.is_some() || state.is_waiting || state.reopen_at.is_some_and(|at| now < at) {
            return;
        }
        match self.tcp.open(now) {
            Ok(connection) => {
                state.connection = Some(connection);
                self.by_connection.insert(connection, index);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                state.is_waiting = true;
                self.waiting.push_back(index);
            }
            Err(_) => self.failed(now, index),
        }
    }

    /// Opens the flows that waited for the way.
    fn open_waiting(&mut self, now: Instant) {
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else {
                return;
            };
            // A flow that took the place of another one is not waiting.
            let waits = |state: &mut State| std::mem::take(&mut state.is_waiting);
            if self
                .flows
                .get_mut(index)
                .is_some_and(|flow| waits(&mut flow.state))
            {
                self.open(now, index);
            }
        }
    }

    /// Keeps a message until the connection is open, within the limits.
    fn hold(&mut self, index: usize, message: usize) {
        let received: Received<'_> = self.batch.get(message);
        let (bytes, count) = (received.payload.len(), received.meta.segments() as u64);
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let state = &mut flow.state;
        if state.held_bytes + bytes > HELD_BYTES_MAX || self.held_bytes + bytes > HELD_BYTES_ALL_MAX {
            self.counters.no_connection += count;
            return;
        }
        state.held_bytes += bytes;
        self.held_bytes += bytes;
        self.counters.waiting += count;
        let meta = received.meta;
        state
            .held
            .push(Held::new(received.payload, meta.segment_size, meta.ecn));
    }

    /// What waited, which waits no longer.
    fn take_held(&mut self, index: usize) -> Vec<Held> {
        let Some(flow) = self.flows.get_mut(index) else {
            return Vec::new();
        };
        self.held_bytes -= std::mem::take(&mut flow.state.held_bytes);
        let held = std::mem::take(&mut flow.state.held);
        self.counters.waiting -= held.iter().map(Held::datagrams).sum::<u64>();
        held
    }

    fn drop_held(&mut self, index: usize) {
        let held = self.take_held(index);
        self.counters.no_connection += held.iter().map(Held::datagrams).sum::<u64>();
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.tcp.poll_event() {
            match event {
                Event::Connected { connection } => self.opened(now, connection),
                Event::Closed { connection, .. } => {
                    if let Some(index) = self.by_connection.remove(&connection) {
                        self.failed(now, index);
                    }
                }
                Event::Accepted { .. } | Event::PathMtu { .. } => {}
            }
        }
    }

    fn opened(&mut self, now: Instant, connection: ConnectionId) {
        let Some(index) = self.find_connection(connection) else {
            return;
        };
        if let Some(flow) = self.flows.get_mut(index) {
            self.counters.reconnects += u64::from(flow.state.had_one);
            (flow.state.is_open, flow.state.had_one) = (true, true);
            (flow.state.reopen_at, flow.state.pause) = (None, Duration::ZERO);
        }
        let held = self.take_held(index);
        let offered = held.iter().map(Held::datagrams).sum();
        let messages: Vec<_> = held.iter().map(Held::message).collect();
        let connections = vec![Some(connection); messages.len()];
        let outcome = self.tcp.send_by(now, &messages, &connections);
        self.counters.tcp_sent += self.counters.sent(offered, &outcome);
    }

    /// The connection ended, or could not begin. The flow opens another one with its next datagram: at once where this
    /// one was open, after a pause where it never was.
    fn failed(&mut self, now: Instant, index: usize) {
        self.drop_held(index);
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let state = &mut flow.state;
        state.connection = None;
        if !std::mem::take(&mut state.is_open) {
            state.pause = longer(state.pause, REOPEN);
            state.reopen_at = Some(now + state.pause);
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(index) = self.flows.poll_expired(now) {
            self.drop_held(index);
            let flow = self.flows.remove(index);
            if let Some(connection) = flow.state.connection {
                self.by_connection.remove(&connection);
                self.tcp.close(now, connection);
            }
            self.counters.expired += 1;
        }
    }
}

impl Side for Client {
    fn register(&self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.udp, UDP, READ)?;
        poller.add(&self.tcp, TCP, READ)
    }

    fn receive(&mut self, now: Instant, poller: &Poller, token: u64) -> io::Result<bool> {
        let came = match token {
            UDP if self.is_closing => {
                poller.remove(&self.udp)?;
                false
            }
            UDP => self.receive_udp(now)?,
            _ => self.receive_tcp(now)?,
        };
        self.handle_events(now);
        Ok(came)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.tcp.poll_timeout(), self.flows.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tcp.handle_timeout(now);
        self.open_waiting(now);
        self.handle_events(now);
        self.expire(now);
    }

    fn close(&mut self, now: Instant) {
        self.is_closing = true;
        for connection in self.by_connection.keys() {
            self.tcp.close(now, *connection);
        }
    }

    fn is_quiet(&self) -> bool {
        self.tcp.is_quiet()
    }

    fn of_connections(&self) -> fake_tcp_socket::Counters {
        self.tcp.counters()
    }

    fn counters(&mut self) -> Counters {
        // It fails on no open socket.
        let _ = self.udp.refresh_kernel_drops();
        Counters {
            flows_open: self.flows.len() as u64,
            joined: self.of_connections().joined,
            unproved: self.of_connections().unproved,
            kernel_drops: self.udp.stats().kernel_drops + self.tcp.stats().kernel_drops,
            ..self.counters
        }
    }
}
