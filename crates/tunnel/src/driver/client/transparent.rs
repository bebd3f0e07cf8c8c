//! The transparent proxy of a router: UDP to whatever target, as nftables leads it here.
//!
//! Each pair of a source and a target has a session. What the target answers leaves from a socket that has the target's
//! address, which the sessions to that target share; it receives nothing, because nftables leads what is for it to the
//! listener. TCP needs nothing of this: an accepted connection has the target's address (`local.rs`).
//!
//! Sessions are bounded as all UDP sessions are: the machine that has most loses its idlest one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;
use packet_io::{DatagramSocket, Interest, SocketOptions, UdpSocket};
use tunnel_proto::{DropReason, RequestId, Target};

use super::listeners::socket_options;
use super::{Client, ClientInner, ClientMessage, ClientSource};
use crate::config::CommonConfig;
use crate::driver::sources::SourceId;
use crate::driver::{Inner, Shard};
use crate::handle::{Notice, Repeated};
use crate::snapshot::IoCounters;

/// A listener for datagrams to other machines, and the sessions behind it.
pub(in crate::driver) struct TransparentListener {
    /// Its siblings at other shards have the same.
    number: usize,
    pub(super) socket: UdpSocket,
    sessions: HashMap<Flow, RequestId>,
    /// By target.
    answering: HashMap<SocketAddr, Answering>,
}

/// What a datagram comes from, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::driver) struct Flow {
    source: SocketAddr,
    target: SocketAddr,
}

/// The socket with a target's address.
struct Answering {
    socket: SourceId,
    sessions: usize,
}

/// The local end of a session.
pub(in crate::driver) struct TransparentFlow {
    listener: SourceId,
    flow: Flow,
    /// What its answers leave by.
    pub(super) answers_by: SourceId,
}

impl TransparentFlow {
    /// Where answers go.
    pub(super) fn source(&self) -> SocketAddr {
        self.flow.source
    }

    pub(super) fn target(&self) -> Option<Target> {
        target_of(self.flow.target).ok()
    }
}

impl TransparentListener {
    pub(super) fn new(number: usize, socket: UdpSocket) -> Self {
        Self {
            number,
            socket,
            sessions: HashMap::new(),
            answering: HashMap::new(),
        }
    }
}

/// A target by its address.
pub(super) fn target_of(address: SocketAddr) -> Result<Target, DropReason> {
    let ip = address.ip().to_canonical();
    Target::new(&ip.to_string(), address.port()).map_err(|_| DropReason::Malformed)
}

/// Of a socket for or from other machines' addresses.
pub(super) fn transparent_options(common: &CommonConfig) -> SocketOptions {
    SocketOptions {
        transparent: true,
        ..socket_options(common)
    }
}

impl Shard<Client> {
    /// One batch of a listener: every run of one flow goes to its session.
    pub(super) fn receive_transparent(&mut self, now: Instant, at: SourceId) {
        if self.intake_should_wait() {
            return;
        }
        let Some(ClientSource::TransparentListener(listener)) = self.sources.get_mut(at) else {
            return;
        };
        let own = listener.socket.local_addr().ok();
        let number = listener.number;
        let Ok(count) = listener.socket.receive(&mut self.inner_batch) else {
            return;
        };
        let sibling = self.stand_in(now);
        let mut start = 0;
        while start < count {
            let (source, target) = self.flow_of(start);
            let mut end = start + 1;
            while end < count && self.flow_of(end) == (source, target) {
                end += 1;
            }
            match (target.filter(|target| Some(*target) != own), sibling) {
                (None, _) => {
                    self.tell_own_port(now, own);
                    self.refuse(start..end, DropReason::Malformed);
                }
                (Some(target), Some(sibling)) => {
                    for index in start..end {
                        self.give_transparent_away(sibling, number, Flow { source, target }, index);
                    }
                }
                (Some(target), None) => match self.session_of_flow(now, at, Flow { source, target }) {
                    Ok(id) => self.take_in(now, id, start..end),
                    Err(reason) => self.refuse(start..end, reason),
                },
            }
            start = end;
        }
    }

    fn flow_of(&self, index: usize) -> (SocketAddr, Option<SocketAddr>) {
        let meta = self.inner_batch.get(index).meta;
        (meta.source, meta.target)
    }

