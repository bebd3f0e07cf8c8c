//! Targets of connections that come from a port of the server: names are resolved by this machine, and addresses tried
//! one after the other.
//!
//! What the connection sends meanwhile waits at the server, but for what came with its first bytes.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use bytes::Bytes;
use packet_io::Interest;
use socket2::Socket;
use tunnel_proto::{End, RequestId};

use super::{Client, ClientInner};
use crate::driver::relay::keep_alive;
use crate::driver::resolver::Answer;
use crate::driver::{Inner, PollToken, Relay, Shard, connecting};
use crate::limits;

/// A connection whose target is not open.
pub(in crate::driver) struct Reaching {
    /// The port that it came to.
    port: usize,
    /// What it has sent already.
    early: VecDeque<Bytes>,
    resolution: u64,
    addresses: std::vec::IntoIter<SocketAddr>,
    connecting: Option<Socket>,
    /// Until when the name has to be resolved, then until when the present address has to answer.
    deadline: Instant,
}

impl Shard<Client> {
    /// A connection has come to one of the server's ports: opens its target.
    pub(super) fn reach(&mut self, now: Instant, id: RequestId, port: usize, early: VecDeque<Bytes>) {
        if !self.io.tcp_opened() {
            self.io.tcp.failed += 1;
            self.take_inner(id);
            return self.engine.end(id, End::Failed);
        }
        self.role.resolutions += 1;
        let resolution = self.role.resolutions;
        let target = self.role.remote_ports.forward(port).target.clone();
        let literal = target
            .address()
            .map(|address| SocketAddr::new(address, target.port()));
        let addresses: Vec<_> = literal.into_iter().collect();
        let reaching = Reaching {
            port,
            early,
            resolution,
            addresses: addresses.into_iter(),
            connecting: None,
            deadline: now + limits::RESOLUTION_WAIT,
        };
        self.insert_inner(id, Inner::Role(ClientInner::Reaching(Box::new(reaching))));
        if literal.is_some() {
            self.reach_next_address(now, id, "it has no address");
        } else {
            self.io
                .resolver
                .ask(purpose(id, resolution), target.host(), target.port());
        }
    }

    /// Whether the answer is about the name of such a target.
    pub(super) fn remote_target_resolved(&mut self, now: Instant, answer: &Answer) -> bool {
        if answer.purpose & OURS == 0 {
            return false;
        }
        let id = RequestId::from_index(((answer.purpose & !OURS) >> NUMBER_BITS) as usize);
        if let Some(reaching) = self.reaching(id)
            && answer.purpose == purpose(id, reaching.resolution)
        {
            reaching.addresses = answer.found.clone().unwrap_or_default().into_iter();
            self.reach_next_address(now, id, "its name cannot be resolved here");
        }
        true
    }

    /// Tries further addresses until one begins to connect; `why` there is none, for people.
    fn reach_next_address(&mut self, now: Instant, id: RequestId, why: &str) {
        let mut why = why.to_owned();
        while let Some(reaching) = self.reaching(id) {
            if let Some(socket) = reaching.connecting.take() {
                let _ = self.io.poller.remove(&socket);
                continue;
            }
            let Some(address) = reaching.addresses.next() else {
                return self.give_up_reaching(now, id, &why);
            };
            let begun = connecting::begin(address).and_then(|socket| {
                keep_alive(&socket)?;
                self.io.watch(&socket, PollToken::of(id), Interest::WRITABLE)?;
                Ok(socket)
            });
            match (begun, self.reaching(id)) {
                (Ok(socket), Some(reaching)) => {
                    reaching.deadline = now + limits::TCP_CONNECT_TIMEOUT;
                    reaching.connecting = Some(socket);
                    return;
                }
                (Err(error), _) => why = sentence(&error),
                (Ok(_), None) => return,
            }
        }
    }

    /// A connecting socket has a result.
    pub(super) fn reaching_ready(&mut self, now: Instant, id: RequestId) {
        let Some(reaching) = self.reaching(id) else {
            return;
        };
        let Some(socket) = reaching.connecting.take() else {
            return;
        };
        match connecting::outcome(&socket) {
            Ok(false) => reaching.connecting = Some(socket),
            Ok(true) => {
                let early = std::mem::take(&mut reaching.early);
                let mut relay = Relay::new(TcpStream::from(socket), Interest::WRITABLE);
                relay.begin_late(early);
                relay.body_is_readable();
                self.insert_inner(id, Inner::Tcp(relay));
                self.step_relay(id);
            }
            Err(error) => {
                let _ = self.io.poller.remove(&socket);
                self.reach_next_address(now, id, &sentence(&error));
            }
        }
    }

    /// Gives up addresses that take too long.
    pub(super) fn end_late_reaching(&mut self, now: Instant) {
        let is_late = |inner: &Option<Inner<ClientInner>>| matches!(inner, Some(Inner::Role(ClientInner::Reaching(reaching))) if reaching.deadline <= now);
        let inner = self.inner.iter().enumerate();
        let late: Vec<_> = inner
            .filter(|(_, inner)| is_late(inner))
            .map(|(index, _)| index)
            .collect();
        for id in late.into_iter().map(RequestId::from_index) {
            self.reach_next_address(now, id, "it does not answer");
        }
    }

    /// Whoever came to the port sees the connection reset.
    fn give_up_reaching(&mut self, now: Instant, id: RequestId, why: &str) {
        if let Some(reaching) = self.reaching(id) {
            let port = reaching.port;
            let target = &self.role.remote_ports.forward(port).target;
            let text = format!("a connection from the server does not reach {target}: {why}");
            self.tell_trouble(now, text);
        }
        self.io.tcp.failed += 1;
        self.close_inner(id, true);
        self.engine.end(id, End::Failed);
    }

    /// The inner end is gone; its place is free.
    pub(super) fn close_reaching(&mut self, reaching: Reaching) {
        if let Some(socket) = reaching.connecting {
            let _ = self.io.poller.remove(&socket);
        }
        self.io.tcp_closed();
    }

    fn reaching(&mut self, id: RequestId) -> Option<&mut Reaching> {
        match self.inner.get_mut(id.index()) {
            Some(Some(Inner::Role(ClientInner::Reaching(reaching)))) => Some(reaching),
            _ => None,
        }
    }
}

/// Tells names of targets from those of servers.
const OURS: u64 = 1 << 63;
const NUMBER_BITS: u32 = 32;

fn purpose(id: RequestId, resolution: u64) -> u64 {
    OURS | (id.index() as u64) << NUMBER_BITS | resolution & u64::from(u32::MAX)
}

/// An error without its number.
fn sentence(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split_once(" (os error").map_or(&text[..], |(text, _)| text);
    text.to_lowercase()
}
