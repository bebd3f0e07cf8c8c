//! Ports of the server whose connections lead here (`specs/listen.md`).
//!
//! One of the client's stripes asks for all of them; when it is lost, another one does. A few requests wait for each
//! port, each for one connection; more do when connections have used all of them up. What comes is led to the port's
//! target, which this machine resolves and reaches (`reaching.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tunnel_proto::{Body, CONNECTION_CAME, End, Ending, ListenPath, ProxyError, RequestId};

use super::{Client, ClientInner};
use crate::config::RemoteForward;
use crate::driver::{Inner, Shard};
use crate::handle::Notice;
use crate::limits;
use crate::snapshot::ListenerSnapshot;

/// Which stripe asks for the ports; a clone is another shard's.
#[derive(Clone)]
pub(super) struct AskingStripe(Arc<AtomicUsize>);

impl Default for AskingStripe {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(Self::NONE)))
    }
}

impl AskingStripe {
    const NONE: usize = usize::MAX;

    /// Whether it is this stripe, which is up; where there is none, it is from here on.
    fn is_or_becomes(&self, index: usize) -> bool {
        let taken = self
            .0
            .compare_exchange(Self::NONE, index, Ordering::Relaxed, Ordering::Relaxed);
        taken.err().is_none_or(|present| present == index)
    }

