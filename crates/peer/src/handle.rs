//! A connection in the program's hands.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use peer_proto::{
    CloseReason, Delivery, Direction, PathStats, PeerId, PeerKey, Received, SendError, StreamId,
};

use crate::code::of_program;
use crate::endpoint::Owner;
use crate::error::Closed;
use crate::events::PeerEvents;
use crate::face::side;
use crate::intake::{Lane, Submission, cost};
use crate::path::PeerPath;
use crate::shared::{Shared, State};
use crate::streams::{ReceiveStream, SendStream};
use crate::ticket::{Ticket, TicketState};
use crate::wakers::{until, until_changed, wakers_of};

/// The connection of a [`Peer`] and its streams; it is closed when all of them are dropped.
pub(crate) struct Handle {
    pub(crate) owner: Arc<Owner>,
    pub(crate) key: PeerKey,
    pub(crate) id: PeerId,
    pub(crate) lane: Arc<Lane>,
}

impl Handle {
    pub(crate) fn shared(&self) -> &Shared {
        &self.owner.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut woken = Vec::new();
        self.shared().change(|state, now| {
            if let Some(mut face) = state.faces.remove(&self.key) {
                face.end_tickets(&mut woken);
                face.wake_all(&mut woken);
            }
            state.peers.close(now, self.key, 0, b"");
        });
        woken.into_iter().for_each(Waker::wake);
    }
}

/// A message that waits for room; it gives its place up where the program gives the message up.
struct Waiting<'a> {
    handle: &'a Handle,
    /// Its number among those that wait, once it does.
    number: Option<u64>,
    /// A waker that it does not need any more. It may be the last that keeps a task, and with that a connection, so
    /// that it is dropped without the lock.
    former: Option<Waker>,
}

impl Waiting<'_> {
    /// After a look: it waits, or gives its place back.
    fn settle(
        &mut self,
        state: &mut State,
        sent: &Result<Ticket, SendError>,
        cost: usize,
        context: &Context<'_>,
    ) {
        if !matches!(sent, Err(SendError::Full)) {
            return self.leave(state);
        }
        if let Some(face) = state.faces.get_mut(&self.handle.key) {
            let (number, former) = face.room.wait(self.number, cost, context.waker());
            (self.number, self.former) = (Some(number), former);
        }
        state.tell_room(self.handle.key);
    }

    fn leave(&mut self, state: &mut State) {
        let number = self.number.take();
        if let Some(face) = state.faces.get_mut(&self.handle.key) {
            self.former = number.and_then(|number| face.room.leave(number));
        }
        state.tell_room(self.handle.key);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.number.is_some() {
            let handle = self.handle;
            handle.shared().change(|state, _| self.leave(state));
        }
    }
}

/// An encrypted connection to one peer. A clone is the same connection; it is closed when the last clone and the last
/// of its streams are dropped, and messages that wait or are under way then are dropped, reliable ones too: wait for
/// their tickets first. Two are equal where they are the same connection: one that a peer made again after another was
/// lost is not equal to that, whatever their IDs.
#[derive(Clone)]
pub struct Peer(pub(crate) Arc<Handle>);

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Peer {}

impl Peer {
    /// The peer's ID, which it has proved.
    #[must_use]
    pub fn id(&self) -> PeerId {
        self.0.id
    }

    /// The path of packets to the peer at present; `None` once the connection has ended.
    #[must_use]
    pub fn path(&self) -> Option<PeerPath> {
        let state = self.0.shared().lock();
        state.peers.path(self.0.key).map(PeerPath::new)
    }

