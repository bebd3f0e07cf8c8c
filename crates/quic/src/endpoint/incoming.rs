//! New connections: offered to the caller as [`Event::Incoming`], who accepts, refuses or ignores each, or has its address
//! proved first.
//!
//! Bounds come before the offer: where there are too many strangers one of them makes room, and above the named rate an
//! address has to prove itself ([`crate::admission`]). What is offered counts as a stranger, waits within limits of its own,
//! and is ignored where no decision comes; the packets that follow the first one wait in the core. What still arrives of a first
//! flight after its connection was refused, ignored or sent a Retry would look new: for a while it is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use packet::CarrierKind;
use quinn_proto::{Transmit, VarInt};

use super::{Endpoint, Receiver};
use crate::admission::{Place, Proof, Stranger, Verdict};
use crate::config::AcceptParameters;
use crate::connection::{Connection, Peer, StreamGrants};
use crate::counters::IncomingCounters;
use crate::error::AcceptError;
use crate::event::{ConnectionKey, Event, Incoming, IncomingKey};
use crate::transmit::Outbox;
use crate::transport::{Payloads, Rights};
use crate::{initial, limits, trace, translate, transport};

/// New connections that wait for the caller's decision.
pub(super) struct Undecided {
    /// Keys grow, and all wait equally long: the first one expires first.
    entries: BTreeMap<IncomingKey, Entry>,
    /// Not accepted lately, oldest first.
    turned_down: VecDeque<TurnedDown>,
    offered: u64,
    bytes: usize,
    entries_max: usize,
    bytes_max: usize,
}

struct Entry {
    core: quinn_proto::Incoming,
    deadline: Instant,
    /// What our interface towards it carries.
    udp_payload_ceiling: u16,
    /// Where its first packet went.
    destination_id: Bytes,
    bytes: usize,
    /// Among the strangers.
    place: Place,
}

/// A connection whose first flight may still be arriving.
struct TurnedDown {
    at: Instant,
    remote: SocketAddr,
    destination_id: Bytes,
}