    /// This stripe is down.
    fn leave(&self, index: usize) {
        let _ = self
            .0
            .compare_exchange(index, Self::NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// All ports, as one shard has them.
#[derive(Default)]
pub(in crate::driver) struct RemotePorts {
    asking: AskingStripe,
    /// Names this process to the server.
    client: u64,
    ports: Vec<RemotePort>,
}

/// One port of the server.
pub(super) struct RemotePort {
    pub(super) forward: RemoteForward,
    /// Requests that wait for a connection, or for the server's word that it listens.
    waiting: usize,
    /// How many there are to be.
    wanted: usize,
    /// The server listens there.
    is_open: bool,
    /// Not to be asked for again before.
    retry: Option<Instant>,
    /// Connections that came.
    total: u64,
}

impl RemotePorts {
    pub(super) fn new(forwards: &[RemoteForward], client: u64, asking: AskingStripe) -> Self {
        let port = |forward: &RemoteForward| RemotePort {
            forward: forward.clone(),
            waiting: 0,
            wanted: limits::LISTENER_REQUESTS_FIRST,
            is_open: false,
            retry: None,
            total: 0,
        };
        Self {
            asking,
            client,
            ports: forwards.iter().map(port).collect(),
        }
    }

    pub(super) fn forward(&self, port: usize) -> &RemoteForward {
        &self.ports[port].forward
    }

    /// The stripe is down: another one asks.
    pub(super) fn stripe_is_down(&self, index: usize) {
        self.asking.leave(index);
    }

    pub(super) fn snapshots(&self) -> Vec<ListenerSnapshot> {
        let ports = self.ports.iter();
        ports.map(RemotePort::snapshot).collect()
    }
}

impl RemotePort {
    fn snapshot(&self) -> ListenerSnapshot {
        ListenerSnapshot {
            address: self.forward.listen,
            user: None,
            target: Some(self.forward.target.to_string()),
            is_open: self.is_open,
            waiting: self.waiting as u64,
            total: self.total,
        }
    }

    /// How many requests are missing.
    fn missing(&mut self, now: Instant) -> usize {
        if self.retry.is_some_and(|retry| now < retry) {
            return 0;
        }
        self.retry = None;
        self.wanted.saturating_sub(self.waiting)
    }

    /// A connection has come to one of the requests.
    fn took(&mut self) {
        self.total += 1;
        self.waiting -= 1;
        if self.waiting == 0 {
            self.wanted = (2 * self.wanted).min(limits::LISTENER_REQUESTS_MAX);
        }
    }
}

impl Shard<Client> {
    /// Asks for the ports, where this stripe is the one that does.
    pub(super) fn ask_for_ports(&mut self, now: Instant) {
        let client = &mut self.role;
        let remote = &mut client.remote_ports;
        if remote.ports.is_empty() || self.drain.is_some() || !client.reconnection.is_up() {
            return;
        }
        if !remote.asking.is_or_becomes(client.index) {
            return;
        }
        for number in 0..self.role.remote_ports.ports.len() {
            let remote = &mut self.role.remote_ports;
            let path = ListenPath {
                client: remote.client,
                address: remote.ports[number].forward.listen,
            };
            let missing = remote.ports[number].missing(now);
            remote.ports[number].waiting += missing;
            for _ in 0..missing {
                let id = self.engine.open_listener(now, path);
                self.insert_inner(id, Inner::Role(ClientInner::Listening(number)));
            }
        }
    }

    /// The server listens at the port of this request, where it is one.
    pub(super) fn port_is_open(&mut self, id: RequestId) -> bool {
        let Some(number) = self.port_of(id) else {
            return false;
        };
        let port = &mut self.role.remote_ports.ports[number];
        if !std::mem::replace(&mut port.is_open, true) {
            let listen = port.forward.listen;
            let target = port.forward.target.to_string();
            self.io.notify(Notice::RemoteListening { listen, target });
        }
        true
    }

    /// The content of a request that waits for a connection begins, or ends.
    pub(super) fn port_has_news(&mut self, now: Instant, id: RequestId) {
        let Some(number) = self.port_of(id) else {
            return;
        };
        let mut content = VecDeque::new();
        let body = self.engine.read_body(id, &mut content, limits::TCP_WRITE_BYTES);
        match (content.front_mut(), body) {
            (Some(first), _) if first.first() == Some(&CONNECTION_CAME) => {
                drop(first.split_to(1));
                content.retain(|piece| !piece.is_empty());
                self.role.remote_ports.ports[number].took();
                self.reach(now, id, number, content);
                self.ask_for_ports(now);
            }
            (None, Body::Blocked | Body::More) => {}
            // It ends without a connection: the server drains, or another stripe has the port.
            (None, Body::Finished) => {
                self.close_inner(id, false);
                self.engine.end(id, End::Done);
                self.role.remote_ports.ports[number].retry = Some(now + limits::TICK);
            }
            (None, Body::Reset) => {}
            (Some(_), _) => {
                self.close_inner(id, false);
                self.engine.end(id, End::Failed);
            }
        }
    }

    /// A request that waited for a connection has ended.
    pub(super) fn listening_ended(&mut self, now: Instant, number: usize, ending: &Ending) {
        let client = &mut self.role;
        let port = &mut client.remote_ports.ports[number];
        match ending {
            Ending::Refused { status, error } => {
                port.is_open = false;
                port.retry = Some(now + limits::LISTENER_RETRY);
                let text = format!(
                    "the server does not listen on {}: {}",
                    port.forward.listen,
                    explain(*status, *error)
                );
                self.tell_refusal(now, &text);
            }
            Ending::ConnectionLost => port.is_open = false,
            Ending::Finished | Ending::Reset | Ending::Idle => port.retry = Some(now + limits::TICK),
        }
    }

    /// The inner end of a request that waits for a connection is gone.
    pub(super) fn stopped_listening(&mut self, number: usize) {
        self.role.remote_ports.ports[number].waiting -= 1;
    }

    /// Nothing new is taken: the server closes the ports.
    pub(super) fn give_up_ports(&mut self) {
        let waits = |inner: &Option<Inner<ClientInner>>| {
            matches!(inner, Some(Inner::Role(ClientInner::Listening(_))))
        };
        let inner = self.inner.iter().enumerate();
        let waiting: Vec<_> = inner
            .filter(|(_, inner)| waits(inner))
            .map(|(index, _)| index)
            .collect();
        for id in waiting.into_iter().map(RequestId::from_index) {
            self.close_inner(id, false);
            self.engine.end(id, End::Failed);
        }
    }

    fn port_of(&self, id: RequestId) -> Option<usize> {
        match self.inner.get(id.index()) {
            Some(Some(Inner::Role(ClientInner::Listening(number)))) => Some(*number),
            _ => None,
        }
    }
}

/// Why the server does not listen (LISTEN-4).
fn explain(status: u16, error: Option<ProxyError>) -> String {
    match (status, error) {
        (403, None) => "this user may not use TCP".to_owned(),
        (403, Some(_)) => {
            "this user may not listen there (the server's owner can allow it with: gramway user add NAME --listen PORTS)"
                .to_owned()
        }
        (404 | 501, _) => "it cannot listen for clients".to_owned(),
        (_, Some(ProxyError::DestinationUnavailable)) => "the port is in use there".to_owned(),
        (_, Some(ProxyError::DestinationIpUnroutable)) => "it has no such address".to_owned(),
        (_, Some(ProxyError::DestinationIpProhibited)) => {
            "its system does not let it use this port".to_owned()
        }
        (_, Some(ProxyError::ConnectionLimitReached)) => "it has too many listeners".to_owned(),
        (_, Some(error)) => format!("{} (HTTP status {status})", error.token().replace('_', " ")),
        (_, None) => format!("HTTP status {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LISTEN-7.
    #[test]
    fn one_stripe_asks_until_it_is_down() {
        let asking = AskingStripe::default();
        assert!(asking.is_or_becomes(1) && asking.is_or_becomes(1));
        assert!(!asking.clone().is_or_becomes(0));
        asking.leave(0);
        assert!(!asking.is_or_becomes(0));
        asking.leave(1);
        assert!(asking.is_or_becomes(0) && !asking.is_or_becomes(1));
    }

    #[test]
    fn requests_double_when_connections_use_all_of_them_up_and_no_others_do() {
        let forward = RemoteForward {
            listen: "127.0.0.1:80".parse().unwrap(),
            target: "localhost:80".parse().unwrap(),
        };
        let mut remote = RemotePorts::new(&[forward], 1, AskingStripe::default());
        let (port, now) = (&mut remote.ports[0], Instant::now());
        let first = limits::LISTENER_REQUESTS_FIRST;
        port.waiting += port.missing(now);
        assert_eq!((port.waiting, port.missing(now)), (first, 0));
        port.took();
        assert_eq!(port.missing(now), 1);
        for _ in 1..first {
            port.took();
        }
        assert_eq!(port.missing(now), 2 * first);
        for _ in 0..10 {
            port.waiting += port.missing(now);
            (0..port.waiting).for_each(|_| port.took());
        }
        assert_eq!(port.missing(now), limits::LISTENER_REQUESTS_MAX);
        port.retry = Some(now + limits::LISTENER_RETRY);
        assert_eq!(port.missing(now), 0);
        assert_eq!(
            port.missing(now + limits::LISTENER_RETRY),
            limits::LISTENER_REQUESTS_MAX
        );
    }
}
