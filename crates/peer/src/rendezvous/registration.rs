//! The connection to the rendezvous, and the request by which the endpoint is registered there. Both are made again
//! whenever they are lost; connections between peers live on meanwhile.

mod moves;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::Ed25519KeyPair;
use bytes::BytesMut;
use packet::{CarrierKind, Ecn, Path};
use peer_proto::PeerId;
use quic::{CloseReason, EndpointParameters, Outbox};
use tunnel_proto::rendezvous::{Membership, Message, PROTOCOL, RegistrationPath, statement};
use tunnel_proto::{
    Action, AttemptId, Client, ClientAction, ConnectAction, Ending, Engine, KnownServer, NoContext,
    Reconnection, RequestId, Resting,
};

use super::inbox::{Inbox, RelayedTrain};
use super::link::Rendezvous;
use super::ways::Ways;
use crate::error::{BindError, RelayProblem, RendezvousProblem};
use crate::key::SecretKey;
use crate::limits::{
    REGISTRATION_PAUSE, RELAY_PAUSE_FIRST, RELAY_PAUSE_MAX, RENDEZVOUS_PAYLOAD_MAX, RENDEZVOUS_SERVERS_MAX,
};
use moves::Watch;

/// A name that is to be resolved.
pub(crate) struct Resolution {
    pub(crate) number: u64,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The socket that the server has for us, beside the registration. It is asked for as soon as there is one, since a
/// call and its answer name it: it costs the server an entry in a table, and no descriptor.
enum Relay {
    /// It is not asked for, or the server has none for us.
    None,
    Asked(RequestId),
    /// It is asked for again. What names it does not wait: the server had none when it was asked before.
    AskedAgain(RequestId),
    Open(RequestId),
}

impl Relay {
    fn request(&self) -> Option<RequestId> {
        match self {
            Self::None => None,
            Self::Asked(request) | Self::AskedAgain(request) | Self::Open(request) => Some(*request),
        }
    }
}

/// The last words of a connection that is ended. Behind a cover QUIC forgets a connection that is closed when another
/// one begins at its address, with what it has to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Farewell {
    #[default]
    None,
    /// It is to be sent, and nothing begins before.
    Waits,
    /// It was sent at this time: what waited may begin.
    Sent(Instant),
}

pub(super) struct Registration {
    engine: Engine<Client>,
    reconnection: Reconnection,
    knows: KnownServer,
    /// Connections to the genuine site of the server's cover.
    resting: Resting,
    random: u64,
    keys: Ed25519KeyPair,
    own: PeerId,
    /// Addresses that connections were begun to, the latest [`RENDEZVOUS_SERVERS_MAX`] of them and those in use.
    servers: VecDeque<SocketAddr>,
    /// The address of the present connection, and what it came of.
    server: Option<SocketAddr>,
    connection: Option<AttemptId>,
    farewell: Farewell,
    ways: Ways,
    watch: Watch,
    request: Option<RequestId>,
    relay: Relay,
    /// Why there was none when it was asked for last, or why it ended.
    relay_problem: Option<RelayProblem>,
    /// When it is asked for again.
    relay_again: Option<Instant>,
    /// Pause before that, the next time.
    relay_pause: Duration,
    /// Relayed addresses that the server was asked to let through, and has not refused.
    contexts: BTreeSet<SocketAddr>,
    /// Those to which it lets nothing through, or not any more.
    closed_contexts: Vec<SocketAddr>,
    inbox: Inbox,
    /// When a registration that was refused is asked for again.
    again: Option<Instant>,
    is_registered: bool,
    /// The server does not take the token, or the endpoint is closed.
    has_ended: bool,
    resolutions: Vec<Resolution>,
    /// What went wrong last.
    problem: Option<RendezvousProblem>,
}

