//! TCP connections of a sender: to the port that the receiver offers (FILE-19), or, where that is not reached, from
//! the receiver to a port of ours (FILE-36). Whichever end connects, this one is TLS's client.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use files_proto::message::{Message, TcpOffer};
use quic::{KeyIdentity, records};
use rustls::ClientConfig;

use super::lane::{Compressing, LaneThread};
use super::{Conversation, Sending};
use crate::carrier::offer::OfferedPort;
use crate::carrier::tls::{PROTOCOL, TlsSender};
use crate::carrier::{Carrier, RecordSender, tcp};
use crate::choice::Decision;
use crate::limits::{CHUNKS_OWN_TCP, STREAMS_MAX, TCP_CONNECTIONS, TCP_PATIENCE, TCP_WAIT_MAX};
use crate::options::{Compress, Transport};
use crate::pool::Pool;
use crate::progress::Event;
use crate::remembered::Between;
use crate::session_key;

/// What connections of one transfer have in common.
pub(super) struct Tcp {
    key: KeyIdentity,
    connections: Connections,
    /// When the receiver's port was first tried.
    since: Instant,
    has_offered: bool,
    is_accepting: bool,
}

#[derive(Clone)]
struct Connections {
    /// At most.
    count: usize,
    pool: Pool,
    compress: Compress,
}

impl Conversation<'_, '_> {
    /// The receiver offers a port.
    pub(super) fn take_offer(&mut self, offer: TcpOffer) {
        if self.options.transport != Transport::Quic {
            self.offered.offer(offer);
            self.begin_tcp();
        }
    }

    /// Connects to the port that the receiver has offered, once the path leads to itself; threads do so, because it
    /// takes a while where nobody answers.
    pub(super) fn begin_tcp(&mut self) {
        let Some(OfferedPort {
            address,
            port,
            key: receiver,
        }) = self.offered.take_up(|| self.peer.path())
        else {
            return;
        };
        let Ok(key) = session_key() else { return };
        self.sending.outbox.push(&Message::TcpKey {
            key: key.public_key(),
        });
        let config = records::connecting(&key, PROTOCOL, receiver);
        let peer = (!self.options.has_passing_peers).then(|| self.peer.id());
        self.between = Between::new(peer, address);
        let streams = self.options.streams.unwrap_or(TCP_CONNECTIONS);
        let count = streams.clamp(1, STREAMS_MAX);
        let connections = Connections {
            count,
            pool: self.memory.pool(CHUNKS_OWN_TCP, count),
            compress: self.options.compress,
        };
        self.tcp = Some(Tcp {
            key,
            connections: connections.clone(),
            since: Instant::now(),
            has_offered: false,
            is_accepting: false,
        });
        let sending = self.sending;
        self.scope.spawn(move || {
            let connect = || {
                let socket = tcp::connect(address, port).map(Arc::new).ok()?;
                // Also a handshake is cut at the end.
                if !sending.sockets.keep(&socket) {
                    return None;
                }
                sending.tcp_lane(&connections, socket, &config)
            };
            // The first connection decides whether there are others.
            let Some(first) = connect() else {
                sending.is_tcp_refused.store(true, Ordering::SeqCst);
                return sending.bell.ring();
            };
            thread::scope(|scope| {
                for _ in 1..connections.count {
                    scope.spawn(|| connect().map(|lane| sending.run_tcp(lane)));
                }
                sending.run_tcp(first);
            });
        });
    }

    /// Offers a port of ours, once, where the receiver's is not reached.
    pub(super) fn offer_tcp(&mut self) {
        let sending = self.sending;
        let Some(tcp) = self.tcp.as_mut().filter(|tcp| !tcp.has_offered) else {
            return;
        };
        let is_refused = sending.is_tcp_refused.load(Ordering::SeqCst);
        let has_connected = sending.tcp_taken.load(Ordering::SeqCst) > 0;
        if has_connected || !is_refused && tcp.since.elapsed() < TCP_PATIENCE {
            return;
        }
        tcp.has_offered = true;
        let Ok(port) = sending.listening.open() else {
            return;
        };
        sending.outbox.push(&Message::TcpOffer(TcpOffer {
            // The address is the one that QUIC has (FILE-19).
            addresses: vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))],
            key: tcp.key.public_key(),
        }));
    }

    /// Says why there is no TCP, where the user has asked for it: once both ways to it have had their time, or the
    /// transfer `is_over`.
    pub(super) fn forgo_tcp(&mut self, is_over: bool) {
        let is_asked = self.options.transport == Transport::Tcp;
        let has_connected = self.sending.tcp_taken.load(Ordering::SeqCst) > 0;
        let is_late = self.began.elapsed() >= TCP_WAIT_MAX;
        if !is_asked || has_connected || self.is_forgone || !is_late && !is_over {
            return;
        }
        self.is_forgone = true;
        let (why, is_problem) = match (&self.tcp, is_late) {
            (None, _) => ("the receiver takes none on this path", true),
            (Some(_), true) => ("neither end reaches the other by it", true),
            (Some(_), false) => ("the transfer was over before it was there", false),
        };
        let reason = format!("TCP was asked for, and {why}");
        if is_problem {
            self.sending.progress.tell(Event::Problem {
                path: String::new(),
                text: format!("{reason}; QUIC carries everything"),
            });
        }
        self.decide(Some(Decision::Choose(Carrier::Quic, reason)));
    }

    /// Takes connections of the receiver, which has told its key.
    pub(super) fn take_tcp(&mut self, key: [u8; 32]) {
        let sending = self.sending;
        let (Some(tcp), Some(listener)) = (&mut self.tcp, sending.listening.get()) else {
            return;
        };
        if std::mem::replace(&mut tcp.is_accepting, true) {
            return;
        }
        let config = records::connecting(&tcp.key, PROTOCOL, key);
        let connections = tcp.connections.clone();
        self.scope.spawn(move || {
            let handshake = |socket| sending.tcp_lane(&connections, socket, &config);
            let is_over = || sending.is_over();
            listener.serve(&sending.sockets, is_over, handshake, |lane| sending.run_tcp(lane));
        });
    }
}

impl Sending {
    /// Completes the handshake; `None` where it fails, or enough connections are there.
    fn tcp_lane(
        &self,
        connections: &Connections,
        socket: Arc<std::net::TcpStream>,
        config: &Arc<ClientConfig>,
    ) -> Option<LaneThread<'_>> {
        let sender = TlsSender::new(socket, Arc::clone(config)).ok()?;
        let taken = self
            .tcp_taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| {
                (taken < connections.count).then_some(taken + 1)
            });
        taken.ok()?;
        Some(LaneThread {
            number: self.lanes.fetch_add(1, Ordering::Relaxed),
            sender: RecordSender::Tcp(Box::new(sender)),
            sending: self,
            pool: connections.pool.clone(),
            compression: Compressing::new(connections.compress),
        })
    }

    /// Works on a connection until it ends; the thread that hears the receiver is told of the first and the last one.
    fn run_tcp(&self, lane: LaneThread<'_>) {
        self.tcp_open.fetch_add(1, Ordering::SeqCst);
        self.bell.ring();
        lane.run();
        self.tcp_open.fetch_sub(1, Ordering::SeqCst);
        self.bell.ring();
    }
}
