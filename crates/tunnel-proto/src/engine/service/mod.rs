//! Services: requests for something else than targets, whose content is read and written by a state machine of their own.
//!
//! Both ends register them from outside: a client with [`Engine::open_service`](super::Engine::open_service), a server with
//! [`Engine::serve`](super::Engine::serve). A request for one is an extended CONNECT (RFC 9220) with its own `:protocol`. It is
//! authorized, counted and limited as a session of its user, and ends as others do. Nothing else of the engine knows which
//! services there are.

mod running;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use masque::{HeaderList, datagram, request as request_headers};
use quic::ConnectionKey;

use super::handler::{Asker, Handler};
use super::queue_writer::QueueWriter;
use super::request::RequestId;
use super::{Client, Ending, Engine, Role};
use crate::access::UserId;
use crate::drops::DropReason;
use crate::limits;

/// One end of a request, without I/O.
///
/// Each call gets the stream to answer on. What a service cannot take it leaves, and the peer's credit runs out: nothing is
/// collected on its behalf.
pub trait Service: Any + fmt::Debug + Send {
    /// Both ends have agreed on the request.
    fn handle_open(&mut self, _now: Instant, _stream: &mut ServiceStream<'_>) {}

    /// Content has come. What is left of it is offered again after [`Service::handle_writable`] or
    /// [`Service::handle_wake`], and nothing more is read before that.
    fn handle_content(&mut self, now: Instant, content: &mut Bytes, stream: &mut ServiceStream<'_>);

    /// An HTTP Datagram has come (RFC 9297 section 2.1), in context 0. It may have been overtaken, or have overtaken content.
    fn handle_datagram(&mut self, _now: Instant, _payload: &[u8], _stream: &mut ServiceStream<'_>) {}

    /// [`ServiceStream::send`] had no room, and now has.
    fn handle_writable(&mut self, _now: Instant, _stream: &mut ServiceStream<'_>) {}

    /// The peer has ended its side. The request is over once ours has ended, too, and all of it has been acknowledged.
    fn handle_finish(&mut self, _now: Instant, stream: &mut ServiceStream<'_>) {
        stream.finish();
    }

    /// Its owner has called [`Engine::wake_service`](super::Engine::wake_service).
    fn handle_wake(&mut self, _now: Instant, _stream: &mut ServiceStream<'_>) {}

    /// Server: the client's packets come from `remote` from here on.
    fn handle_remote_changed(&mut self, _now: Instant, _remote: SocketAddr, _stream: &mut ServiceStream<'_>) {
    }

    /// The request has ended otherwise than by [`Engine::end`](super::Engine::end).
    fn handle_end(&mut self, _ending: &Ending) {}
}

/// Makes a server's ends of requests with one `:protocol`.
pub trait ServiceProvider: Send {
    /// An authorized user asks.
    ///
    /// # Errors
    /// [`NoService`] says how the request is answered.
    fn open(&mut self, now: Instant, asked: &ServiceRequest<'_>) -> Result<Box<dyn Service>, NoService>;

    /// A request whose [`Service::handle_wake`] is to be called: something came from elsewhere, e.g. from another shard, whose
    /// provider had this one's driver woken.
    fn poll_wake(&mut self) -> Option<RequestId> {
        None
    }
}

/// Label of [`ServiceRequest::exporter`].
const EXPORTER_LABEL: &[u8] = b"EXPORTER-gramway-service";

impl<R: Role> Engine<R> {
    /// What [`ServiceRequest::exporter`] is at both ends of this connection.
    pub(in crate::engine) fn exporter_of(&mut self, connection: ConnectionKey) -> Option<[u8; 32]> {
        self.endpoint.exporter(connection, EXPORTER_LABEL, &[])
    }
}

impl Engine<Client> {
    /// TLS's exporter of the connection that requests go out on, as the server's services see it; `None` where there is
    /// none.
    pub fn exporter(&mut self) -> Option<[u8; 32]> {
        let connection = self.state.role.current()?;
        self.exporter_of(connection)
    }
}

/// What a user asks a server's service for.
#[derive(Clone, Copy, Debug)]
pub struct ServiceRequest<'a> {
    /// Names it for [`Engine::service`](super::Engine::service).
    pub id: RequestId,
    /// Whose it is.
    pub user: UserId,
    /// The connection that it came on.
    pub connection: ConnectionKey,
    /// `:path`, as it came.
    pub path: &'a str,
    /// Where the client's packets come from.
    pub remote: SocketAddr,
    /// TLS's exporter of the connection, with which a client proves that what it signs is for this connection alone
    /// ([`Engine::exporter`](super::Engine::exporter)).
    pub exporter: Option<[u8; 32]>,
}

/// Why a service is not there for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoService {
    /// Nothing is at this path: 404.
    NotFound,
    /// This user may not: 403.
    Forbidden,
    /// Not at present: 503.
    Unavailable,
}

impl NoService {
    pub(super) fn status(self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::Forbidden => 403,
            Self::Unavailable => 503,
        }
    }
}

/// What a service may do with its request.
pub struct ServiceStream<'a> {
    output: &'a mut VecDeque<Bytes>,
    /// Bytes of `output`, with its bookkeeping.
    output_bytes: usize,
    datagrams: QueueWriter<'a>,
    wants_room: bool,
    end: Option<StreamEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    Finish,
    Reset,
}

impl ServiceStream<'_> {
    /// Takes from the front of `content` what there is room for, [`limits::SERVICE_OUTPUT_BYTES_MAX`] in all. Whether that
    /// was everything; else [`Service::handle_writable`] follows.
    pub fn send(&mut self, content: &mut Bytes) -> bool {
        if self.end.is_none() && !content.is_empty() {
            let free = limits::SERVICE_OUTPUT_BYTES_MAX.saturating_sub(self.output_bytes);
            // Header and payload are a piece each.
            let taken = content
                .len()
                .min(free.saturating_sub(2 * limits::HELD_ENTRY_BYTES));
            if taken > 0 {
                let (header, used) = masque::data_frame_header(taken as u64);
                self.output.push_back(Bytes::copy_from_slice(&header[..used]));
                self.output.push_back(content.split_to(taken));
                self.output_bytes += used + taken + 2 * limits::HELD_ENTRY_BYTES;
            }
        }
        self.wants_room |= !content.is_empty();
        content.is_empty()
    }

    /// Sends an HTTP Datagram in context 0, or drops it, as those of UDP sessions.
    pub fn send_datagram(&mut self, payload: &[u8]) {
        let writer = &mut self.datagrams;
        writer.ingress.accepted += 1;
        let (prefix, prefix_bytes) = datagram::prefix(writer.quarter, datagram::UDP_CONTEXT_ID);
        if prefix_bytes + payload.len() > writer.peer.datagram_max {
            return writer.ingress.drop(DropReason::TooLarge, 1);
        }
        writer.push_whole(&prefix[..prefix_bytes], payload);
    }

    /// Ends our side after what was sent.
    pub fn finish(&mut self) {
        self.end.get_or_insert(StreamEnd::Finish);
    }

    /// Breaks the request off, in both directions.
    pub fn reset(&mut self) {
        self.end = Some(StreamEnd::Reset);
    }
}

/// A request for a service, at either end.
#[derive(Debug)]
pub(crate) struct ServiceSession {
    service: Box<dyn Service>,
    /// Client: what is asked for.
    asked: Option<(String, String)>,
    /// Content that the service has left.
    left: Bytes,
    /// It was told that there was no room.
    wants_room: bool,
}

impl ServiceSession {
    /// A client's: of this `:protocol` and `:path`.
    pub(super) fn asking(service: Box<dyn Service>, protocol: &str, path: &str) -> Self {
        Self {
            asked: Some((protocol.to_owned(), path.to_owned())),
            ..Self::new(service)
        }
    }

    pub(super) fn new(service: Box<dyn Service>) -> Self {
        Self {
            service,
            asked: None,
            left: Bytes::new(),
            wants_room: false,
        }
    }
}

impl Handler for ServiceSession {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        let (protocol, path) = self.asked.as_ref()?;
        let list = request_headers::extended_connect(asker.authority, protocol, path, asker.bearer);
        Some(list)
    }

    fn takes_content(&self) -> bool {
        self.left.is_empty()
    }

    fn ended(&mut self, ending: &Ending) {
        self.service.handle_end(ending);
    }

    fn is_of_driver(&self) -> bool {
        true
    }
}