impl Registration {
    /// Begins with the next [`Self::settle`]. `seed` is secret and random.
    ///
    /// # Errors
    /// An authority of the rendezvous is no certificate.
    pub(super) fn new(
        now: Instant,
        rendezvous: &Rendezvous,
        key: &SecretKey,
        seed: [u8; 32],
    ) -> Result<Self, BindError> {
        let unusable = |error: quic::ConfigurationError| BindError::Rendezvous(error.to_string());
        let knows = rendezvous.knows().map_err(unusable)?;
        let mut parameters = EndpointParameters::of_client(seed);
        parameters.udp_payload_max = Some(RENDEZVOUS_PAYLOAD_MAX);
        knows.prepare(&mut parameters);
        let endpoint = quic::Endpoint::new(&parameters, None).map_err(unusable)?;
        let engine = rendezvous.engine(endpoint);
        let [a, b, c, d, e, f, g, h, ..] = seed;
        let random = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        Ok(Self {
            engine,
            reconnection: Reconnection::new(rendezvous.servers(), rendezvous.carriers()?, random, now),
            knows,
            resting: Resting::default(),
            random,
            keys: key.key_pair().ok_or(BindError::NoRandomness)?,
            own: key.id(),
            servers: VecDeque::new(),
            server: None,
            connection: None,
            farewell: Farewell::None,
            ways: Ways::default(),
            watch: Watch::default(),
            request: None,
            relay: Relay::None,
            relay_problem: None,
            relay_again: None,
            relay_pause: RELAY_PAUSE_FIRST,
            contexts: BTreeSet::new(),
            closed_contexts: Vec::new(),
            inbox: Inbox::default(),
            again: None,
            is_registered: false,
            has_ended: false,
            resolutions: Vec::new(),
            problem: None,
        })
    }

    /// Whether packets from `remote` are those of a rendezvous.
    pub(super) fn is_server(&self, remote: SocketAddr) -> bool {
        self.servers.contains(&remote) || self.ways.has_socket(remote)
    }

    /// Where the present connection leads.
    pub(super) fn server(&self) -> Option<SocketAddr> {
        self.server
    }

    pub(super) fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// Whether calls may be made: they name our relayed address where there is one.
    pub(super) fn is_ready(&self) -> bool {
        self.is_registered && !matches!(self.relay, Relay::Asked(_))
    }

    /// Where the server relays for us.
    pub(super) fn relayed_address(&self) -> Option<SocketAddr> {
        match self.relay {
            Relay::Open(request) => self.engine.relayed_address(request),
            Relay::None | Relay::Asked(_) | Relay::AskedAgain(_) => None,
        }
    }

    /// Whether the server relays for us, or why not; `None`: it has not said, or we are not registered.
    pub(super) fn relayed(&self) -> Option<Result<(), RelayProblem>> {
        let said = match self.relay {
            Relay::Open(_) => Some(Ok(())),
            Relay::None | Relay::Asked(_) | Relay::AskedAgain(_) => self.relay_problem.map(Err),
        };
        said.filter(|_| self.is_registered)
    }

    /// Has the server let payloads through between us and a relayed address. Whether it was asked.
    pub(super) fn open_context(&mut self, to: SocketAddr) -> Result<(), NoContext> {
        match self.relay {
            Relay::Open(request) => self.engine.open_context(request, to)?,
            Relay::None | Relay::Asked(_) | Relay::AskedAgain(_) => return Err(NoContext::NotOpen),
        }
        self.contexts.insert(to);
        Ok(())
    }

    /// The relayed addresses that are open, or were asked for.
    pub(super) fn contexts(&self) -> impl Iterator<Item = SocketAddr> {
        self.contexts.iter().copied()
    }

    pub(super) fn close_context(&mut self, to: SocketAddr) {
        self.contexts.remove(&to);
        if let Relay::Open(request) = self.relay {
            self.engine.close_context(request, to);
        }
    }