    /// Sends a message; waits while too much is under way to the peer already, in the order of the calls, so that short
    /// messages do not pass by a long one that waits. Acknowledgements do not wait for the caller.
    ///
    /// A message whose future is dropped is not sent, and loses its place among those that wait: where a program looks
    /// at it again and again, as by `select!` in a loop, it pins the future outside of the loop. Futures that are woken
    /// and not polled hold up others that need the room that is kept for them, all together for a tenth of a second;
    /// they keep their places.
    ///
    /// # Errors
    /// [`SendError`], but never [`SendError::Full`].
    ///
    /// # Cancellation
    /// Dropped while it waits, it has sent nothing.
    pub async fn send(&self, body: impl Into<Bytes>, delivery: Delivery) -> Result<Ticket, SendError> {
        let body = body.into();
        if let Some(ticket) = self.submit(&body, delivery) {
            return Ok(ticket);
        }
        let mut waiting = Waiting {
            handle: &self.0,
            number: None,
            former: None,
        };
        poll_fn(|context| {
            let sent = self.0.shared().change(|state, now| {
                let sent = self.send_locked(state, now, &body, delivery, waiting.number);
                waiting.settle(state, &sent, cost(&body), context);
                sent
            });
            drop(waiting.former.take());
            match sent {
                Err(SendError::Full) => Poll::Pending,
                other => Poll::Ready(other),
            }
        })
        .await
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::Full`] where [`Self::send`] would wait: by that one a program waits for room, and
    /// nothing else tells of it.
    pub fn try_send(&self, body: impl Into<Bytes>, delivery: Delivery) -> Result<Ticket, SendError> {
        let body = body.into();
        match self.submit(&body, delivery) {
            Some(ticket) => Ok(ticket),
            None => {
                let shared = self.0.shared();
                shared.change(|state, now| {
                    let sent = self.send_locked(state, now, &body, delivery, None);
                    state.tell_room(self.0.key);
                    sent
                })
            }
        }
    }

    /// Sends without the lock, where that may be.
    fn submit(&self, body: &Bytes, delivery: Delivery) -> Option<Ticket> {
        let Handle { key, lane, .. } = &*self.0;
        if !lane.reserve(body, delivery) {
            return None;
        }
        let ticket = Arc::<TicketState>::default();
        let pushed = self.0.shared().intake.push(Submission {
            peer: *key,
            body: body.clone(),
            delivery,
            ticket: Arc::clone(&ticket),
        });
        match pushed {
            Ok(true) => self.0.shared().hand_over(),
            Ok(false) => {}
            Err(_) => {
                lane.release(cost(body));
                return None;
            }
        }
        Some(Ticket::new(ticket))
    }

    /// Sends where that may be; `number` is that of a message that waits. The room is to be told after it.
    fn send_locked(
        &self,
        state: &mut State,
        now: Instant,
        body: &Bytes,
        delivery: Delivery,
        number: Option<u64>,
    ) -> Result<Ticket, SendError> {
        let (key, lane) = (self.0.key, &self.0.lane);
        let held = state.peers.waiting_bytes(key);
        let face = state.faces.get_mut(&key).ok_or(SendError::NotConnected)?;
        let is_admitted = face.room.admits(number, cost(body), held, lane.bytes_max());
        let sent = match is_admitted || lane.is_too_long(body) || face.closed.is_some() {
            true => state.peers.send(now, key, body.clone(), delivery),
            false => Err(SendError::Full),
        };
        sent.map(|ticket| Ticket::new(face.watch(ticket)))
    }

    /// The next message.
    ///
    /// # Errors
    /// [`Closed`] once the connection has ended and its messages are read.
    ///
    /// # Cancellation
    /// Dropped while it waits, it has taken no message.
    pub async fn receive(&self) -> Result<Received, Closed> {
        let mut one = Vec::with_capacity(1);
        self.receive_many(&mut one, 1).await?;
        Ok(one.remove(0))
    }

    /// Appends the messages that have come, at most `max` (at least one), to `messages`; waits for the first. How many.
    ///
    /// # Errors
    /// As of [`Self::receive`].
    ///
    /// # Cancellation
    /// Dropped while it waits, it has taken no message.
    pub async fn receive_many(&self, messages: &mut Vec<Received>, max: usize) -> Result<usize, Closed> {
        let before = messages.len();
        let wakers = wakers_of(self.0.key, |face| &mut face.inbox);
        until_changed(self.0.shared(), wakers, |state, now| {
            while messages.len() - before < max.max(1)
                && let Some(received) = self.next_message(state, now)
            {
                messages.push(received);
            }
            match messages.len() - before {
                0 => self.ended_or_pending(state),
                received => Poll::Ready(Ok(received)),
            }
        })
        .await
    }

    fn next_message(&self, state: &mut State, now: Instant) -> Option<Received> {
        state.peers.read_message(now, self.0.key)
    }

    fn ended_or_pending<T>(&self, state: &State) -> Poll<Result<T, Closed>> {
        match state.faces.get(&self.0.key) {
            None => Poll::Ready(Err(Closed(CloseReason::LocallyClosed))),
            Some(face) => match &face.closed {
                Some(reason) => Poll::Ready(Err(Closed(reason.clone()))),
                None => Poll::Pending,
            },
        }
    }

    /// Opens a stream in both directions, whose bytes leave before those of streams with a lower priority; waits
    /// while the peer allows no more.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancellation
    /// Dropped while it waits, it has opened no stream.
    pub async fn open(&self, priority: u8) -> Result<(SendStream, ReceiveStream), Closed> {
        let stream = self.open_stream(Direction::Bidirectional, priority).await?;
        Ok((self.sender(stream), self.receiver(stream)))
    }

    /// Opens a stream towards the peer; otherwise as [`Self::open`].
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancellation
    /// As of [`Self::open`].
    pub async fn open_one_way(&self, priority: u8) -> Result<SendStream, Closed> {
        let stream = self.open_stream(Direction::Unidirectional, priority).await?;
        Ok(self.sender(stream))
    }

    async fn open_stream(&self, direction: Direction, priority: u8) -> Result<StreamId, Closed> {
        let wakers = wakers_of(self.0.key, |face| &mut face.openers[side(direction)]);
        until_changed(self.0.shared(), wakers, |state, _| {
            match state.peers.open_stream(self.0.key, direction, priority) {
                Some(stream) => Poll::Ready(Ok(stream)),
                None => self.ended_or_pending(state),
            }
        })
        .await
    }

    /// The next stream in both directions that the peer opened.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancellation
    /// Dropped while it waits, it has taken no stream.
    pub async fn accept(&self) -> Result<(SendStream, ReceiveStream), Closed> {
        let stream = self.accept_stream(Direction::Bidirectional).await?;
        Ok((self.sender(stream), self.receiver(stream)))
    }

    /// The next stream towards us that the peer opened.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancellation
    /// As of [`Self::accept`].
    pub async fn accept_one_way(&self) -> Result<ReceiveStream, Closed> {
        let stream = self.accept_stream(Direction::Unidirectional).await?;
        Ok(self.receiver(stream))
    }

    async fn accept_stream(&self, direction: Direction) -> Result<StreamId, Closed> {
        let side = side(direction);
        let wakers = wakers_of(self.0.key, |face| &mut face.acceptors[side]);
        until(self.0.shared(), wakers, |state| {
            let opened = state.faces.get_mut(&self.0.key);
            match opened.and_then(|face| face.opened[side].pop_front()) {
                Some(stream) => Poll::Ready(Ok(stream)),
                None => self.ended_or_pending(state),
            }
        })
        .await
    }

    fn sender(&self, stream: StreamId) -> SendStream {
        SendStream::new(Arc::clone(&self.0), stream)
    }

    fn receiver(&self, stream: StreamId) -> ReceiveStream {
        ReceiveStream::new(Arc::clone(&self.0), stream)
    }

    /// The state of the connection and its path; `None` once it has ended.
    #[must_use]
    pub fn path_stats(&self) -> Option<PathStats> {
        let shared = self.0.shared();
        shared.change(|state, _| state.peers.path_stats(self.0.key))
    }

    /// 32 bytes of TLS's exporter with this label (RFC 8446 section 7.5): the same at both ends, and known to nobody
    /// else, also not to who is connected to both. What programs prove to each other holds for this connection alone
    /// where it covers them. `None` once the connection has ended.
    ///
    /// Labels that begin with `EXPORTER-gramway-peer` are the crate's own.
    #[must_use]
    pub fn exporter(&self, label: &str) -> Option<[u8; 32]> {
        let shared = self.0.shared();
        shared.change(|state, _| state.peers.exporter(self.0.key, label.as_bytes()))
    }

    /// What changes about the connection and its path from its beginning on; each call gives a reader of its own.
    #[must_use]
    pub fn events(&self) -> PeerEvents {
        PeerEvents::new(&self.0)
    }

    /// Closes the connection with a code of at most [`crate::code::PROGRAM_MAX`] (a greater one is sent as that) and a
    /// reason for the peer's log. Every open ticket ends as dropped. What tells the peer is sent beside the program: a
    /// program that is about to end closes its endpoint instead, and waits for [`crate::Endpoint::ended`].
    pub fn close(&self, code: u64, reason: &str) {
        self.0.shared().change(|state, now| {
            let code = of_program(code);
            state.peers.close(now, self.0.key, code, reason.as_bytes());
        });
    }

    /// Waits for the connection's end, and tells why it ended.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn closed(&self) -> CloseReason {
        let wakers = wakers_of(self.0.key, |face| &mut face.state);
        let ended: Result<(), Closed> =
            until(self.0.shared(), wakers, |state| self.ended_or_pending(state)).await;
        ended.map_or_else(|closed| closed.0, |()| CloseReason::LocallyClosed)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Handle").field(&self.id).finish()
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Peer").field(&self.id()).finish()
    }
}
