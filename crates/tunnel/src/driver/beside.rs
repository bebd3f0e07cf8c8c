//! Carriers beside the one that a client's connection uses: those of its attempts to connect, and those of connections
//! that another one has replaced. Each leaves from a port of its own, and is told apart by where it leads.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use packet_io::{Interest, Outgoing, Poller, ReceiveBatch};
use quic::Outbox;
use tunnel_proto::AttemptId;

use super::client::uplink::UplinkBinding;
use super::outer::outgoing;
use super::poll_token::PollToken;
use crate::carrier::{Carrier, Refusal};
use crate::snapshot::IoCounters;

/// One attempt's carrier.
pub(super) struct Beside {
    attempt: AttemptId,
    pub(super) remote: SocketAddr,
    /// How QUIC knows `remote`: another carrier may lead there, too.
    pub(super) known: SocketAddr,
    pub(super) carrier: Box<dyn Carrier>,
    /// How it leaves this machine, where there is a TUN device.
    pub(super) uplink: Option<UplinkBinding>,
}

/// All of a shard, the oldest first; as many as it has attempts.
#[derive(Default)]
pub(super) struct BesideCarriers(Vec<Beside>);

impl BesideCarriers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Beside> {
        self.0.iter_mut()
    }

    /// Whether QUIC knows the peer of a carrier so.
    pub(super) fn knows(&self, address: SocketAddr) -> bool {
        self.0.iter().any(|beside| beside.known == address)
    }

    pub(super) fn oldest(&self) -> Option<&Beside> {
        self.0.first()
    }

    pub(super) fn add(
        &mut self,
        attempt: AttemptId,
        (remote, known): (SocketAddr, SocketAddr),
        carrier: Box<dyn Carrier>,
        uplink: Option<UplinkBinding>,
        poller: &Poller,
    ) -> io::Result<()> {
        poller.add(&carrier, PollToken::Attempt(attempt).encode(), Interest::READABLE)?;
        self.0.push(Beside {
            attempt,
            remote,
            known,
            carrier,
            uplink,
        });
        Ok(())
    }

    /// The carrier of an attempt, which is watched no longer.
    pub(super) fn take(&mut self, attempt: AttemptId, poller: &Poller) -> Option<Beside> {
        let index = self.0.iter().position(|beside| beside.attempt == attempt)?;
        let taken = self.0.remove(index);
        // It is watched since it was added.
        let _ = poller.remove(&taken.carrier);
        Some(taken)
    }

    /// Takes in what an attempt's carrier has received, and how QUIC knows where it came from.
    ///
    /// # Errors
    /// What the path reported.
    pub(super) fn receive(
        &mut self,
        attempt: AttemptId,
        batch: &mut ReceiveBatch,
    ) -> Result<(usize, Option<SocketAddr>), Refusal> {
        let beside = self.0.iter_mut().find(|beside| beside.attempt == attempt);
        beside.map_or(Ok((0, None)), |beside| {
            let count = beside.carrier.receive(batch)?;
            Ok((count, Some(beside.known)))
        })
    }

    /// Sends the trains that lead where an attempt does. What a carrier does not take at once is lost: QUIC repeats a
    /// handshake's packets.
    pub(super) fn send(&mut self, outbox: &mut Outbox) {
        for beside in &mut self.0 {
            let trains = outbox.trains().iter();
            let own = trains.filter(|train| train.destination == beside.known);
            let is_connected = beside.carrier.remote_addr().is_some();
            let messages: Vec<Outgoing<'_>> = own.map(|train| outgoing(train, is_connected)).collect();
            if !messages.is_empty() {
                beside.carrier.send(&messages);
            }
        }
        outbox.discard(|train| self.0.iter().any(|beside| beside.known == train.destination));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let due = self.0.iter().map(|beside| beside.carrier.poll_timeout());
        due.flatten().min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for beside in &mut self.0 {
            if beside.carrier.poll_timeout().is_some_and(|due| due <= now) {
                beside.carrier.handle_timeout(now);
            }
        }
    }

    pub(super) fn add_counters(&mut self, sum: &mut IoCounters) {
        for beside in &mut self.0 {
            *sum += beside.carrier.counters();
        }
    }
}
