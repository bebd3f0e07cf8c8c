//! Associations of SOCKS5 for UDP (RFC 1928 section 7): each has a socket of its own, at the address that its TCP
//! connection came in on, takes datagrams of that connection's machine alone, and ends with the connection.
//!
//! Each of the program's ports has a session for each target that it names. A target is known by the bytes that name
//! it, which the answers begin with. A shard whose stripe is down gives the whole association to a sibling; its
//! sessions begin anew there.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

use bytes::BytesMut;
use packet_io::{DatagramSocket, Interest, UdpSocket};
use tunnel_proto::{DropReason, End, Idleness, NotOpened, RequestId, SocksAddress, SocksDatagram};

use super::listeners::socket_options;
use super::negotiating::{Negotiating, discard, send};
use super::{Client, ClientInner, ClientMessage, ClientSource};
use crate::driver::relay::keep_alive;
use crate::driver::sources::SourceId;
use crate::driver::{Inner, Shard};
use crate::limits;
use crate::snapshot::IoCounters;

/// An association on its way to the shard that serves it.
pub(in crate::driver) struct Association {
    stream: TcpStream,
    /// What the program has not been sent yet.
    pub(super) answer: BytesMut,
    socket: UdpSocket,
    program: IpAddr,
}

/// The socket of an association, and the sessions behind it.
pub(in crate::driver) struct DatagramRelay {
    pub(super) socket: UdpSocket,
    /// Where the TCP connection comes from, and so all datagrams that are taken.
    program: IpAddr,
    control: Option<SourceId>,
    sessions: HashMap<SocketAddr, HashMap<SocksAddress, RequestId>>,
    /// The same, by the program's address.
    idleness: Idleness<SocketAddr, RequestId>,
}

/// The TCP connection of an association, over which nothing more is said.
pub(in crate::driver) struct Control {
    pub(super) stream: TcpStream,
    answer: BytesMut,
    relay: SourceId,
}

/// One of a program's addresses at an association, and a target that it named.
pub(in crate::driver) struct AssociatedAddress {
    pub(super) relay: SourceId,
    pub(super) source: SocketAddr,
    pub(super) address: SocksAddress,
}

impl DatagramRelay {
    /// The session of a program's address to the target that these bytes name.
    fn session_to(&self, source: SocketAddr, address: &[u8]) -> Option<RequestId> {
        self.sessions.get(&source)?.get(address).copied()
    }

    fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.sessions.values().flat_map(HashMap::values).copied()
    }
}

impl Control {
    /// What to wait for; `None` at the end.
    fn step(&mut self) -> Option<Interest> {
        if !send(&self.stream, &mut self.answer).ok()? {
            return Some(Interest::WRITABLE);
        }
        discard(&self.stream).then_some(Interest::READABLE)
    }
}

