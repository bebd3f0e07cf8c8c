//! The relay near the target: each connection has a UDP socket of its own towards the target, from its first datagram
//! on.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fake_tcp_socket::{ConnectionId, Event, FakeTcpSocket};
use packet_io::{DatagramSocket, Outgoing, Poller, ReceiveBatch, SLOT_BYTES_MAX, SocketOptions, UdpSocket};

use crate::counters::Counters;
use crate::flows::Flows;
use crate::limits::{BATCH_SLOTS, FLOW_BUFFER_BYTES};
use crate::trains::Trains;
use crate::worker::{FLOWS, READ, Side, TCP, earlier, receive_or_pass};

pub(crate) struct Server {
    tcp: FakeTcpSocket,
    target: SocketAddr,
    batch: ReceiveBatch,
    trains: Trains,
    /// By connection, each with its socket.
    flows: Flows<ConnectionId, UdpSocket>,
    /// Kernel drops of sockets that are gone.
    past_drops: u64,
    counters: Counters,
}

impl Server {
    pub(crate) fn new(tcp: FakeTcpSocket, target: SocketAddr, idle: Duration) -> Self {
        Self {
            tcp,
            target,
            batch: ReceiveBatch::new(BATCH_SLOTS, SLOT_BYTES_MAX),
            trains: Trains::default(),
            flows: Flows::new(idle),
            past_drops: 0,
            counters: Counters::default(),
        }
    }

    /// One batch from connections; `false` where nothing was there.
    fn receive_tcp(&mut self, now: Instant, poller: &Poller) -> io::Result<bool> {
        let count = receive_or_pass(&mut self.tcp, now, &mut self.batch)?;
        self.trains.clear();
        for index in 0..count {
            let datagrams = self.batch.get(index).meta.segments() as u64;
            self.counters.tcp_received += datagrams;
            let connection = self.tcp.connection_of(index);
            match self.flow(now, poller, connection) {
                Some(flow) => {
                    self.flows.touch(now, flow);
                    self.trains.push(flow, &self.batch, index);
                }
                None => self.counters.no_flow += datagrams,
            }
        }
        self.send_udp();
        Ok(count > 0)
    }

    /// Sends each flow's messages by its socket; messages of one flow in a row in one call.
    fn send_udp(&mut self) {
        let mut run: Vec<Outgoing<'_>> = Vec::new();
        let mut messages = self.trains.messages(&self.batch).peekable();
        let mut offered = 0;
        while let Some((flow, message, count)) = messages.next() {
            run.push(message);
            offered += count;
            if messages.peek().is_some_and(|(next, ..)| *next == flow) {
                continue;
            }
            if let Some(flow) = self.flows.get_mut(flow) {
                let outcome = flow.state.send(&run).unwrap_or_default();
                self.counters.udp_sent += self.counters.sent(offered, &outcome);
            }
            run.clear();
            offered = 0;
        }
    }

    /// One batch from the target; `false` where nothing was there.
    fn receive_udp(&mut self, now: Instant, index: usize) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        // An error is what ICMP said about an earlier datagram.
        let count = flow.state.receive(&mut self.batch).unwrap_or(0);
        let connection = Some(flow.key);
        self.trains.clear();
        for message in 0..count {
            let meta = *self.batch.get(message).meta;
            let datagrams = meta.segments() as u64;
            self.counters.udp_received += datagrams;
            if meta.truncated || meta.len == 0 {
                self.counters.other += datagrams;
            } else {
                self.trains.push(index, &self.batch, message);
            }
        }
        if !self.trains.is_empty() {
            self.flows.touch(now, index);
            let (mut messages, mut offered) = (Vec::new(), 0);
            for (_, message, count) in self.trains.messages(&self.batch) {
                messages.push(message);
                offered += count;
            }
            let connections = vec![connection; messages.len()];
            let outcome = self.tcp.send_by(now, &messages, &connections);
            self.counters.tcp_sent += self.counters.sent(offered, &outcome);
        }
        count > 0
    }

    /// The flow of a connection; `None` where there are no more, or no more sockets.
    fn flow(&mut self, now: Instant, poller: &Poller, connection: ConnectionId) -> Option<usize> {
        if let Some(index) = self.flows.find(&connection) {
            return Some(index);
        }
        if self.flows.is_full() {
            return None;
        }
        let options = SocketOptions {
            receive_buffer_bytes: FLOW_BUFFER_BYTES,
            send_buffer_bytes: FLOW_BUFFER_BYTES,
            receive_ecn: true,
            ..SocketOptions::default()
        };
        let socket = UdpSocket::connect(None, self.target, &options).ok()?;
        let index = self.flows.insert(now, connection, socket);
        let watched = self
            .flows
            .get(index)
            .map(|flow| poller.add(&flow.state, FLOWS + index as u64, READ));
        if !matches!(watched, Some(Ok(()))) {
            self.flows.remove(index);
            return None;
        }
        self.counters.flows += 1;
        Some(index)
    }

    fn forget(&mut self, index: usize) {
        let mut flow = self.flows.remove(index);
        let _ = flow.state.refresh_kernel_drops();
        self.past_drops += flow.state.stats().kernel_drops;
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.tcp.poll_event() {
            if let Event::Closed { connection, .. } = event
                && let Some(index) = self.flows.find(&connection)
            {
                self.forget(index);
            }
        }
    }
}

impl Side for Server {
    fn register(&self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.tcp, TCP, READ)
    }

    fn receive(&mut self, now: Instant, poller: &Poller, token: u64) -> io::Result<bool> {
        let came = match token.checked_sub(FLOWS) {
            None => self.receive_tcp(now, poller)?,
            Some(index) => self.receive_udp(now, index as usize),
        };
        self.handle_events();
        Ok(came)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.tcp.poll_timeout(), self.flows.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tcp.handle_timeout(now);
        self.handle_events();
        while let Some(index) = self.flows.poll_expired(now) {
            if let Some(flow) = self.flows.get(index) {
                self.tcp.close(now, flow.key);
            }
            self.forget(index);
            self.counters.expired += 1;
        }
    }

    fn close(&mut self, now: Instant) {
        for (_, flow) in self.flows.iter() {
            self.tcp.close(now, flow.key);
        }
    }

    fn is_quiet(&self) -> bool {
        self.tcp.is_quiet()
    }

    fn of_connections(&self) -> fake_tcp_socket::Counters {
        self.tcp.counters()
    }

    fn counters(&mut self) -> Counters {
        let of_flows: u64 = self
            .flows
            .iter()
            .map(|(_, flow)| flow.state.stats().kernel_drops)
            .sum();
        Counters {
            flows_open: self.flows.len() as u64,
            joined: self.of_connections().joined,
            unproved: self.of_connections().unproved,
            kernel_drops: of_flows + self.past_drops + self.tcp.stats().kernel_drops,
            ..self.counters
        }
    }
}
