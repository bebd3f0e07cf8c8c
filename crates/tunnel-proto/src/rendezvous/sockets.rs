//! Bound sockets of registered peers (RDV-10 to RDV-13), and what shards hand over to each other between them.
//!
//! No socket of the kernel is behind one: both ends of a relayed pair are at this server, so a payload goes from the request
//! of one to the request of the other, on the same shard or by a bounded queue to another one. A socket's address names it
//! within this server alone, and is never given twice.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use masque::datagram::PREFIX_BYTES_MAX;
use quic::ConnectionKey;

use super::table::{Place, Rendezvous};
use crate::access::User;
use crate::engine::{NoService, RequestId};
use crate::limits;

/// The prefix of relayed addresses: packets to it are discarded everywhere (RFC 6666).
const DISCARD_PREFIX: u128 = 0x100 << 112;

/// The port of relayed addresses, which says nothing.
const PORT: u16 = 1;

/// The address of the socket with this number (RDV-10).
pub(super) fn relayed_address(number: u64) -> SocketAddr {
    let ip = Ipv6Addr::from_bits(DISCARD_PREFIX | u128::from(number));
    SocketAddr::new(ip.into(), PORT)
}

/// A bound socket, as shards name it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SocketEnd {
    pub(crate) address: SocketAddr,
    pub(super) place: Place,
}

impl SocketEnd {
    pub(crate) fn shard(&self) -> usize {
        self.place.shard
    }

    /// May be another one's by now: the address tells.
    pub(crate) fn request(&self) -> RequestId {
        self.place.request
    }
}

/// What a shard is given by another one.
#[derive(Debug)]
pub(crate) enum Handover {
    /// From one peer to another.
    Payload {
        from: SocketEnd,
        to: SocketEnd,
        transfer: Transfer,
    },
    /// There is no socket any more at an address that `to` has sent something to.
    Gone { to: SocketEnd, address: SocketAddr },
    /// The registration of a socket has ended.
    Over { socket: SocketEnd },
}

impl Handover {
    pub(crate) fn bytes(&self) -> usize {
        let payload = match self {
            Self::Payload { transfer, .. } => transfer.payload().len(),
            Self::Gone { .. } | Self::Over { .. } => 0,
        };
        Transfer::cost(payload)
    }
}

/// A payload on its way to another shard, behind room for the prefix that it gets there: it is copied once.
#[derive(Debug)]
pub(crate) struct Transfer(BytesMut);

impl Transfer {
    /// Takes its bytes from the arena.
    pub(crate) fn new(arena: &mut BytesMut, payload: &[u8]) -> Self {
        let bytes = PREFIX_BYTES_MAX + payload.len();
        if arena.capacity() - arena.len() < bytes {
            arena.reserve(limits::ARENA_BYTES.max(bytes));
        }
        arena.extend_from_slice(&[0; PREFIX_BYTES_MAX]);
        arena.extend_from_slice(payload);
        Self(arena.split())
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.0[PREFIX_BYTES_MAX..]
    }

    /// The payload behind its prefix, which has at most [`PREFIX_BYTES_MAX`] bytes.
    pub(crate) fn behind(mut self, prefix: &[u8]) -> Bytes {
        let start = PREFIX_BYTES_MAX - prefix.len();
        self.0[start..PREFIX_BYTES_MAX].copy_from_slice(prefix);
        self.0.advance(start);
        self.0.freeze()
    }

    /// What a payload of so many bytes costs while it waits, with its bookkeeping.
    pub(crate) fn cost(payload_bytes: usize) -> usize {
        payload_bytes + PREFIX_BYTES_MAX + limits::HELD_ENTRY_BYTES
    }
}

/// What waits for one shard.
#[derive(Default)]
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    has_some: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    handed: Vec<Handover>,
    bytes: usize,
}

impl Mailbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many payloads found no room, and whether the shard is to be woken.
    fn push(&self, handed: Vec<Handover>) -> (u64, bool) {
        let mut refused = 0;
        let mut waiting = self.waiting();
        for handover in handed {
            let bytes = waiting.bytes + handover.bytes();
            // There are never more ends than registrations.
            let is_end = matches!(handover, Handover::Over { .. });
            if bytes <= limits::RELAY_WAITING_BYTES_MAX || is_end {
                waiting.bytes = bytes;
                waiting.handed.push(handover);
            } else if matches!(handover, Handover::Payload { .. }) {
                refused += 1;
            }
        }
        (refused, !self.has_some.swap(true, Ordering::SeqCst))
    }

    fn take(&self) -> Vec<Handover> {
        if !self.has_some.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut waiting = self.waiting();
        self.has_some.store(false, Ordering::SeqCst);
        waiting.bytes = 0;
        std::mem::take(&mut waiting.handed)
    }
}

/// The relay of one shard, for [`crate::Engine::serve_relay`].
#[derive(Debug)]
pub struct Relay {
    rendezvous: Rendezvous,
    shard: usize,
}

