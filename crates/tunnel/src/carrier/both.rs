//! A server's carrier of both kinds: peers over UDP, and peers in TCP's shape, whose addresses are marked
//! ([`CarrierKind`]).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use packet::CarrierKind;
use packet_io::{Outgoing, ReceiveBatch, SendOutcome};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::tcp::TcpCarrier;
use super::{Carrier, Refusal};
use crate::snapshot::IoCounters;

/// Which of the two.
const KINDS: [CarrierKind; 2] = [CarrierKind::Udp, CarrierKind::Tcp];

pub(super) struct BothCarriers {
    udp: Box<dyn Carrier>,
    tcp: TcpCarrier,
    /// Watches both.
    watcher: OwnedFd,
    /// The one that took no more, until it does.
    full: Option<CarrierKind>,
    /// Which one is asked first.
    turn: CarrierKind,
}

impl BothCarriers {
    pub(super) fn new(udp: Box<dyn Carrier>, tcp: TcpCarrier) -> io::Result<Self> {
        let watcher = epoll::create(CreateFlags::CLOEXEC)?;
        let both = Self {
            udp,
            tcp,
            watcher,
            full: None,
            turn: CarrierKind::Udp,
        };
        for kind in KINDS {
            epoll::add(&both.watcher, both.descriptor(kind), data(kind), EventFlags::IN)?;
        }
        if let Some(bell) = both.tcp.bell() {
            epoll::add(&both.watcher, bell, data(CarrierKind::Tcp), EventFlags::IN)?;
        }
        Ok(both)
    }

    fn descriptor(&self, kind: CarrierKind) -> BorrowedFd<'_> {
        match kind {
            CarrierKind::Udp => self.udp.as_fd(),
            CarrierKind::Tcp => self.tcp.as_fd(),
        }
    }

    fn carrier(&mut self, kind: CarrierKind) -> &mut dyn Carrier {
        match kind {
            CarrierKind::Udp => self.udp.as_mut(),
            CarrierKind::Tcp => &mut self.tcp,
        }
    }

    /// Has the watcher wake for room to write, or no longer.
    fn set_full(&mut self, full: Option<CarrierKind>) {
        for (kind, flags) in [
            (self.full, EventFlags::IN),
            (full, EventFlags::IN | EventFlags::OUT),
        ] {
            if let Some(kind) = kind {
                // It is watched since this carrier was made.
                let _ = epoll::modify(&self.watcher, self.descriptor(kind), data(kind), flags);
            }
        }
        self.full = full;
    }
}

fn data(kind: CarrierKind) -> EventData {
    EventData::new_u64(kind as u64)
}

fn kind_of(message: &Outgoing<'_>) -> CarrierKind {
    message.destination.map_or(CarrierKind::Udp, CarrierKind::of)
}

impl AsFd for BothCarriers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watcher.as_fd()
    }
}

impl Carrier for BothCarriers {
    fn receive(&mut self, batch: &mut ReceiveBatch) -> Result<usize, Refusal> {
        for _ in KINDS {
            let kind = self.turn;
            self.turn = KINDS[usize::from(kind == CarrierKind::Udp)];
            let count = self.carrier(kind).receive(batch)?;
            if count > 0 {
                return Ok(count);
            }
        }
        Ok(0)
    }

    /// Messages of one kind in a row leave in one call.
    fn send(&mut self, messages: &[Outgoing<'_>]) -> SendOutcome {
        let mut sum = SendOutcome::default();
        for run in messages.chunk_by(|one, next| kind_of(one) == kind_of(next)) {
            let kind = kind_of(&run[0]);
            let outcome = self.carrier(kind).send(run);
            sum.segments += outcome.segments;
            sum.dropped += outcome.dropped;
            sum.messages += outcome.messages;
            if outcome.blocked {
                (sum.blocked, sum.partial_segments) = (true, outcome.partial_segments);
                self.set_full(Some(kind));
                break;
            }
            // What is left of a run can never be sent.
            sum.messages += run.len() - outcome.messages;
        }
        sum
    }

    fn takes_more(&mut self) -> bool {
        let Some(kind) = self.full else {
            return true;
        };
        let takes_more = self.carrier(kind).takes_more();
        if takes_more {
            self.set_full(None);
        }
        takes_more
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.udp.local_addr()
    }

    fn remote_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn counters(&mut self) -> IoCounters {
        let mut sum = self.udp.counters();
        sum += self.tcp.counters();
        sum
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tcp.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.tcp.handle_timeout(now);
    }

    fn warning(&self) -> Option<String> {
        self.udp.warning().or_else(|| self.tcp.warning())
    }
}
