//! A stripe of a client: finds its server as [`Reconnection`] and [`Stripes`] decide, and opens requests.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use packet::vnet::VnetHeader;
use quic::ClientParameters;
use tunnel_proto::{
    Action, Assignment, AttemptId, Client, ClientAction, ConnectAction, Engine, Protocol, Reconnection,
    RequestId, Resting, ServerShard, StripeNews, Stripes, Target, Welcome,
};

use super::book::Way;
use super::tcp::{Script, TcpEnd};
use super::tunnel::{Inner, Side, Tunnel};

/// Local port of a stripe's first attempt; each further one leaves from the next.
pub(super) const FIRST_PORT: u16 = 40_000;

/// What the stripes of a client share.
pub(crate) struct Shared {
    pub(crate) stripes: Stripes,
    /// What people were told.
    pub(crate) news: Vec<StripeNews>,
    /// Stripes that are to ask whether the server still knows them, because a sibling was lost.
    pub(super) probes: BTreeSet<usize>,
    count: usize,
    /// Addresses of names.
    names: BTreeMap<String, Vec<SocketAddr>>,
}

impl Shared {
    pub(super) fn new(stripes: usize, servers: &[(&str, Vec<SocketAddr>)]) -> Rc<RefCell<Self>> {
        let names = servers.iter();
        Rc::new(RefCell::new(Self {
            stripes: Stripes::new(stripes),
            news: Vec::new(),
            probes: BTreeSet::new(),
            count: stripes,
            names: names
                .map(|(name, addresses)| ((*name).to_owned(), addresses.clone()))
                .collect(),
        }))
    }
}

/// What a client's end keeps besides.
pub(crate) struct ClientData {
    pub(crate) shared: Rc<RefCell<Shared>>,
    /// Its place among the stripes.
    index: usize,
    pub(crate) reconnection: Reconnection,
    /// How it knows its server.
    parameters: ClientParameters,
    /// Connections to the genuine site.
    resting: Resting,
    /// It connects no more: the server does not take the token, or the test ended it.
    has_ended: bool,
    attempts: u16,
    new_port: Option<u16>,
    /// Where it is at the server.
    pub(crate) server_shard: Option<ServerShard>,
    /// The request of each session.
    pub(crate) requests: BTreeMap<u32, RequestId>,
}

impl ClientData {
    pub(crate) fn is_up(&self) -> bool {
        self.reconnection.is_up()
    }

    /// It is not to come back.
    pub(crate) fn stop_reconnecting(&mut self) {
        self.has_ended = true;
    }
}

impl Side for Client {
    type Data = ClientData;

    const ARRIVES: Way = Way::Down;

    fn turn(tunnel: &mut Tunnel<Self>, now: Instant) {
        let data = &mut tunnel.data;
        if data.shared.borrow_mut().probes.remove(&data.index) {
            tunnel.engine.probe();
        }
        if !data.has_ended {
            data.reconnection.handle_timeout(now);
            while let Some(attempt) = data.resting.poll_rested(now) {
                tunnel.engine.abandon(now, attempt);
            }
            tunnel.carry_out_connect_actions(now);
        }
    }

    fn poll_timeout(data: &ClientData) -> Option<Instant> {
        let due = [data.reconnection.poll_timeout(), data.resting.poll_timeout()];
        due.into_iter().flatten().min().filter(|_| !data.has_ended)
    }

    fn take_new_port(data: &mut ClientData) -> Option<u16> {
        data.new_port.take()
    }