    fn give_transparent_away(&mut self, sibling: usize, listener: usize, flow: Flow, index: usize) {
        let received = self.inner_batch.get(index);
        if received.meta.truncated {
            return;
        }
        let message = ClientMessage::TransparentDatagrams {
            listener,
            flow,
            bytes: BytesMut::from(received.payload),
            segment_size: received.meta.segment_size,
        };
        if !self.neighbours.hand_over(sibling, message) {
            self.refuse(index..index + 1, DropReason::NoTunnel);
        }
    }

    /// Datagrams of a flow at the same listener of a sibling whose stripe is down. The answers leave from here.
    pub(super) fn take_in_transparent(
        &mut self,
        now: Instant,
        listener: usize,
        flow: Flow,
        bytes: &[u8],
        segment_size: usize,
    ) {
        let at = self.role.transparent_listeners.get(listener).copied();
        let session = at.map(|at| self.session_of_flow(now, at, flow));
        if let Some(Ok(id)) = session {
            self.engine
                .send_datagrams(now, id, packet::segments(bytes, segment_size));
        }
    }

    fn session_of_flow(&mut self, now: Instant, at: SourceId, flow: Flow) -> Result<RequestId, DropReason> {
        let listener = self.transparent_listener(at)?;
        if let Some(id) = listener.sessions.get(&flow) {
            return Ok(*id);
        }
        if self.drain.is_some() {
            return Err(DropReason::SessionClosed);
        }
        let target = target_of(flow.target)?;
        let answers_by = self.answering(at, flow.target).map_err(|error| {
            let text = format!("answers from {} cannot be sent: {error}", flow.target);
            self.tell_trouble(now, text);
            DropReason::SocketError
        })?;
        let machine = flow.source.ip().to_canonical();
        let id = self.engine.open_session(now, machine, target);
        let ours = TransparentFlow {
            listener: at,
            flow,
            answers_by,
        };
        self.insert_inner(id, Inner::Role(ClientInner::Transparent(Box::new(ours))));
        self.transparent_listener(at)?.sessions.insert(flow, id);
        Ok(id)
    }

    /// The socket with the target's address, for one session more.
    fn answering(&mut self, at: SourceId, target: SocketAddr) -> io::Result<SourceId> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let listener = self.transparent_listener(at).map_err(|_| gone())?;
        if let Some(answering) = listener.answering.get_mut(&target) {
            answering.sessions += 1;
            return Ok(answering.socket);
        }
        let options = SocketOptions {
            // Other shards have sockets with this address, too.
            reuse_port: true,
            ..transparent_options(&self.io.common)
        };
        let source = ClientSource::AnswerSocket(Box::new(UdpSocket::bind(target, &options)?));
        let socket = self
            .sources
            .insert(&self.io.poller, source, Interest::NONE, None)
            .map_err(io::Error::other)?;
        let listener = self.transparent_listener(at).map_err(|_| gone())?;
        listener
            .answering
            .insert(target, Answering { socket, sessions: 1 });
        Ok(socket)
    }

    /// A session has ended; its flow may have a new one already.
    pub(super) fn forget_transparent(&mut self, id: RequestId, ours: &TransparentFlow) {
        let Ok(listener) = self.transparent_listener(ours.listener) else {
            return;
        };
        if listener.sessions.get(&ours.flow) == Some(&id) {
            listener.sessions.remove(&ours.flow);
        }
        let Some(answering) = listener.answering.get_mut(&ours.flow.target) else {
            return;
        };
        answering.sessions -= 1;
        if answering.sessions > 0 {
            return;
        }
        listener.answering.remove(&ours.flow.target);
        if let Some(ClientSource::AnswerSocket(mut socket)) =
            self.sources.remove(&self.io.poller, ours.answers_by)
        {
            self.io.inner_io_past += IoCounters::of_socket(&mut socket).closed();
        }
    }

    /// Somebody sent to the listener itself. Led on, it would come back here.
    pub(super) fn tell_own_port(&mut self, now: Instant, own: Option<SocketAddr>) {
        let Some(own) = own else { return };
        let notice = || Notice::Warning {
            text: format!(
                "the transparent proxy at {own} refused what was sent to it directly: it takes only what nftables leads to \
                 it; programs of this machine use --socks or --http"
            ),
        };
        self.io.notices.send_few(now, Repeated::Trouble, notice);
    }

    fn transparent_listener(&mut self, at: SourceId) -> Result<&mut TransparentListener, DropReason> {
        match self.sources.get_mut(at) {
            Some(ClientSource::TransparentListener(listener)) => Ok(listener),
            _ => Err(DropReason::SessionClosed),
        }
    }
}
