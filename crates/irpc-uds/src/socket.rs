//! All sockets of one endpoint as the one that noq knows: a server's listener and its clients, or a client's only one.
//!
//! Each socket has a waker of its own that lists it (`ready`), so a turn looks at those that have something and at no
//! other, and is woken once for any number of them. The end of a socket becomes the end of its connection (`farewell`).

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use noq::udp::RecvMeta;
use noq::{AsyncUdpSocket, UdpSender};
use slab::Slab;
use tokio::runtime::Handle;

use crate::address::SocketKind;
use crate::farewell::{self, End};
use crate::frame::Deframer;
use crate::limits::{
    CONNECTIONS_PER_PEER, HANDSHAKE_DATAGRAM_BYTES_KEPT, RECEIVE_BATCH, SHORT_HEADER_BYTES,
    SILENT_PEER_TIMEOUT,
};
use crate::link::Link;
use crate::listener::{Acceptor, Attention};
use crate::peer::{Identity, PeerCred, local_address};
use crate::ready::{ReadyList, Token};
use crate::sender::UdsSender;

/// Index of the listener on the ready list.
const LISTENER: usize = usize::MAX;
/// Index of packets that were made here.
const FAREWELLS: usize = usize::MAX - 1;

/// One socket, as its receiver and the senders of its connections share it.
#[derive(Debug)]
pub(crate) struct Peer {
    link: Link,
    identity: Arc<Identity>,
    peers: Arc<Peers>,
    /// Something was received, so that what was sent first is of no more use.
    heard: AtomicBool,
    opening: Mutex<Opening>,
}

/// What is needed to close a connection that has not received anything.
#[derive(Debug, Default)]
struct Opening {
    /// The first datagram that was sent.
    sent: Vec<u8>,
    /// The socket has ended.
    end: Option<End>,
}

impl Peer {
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.identity.address()
    }

    /// A connection sends `contents`.
    pub(crate) fn note_sent(&self, contents: &[u8]) {
        if self.heard.load(Ordering::Relaxed) {
            return;
        }
        let mut opening = self
            .opening
            .lock()
            .expect("nothing panics while it holds this lock");
        if opening.sent.is_empty() {
            opening
                .sent
                .extend_from_slice(&contents[..contents.len().min(HANDSHAKE_DATAGRAM_BYTES_KEPT)]);
            if let Some(end) = opening.end.take() {
                let packet = farewell::refusing_packet(&opening.sent, &end);
                self.peers.deliver(self.address(), packet);
            }
        }
    }

    /// The socket has ended; `last` is the start of the last datagram received.
    fn ended(&self, last: &[u8], end: End) {
        self.link.shut_down();
        let packet = if last.is_empty() {
            let mut opening = self
                .opening
                .lock()
                .expect("nothing panics while it holds this lock");
            if opening.sent.is_empty() {
                opening.end = Some(end);
                return;
            }
            farewell::refusing_packet(&opening.sent, &end)
        } else {
            farewell::closing_packet(last, &end)
        };
        self.peers.deliver(self.address(), packet);
    }
}

/// What the receiver and all senders of an endpoint share.
#[derive(Debug)]
pub(crate) struct Peers {
    runtime: Handle,
    by_address: Mutex<HashMap<SocketAddr, Arc<Peer>>>,
    farewells: Mutex<VecDeque<(SocketAddr, Vec<u8>)>>,
    farewell: Arc<Token>,
}

impl Peers {
    /// The runtime that the sockets are registered with.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The peer with this address, unless it is gone.
    pub(crate) fn find(&self, address: SocketAddr) -> Option<Arc<Peer>> {
        self.table().get(&address).cloned()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Peer>>> {
        self.by_address
            .lock()
            .expect("nothing panics while it holds this lock")
    }

    /// Queues a packet as if it had been received.
    fn deliver(&self, address: SocketAddr, packet: Option<Vec<u8>>) {
        let Some(packet) = packet else { return };
        let mut farewells = self
            .farewells
            .lock()
            .expect("nothing panics while it holds this lock");
        farewells.push_back((address, packet));
        drop(farewells);
        self.farewell.mark();
    }
}

/// What only the receiver knows of a socket.
#[derive(Debug)]
struct Entry {
    peer: Arc<Peer>,
    deframer: Option<Deframer>,
    token: Arc<Token>,
    waker: Waker,
    since: Instant,
    /// The start of the last datagram, of which [`farewell::closing_packet`] makes the end.
    last: Vec<u8>,
    /// Destinations of its Initial packets: one each for the connections it opens.
    opened: Vec<Vec<u8>>,
}

impl Entry {
    /// Whether noq may see this datagram; a socket may only open a few connections.
    fn admits(&mut self, datagram: &[u8]) -> bool {
        let Some(destination) = farewell::initial_destination(datagram) else {
            return true;
        };
        if self.opened.iter().any(|known| known == destination) {
            return true;
        }
        // Its answers to the server's own connection ID are Initial packets, too: two each.
        if self.opened.len() >= 2 * CONNECTIONS_PER_PEER {
            return false;
        }
        self.opened.push(destination.to_vec());
        true
    }

