//! Bound sockets: requests by which the server relays between peers (`specs/rendezvous.md`, RDV-10 to RDV-13).
//!
//! A context of such a request stands for the address of another peer's bound socket. This file has what both ends do:
//! capsules, and payloads into their peer's queue. `client` opens sockets and contexts, `server` hands payloads over from one
//! request to the other: on the same shard at once, to another one at the end of the turn (`turn`).

mod client;
mod server;
mod turn;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use masque::bind::{self, BindCapsule, BindCapsuleReader};
use masque::split::Splitter;
use masque::{Code, HeaderList, MessageError, capsule, datagram, request as request_headers};
use packet::varint;
use quic::ConnectionKey;

use super::handler::{Asker, Handler};
use super::ip::bucket::Bucket;
use super::ip::control::push_capsule;
use super::life::{Cause, Life};
use super::offer::{ContextOffer, Offer};
use super::queue::FlowId;
use super::queue_writer::QueueWriter;
use super::request::{Kind, Request, RequestId};
use super::{Deliver, Engine, Role, State};
use crate::config::Oversize;
use crate::drops::DropReason;
use crate::limits;
use crate::rendezvous::sockets::{BoundSocket, SocketEnd, Transfer};
pub use client::NoContext;
pub(in crate::engine) use turn::RelayTurn;

/// A request for a bound socket, at either end.
#[derive(Debug)]
pub(crate) struct BoundSession {
    capsules: BindCapsuleReader,
    splitter: Splitter,
    /// The context of split payloads.
    pub(crate) split: ContextOffer,
    /// Of the socket, once it is there.
    address: Option<SocketAddr>,
    contexts: Vec<Context>,
    /// The place of the one that was asked for last: payloads come in runs.
    recent: usize,
    /// Client: the next context ID.
    next_context: u64,
    /// How often the other end may ask for one.
    asked: Bucket,
    /// Server.
    socket: Option<BoundSocket>,
}

/// A context that one end has asked for and the other one has not refused.
#[derive(Debug)]
struct Context {
    id: u64,
    /// The other peer's socket.
    address: SocketAddr,
    /// Server: where that one is.
    end: Option<SocketEnd>,
}

impl BoundSession {
    /// With the context that is offered for split payloads.
    pub(crate) fn new(split: Option<u64>, socket: Option<BoundSocket>) -> Self {
        Self {
            capsules: BindCapsuleReader::default(),
            splitter: Splitter::new(),
            split: Offer::offered(split),
            address: socket.as_ref().map(|socket| socket.end().address),
            contexts: Vec::new(),
            recent: 0,
            next_context: bind::FIRST_CONTEXT_ID,
            asked: Bucket::new(limits::RELAY_ASKED_BURST, limits::RELAY_ASKED_INTERVAL),
            socket,
        }
    }

    fn by_id(&mut self, id: u64) -> Option<&Context> {
        self.find(|context| context.id == id)
    }

    fn by_address(&mut self, address: SocketAddr) -> Option<&Context> {
        self.find(|context| context.address == address)
    }

    fn find(&mut self, is: impl Fn(&Context) -> bool) -> Option<&Context> {
        if !self.contexts.get(self.recent).is_some_and(&is) {
            self.recent = self.contexts.iter().position(is)?;
        }
        self.contexts.get(self.recent)
    }

    /// Takes a context out, and gives its place back.
    fn remove(&mut self, is: impl Fn(&Context) -> bool) -> Option<Context> {
        let place = self.contexts.iter().position(is)?;
        if let Some(socket) = &mut self.socket {
            socket.close_context();
        }
        Some(self.contexts.swap_remove(place))
    }
}

/// Whether the other end asks without giving credit for answers.
fn is_unheard(output: &VecDeque<Bytes>) -> bool {
    output.len() > limits::RELAY_ANSWERS_MAX
}

impl Handler for BoundSession {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        Some(bind::bind(asker.authority, asker.bearer, self.split.any()))
    }

    fn needs_datagrams(&self) -> bool {
        true
    }

    fn accepted(&mut self, answer: &HeaderList, _: &mut VecDeque<Bytes>) {
        self.split.answered(request_headers::split_context(answer));
        self.address = bind::address_of(answer);
    }

    fn accept(&mut self) -> HeaderList {
        let address = self.address.expect("a server's has a socket from its beginning");
        bind::accepted(address, self.split.accept())
    }

    /// A capsule that is cut is malformed (RFC 9297 section 3.3).
    fn check_end(&self) -> Result<(), MessageError> {
        self.capsules.finish()
    }

    fn is_of_driver(&self) -> bool {
        true
    }
}

impl<R: Role> Engine<R> {
    /// Content of a bound request's stream.
    ///
    /// # Errors
    /// A capsule that breaks the rules costs the request.
    pub(in crate::engine) fn take_bind_capsules(
        &mut self,
        now: Instant,
        id: RequestId,
        mut bytes: Bytes,
        deliver: &mut impl Deliver,
    ) -> Result<(), MessageError> {
        loop {
            let Some(session) = self.state.bound(id) else {
                return Ok(());
            };
            let Some(capsule) = session.capsules.next(&mut bytes)? else {
                return Ok(());
            };
            match capsule {
                BindCapsule::Datagram(datagram) => {
                    self.state.ledger.egress.accepted += 1;
                    if !self.state.admits_capsule(now, id, datagram.len()) {
                        continue;
                    }
                    match capsule::split_context(datagram) {
                        Some((context, payload)) => {
                            self.state.take_relayed(now, id, context, &payload, deliver);
                        }
                        None => self.state.ledger.egress.drop(DropReason::Malformed, 1),
                    }
                }
                BindCapsule::Oversized(_) => {
                    self.state.ledger.egress.accepted += 1;
                    self.state.ledger.egress.drop(DropReason::TargetTooLarge, 1);
                }
                other => R::bind_capsule(self, now, id, &other)?,
            }
        }
    }