impl Relay {
    pub(super) fn new(rendezvous: Rendezvous, shard: usize) -> Self {
        Self { rendezvous, shard }
    }

    pub(crate) fn shard(&self) -> usize {
        self.shard
    }

    /// A socket for the peer that is registered on a connection.
    pub(crate) fn bind(
        &self,
        user: User,
        connection: ConnectionKey,
        request: RequestId,
    ) -> Result<BoundSocket, NoService> {
        let place = Place {
            shard: self.shard,
            request,
        };
        let address = self.rendezvous.bind(user.id(), connection, place)?;
        Ok(BoundSocket {
            rendezvous: self.rendezvous.clone(),
            user,
            end: SocketEnd { address, place },
            contexts: 0,
            relayed_bytes: 0,
        })
    }

    /// Every second: ends the time of guests.
    pub(crate) fn sweep(&self, now: Instant) {
        if let Some(guests) = self.rendezvous.guests() {
            guests.sweep(now);
        }
    }

    /// Gives another shard something. How many payloads found no room.
    pub(crate) fn hand_over(&self, shard: usize, handed: Vec<Handover>) -> u64 {
        self.rendezvous.hand_over(shard, handed)
    }

    /// What other shards have given.
    pub(crate) fn take_handed_over(&self) -> Vec<Handover> {
        self.rendezvous.mailbox(self.shard).take()
    }
}

impl Rendezvous {
    pub(super) fn hand_over(&self, shard: usize, handed: Vec<Handover>) -> u64 {
        let (refused, wakes) = self.mailbox(shard).push(handed);
        if wakes {
            self.wake(shard);
        }
        refused
    }
}

/// A socket of a peer, as long as its request.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    rendezvous: Rendezvous,
    /// Whose it is.
    user: User,
    end: SocketEnd,
    /// Those that count among all of its user and of the server.
    contexts: usize,
    /// Payload that was taken and is not counted yet.
    relayed_bytes: u64,
}

impl BoundSocket {
    pub(crate) fn end(&self) -> SocketEnd {
        self.end
    }

    /// Payload from this socket is taken to be relayed; counted by [`Self::report_relayed`].
    pub(crate) fn take_relayed(&mut self, bytes: usize) {
        self.relayed_bytes += bytes as u64;
    }

    /// Counts what was taken since the last call among that of its user and of the server, which all shards share.
    pub(crate) fn report_relayed(&mut self) {
        let bytes = std::mem::take(&mut self.relayed_bytes);
        if bytes > 0 {
            self.user.add_relayed_bytes(bytes);
            self.rendezvous.count_relayed(bytes);
        }
    }

    /// Takes a place for a context to the socket with this address, where there is one, and room (RDV-12).
    pub(crate) fn open_context(&mut self, address: SocketAddr) -> Option<SocketEnd> {
        if address == self.end.address {
            return None;
        }
        let place = self.rendezvous.take_context(self.user.id(), address)?;
        self.contexts += 1;
        Some(SocketEnd { address, place })
    }

    pub(crate) fn close_context(&mut self) {
        self.contexts -= 1;
        self.rendezvous.give_contexts_back(self.user.id(), 1);
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        self.report_relayed();
        self.rendezvous.give_contexts_back(self.user.id(), self.contexts);
        self.rendezvous.unbind(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(bytes: usize) -> Handover {
        let end = SocketEnd {
            address: relayed_address(1),
            place: Place {
                shard: 0,
                request: RequestId::from_index(0),
            },
        };
        Handover::Payload {
            from: end,
            to: end,
            transfer: Transfer::new(&mut BytesMut::new(), &vec![0; bytes]),
        }
    }

    /// RDV-10.
    #[test]
    fn relayed_addresses_are_of_the_prefix_that_is_discarded() {
        assert_eq!(relayed_address(7).to_string(), "[100::7]:1");
        assert_eq!(
            relayed_address(u64::MAX).to_string(),
            "[100::ffff:ffff:ffff:ffff]:1"
        );
    }

    #[test]
    fn a_transferred_payload_has_room_for_every_prefix() {
        let mut arena = BytesMut::new();
        for length in 0..=PREFIX_BYTES_MAX {
            let transfer = Transfer::new(&mut arena, b"payload");
            assert_eq!(transfer.payload(), b"payload");
            let prefix = vec![7; length];
            assert_eq!(transfer.behind(&prefix), [&prefix[..], b"payload"].concat());
        }
    }

    /// RDV-13.
    #[test]
    fn what_waits_for_a_shard_is_bounded_and_its_room_comes_back() {
        let mailbox = Mailbox::default();
        assert!(mailbox.take().is_empty());
        let fits = limits::RELAY_WAITING_BYTES_MAX / Transfer::cost(60_000);
        let many = (0..fits + 3).map(|_| payload(60_000)).collect();
        assert_eq!(mailbox.push(many), (3, true));
        assert_eq!(mailbox.push(vec![payload(60_000)]), (1, false));
        assert_eq!(mailbox.take().len(), fits);
        assert_eq!(mailbox.push(vec![payload(60_000)]), (0, true));
    }
}
