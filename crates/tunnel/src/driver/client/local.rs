//! A client's local side: sources and connections that come to its listeners, and what is told when the server refuses.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use packet_io::Interest;
use tunnel_proto::{End, Ending, Protocol, ProxyError, RequestId};

use super::{Client, ClientMessage, ClientSource, Source};
use crate::driver::{Inner, PollToken, Relay, Shard};
use crate::handle::Notice;
use crate::limits;

impl Shard<Client> {
    /// A source that was not heard before.
    pub(in crate::driver) fn new_session(
        &mut self,
        now: Instant,
        index: usize,
        source: SocketAddr,
    ) -> RequestId {
        let target = self.role.udp_listeners[index].target.clone();
        let id = self.engine.open(now, Protocol::Udp, target);
        self.insert_inner(
            id,
            Inner::Role(Source {
                listener: index,
                address: source,
            }),
        );
        self.role.udp_listeners[index].sessions.insert(source, id);
        id
    }

    pub(in crate::driver) fn accept_tcp(&mut self, now: Instant, index: usize) {
        let sibling = self.stand_in(now);
        for _ in 0..limits::ACCEPTS_PER_TURN {
            let Some((listener, _)) = self.role.tcp_listeners.get(index) else {
                return;
            };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // Out of descriptors: watching on would spin. The next tick tries again.
                    let token = ClientSource::TcpListener(index).token().encode();
                    let _ = self.io.poller.modify(listener, token, Interest::NONE);
                    return self
                        .tell_refused(now, format!("a local TCP connection cannot be accepted: {error}"));
                }
            };
            match sibling {
                None => self.take_over(now, index, stream),
                Some(sibling) => {
                    let listener = index;
                    if !self
                        .neighbours
                        .hand_over(sibling, ClientMessage::Connection { listener, stream })
                    {
                        self.io.tcp.failed += 1;
                    }
                }
            }
        }
    }

    /// A local connection becomes a stream, accepted here or by a sibling whose stripe is down.
    pub(in crate::driver) fn take_over(&mut self, now: Instant, index: usize, stream: TcpStream) {
        let Some((_, target)) = self.role.tcp_listeners.get(index) else {
            // A sibling accepted it just before the end.
            self.io.tcp.failed += 1;
            return;
        };
        let target = target.clone();
        if stream.set_nonblocking(true).is_err() || !self.io.tcp_opened() {
            self.io.tcp.failed += 1;
            return;
        }
        let id = self.engine.open(now, Protocol::Tcp, target);
        let relay = Relay::new(stream, now + limits::TCP_WAIT_FOR_TUNNEL);
        let watched = self.io.watch(&relay.stream, PollToken::of(id), Interest::NONE);
        self.insert_inner(id, Inner::Tcp(relay));
        if watched.is_err() {
            self.close_inner(id, true);
            self.engine.end(id, End::Failed);
        }
    }

    /// The server has opened the target.
    pub(in crate::driver) fn established(&mut self, id: RequestId) {
        if let Some(relay) = self.relay(id) {
            relay.open = true;
            relay.body_is_readable();
            self.step_relay(id);
        }
    }

    pub(in crate::driver) fn session_refused(
        &mut self,
        now: Instant,
        id: RequestId,
        status: u16,
        error: Option<ProxyError>,
    ) {
        if let Some(Some(Inner::Role(Source { listener, .. }))) = self.inner.get(id.index()) {
            let target = &self.role.udp_listeners[*listener].target;
            let text = format!("the server refused UDP to {target}: {}", explain(status, error));
            self.tell_refused(now, text);
        }
    }

    pub(in crate::driver) fn tell_refusal(&mut self, id: RequestId, ending: &Ending) {
        if let Ending::Refused { status, error } = ending
            && matches!(self.inner.get(id.index()), Some(Some(Inner::Tcp(_))))
        {
            self.io.tcp.failed += 1;
            let text = format!(
                "the server refused a TCP connection: {}",
                explain(*status, *error)
            );
            self.tell_refused(Instant::now(), text);
        }
    }

    /// Warns, not more often than every few seconds.
    pub(in crate::driver) fn tell_refused(&mut self, now: Instant, text: String) {
        let client = &mut self.role;
        if client
            .refusal_told
            .is_none_or(|told| now.duration_since(told) >= tunnel_proto::limits::REFUSED_HOLD)
        {
            client.refusal_told = Some(now);
            self.io.notify(Notice::Warning { text });
        }
    }

    /// No new local connections: who comes from here on is refused by the kernel. What runs goes on.
    pub(in crate::driver) fn stop_accepting(&mut self) {
        for (listener, _) in self.role.tcp_listeners.drain(..) {
            // Closing it does the same.
            let _ = self.io.poller.remove(&listener);
        }
    }
}

fn explain(status: u16, error: Option<ProxyError>) -> String {
    match error {
        Some(ProxyError::DestinationIpProhibited) => {
            "the target's address is not allowed there (the server's owner can with --allow-target)"
                .to_owned()
        }
        Some(ProxyError::DnsError) => "its name cannot be resolved there".to_owned(),
        Some(ProxyError::ConnectionRefused) => "nothing listens at the target".to_owned(),
        Some(error) => format!("{} (HTTP status {status})", error.token().replace('_', " ")),
        None => format!("HTTP status {status}"),
    }
}