    fn note_received(&mut self, datagram: &[u8]) {
        let kept = if farewell::is_long(datagram) {
            HANDSHAKE_DATAGRAM_BYTES_KEPT
        } else {
            SHORT_HEADER_BYTES
        };
        self.last.clear();
        self.last.extend_from_slice(&datagram[..datagram.len().min(kept)]);
    }
}

/// Buffers of one call of noq that are not filled yet.
struct Room<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    metas: &'a mut [RecvMeta],
    filled: usize,
}

impl Room<'_, '_> {
    fn is_full(&self) -> bool {
        self.filled == self.metas.len().min(self.buffers.len())
    }

    /// Describes the next filled buffer.
    fn describe(&mut self, address: SocketAddr, len: usize) {
        let mut meta = RecvMeta::default();
        (meta.addr, meta.len, meta.stride) = (address, len, len);
        self.metas[self.filled] = meta;
        self.filled += 1;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct UdsSocket {
    peers: Arc<Peers>,
    acceptor: Option<Acceptor>,
    entries: Slab<Entry>,
    ready: Arc<ReadyList>,
    queue: VecDeque<usize>,
    listener: Arc<Token>,
    datagram_bytes: u16,
}

impl UdsSocket {
    /// Sockets of one endpoint, whose datagrams have at most `datagram_bytes`. To be called within a tokio runtime.
    pub(crate) fn new(acceptor: Option<Acceptor>, datagram_bytes: u16) -> Self {
        let ready = ReadyList::new();
        let listener = Token::new(&ready, LISTENER);
        if acceptor.is_some() {
            listener.mark();
        }
        Self {
            peers: Arc::new(Peers {
                runtime: Handle::current(),
                by_address: Mutex::default(),
                farewells: Mutex::default(),
                farewell: Token::new(&ready, FAREWELLS),
            }),
            acceptor,
            entries: Slab::new(),
            ready,
            queue: VecDeque::new(),
            listener,
            datagram_bytes,
        }
    }

    /// Takes in a connected socket; returns the address by which noq knows it.
    pub(crate) fn add(
        &mut self,
        socket: OwnedFd,
        kind: SocketKind,
        cred: PeerCred,
    ) -> io::Result<SocketAddr> {
        let peer = Arc::new(Peer {
            link: Link::new(socket, kind)?,
            identity: Identity::register(cred),
            peers: self.peers.clone(),
            heard: AtomicBool::new(false),
            opening: Mutex::default(),
        });
        let address = peer.address();
        let entry = self.entries.vacant_entry();
        let token = Token::new(&self.ready, entry.key());
        token.mark();
        entry.insert(Entry {
            deframer: peer.link.deframer(self.datagram_bytes),
            peer: peer.clone(),
            waker: token.clone().into(),
            token,
            since: Instant::now(),
            last: Vec::new(),
            opened: Vec::new(),
        });
        self.peers.table().insert(address, peer);
        Ok(address)
    }

    fn remove(&mut self, index: usize, end: End) {
        let entry = self.entries.remove(index);
        self.peers.table().remove(&entry.peer.address());
        entry.peer.ended(&entry.last, end);
    }

    /// Lets in who waits at the listener, and shows out who says nothing.
    fn attend(&mut self) {
        let Some(mut acceptor) = self.acceptor.take() else {
            return;
        };
        self.listener.taken();
        let waker = Waker::from(self.listener.clone());
        let mut context = Context::from_waker(&waker);
        let now = Instant::now();
        loop {
            match acceptor.poll_next(&mut context, self.entries.len()) {
                Attention::Client(socket, cred) => {
                    if let Err(error) = self.add(socket, acceptor.kind(), cred) {
                        tracing::warn!("could not take in a client ({cred}): {error}");
                    }
                    acceptor.look_again_by(now + SILENT_PEER_TIMEOUT);
                }
                Attention::Later => {
                    self.listener.mark();
                    break;
                }
                Attention::Due => {
                    if let Some(next) = self.drop_silent(now) {
                        acceptor.look_again_by(next);
                    }
                }
                Attention::None => break,
            }
        }
        self.acceptor = Some(acceptor);
    }

    /// Drops clients that have not sent anything for too long; when the next one will have.
    fn drop_silent(&mut self, now: Instant) -> Option<Instant> {
        let silent = |entry: &Entry| entry.last.is_empty();
        let overdue: Vec<usize> = self
            .entries
            .iter()
            .filter(|(_, entry)| silent(entry) && entry.since + SILENT_PEER_TIMEOUT <= now)
            .map(|(index, _)| index)
            .collect();
        for index in overdue {
            self.remove(index, End::GONE);
        }
        let waiting = self.entries.iter().filter(|(_, entry)| silent(entry));
        waiting.map(|(_, entry)| entry.since + SILENT_PEER_TIMEOUT).min()
    }

    /// Receives one batch of one socket.
    fn receive(&mut self, index: usize, room: &mut Room<'_, '_>) {
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        let mut context = Context::from_waker(&entry.waker);
        entry.token.taken();
        // An error means that the runtime is shutting down.
        let Poll::Ready(Ok(mut readiness)) = entry.peer.link.io().poll_read_ready(&mut context) else {
            return;
        };
        let mut lengths = [0; RECEIVE_BATCH];
        let buffers = &mut room.buffers[room.filled..];
        let batch = entry
            .peer
            .link
            .receive(entry.deframer.as_mut(), buffers, &mut lengths);
        if batch.count > 0 {
            entry.peer.heard.store(true, Ordering::Relaxed);
        }
        if batch.drained {
            // After a short batch the next datagram makes a new event, whenever it comes.
            readiness.clear_ready();
        } else {
            self.queue.push_back(index);
        }
        drop(readiness);
        if batch.drained && entry.peer.link.io().poll_read_ready(&mut context).is_ready() {
            self.queue.push_back(index);
        }
        let entry = &mut self.entries[index];
        let address = entry.peer.address();
        let first = room.filled;
        let mut end = batch.end;
        for (number, len) in lengths[..batch.count].iter().enumerate() {
            let datagram = &room.buffers[first + number][..*len];
            if let Some(refusal) = farewell::read_notice(datagram) {
                // Only a client listens to it.
                if self.acceptor.is_none() {
                    end = Some(refusal);
                }
                continue;
            }
            entry.note_received(datagram);
            if !entry.admits(datagram) {
                continue;
            }
            // What was skipped leaves a gap.
            if room.filled < first + number {
                let (kept, rest) = room.buffers.split_at_mut(first + number);
                kept[room.filled][..*len].copy_from_slice(&rest[0][..*len]);
            }
            room.describe(address, *len);
        }
        if let Some(end) = end {
            self.remove(index, end);
        }
    }

    /// Hands over packets that were made here.
    fn take_farewells(&mut self, room: &mut Room<'_, '_>) {
        self.peers.farewell.taken();
        let mut farewells = self
            .peers
            .farewells
            .lock()
            .expect("nothing panics while it holds this lock");
        while !room.is_full() {
            let Some((address, packet)) = farewells.pop_front() else {
                return;
            };
            room.buffers[room.filled][..packet.len()].copy_from_slice(&packet);
            room.describe(address, packet.len());
        }
        self.peers.farewell.mark();
    }
}

impl AsyncUdpSocket for UdsSocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(UdsSender::new(self.peers.clone()))
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut room = Room {
            buffers,
            metas,
            filled: 0,
        };
        loop {
            self.ready.take_into(&mut self.queue);
            while !room.is_full() {
                match self.queue.pop_front() {
                    Some(LISTENER) => self.attend(),
                    Some(FAREWELLS) => self.take_farewells(&mut room),
                    Some(index) => self.receive(index, &mut room),
                    None => break,
                }
            }
            if room.filled > 0 {
                return Poll::Ready(Ok(room.filled));
            }
            if self.queue.is_empty() && self.ready.park(context.waker()) {
                return Poll::Pending;
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(local_address())
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl Drop for UdsSocket {
    fn drop(&mut self) {
        // The sockets outlive the endpoint in the senders of its connections; the peers need not wait for those.
        for (_, entry) in &self.entries {
            entry.peer.link.shut_down();
        }
        self.peers.table().clear();
    }
}