    /// Says something about a context.
    fn say_of_context(&mut self, id: RequestId, capsule: &BindCapsule) {
        let (Some(request), Some(capsule)) = (self.state.requests.get_mut(id.0), capsule.encode()) else {
            return;
        };
        push_capsule(&mut request.output, capsule);
        let is_unheard = is_unheard(&request.output);
        self.pump(id);
        if is_unheard {
            self.end_for(id, Cause::Reset(Code::ExcessiveLoad));
        }
    }

    /// The other end asks for a context. Whether it may; too many questions cost the request.
    fn admits_question(&mut self, now: Instant, id: RequestId) -> bool {
        let is_admitted = self
            .state
            .bound(id)
            .is_some_and(|session| session.asked.take(now));
        if !is_admitted {
            self.end_for(id, Cause::Reset(Code::ExcessiveLoad));
        }
        is_admitted
    }

    /// What a datagram of a connection holds at present.
    fn measure_datagrams(&mut self, connection: ConnectionKey) {
        let datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
        if let Some(peer) = self.state.peer(connection) {
            peer.datagram_max = datagram_max;
        }
    }
}

/// What goes into a peer's queue.
enum Payload<'a> {
    /// It is copied there.
    Borrowed(&'a [u8]),
    /// From another shard: it lies behind room for its prefix.
    Transferred(Transfer),
}

impl Payload<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Transferred(transfer) => transfer.payload(),
        }
    }
}

impl<R: Role> State<R> {
    /// An open bound request.
    fn bound(&mut self, id: RequestId) -> Option<&mut BoundSession> {
        match self.requests.get_mut(id.0)? {
            Request {
                kind: Kind::Bound(session),
                life: Life::Open(_),
                ..
            } => Some(session),
            _ => None,
        }
    }

    /// A payload that was joined from fragments: it begins with its context (RDV-12).
    pub(in crate::engine) fn take_joined_relayed(
        &mut self,
        now: Instant,
        id: RequestId,
        joined: &[u8],
        deliver: &mut impl Deliver,
    ) {
        match varint::read(joined) {
            Some((context, used)) => self.take_relayed(now, id, context, &joined[used..], deliver),
            None => self.ledger.egress.drop(DropReason::Malformed, 1),
        }
    }

    /// A payload of the other end in a context; it is counted as accepted already.
    pub(in crate::engine) fn take_relayed(
        &mut self,
        now: Instant,
        id: RequestId,
        context: u64,
        payload: &[u8],
        deliver: &mut impl Deliver,
    ) {
        if payload.len() > packet::UDP_PAYLOAD_MAX {
            return self.ledger.egress.drop(DropReason::TargetTooLarge, 1);
        }
        R::take_relayed(self, now, id, context, payload, deliver);
    }

    /// A payload for the other end of a bound request goes into its peer's queue; it is counted as accepted already. The
    /// connection then has something to send.
    fn enqueue_in_context(&mut self, now: Instant, id: RequestId, context: u64, payload: Payload<'_>) {
        let ingress = &mut self.ledger.ingress;
        let Some(Request {
            kind: Kind::Bound(session),
            life: Life::Open(stream),
            ..
        }) = self.requests.get_mut(id.0)
        else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let peer = self.peers.get_mut(stream.connection.index());
        let Some(peer) = peer.and_then(Option::as_mut) else {
            return ingress.drop(DropReason::SessionClosed, 1);
        };
        let quarter = stream.quarter();
        let mut writer = QueueWriter {
            arena: &mut self.arena,
            peer,
            ingress,
            policy: self.config.queue_policy,
            now,
            quarter,
            // Each peer that is relayed to this one is a flow of its own.
            flow: FlowId {
                hash: context << 32 | id.0 as u64,
                is_controlled: false,
            },
        };
        let (prefix, prefix_bytes) = datagram::prefix(quarter, context);
        let prefix = &prefix[..prefix_bytes];
        if prefix_bytes + payload.bytes().len() <= writer.peer.datagram_max {
            return match payload {
                Payload::Borrowed(bytes) => writer.push_whole(prefix, bytes),
                Payload::Transferred(transfer) => writer.push_prefixed(transfer.behind(prefix)),
            };
        }
        let (context, context_bytes) = varint::encode(context);
        let split = session
            .split
            .agreed()
            .filter(|_| self.config.oversize == Oversize::Split);
        let is_split = split.is_some_and(|split| {
            let whole = [&context[..context_bytes], payload.bytes()].concat();
            writer
                .push_fragments(&mut session.splitter, split, &whole)
                .is_ok()
        });
        if !is_split {
            writer.ingress.drop(DropReason::TooLarge, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDV-12: an answer is one piece, and who takes none is told no more of them.
    #[test]
    fn answers_that_nobody_takes_are_bounded() {
        let mut output = VecDeque::new();
        for number in 0..limits::RELAY_ANSWERS_MAX {
            let answer = BindCapsule::Close(2 * number as u64 + 2).encode();
            push_capsule(&mut output, answer.expect("it is of contexts"));
            assert!(!is_unheard(&output), "{number}");
        }
        let answer = BindCapsule::Ack(2).encode().expect("it is of contexts");
        push_capsule(&mut output, answer);
        assert!(is_unheard(&output));
        assert_eq!(
            output.back().map(|piece| &piece[..]),
            Some(&[0, 3, 0x12, 1, 2][..])
        );
    }
}