    fn carry_out(tunnel: &mut Tunnel<Self>, now: Instant, action: &ClientAction) {
        match action {
            ClientAction::Established { request } => tunnel.with_tcp(*request, |end| {
                end.open = true;
                end.readable = true;
            }),
            ClientAction::Up { rtt, shard } => tunnel.up(now, *rtt, *shard),
            ClientAction::Connected { attempt } if !tunnel.data.has_ended => {
                tunnel.data.reconnection.handle_connected(now, *attempt);
                tunnel.carry_out_connect_actions(now);
            }
            ClientAction::Redirected { attempt } if !tunnel.data.has_ended => {
                tunnel.redirected(now, *attempt);
            }
            ClientAction::Lost { attempt, reason } if !tunnel.data.has_ended => {
                let data = &mut tunnel.data;
                data.resting.forget(*attempt);
                let mut shared = data.shared.borrow_mut();
                let news = shared
                    .stripes
                    .part(data.index, &mut data.reconnection, now, *attempt, reason);
                if let Some(news) = news {
                    data.server_shard = None;
                    shared.probes = (0..shared.count).filter(|other| *other != data.index).collect();
                    shared.news.push(news);
                }
                drop(shared);
                tunnel.carry_out_connect_actions(now);
            }
            ClientAction::GoingAway if !tunnel.data.has_ended => {
                tunnel.data.reconnection.handle_going_away(now);
                tunnel.carry_out_connect_actions(now);
            }
            ClientAction::Done { attempt } => tunnel.engine.abandon(now, *attempt),
            ClientAction::TokenRefused { .. } => tunnel.data.has_ended = true,
            ClientAction::Connected { .. }
            | ClientAction::Redirected { .. }
            | ClientAction::Lost { .. }
            | ClientAction::Refused { .. }
            | ClientAction::ContextOpen { .. }
            | ClientAction::ContextClosed { .. }
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
    /// The stripe of this place, which begins to connect with its first turn.
    pub(super) fn stripe(
        engine: Engine<Client>,
        ceiling: u16,
        index: usize,
        shared: Rc<RefCell<Shared>>,
        reconnection: Reconnection,
        parameters: ClientParameters,
    ) -> Self {
        let data = ClientData {
            shared,
            index,
            reconnection,
            parameters,
            resting: Resting::default(),
            has_ended: false,
            attempts: 0,
            new_port: None,
            server_shard: None,
            requests: BTreeMap::new(),
        };
        Self::with(engine, ceiling, data)
    }

    /// Before it connects.
    pub(super) fn become_guest(&mut self, engine: Engine<Client>) {
        self.engine = engine;
        self.data.parameters = ClientParameters::AnyKey;
    }

    fn carry_out_connect_actions(&mut self, now: Instant) {
        while let Some(action) = self.data.reconnection.poll_action() {
            match action {
                ConnectAction::Resolve { resolution, host, .. } => {
                    let addresses = self.data.shared.borrow().names[&host].clone();
                    let reconnection = &mut self.data.reconnection;
                    reconnection.handle_resolved(now, resolution, &addresses);
                }
                ConnectAction::Connect {
                    attempt,
                    address,
                    server_name,
                } => {
                    while let Some(resting) = self.data.resting.take_at(address) {
                        self.engine.abandon(now, resting);
                        // The site is to know before the next connection takes the place.
                        self.engine.flush(now, &mut self.outbox);
                    }
                    // A node has one port: what races shares it.
                    let is_alone = self.engine.attempts() == 0;
                    let port = FIRST_PORT + self.data.attempts;
                    self.data.new_port = (is_alone && self.data.attempts > 0).then_some(port);
                    self.data.attempts += 1;
                    let ceiling = self.recorder.ceiling;
                    self.engine
                        .connect(
                            now,
                            attempt,
                            address,
                            &server_name,
                            &self.data.parameters,
                            ceiling,
                        )
                        .expect("the name and the address are usable");
                }
                ConnectAction::Choose { attempt } => self.engine.choose(now, attempt),
                ConnectAction::Move { .. } => unreachable!("a node has one carrier"),
                ConnectAction::Disconnect { attempt } => self.engine.abandon(now, attempt),
                ConnectAction::Unreachable { reason, is_silence } => {
                    let mut shared = self.data.shared.borrow_mut();
                    let news = shared.stripes.unreachable(reason, is_silence);
                    shared.news.extend(news);
                }
            }
        }
    }

    fn redirected(&mut self, now: Instant, attempt: AttemptId) {
        let data = &mut self.data;
        if let Some(address) = data.reconnection.address_of(attempt) {
            // Anything will do in place of a random number.
            let draw = u64::from(data.attempts) * 7_919;
            data.resting.add(now, attempt, address, draw);
        }
        data.reconnection.handle_redirected(now, attempt);
        self.carry_out_connect_actions(now);
    }

    fn up(&mut self, now: Instant, rtt: Duration, shard: Option<ServerShard>) {
        let data = &mut self.data;
        let mut shared = data.shared.borrow_mut();
        let stripes = &mut shared.stripes;
        let welcome = stripes.welcome(data.index, &mut data.reconnection, shard, rtt);
        match welcome {
            Welcome::Stays { arrival, .. } => {
                shared.news.extend(arrival.news);
                data.server_shard = shard;
                self.engine.keep_connection(now);
            }
            Welcome::Leaves => self.engine.disconnect(now),
        }
    }

    /// The client ends.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.data.has_ended = true;
        self.engine.disconnect(now);
    }

    /// The sibling that takes what this stripe would carry, while it is down.
    pub(super) fn stand_in(&self, now: Instant) -> Option<usize> {
        let data = &self.data;
        let wants = data.reconnection.wants_stand_in(now);
        wants
            .then(|| data.shared.borrow().stripes.stand_in(data.index))
            .flatten()
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
