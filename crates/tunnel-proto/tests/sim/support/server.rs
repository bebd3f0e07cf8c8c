//! A server's end: opens the targets that requests name, and leases addresses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use packet::vnet::VnetHeader;
use quic::Outbox;
use tunnel_proto::{
    AuthorizationId, Decision, Elsewhere, End, Engine, Leases, NoLease, Owner, Protocol, ProxyError,
    RequestId, Server, ServerAction, Target,
};

use super::book::Way;
use super::front_door::{Admitted, Doorman};
use super::tcp::{Script, TcpEnd};
use super::tunnel::{Inner, Side, Tunnel};

/// How long a `slow` target takes to open.
pub(crate) const SLOW_OPENING: Duration = Duration::from_millis(300);

/// What a server's end keeps besides.
#[derive(Default)]
pub(crate) struct ServerData {
    opening: Vec<(Instant, RequestId, u32)>,
    /// What the targets of TCP forwards do.
    pub(crate) scripts: BTreeMap<u32, Script>,
    /// Places for TCP connections; `None`: no bound.
    pub(crate) tcp_places: Option<usize>,
    /// Addresses for IP sessions.
    pub(crate) leases: Option<Leases>,
    /// Of a server behind a cover.
    pub(super) doorman: Option<Doorman>,
}

impl Side for Server {
    type Data = ServerData;

    const ARRIVES: Way = Way::Up;

    fn turn(tunnel: &mut Tunnel<Self>, now: Instant) {
        while let Some(index) = tunnel.data.opening.iter().position(|(due, ..)| *due <= now) {
            let (_, id, session) = tunnel.data.opening.remove(index);
            tunnel.ends.insert(
                id,
                Inner::Udp {
                    session,
                    echoes: true,
                },
            );
            tunnel.engine.accept(now, id, &mut tunnel.recorder);
        }
    }

    fn poll_timeout(data: &ServerData) -> Option<Instant> {
        data.opening.iter().map(|(due, ..)| *due).min()
    }

    fn carry_out(tunnel: &mut Tunnel<Self>, now: Instant, action: &ServerAction) {
        match action {
            ServerAction::Open {
                request,
                protocol,
                target,
                ..
            } => tunnel.open_target(now, *request, *protocol, target),
            // Its port is free.
            ServerAction::Listen { request, .. } => {
                tunnel.engine.accept(now, *request, &mut tunnel.recorder);
            }
            ServerAction::Lease {
                request,
                owner,
                leases_max,
            } => tunnel.lease(now, *request, *owner, *leases_max),
            ServerAction::Came { .. } | ServerAction::Left { .. } | ServerAction::TurnedAway { .. } => {}
            ServerAction::LeaseOver { owner, .. } => {
                let leases = tunnel.data.leases.as_mut();
                leases
                    .expect("only a server with leases gives some")
                    .release(owner.client);
            }
        }
    }

    fn take_given_away(tunnel: &mut Tunnel<Self>, now: Instant) {
        for given in std::mem::take(&mut tunnel.recorder.given_away) {
            let doorman = tunnel.data.doorman.as_mut();
            for admitted in doorman
                .map(|doorman| doorman.receive(now, &given))
                .unwrap_or_default()
            {
                match admitted {
                    Admitted::Connection(path, id, identity) => {
                        tunnel.engine.expect_connection(path.remote, id, identity);
                    }
                    Admitted::Datagram(path, ecn, bytes) => {
                        let (recorder, outbox) = (&mut tunnel.recorder, &mut tunnel.outbox);
                        tunnel
                            .engine
                            .handle_admitted(now, path, ecn, bytes, recorder, outbox);
                    }
                }
            }
        }
    }

    fn note_sent(data: &mut ServerData, outbox: &Outbox) {
        if let Some(doorman) = &mut data.doorman {
            doorman.note_sent(outbox);
        }
    }