impl Shard<Client> {
    /// The program of a connection wants an association. It has no place among the TCP connections then, which the end
    /// of the client waits for.
    pub(super) fn associate(&mut self, now: Instant, mut negotiating: Negotiating) {
        let opened = self.open_relay(&negotiating.stream);
        let (socket, relay, program) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.tell_trouble(now, format!("a local program gets no relay for UDP: {error}"));
                return self.fail_negotiation(now, negotiating, Some(NotOpened::NoRelay));
            }
        };
        self.io.tcp_left();
        negotiating
            .negotiation
            .handle_associated(relay, &mut negotiating.answer);
        self.insert_association(Association {
            stream: negotiating.stream,
            answer: negotiating.answer,
            socket,
            program,
        });
    }

    /// A socket at the address that the connection came in on, where it is, and where the program is.
    fn open_relay(&self, stream: &TcpStream) -> io::Result<(UdpSocket, SocketAddr, IpAddr)> {
        if self.role.associations >= limits::ASSOCIATIONS_PER_SHARD {
            return Err(io::Error::other("too many are open"));
        }
        keep_alive(stream)?;
        let program = stream.peer_addr()?.ip().to_canonical();
        let mut local = stream.local_addr()?;
        local.set_port(0);
        let socket = UdpSocket::bind(local, &socket_options(&self.io.common))?;
        let relay = socket.local_addr()?;
        Ok((socket, relay, program))
    }

    /// Without room for it, the association ends at once.
    fn insert_association(&mut self, association: Association) {
        let poller = &self.io.poller;
        let relay = ClientSource::DatagramRelay(Box::new(DatagramRelay {
            socket: association.socket,
            program: association.program,
            control: None,
            sessions: HashMap::new(),
            idleness: Idleness::default(),
        }));
        let Ok(at) = self.sources.insert(poller, relay, Interest::READABLE, None) else {
            return;
        };
        self.role.associations += 1;
        let control = ClientSource::Control(Control {
            stream: association.stream,
            answer: association.answer,
            relay: at,
        });
        let control = self.sources.insert(poller, control, Interest::WRITABLE, None);
        match (control, self.sources.datagram_relay(at)) {
            (Ok(control), Some(relay)) => relay.control = Some(control),
            _ => self.end_association(at),
        }
    }

    pub(super) fn control_ready(&mut self, id: SourceId) {
        let Some(ClientSource::Control(control)) = self.sources.get_mut(id) else {
            return;
        };
        let (next, relay) = (control.step(), control.relay);
        let watched = next.map(|interest| self.sources.set_interest(&self.io.poller, id, interest));
        if !matches!(watched, Some(Ok(()))) {
            self.end_association(relay);
        }
    }

    fn end_association(&mut self, at: SourceId) {
        if let Some(mut association) = self.take_association(at) {
            self.io.inner_io_past += IoCounters::of_socket(&mut association.socket).closed();
        }
    }

    /// Ends the sessions of an association, which is its caller's.
    fn take_association(&mut self, at: SourceId) -> Option<Association> {
        // Its requests' numbers may be used again.
        self.flush_delivery();
        let ClientSource::DatagramRelay(relay) = self.sources.remove(&self.io.poller, at)? else {
            return None;
        };
        self.role.associations -= 1;
        for id in relay.requests() {
            self.close_inner(id, false);
            self.engine.end(id, End::Done);
        }
        let control = self.sources.remove(&self.io.poller, relay.control?)?;
        let ClientSource::Control(control) = control else {
            return None;
        };
        Some(Association {
            stream: control.stream,
            answer: control.answer,
            socket: relay.socket,
            program: relay.program,
        })
    }

    /// An association of a shard whose stripe is down.
    pub(super) fn take_over_association(&mut self, association: Association) {
        let has_room = self.role.associations < limits::ASSOCIATIONS_PER_SHARD;
        if self.drain.is_none() && has_room {
            self.insert_association(association);
        }
    }

    /// Those without sessions; the others go on, as listeners do.
    pub(super) fn end_idle_associations(&mut self) {
        let idle = |(id, source): (SourceId, &mut ClientSource)| match source {
            ClientSource::DatagramRelay(relay) if relay.sessions.is_empty() => Some(id),
            _ => None,
        };
        let idle: Vec<SourceId> = self.sources.iter_mut().filter_map(idle).collect();
        for id in idle {
            self.end_association(id);
        }
    }

    /// One batch of an association's socket.
    pub(super) fn receive_at_relay(&mut self, now: Instant, at: SourceId) {
        if self.intake_should_wait() {
            return;
        }
        if let Some(sibling) = self.stand_in(now) {
            // Where there is no room for it, the program sees it end.
            if let Some(association) = self.take_association(at) {
                let message = ClientMessage::Association(Box::new(association));
                self.neighbours.hand_over(sibling, message);
            }
            return;
        }
        let Some(relay) = self.sources.datagram_relay(at) else {
            return;
        };
        let program = relay.program;
        let Ok(count) = relay.socket.receive(&mut self.inner_batch) else {
            return;
        };
        for index in 0..count {
            let meta = self.inner_batch.get(index).meta;
            if meta.truncated {
                continue;
            }
            if meta.source.ip().to_canonical() == program {
                self.take_in_associated(now, at, index);
            } else {
                let datagrams = meta.segments() as u64;
                self.refuse_at_relay(DropReason::SourceSpoofed, datagrams);
            }
            if self.engine.queue_is_long() {
                self.more_to_send = self.flush_outer(now);
            }
        }
    }

    fn refuse_at_relay(&mut self, reason: DropReason, datagrams: u64) {
        let ingress = &mut self.engine.ledger().ingress;
        ingress.accepted += datagrams;
        ingress.drop(reason, datagrams);
    }

    /// One message of the batch: each run of datagrams with one target goes to its session.
    fn take_in_associated(&mut self, now: Instant, at: SourceId, index: usize) {
        let (source, total) = {
            let meta = self.inner_batch.get(index).meta;
            (meta.source, meta.segments())
        };
        let mut taken = 0;
        while taken < total {
            let mut rest = self.inner_batch.get(index).segments().skip(taken);
            let Some(first) = rest.next().and_then(|first| SocksDatagram::read(first).ok()) else {
                self.refuse_at_relay(DropReason::Malformed, 1);
                taken += 1;
                continue;
            };
            let is_same = |datagram: &&[u8]| {
                SocksDatagram::read(datagram).is_ok_and(|datagram| datagram.address == first.address)
            };
            let run = 1 + rest.take_while(is_same).count();
            let relay = self.sources.datagram_relay(at);
            let session = match relay.and_then(|relay| relay.session_to(source, first.address)) {
                Some(id) => Ok(id),
                None => match SocksAddress::new(first.address) {
                    Ok(address) => self.open_session_to(now, at, source, address),
                    Err(_) => Err(DropReason::Malformed),
                },
            };
            match session {
                Ok(id) => {
                    let segments = self.inner_batch.get(index).segments();
                    let datagrams = segments.skip(taken).take(run).map(SocksDatagram::read);
                    let payloads = datagrams.filter_map(Result::ok).map(|datagram| datagram.payload);
                    self.engine.send_datagrams(now, id, payloads);
                }
                Err(reason) => self.refuse_at_relay(reason, run as u64),
            }
            taken += run;
        }
    }

    /// A session of a program's address to a target to which it has none.
    fn open_session_to(
        &mut self,
        now: Instant,
        at: SourceId,
        source: SocketAddr,
        address: SocksAddress,
    ) -> Result<RequestId, DropReason> {
        if self.drain.is_some() {
            return Err(DropReason::SessionClosed);
        }
        let relay = self.sources.datagram_relay(at).ok_or(DropReason::SessionClosed)?;
        let target = address.target().map_err(|_| DropReason::Malformed)?;
        if relay.idleness.len() >= limits::ASSOCIATION_SESSIONS_MAX
            && let Some(idlest) = relay.idleness.idlest(|id| self.engine.last_active(id))
        {
            self.flush_delivery();
            self.close_inner(idlest, false);
            self.engine.end(idlest, End::Done);
        }
        let id = self.engine.open_session(now, source.ip().to_canonical(), target);
        self.delivery.set_header(id, Some(address.header()));
        let associated = AssociatedAddress {
            relay: at,
            source,
            address: address.clone(),
        };
        self.insert_inner(id, Inner::Role(ClientInner::Associated(Box::new(associated))));
        let relay = self.sources.datagram_relay(at).ok_or(DropReason::SessionClosed)?;
        relay.sessions.entry(source).or_default().insert(address, id);
        relay.idleness.add(id, source, now);
        Ok(id)
    }

    /// A session has ended; its target may have a new one already.
    pub(super) fn forget_associated(&mut self, id: RequestId, associated: &AssociatedAddress) {
        self.delivery.set_header(id, None);
        let Some(relay) = self.sources.datagram_relay(associated.relay) else {
            return;
        };
        relay.idleness.remove(id);
        let Some(sessions) = relay.sessions.get_mut(&associated.source) else {
            return;
        };
        if sessions.get(&associated.address) == Some(&id) {
            sessions.remove(&associated.address);
            if sessions.is_empty() {
                relay.sessions.remove(&associated.source);
            }
        }
    }
}
