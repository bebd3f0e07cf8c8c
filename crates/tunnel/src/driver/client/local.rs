//! A client's local side: sources and connections that come to its listeners, and what is told when the server refuses.

use std::net::SocketAddr;
use std::time::Instant;

use packet_io::Interest;
use tunnel_proto::{ProxyError, RequestId, Target};

use super::listeners::ListenerKind;
use super::opening::LocalConnection;
use super::transparent::target_of;
use super::{Client, ClientInner, ClientSource, LocalAddress};
use crate::driver::relay::reset_on_close;
use crate::driver::sources::SourceId;
use crate::driver::{Inner, Shard};
use crate::handle::{Notice, Repeated};
use crate::limits;

impl Shard<Client> {
    /// The session of a local address, which is opened where it has none; `None` where the listener is gone.
    pub(in crate::driver) fn session_of(
        &mut self,
        now: Instant,
        listener: SourceId,
        address: SocketAddr,
    ) -> Option<RequestId> {
        let is_ending = self.drain.is_some();
        let at = self.sources.udp_listener(listener)?;
        if let Some(id) = at.sessions.get(&address) {
            return Some(*id);
        }
        if is_ending {
            return None;
        }
        let target = at.target.clone();
        let id = self.engine.open_session(now, address.ip().to_canonical(), target);
        self.insert_inner(
            id,
            Inner::Role(ClientInner::Local(LocalAddress { listener, address })),
        );
        let at = self.sources.udp_listener(listener)?;
        at.sessions.insert(address, id);
        Some(id)
    }

    pub(in crate::driver) fn accept_tcp(&mut self, now: Instant, id: SourceId) {
        for _ in 0..limits::ACCEPTS_PER_TURN {
            let Some(ClientSource::TcpListener(listener)) = self.sources.get(id) else {
                return;
            };
            let stream = match listener.socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    self.pause_accepting(now, id);
                    return self
                        .tell_trouble(now, format!("a local TCP connection cannot be accepted: {error}"));
                }
            };
            let kind = listener.kind.clone();
            let own = listener.socket.local_addr().ok();
            if stream.set_nonblocking(true).is_err() || !self.io.tcp_opened() {
                self.io.tcp.failed += 1;
                continue;
            }
            match kind {
                ListenerKind::Fixed(target) => self.connect(now, LocalConnection::new(stream, target)),
                ListenerKind::Negotiated(negotiator) => self.negotiate(now, stream, negotiator()),
                ListenerKind::Transparent => {
                    let local = stream.local_addr().ok().filter(|local| Some(*local) != own);
                    match local.and_then(|local| target_of(local).ok()) {
                        Some(target) => self.connect(now, LocalConnection::new(stream, target)),
                        None => {
                            self.tell_own_port(now, own);
                            reset_on_close(&stream);
                            self.io.tcp.failed += 1;
                            self.io.tcp_closed();
                        }
                    }
                }
            }
        }
    }

    /// Watched on, a listener without descriptors to give would be ready at once.
    fn pause_accepting(&mut self, now: Instant, id: SourceId) {
        let _ = self.sources.set_interest(&self.io.poller, id, Interest::NONE);
        self.sources.set_deadline(id, Some(now + limits::ACCEPT_PAUSE));
    }

    pub(in crate::driver) fn resume_accepting(&mut self, now: Instant, id: SourceId) {
        let resumed = self.sources.set_interest(&self.io.poller, id, Interest::READABLE);
        if resumed.is_err() {
            self.pause_accepting(now, id);
        }
    }

    pub(in crate::driver) fn session_refused(
        &mut self,
        now: Instant,
        id: RequestId,
        status: u16,
        error: Option<ProxyError>,
    ) {
        let target = match self.inner.get(id.index()) {
            Some(Some(Inner::Role(ClientInner::Local(local)))) => {
                let listener = self.sources.udp_listener(local.listener);
                listener.map(|listener| listener.target.clone())
            }
            Some(Some(Inner::Role(ClientInner::Associated(associated)))) => associated.address.target().ok(),
            Some(Some(Inner::Role(ClientInner::Transparent(ours)))) => ours.target(),
            _ => None,
        };
        if let Some(target) = target {
            self.tell_refused(now, "UDP", &target, status, error);
        }
    }

    /// Tells once that and why the server does not lead to a target.
    pub(super) fn tell_refused(
        &mut self,
        now: Instant,
        protocol: &str,
        target: &Target,
        status: u16,
        error: Option<ProxyError>,
    ) {
        let text = format!(
            "the server refused {protocol} to {target}: {}",
            explain(status, error)
        );
        self.tell_refusal(now, &text);
    }

    /// Tells a refusal that was not told yet, or counts it.
    pub(super) fn tell_refusal(&self, now: Instant, text: &str) {
        let notices = &self.io.notices;
        self.role.stripes.lock().refused(text, || {
            let notice = || Notice::Warning {
                text: text.to_owned(),
            };
            notices.send_few(now, Repeated::Refused, notice)
        });
    }

    /// Warns, not more often than every few seconds.
    pub(in crate::driver) fn tell_trouble(&mut self, now: Instant, text: String) {
        let notice = || Notice::Warning { text };
        self.io.notices.send_few(now, Repeated::Trouble, notice);
    }

    /// No new local connections: who comes from here on is refused by the kernel. What runs goes on, so that a UDP
    /// listener or an association with sessions stays.
    pub(in crate::driver) fn stop_accepting(&mut self) {
        for id in std::mem::take(&mut self.role.tcp_listeners) {
            drop(self.sources.remove(&self.io.poller, id));
        }
        for id in self.role.udp_listeners.clone() {
            let listener = self.sources.udp_listener(id);
            if listener.is_some_and(|listener| listener.sessions.is_empty()) {
                drop(self.sources.remove(&self.io.poller, id));
            }
        }
        self.end_idle_associations();
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