    fn ended(data: &mut ServerData, id: RequestId) {
        data.opening.retain(|(_, opening, _)| *opening != id);
    }

    fn session(tunnel: &mut Tunnel<Self>, _: Instant, _: &str, session: u32) -> RequestId {
        super::End::request_of(tunnel, session).expect("the session is open")
    }

    fn send_packet(tunnel: &mut Tunnel<Self>, now: Instant, header: &VnetHeader, packet: &[u8]) {
        let elsewhere = tunnel.send_packet_if_here(now, header, packet);
        assert_eq!(elsewhere, None);
    }
}

impl Tunnel<Server> {
    pub(crate) fn server(engine: Engine<Server>, ceiling: u16) -> Self {
        Self::with(engine, ceiling, ServerData::default())
    }

    /// The answer who asks has come.
    pub(crate) fn authorized(&mut self, now: Instant, id: AuthorizationId, decision: Decision) {
        self.engine.authorized(now, id, decision, &mut self.recorder);
    }

    /// The TUN gives a packet or super-packet, whose session may be on another shard.
    pub(crate) fn send_packet_if_here(
        &mut self,
        now: Instant,
        header: &VnetHeader,
        packet: &[u8],
    ) -> Option<Elsewhere> {
        let mut packet = packet.to_vec();
        self.engine
            .send_packet(now, &header.encode(), &mut packet, &mut self.recorder)
    }

    fn lease(&mut self, now: Instant, id: RequestId, owner: Owner, leases_max: usize) {
        let leases = self
            .data
            .leases
            .as_mut()
            .expect("a server that serves IP has leases");
        match leases.acquire_within(owner.client, leases_max) {
            Ok(lease) => {
                self.engine.end_older_runs(owner);
                self.engine.accept_ip(now, id, owner, lease, &mut self.recorder);
            }
            Err(NoLease::UserLimit) => self.engine.refuse_lease(id),
            Err(NoLease::Exhausted) => self
                .engine
                .end(id, End::Refused(ProxyError::ConnectionLimitReached)),
        }
    }

    fn take_tcp_place(&mut self, now: Instant, id: RequestId) -> bool {
        let ends = self.ends.values();
        let open = ends.filter(|end| matches!(end, Inner::Tcp(_))).count();
        if self.data.tcp_places.is_none_or(|places| open < places) {
            return true;
        }
        let yielding = self.engine.yielding_tcp(now, id);
        yielding.is_some_and(|id| {
            self.engine.end(id, End::Failed);
            self.ends.remove(&id).is_some()
        })
    }

    fn open_target(&mut self, now: Instant, id: RequestId, protocol: Protocol, target: &Target) {
        // Targets are named KIND-SESSION; hostile peers name what they like.
        let named = target.host().split_once('-');
        let Some((kind, session)) = named.and_then(|(kind, number)| Some((kind, number.parse().ok()?)))
        else {
            return self.engine.end(id, End::Refused(ProxyError::ConnectionRefused));
        };
        match (protocol, kind) {
            (Protocol::Udp, "slow") => return self.data.opening.push((now + SLOW_OPENING, id, session)),
            (Protocol::Udp, "echo" | "sink") => {
                let echoes = kind == "echo";
                self.ends.insert(id, Inner::Udp { session, echoes });
            }
            (Protocol::Tcp, "tcp") if !self.take_tcp_place(now, id) => {
                let error = ProxyError::ConnectionLimitReached;
                return self.engine.end(id, End::Refused(error));
            }
            (Protocol::Tcp, "tcp") if self.data.scripts.contains_key(&session) => {
                let end = TcpEnd::new(session, Way::Down, self.data.scripts[&session], true);
                self.ends.insert(id, Inner::Tcp(end));
            }
            _ => return self.engine.end(id, End::Refused(ProxyError::ConnectionRefused)),
        }
        self.engine.accept(now, id, &mut self.recorder);
        self.step_tcp(id);
    }
}