    /// The relayed addresses to which the server has refused to let payloads through, or ended that; with the relay,
    /// which is lost, all of them.
    pub(super) fn take_closed_contexts(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.closed_contexts)
    }

    /// Sends packets to a relayed address; without a way there they are lost.
    pub(super) fn send_relayed<'a>(
        &mut self,
        now: Instant,
        to: SocketAddr,
        packets: impl Iterator<Item = &'a [u8]>,
    ) {
        if let Relay::Open(request) = self.relay {
            self.engine.send_relayed(now, request, to, packets);
        }
    }

    /// Whether something that is to be relayed waits until the way to the server takes more.
    pub(super) fn has_waiting(&self) -> bool {
        self.engine.has_waiting_datagrams()
    }

    /// What was relayed for us.
    pub(super) fn take_relayed(&mut self) -> Vec<RelayedTrain> {
        self.inbox.take()
    }

    pub(super) fn problem(&self) -> Option<&RendezvousProblem> {
        self.problem.as_ref()
    }

    pub(super) fn handle_received(
        &mut self,
        now: Instant,
        mut path: Path,
        ecn: Ecn,
        data: BytesMut,
        segment_size: usize,
        outbox: &mut Outbox,
    ) {
        path.remote = self.ways.known(path.remote);
        self.engine
            .handle_outer(now, path, ecn, data, segment_size, &mut self.inbox, outbox);
        self.ways.redirect(outbox);
    }

    /// Whether the endpoint's thread alone may send.
    pub(super) fn is_sent_by_thread(&self) -> bool {
        self.ways.are_of_thread()
    }

    pub(super) fn set_copies_received(&mut self, copies: bool) {
        self.engine.set_copies_received(copies);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let again = self.again.filter(|_| !self.has_ended);
        let relay_again = self.relay_again.filter(|_| !self.has_ended);
        let reconnection = self.reconnection.poll_timeout().filter(|_| !self.has_ended);
        let watch = self.watch.due.filter(|_| !self.has_ended);
        let farewell = match self.farewell {
            Farewell::Sent(at) => Some(at),
            Farewell::None | Farewell::Waits => None,
        };
        [
            farewell,
            self.engine.poll_timeout(),
            reconnection,
            again,
            relay_again,
            self.resting.poll_timeout(),
            watch,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        if matches!(self.farewell, Farewell::Sent(_)) {
            self.farewell = Farewell::None;
        }
        while let Some(attempt) = self.resting.poll_rested(now) {
            self.engine.abandon(now, attempt);
        }
        if !self.has_ended {
            self.reconnection.handle_timeout(now);
            if self.watch.due.is_some_and(|due| due <= now) {
                self.watch_carrier(now);
            }
        }
        if self.again.is_some_and(|again| again <= now) {
            self.again = None;
            self.register(now);
        }
        if self.relay_again.take_if(|again| *again <= now).is_some() && !self.has_ended {
            self.ask_for_relay(now);
        }
    }

    pub(super) fn poll_resolution(&mut self) -> Option<Resolution> {
        self.resolutions.pop()
    }

    pub(super) fn handle_resolved(&mut self, now: Instant, number: u64, addresses: &[SocketAddr]) {
        self.reconnection.handle_resolved(now, number, addresses);
    }

    pub(super) fn flush(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        let before = outbox.trains().len();
        let more = self.engine.flush(now, outbox);
        if self.farewell == Farewell::Waits && !more {
            self.farewell = Farewell::Sent(now);
        }
        if outbox.trains().len() > before {
            self.ways.redirect(outbox);
            self.sent(now);
        }
        more
    }

    /// Processes what came.
    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            while self.farewell == Farewell::None
                && let Some(action) = self.reconnection.poll_action()
            {
                self.carry_out_connect(now, action);
            }
            self.engine.settle(now, &mut self.inbox);
            let Some(action) = self.engine.poll_action() else {
                return;
            };
            self.carry_out(now, action);
        }
    }

    fn carry_out_connect(&mut self, now: Instant, action: ConnectAction) {
        match action {
            _ if self.has_ended => {}
            ConnectAction::Resolve {
                resolution,
                host,
                port,
            } => self.resolutions.push(Resolution {
                number: resolution,
                host,
                port,
            }),
            ConnectAction::Connect {
                attempt,
                address,
                server_name,
            } => {
                let is_first = !self.servers.contains(&address);
                if is_first {
                    self.remember(address);
                }
                let over = match CarrierKind::of(address) {
                    // RDV-19.
                    CarrierKind::Udp if self.knows.is_cover() && !is_first => {
                        CarrierKind::Udp.stand_in(address, attempt)
                    }
                    _ => address,
                };
                self.begin(now, attempt, over, server_name);
            }
            ConnectAction::Choose { attempt } => {
                self.server = self.reconnection.address_of(attempt);
                self.watch_from(now, attempt);
                self.engine.choose(now, attempt);
            }
            ConnectAction::Disconnect { attempt } => {
                self.engine.abandon(now, attempt);
                self.ways.give_up_waiting(attempt);
            }
            ConnectAction::Unreachable { reason, .. } => {
                self.problem = Some(RendezvousProblem::Unreachable(reason));
            }
            ConnectAction::Move { attempt } => self.move_to_other_carrier(now, attempt),
        }
    }

    fn carry_out(&mut self, now: Instant, action: Action<ClientAction>) {
        match action {
            Action::Role(ClientAction::Connected { attempt }) => {
                self.reconnection.handle_connected(now, attempt);
            }
            Action::Role(ClientAction::Redirected { attempt }) => {
                if let Some(known) = self.ways.known_of(attempt) {
                    self.resting.add(now, attempt, known, self.random);
                }
                self.reconnection.handle_redirected(now, attempt);
            }
            Action::Role(ClientAction::Up { .. }) => {
                self.reconnection.handle_up();
                self.move_to_own_socket(now);
                self.register(now);
            }
            Action::Role(ClientAction::Lost { attempt, reason }) => {
                let told = (reason != CloseReason::LocallyClosed).then(|| reason.to_string());
                let is_beside = self.is_registered && !self.reconnection.is_connection(attempt);
                if let Some(reason) = told.as_ref().filter(|_| !is_beside) {
                    self.problem = Some(RendezvousProblem::Unreachable(reason.clone()));
                }
                self.resting.forget(attempt);
                self.lose(now, attempt, told);
            }
            // Without connection IDs the endpoint's socket has one connection there: it ends before another one comes.
            Action::Role(ClientAction::GoingAway) if self.knows.is_cover() => self.leave(now),
            Action::Role(ClientAction::GoingAway) => self.reconnection.handle_going_away(now),
            Action::Role(ClientAction::Done { attempt }) => self.engine.abandon(now, attempt),
            Action::Role(ClientAction::TokenRefused { status }) => {
                self.problem = Some(RendezvousProblem::TokenRefused { status });
                self.has_ended = true;
            }
            Action::Role(ClientAction::Established { request }) if self.request == Some(request) => {
                self.is_registered = true;
                self.problem = None;
                self.ask_for_relay(now);
            }
            Action::Role(ClientAction::Established { request }) if self.relay.request() == Some(request) => {
                self.relay = Relay::Open(request);
                self.relay_problem = None;
                self.relay_pause = RELAY_PAUSE_FIRST;
            }
            Action::Role(ClientAction::ContextClosed { request, address })
                if self.relay.request() == Some(request) =>
            {
                self.contexts.remove(&address);
                self.closed_contexts.push(address);
            }
            // Without it, connections are direct.
            Action::Ended { request, ending } if self.relay.request() == Some(request) => {
                self.lose_relay();
                if self.is_registered {
                    self.miss_relay(now, why_not_relayed(&ending));
                }
            }
            Action::Ended { request, ending } if self.request == Some(request) => {
                self.request = None;
                self.is_registered = false;
                self.forget_relay_problem();
                self.problem = Some(why_ended(&ending));
                // Also where another endpoint has this key: neither may take the place in turns without a pause.
                self.again = Some(now + REGISTRATION_PAUSE);
            }
            Action::Role(_)
            | Action::Ended { .. }
            | Action::BodyReadable { .. }
            | Action::BodyWritable { .. } => {}
        }
    }

    /// Asks for the socket at the server, for a registration that has none.
    fn ask_for_relay(&mut self, now: Instant) {
        if self.is_registered && self.relay.request().is_none() {
            let request = self.engine.open_relay(now);
            self.relay = match self.relay_problem {
                None => Relay::Asked(request),
                Some(_) => Relay::AskedAgain(request),
            };
        }
    }

    /// It is asked for again, later each time. A server that relays for nobody goes on so: the next registration asks.
    fn miss_relay(&mut self, now: Instant, problem: RelayProblem) {
        self.relay_problem = Some(problem);
        if problem != RelayProblem::NotOffered {
            self.relay_again = Some(now + self.relay_pause);
            self.relay_pause = (self.relay_pause * 2).min(RELAY_PAUSE_MAX);
        }
    }

    fn forget_relay_problem(&mut self) {
        (self.relay_problem, self.relay_again) = (None, None);
        self.relay_pause = RELAY_PAUSE_FIRST;
    }

    /// There is no socket at the server any more; its request.
    fn lose_relay(&mut self) -> Option<RequestId> {
        self.closed_contexts.extend(std::mem::take(&mut self.contexts));
        std::mem::replace(&mut self.relay, Relay::None).request()
    }

    /// Packets of this address are those of a rendezvous from here on.
    fn remember(&mut self, server: SocketAddr) {
        if self.servers.len() >= RENDEZVOUS_SERVERS_MAX {
            let is_in_use = |server: &SocketAddr| !self.ways.attempts_over(*server).is_empty();
            let oldest = self.servers.iter().position(|server| !is_in_use(server));
            oldest.and_then(|place| self.servers.remove(place));
        }
        self.servers.push_back(server);
    }

    /// Ends the connection, so that another one is made.
    fn leave(&mut self, now: Instant) {
        self.engine.disconnect(now);
        self.farewell = Farewell::Waits;
    }

    /// Asks to be registered, where the connection is up.
    fn register(&mut self, now: Instant) {
        let Some(exporter) = self.engine.exporter().filter(|_| !self.has_ended) else {
            return;
        };
        self.again = None;
        if let Some(former) = self.request.take() {
            self.engine.end(former, tunnel_proto::End::Done);
        }
        if let Some(relay) = self.lose_relay() {
            self.engine.end(relay, tunnel_proto::End::Done);
        }
        self.forget_relay_problem();
        let signature = self.keys.sign(&statement(&exporter));
        let Ok(signature) = signature.as_ref().try_into() else {
            return;
        };
        let path = RegistrationPath {
            peer: *self.own.as_bytes(),
            signature,
        };
        let service = Box::<Membership>::default();
        self.is_registered = false;
        let request = self
            .engine
            .open_service(now, PROTOCOL, &path.to_string(), service);
        self.request = Some(request);
    }

    /// Says something to the rendezvous. Whether it could be said.
    pub(super) fn say(&mut self, now: Instant, message: Message) -> bool {
        let Some(request) = self.request.filter(|_| self.is_registered) else {
            return false;
        };
        let membership = self.engine.service::<Membership>(request);
        let is_said = membership.is_some_and(|membership| membership.say(message));
        self.engine.wake_service(now, request, &mut self.inbox);
        is_said
    }

    /// What the rendezvous says next.
    pub(super) fn hear(&mut self, now: Instant) -> Option<Message> {
        let request = self.request?;
        let message = self.engine.service::<Membership>(request)?.hear()?;
        // What waited for room goes on.
        self.engine.wake_service(now, request, &mut self.inbox);
        Some(message)
    }

    /// Ends the connection for good.
    pub(super) fn close(&mut self, now: Instant) {
        self.has_ended = true;
        self.engine.close_all(now);
    }
}

/// Why a registration has ended, or was refused (RDV-5).
fn why_ended(ending: &Ending) -> RendezvousProblem {
    match ending {
        Ending::Refused { status: 403, .. } => RendezvousProblem::Forbidden,
        Ending::Refused { status: 404, .. } => RendezvousProblem::NotOffered,
        Ending::Refused { status: 503, .. } => RendezvousProblem::NoRoom,
        Ending::Refused { status, .. } => RendezvousProblem::Refused { status: *status },
        Ending::Finished | Ending::Reset => RendezvousProblem::Replaced,
        Ending::Idle | Ending::ConnectionLost => {
            RendezvousProblem::Unreachable("the connection to the server is lost".to_owned())
        }
    }
}

/// Why the server has no socket for us, or not any more (RDV-10).
fn why_not_relayed(ending: &Ending) -> RelayProblem {
    match ending {
        Ending::Refused { status: 501, .. } => RelayProblem::NotOffered,
        Ending::Refused { status: 503, .. } => RelayProblem::NoRoom,
        Ending::Refused { status, .. } => RelayProblem::Refused { status: *status },
        Ending::Finished | Ending::Reset | Ending::Idle | Ending::ConnectionLost => RelayProblem::Ended,
    }
}
