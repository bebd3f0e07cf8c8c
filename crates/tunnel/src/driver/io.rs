//! What a shard has around its engine whatever its role: poller, outer socket, resolver, the way to the program, the
//! account of TCP connections.

use std::os::fd::AsFd;
use std::time::Instant;

use packet_io::{Interest, Poller};
use tunnel_proto::Budget;

use super::PollToken;
use super::outer::Outer;
use super::resolver::Resolver;
use crate::config::CommonConfig;
use crate::handle::Notice;
use crate::notices::NoticeSender;
use crate::snapshot::{IoCounters, TcpCounters};

pub(super) struct Io {
    pub(super) common: CommonConfig,
    pub(super) poller: Poller,
    pub(super) outer: Outer,
    pub(super) resolver: Resolver,
    pub(super) notices: NoticeSender,
    pub(super) tcp: TcpCounters,
    /// Budget for TCP connections.
    tcp_budget: Budget,
    /// Counters of inner sockets that are closed.
    pub(super) inner_io_past: IoCounters,
    pub(super) started: Instant,
}

impl Io {
    pub(super) fn new(
        common: CommonConfig,
        poller: Poller,
        resolver: Resolver,
        notices: NoticeSender,
        tcp_budget: Budget,
        now: Instant,
    ) -> Self {
        Self {
            common,
            poller,
            outer: Outer::new(),
            resolver,
            notices,
            tcp: TcpCounters::default(),
            tcp_budget,
            inner_io_past: IoCounters::default(),
            started: now,
        }
    }

    /// Tells the program.
    pub(super) fn notify(&self, notice: Notice) {
        self.notices.send(notice);
    }

    pub(super) fn watch(
        &self,
        source: &impl AsFd,
        token: PollToken,
        interest: Interest,
    ) -> std::io::Result<()> {
        self.poller.add(source, token.encode(), interest)
    }

    /// A TCP connection takes its place; false where there is none.
    pub(super) fn tcp_opened(&mut self) -> bool {
        let is_there = self.tcp_budget.take();
        if is_there {
            self.tcp.total += 1;
            self.tcp.open += 1;
        }
        is_there
    }

    /// A TCP connection goes to another shard, which counts it.
    pub(super) fn tcp_left(&mut self) {
        self.tcp_closed();
        self.tcp.total -= 1;
    }

    pub(super) fn tcp_closed(&mut self) {
        self.tcp_budget.give_back();
        self.tcp.open -= 1;
    }
}
