//! A client's end: connects, connects anew, and opens sessions and connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet::vnet::VnetHeader;
use tunnel_proto::{Action, Assignment, Client, ClientAction, Engine, Protocol, RequestId, Target};

use super::book::Way;
use super::tcp::{Script, TcpEnd};
use super::tunnel::{Inner, Side, Tunnel};

/// How long a client waits before it connects anew.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// How long an attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Where a client connects to.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) address: SocketAddr,
    pub(crate) pin: [u8; 32],
}

/// What a client's end keeps besides.
pub(crate) struct ClientData {
    server: Remote,
    reconnects: bool,
    due: Option<Instant>,
    pub(crate) up: bool,
    /// The request of each session.
    pub(crate) requests: BTreeMap<u32, RequestId>,
}

impl ClientData {
    /// It is not to come back.
    pub(crate) fn stop_reconnecting(&mut self) {
        self.reconnects = false;
    }
}

impl Side for Client {
    type Data = ClientData;

    const ARRIVES: Way = Way::Down;

    fn turn(tunnel: &mut Tunnel<Self>, now: Instant) {
        if tunnel.data.due.take_if(|due| *due <= now).is_some() && !tunnel.data.up {
            // Without a connection there is nothing to give up, and the next attempt is due.
            tunnel.engine.disconnect(now);
            tunnel.settle(now);
            if tunnel.data.due.is_none() && tunnel.data.reconnects {
                tunnel.connect(now);
            }
        }
    }

    fn poll_timeout(data: &ClientData) -> Option<Instant> {
        data.due
    }

    fn carry_out(tunnel: &mut Tunnel<Self>, now: Instant, action: &ClientAction) {
        match action {
            ClientAction::Established { request } => tunnel.with_tcp(*request, |end| {
                end.open = true;
                end.readable = true;
            }),
            ClientAction::Up { .. } => tunnel.data.up = true,
            ClientAction::Lost { .. } => {
                tunnel.data.up = false;
                tunnel.data.due = tunnel.data.reconnects.then_some(now + RECONNECT_AFTER);
            }
            ClientAction::TokenRefused { .. } => tunnel.data.reconnects = false,
            ClientAction::Refused { .. }
            | ClientAction::GoingAway
            | ClientAction::Assigned { .. }
            | ClientAction::IpRefused { .. }
            | ClientAction::IpLost => {}
        }
    }

    fn ended(data: &mut ClientData, id: RequestId) {
        data.requests.retain(|_, known| *known != id);
    }

    fn session(tunnel: &mut Tunnel<Self>, now: Instant, kind: &str, session: u32) -> RequestId {
        let known = tunnel.data.requests.get(&session).copied();
        known.unwrap_or_else(|| tunnel.open(now, Protocol::Udp, kind, session))
    }

    fn send_packet(tunnel: &mut Tunnel<Self>, now: Instant, header: &VnetHeader, packet: &[u8]) {
        let mut packet = packet.to_vec();
        tunnel
            .engine
            .send_packet(now, &header.encode(), &mut packet, &mut tunnel.recorder);
    }
}

impl Tunnel<Client> {
    pub(crate) fn client(engine: Engine<Client>, ceiling: u16, server: Remote) -> Self {
        let data = ClientData {
            server,
            reconnects: true,
            due: None,
            up: false,
            requests: BTreeMap::new(),
        };
        Self::with(engine, ceiling, data)
    }

    /// Begins to connect.
    pub(crate) fn connect(&mut self, now: Instant) {
        let server = self.data.server;
        self.data.due = Some(now + ATTEMPT);
        self.engine
            .connect(
                now,
                server.address,
                "server.test",
                server.pin,
                self.recorder.ceiling,
            )
            .expect("the name and the address are usable");
    }

    /// What the server told this client last.
    pub(crate) fn assignment(&self) -> Option<&Assignment> {
        self.log.iter().rev().find_map(|(_, action)| match action {
            Action::Role(ClientAction::Assigned { assignment }) => Some(assignment),
            _ => None,
        })
    }

    fn open(&mut self, now: Instant, protocol: Protocol, kind: &str, session: u32) -> RequestId {
        let target = Target::new(&format!("{kind}-{session}"), 7).expect("a well-formed target");
        let id = self.engine.open(now, protocol, target);
        self.data.requests.insert(session, id);
        if protocol == Protocol::Udp {
            self.ends.insert(
                id,
                Inner::Udp {
                    session,
                    echoes: false,
                },
            );
        }
        id
    }

    /// A connection that does what `script` says.
    pub(crate) fn open_tcp(&mut self, now: Instant, session: u32, script: Script) {
        let id = self.open(now, Protocol::Tcp, "tcp", session);
        let end = TcpEnd::new(session, Way::Up, script, false);
        self.ends.insert(id, Inner::Tcp(end));
    }
}