impl Undecided {
    /// For one of so many shards, which has its part of the bounds.
    pub(super) fn new(shards: u8) -> Self {
        Self {
            entries: BTreeMap::new(),
            turned_down: VecDeque::new(),
            offered: 0,
            bytes: 0,
            entries_max: limits::UNDECIDED_MAX / usize::from(shards),
            bytes_max: limits::UNDECIDED_BYTES_MAX / usize::from(shards),
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.entries.len() < self.entries_max && self.bytes + bytes <= self.bytes_max
    }

    /// The key of the next one.
    fn next_key(&self) -> IncomingKey {
        IncomingKey(self.offered)
    }

    fn insert(&mut self, entry: Entry) -> IncomingKey {
        let key = self.next_key();
        self.offered += 1;
        self.bytes += entry.bytes;
        self.entries.insert(key, entry);
        key
    }

    fn take(&mut self, key: IncomingKey) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// As [`Self::take`], for a connection that is not accepted.
    fn turn_down(&mut self, now: Instant, key: IncomingKey) -> Option<Entry> {
        let entry = self.take(key)?;
        if self.turned_down.len() >= limits::TURNED_DOWN_MAX {
            self.turned_down.pop_front();
        }
        self.turned_down.push_back(TurnedDown {
            at: now,
            remote: entry.core.remote_address(),
            destination_id: entry.destination_id.clone(),
        });
        Some(entry)
    }

    /// Whether a first packet belongs to a connection that was turned down just now.
    fn was_turned_down(&mut self, now: Instant, remote: SocketAddr, destination_id: &[u8]) -> bool {
        let is_over = |one: &TurnedDown| now.duration_since(one.at) >= limits::TURNED_DOWN_TIME;
        while self.turned_down.front().is_some_and(is_over) {
            self.turned_down.pop_front();
        }
        self.turned_down
            .iter()
            .any(|one| one.remote == remote && one.destination_id == destination_id)
    }

    /// When the next one expires, and which.
    pub(super) fn deadline(&self) -> Option<(Instant, IncomingKey)> {
        let (key, entry) = self.entries.first_key_value()?;
        Some((entry.deadline, *key))
    }
}

impl Endpoint {
    /// Accepts a new connection. It has the streams and credit of a stranger until [`Endpoint::authenticate`].
    ///
    /// # Errors
    /// [`AcceptError`] where it waits no longer, or its first packet cannot be used.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: IncomingKey,
        parameters: &AcceptParameters,
    ) -> Result<ConnectionKey, AcceptError> {
        let keys = parameters
            .identity
            .as_ref()
            .and_then(|identity| identity.keys.clone());
        if self.is_covered && keys.is_none() {
            self.ignore(now, incoming);
            return Err(AcceptError::Unrecognised);
        }
        let (Some(entry), Some(server)) = (self.undecided.take(incoming), &self.server) else {
            return Err(AcceptError::Gone);
        };
        let (place, ceiling, bytes) = (entry.place, entry.udp_payload_ceiling, entry.bytes);
        let profile = parameters.profile.unwrap_or(self.profile);
        let may = parameters.limits.bounded();
        let (payloads, rights) = match &self.peers {
            Some(_) => (
                Payloads::between_peers(entry.core.remote_address(), ceiling),
                Rights::of_strange_peer(&may, self.stream_window()),
            ),
            None => (
                Payloads::probed(limits::UDP_PAYLOAD_MIN, ceiling),
                Rights::of_stranger(&may),
            ),
        };
        let gate = self.gate();
        let trace = self.tracer.as_mut().and_then(|tracer| tracer.begin());
        let stream = trace.as_ref().and_then(|trace| trace::stream(trace, now, false));
        let mut server = server.clone();
        server.transport_config(transport::settings(
            profile,
            payloads,
            rights,
            self.idle_timeout(),
            &gate,
            stream,
        ));
        if let Some(identity) = &parameters.identity {
            let crypto = Arc::clone(&identity.crypto);
            server.crypto = crypto;
        }
        let mut answer = Vec::new();
        let accepted = self
            .proto
            .accept(entry.core, now, &mut answer, Some(Arc::new(server)));
        let (handle, mut proto) = match accepted {
            Ok(accepted) => accepted,
            Err(refused) => {
                self.incoming.damaged += 1;
                self.admission.end(place);
                if !self.is_covered {
                    self.answer(refused.response, answer);
                }
                return Err(AcceptError::FirstPacket(translate::close_reason(&refused.cause)));
            }
        };
        // The credit that the peer has from its transport parameters is not renewed by reading.
        proto.set_receive_window(VarInt::from_u32(0));
        let key = ConnectionKey(handle.0);
        let mut connection = Connection::new(
            now,
            proto,
            key,
            profile,
            gate,
            Peer::Client(keys),
            self.is_covered,
        );
        self.admission.accepted(place, key);
        connection.place = Some(place);
        connection.trace = trace;
        connection.deadline = Some(now + may.authentication_deadline.min(limits::HANDSHAKE_TIME_MAX));
        connection.token_deadline = Some(now + may.authentication_deadline);
        connection.streams = match &self.peers {
            Some(_) => StreamGrants::PEER,
            None => StreamGrants::of_client(may.streams),
        };
        connection.stream_window = self.stream_window();
        self.incoming.accepted += 1;
        self.insert(key, connection);
        self.charge(now, key.0, bytes);
        Ok(key)
    }

    /// Asks a new connection's peer to prove its address (RFC 9000 section 8.1.2); it is offered again, validated, when its
    /// answer comes. `false`, with nothing changed, where the address is proved, the connection waits no longer, or the
    /// endpoint is covered.
    pub fn retry(&mut self, now: Instant, incoming: IncomingKey) -> bool {
        let may_retry = |entry: &Entry| entry.core.may_retry();
        if self.is_covered || !self.undecided.entries.get(&incoming).is_some_and(may_retry) {
            return false;
        }
        let Some(entry) = self.undecided.turn_down(now, incoming) else {
            return false;
        };
        self.incoming.retried += 1;
        self.admission.end(entry.place);
        let mut answer = Vec::new();
        let transmit = self.proto.retry(entry.core, &mut answer).ok();
        self.answer(transmit, answer);
        true
    }

    /// Tells a new connection's peer that it is not wanted (CONNECTION_REFUSED, RFC 9000 section 20.1); one that waits no
    /// longer is left alone. A covered endpoint tells nobody.
    pub fn refuse(&mut self, now: Instant, incoming: IncomingKey) {
        if self.is_covered {
            return self.ignore(now, incoming);
        }
        if let Some(entry) = self.undecided.turn_down(now, incoming) {
            self.incoming.refused += 1;
            self.admission.end(entry.place);
            let mut answer = Vec::new();
            let transmit = self.proto.refuse(entry.core, &mut answer);
            self.answer(Some(transmit), answer);
        }
    }

    /// Answers a new connection's peer with silence; one that waits no longer is left alone.
    pub fn ignore(&mut self, now: Instant, incoming: IncomingKey) {
        if let Some(entry) = self.undecided.turn_down(now, incoming) {
            self.incoming.ignored += 1;
            self.admission.end(entry.place);
            self.proto.ignore(entry.core);
        }
    }

    /// What became of new connections.
    #[must_use]
    pub fn incoming_totals(&self) -> IncomingCounters {
        IncomingCounters {
            offered: self.undecided.offered,
            waiting: self.undecided.entries.len() as u64,
            ..self.incoming
        }
    }

    /// Offers a new connection to the caller, where the bounds let it in. `datagram` is what its first packet came in.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        core: quinn_proto::Incoming,
        datagram: &[u8],
        receiver: &mut impl Receiver,
        outbox: &mut Outbox,
    ) {
        let remote = core.remote_address();
        let destination_id = initial::destination_id(datagram).unwrap_or_default();
        if self.undecided.was_turned_down(now, remote, destination_id) {
            self.incoming.turned_down += 1;
            return self.proto.ignore(core);
        }
        // Behind a front door the hello has shown more than a Retry would, and a Retry would show us.
        // In TCP's shape its handshake has shown the address.
        let has_shaken_hands = CarrierKind::of(remote) == CarrierKind::Tcp;
        let is_validated =
            core.remote_address_validated() || !core.may_retry() || self.is_covered || has_shaken_hands;
        // Behind the machine's own address there may be a proxy of a server.
        let is_local = self.peers.is_some() && remote.ip().to_canonical().is_loopback();
        let proof = match (is_validated, is_local) {
            (true, _) => Proof::Shown,
            (false, true) => Proof::Local,
            (false, false) => Proof::Nothing,
        };
        let connections = self.open + self.undecided.entries.len();
        match self.admission.judge(now, remote.ip(), proof, connections) {
            Verdict::Accept if self.undecided.has_room(datagram.len()) => {
                if let Some(stranger) = self.admission.in_the_way_of(now, remote.ip()) {
                    self.push_out(now, stranger);
                }
                let ceiling = receiver.udp_payload_ceiling(remote).min(self.udp_payload_max);
                self.offer(now, core, datagram, is_validated, ceiling);
            }
            Verdict::Retry => {
                self.incoming.over_rate += 1;
                let mut answer = outbox.buffer();
                match self.proto.retry(core, &mut answer) {
                    Ok(transmit) if !outbox.is_full() => {
                        outbox.push(translate::train(&transmit, false, answer));
                    }
                    _ => outbox.return_buffer(answer),
                }
            }
            Verdict::Accept | Verdict::Ignore => {
                self.incoming.over_limit += 1;
                self.proto.ignore(core);
            }
        }
    }

    fn offer(
        &mut self,
        now: Instant,
        core: quinn_proto::Incoming,
        datagram: &[u8],
        is_validated: bool,
        udp_payload_ceiling: u16,
    ) {
        let (remote, local) = (core.remote_address(), core.local_ip());
        let original_destination_id = Bytes::copy_from_slice(core.orig_dst_cid());
        let stranger = Stranger::Undecided(self.undecided.next_key());
        let place = self.admission.begin(now, remote.ip(), stranger);
        let key = self.undecided.insert(Entry {
            core,
            deadline: now + limits::UNDECIDED_TIME_MAX,
            udp_payload_ceiling,
            destination_id: Bytes::copy_from_slice(initial::destination_id(datagram).unwrap_or_default()),
            bytes: datagram.len(),
            place,
        });
        self.events.push_back(Event::Incoming(Incoming {
            key,
            remote,
            local,
            is_address_validated: is_validated,
            token: Bytes::copy_from_slice(initial::token(datagram).unwrap_or_default()),
            original_destination_id,
        }));
    }

    /// Ignores new connections that were not decided on in time.
    pub(super) fn expire_undecided(&mut self, now: Instant) {
        while let Some((deadline, incoming)) = self.undecided.deadline()
            && deadline <= now
        {
            self.expire(incoming);
        }
    }

    pub(super) fn expire(&mut self, incoming: IncomingKey) {
        if let Some(entry) = self.undecided.take(incoming) {
            self.incoming.expired += 1;
            self.admission.end(entry.place);
            self.proto.ignore(entry.core);
            self.events.push_back(Event::IncomingExpired { incoming });
        }
    }

    /// Keeps the core's answer to a new connection for the next flush.
    pub(super) fn answer(&mut self, transmit: Option<Transmit>, bytes: Vec<u8>) {
        if let Some(transmit) = transmit
            && self.answers.len() < limits::ANSWERS_MAX
        {
            self.answers.push_back(translate::train(&transmit, false, bytes));
        }
    }
}
