//! A registration and its server in virtual time, without sockets.

use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::{CarrierKind, Ecn, Path};
use quic::{Certificates, Endpoint, EndpointParameters, Outbox, ServerParameters};
use tunnel_proto::limits::RELAY_ASKED_BURST;
use tunnel_proto::rendezvous::{Message, PROTOCOL, Rendezvous as Meeting};
use tunnel_proto::{Action, ClientAction, Ending, Engine, EngineConfig, Server, SoleOwner, Token};

use super::super::inbox::Inbox;
use super::super::link::Rendezvous;
use super::super::ways::SocketChange;
use super::Registration;
use crate::error::{RelayProblem, RendezvousProblem};
use crate::key::SecretKey;
use crate::limits::{REGISTRATION_PAUSE, RELAY_PAUSE_FIRST, RELAY_PAUSE_MAX, RENDEZVOUS_SERVERS_MAX};

const SECOND: Duration = Duration::from_secs(1);

/// From one end to the other.
const DELAY: Duration = Duration::from_millis(10);

/// What TCP's shape carries.
const TCP_PAYLOAD: u16 = 1_400;

const TOKEN: [u8; 32] = [0; 32];

fn server_address() -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1], 443))
}

fn client_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5_000))
}

/// A train on its way.
struct Sent {
    due: Instant,
    to_server: bool,
    carrier: CarrierKind,
    ecn: Ecn,
    segment_size: usize,
    bytes: Vec<u8>,
}

struct Site {
    now: Instant,
    registration: Registration,
    server: Engine<Server>,
    meeting: Meeting,
    blocks_udp: bool,
    /// No socket in TCP's shape can be opened.
    refuses_tcp: bool,
    on_the_way: VecDeque<Sent>,
    /// What the server said.
    heard: Vec<Message>,
    /// How often the endpoint became registered.
    registrations: usize,
    was_registered: bool,
}

impl Site {
    fn new(blocks_udp: bool) -> Self {
        Self::with(blocks_udp, true)
    }

    fn with(blocks_udp: bool, relays: bool) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let named = rcgen::CertificateParams::new(["server.test".to_owned()]).unwrap();
        let certificate = named.self_signed(&key).unwrap().der().to_vec();
        let pin = quic::public_key_pin(&certificate).unwrap();
        let identity = ServerParameters {
            certificates: Certificates::new(vec![certificate], key.serialize_der()).unwrap(),
            token_key: [9; 64],
        };
        let endpoint = Endpoint::new(&EndpointParameters::of_client([2; 32]), Some(identity)).unwrap();
        let token = Token::from_bytes(TOKEN);
        let owner = Box::new(SoleOwner::new(vec![token.clone()]));
        let mut server = Engine::server(endpoint, owner, EngineConfig::default());
        let meeting = Meeting::new(1, Box::new(|_| {}));
        server.serve(PROTOCOL, meeting.provider(0));
        if relays {
            server.serve_relay(meeting.relay(0));
        }
        let link = tunnel_proto::link::Link {
            token,
            endpoints: vec![tunnel_proto::link::Endpoint::parse(&server_address().to_string()).unwrap()],
            proof: tunnel_proto::link::Proof::Pin(pin),
            tcp_port: Some(server_address().port()),
            name: String::new(),
        };
        let rendezvous = Rendezvous::from_link(&link.reveal()).unwrap();
        let now = Instant::now();
        let key = SecretKey::from_bytes([3; 32]);
        Self {
            now,
            registration: Registration::new(now, &rendezvous, &key, [1; 32]).unwrap(),
            server,
            meeting,
            blocks_udp,
            refuses_tcp: false,
            on_the_way: VecDeque::new(),
            heard: Vec::new(),
            registrations: 0,
            was_registered: false,
        }
    }

    /// Lets time pass.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while self.turn() {}
            let arrival = self.on_the_way.front().map(|sent| sent.due);
            let due = [
                arrival,
                self.registration.poll_timeout(),
                self.server.poll_timeout(),
            ];
            match due.into_iter().flatten().min() {
                Some(due) if due <= end => self.now = self.now.max(due),
                _ => break self.now = end,
            }
            self.deliver();
            self.registration.handle_timeout(self.now);
            if self.server.poll_timeout().is_some_and(|due| due <= self.now) {
                self.server.handle_timeout(self.now);
            }
        }
    }

    /// What is due arrives.
    fn deliver(&mut self) {
        let now = self.now;
        while let Some(sent) = self.on_the_way.pop_front_if(|sent| sent.due <= now) {
            if self.blocks_udp && sent.carrier == CarrierKind::Udp {
                continue;
            }
            let from = match sent.to_server {
                true => client_address(),
                false => server_address(),
            };
            let path = Path {
                remote: sent.carrier.mark(from),
                local: None,
            };
            let (bytes, size) = (BytesMut::from(&sent.bytes[..]), sent.segment_size);
            let mut outbox = Outbox::default();
            match sent.to_server {
                true => {
                    let mut inbox = Inbox::default();
                    self.server
                        .handle_outer(now, path, sent.ecn, bytes, size, &mut inbox, &mut outbox);
                }
                false => self
                    .registration
                    .handle_received(now, path, sent.ecn, bytes, size, &mut outbox),
            }
            self.send(&outbox, !sent.to_server);
        }
    }

    /// Both ends do what they have to; whether there is more.
    fn turn(&mut self) -> bool {
        let now = self.now;
        self.registration.settle(now);
        while let Some(change) = self.registration.poll_socket_change() {
            if let SocketChange::Open(over) = change {
                let opened = match self.refuses_tcp {
                    true => Err("no socket".to_owned()),
                    false => Ok(TCP_PAYLOAD),
                };
                self.registration.handle_socket_opened(now, over, opened);
            }
        }
        while let Some(message) = self.registration.hear(now) {
            self.heard.push(message);
        }
        let is_registered = self.registration.is_registered();
        self.registrations += usize::from(is_registered && !self.was_registered);
        self.was_registered = is_registered;
        self.server.settle(now, &mut Inbox::default());
        while self.server.poll_action().is_some() {}
        let (mut outbox, mut answers) = (Outbox::default(), Outbox::default());
        let more = self.registration.flush(now, &mut outbox) | self.server.flush(now, &mut answers);
        self.send(&outbox, true);
        self.send(&answers, false);
        more || !outbox.is_empty() || !answers.is_empty()
    }

    fn send(&mut self, outbox: &Outbox, to_server: bool) {
        let sent = outbox.trains().iter().map(|train| Sent {
            due: self.now + DELAY,
            to_server,
            carrier: CarrierKind::of(train.destination),
            ecn: train.ecn,
            segment_size: train.segment_size,
            bytes: train.bytes.clone(),
        });
        self.on_the_way.extend(sent);
    }

    fn carrier(&self) -> Option<CarrierKind> {
        self.registration.carrier()
    }
}

/// PATH-7, RDV-7: UDP is asked again after half a minute, and once it passes the same registration goes on over it. The
/// server tells then by what address it sees this endpoint.
#[test]
fn a_registration_in_tcps_shape_goes_back_to_udp_when_that_passes() {
    let mut site = Site::new(true);
    site.run(SECOND);
    assert_eq!((site.carrier(), site.registrations), (Some(CarrierKind::Tcp), 1));
    // The first time that UDP is asked again comes to nothing.
    site.run(50 * SECOND);
    assert_eq!(site.carrier(), Some(CarrierKind::Tcp));
    site.heard.clear();
    site.blocks_udp = false;
    let returned = (0..120).find(|_| {
        site.run(SECOND);
        site.carrier() == Some(CarrierKind::Udp)
    });
    assert!(returned.is_some_and(|seconds| seconds >= 30), "{returned:?}");
    site.run(120 * SECOND);
    assert_eq!((site.carrier(), site.registrations), (Some(CarrierKind::Udp), 1));
    assert!(site.registration.is_registered());
    let heard = &site.heard;
    assert!(heard.contains(&Message::Observed(client_address())), "{heard:?}");
}

/// PATH-6: UDP that is on trial falls silent, and the socket in TCP's shape cannot be opened again. The connection is
/// made anew at once: it does not wait without a socket until it is idle.
#[test]
fn a_registration_that_cannot_go_back_to_tcps_shape_is_made_anew() {
    let mut site = Site::new(true);
    site.run(SECOND);
    assert_eq!(site.carrier(), Some(CarrierKind::Tcp));
    site.blocks_udp = false;
    let on_trial = (0..1_200).any(|_| {
        site.run(SECOND / 10);
        site.carrier() == Some(CarrierKind::Udp)
    });
    assert!(on_trial);
    (site.blocks_udp, site.refuses_tcp) = (true, true);
    // What is said shows that nothing comes through.
    assert!(site.registration.say(site.now, Message::Addresses(Vec::new())));
    let is_lost = (0..100).any(|_| {
        site.run(SECOND / 10);
        site.carrier().is_none()
    });
    assert!(is_lost && !site.registration.is_registered());
    assert_eq!(
        site.registration.problem(),
        Some(&RendezvousProblem::Unreachable("no socket".to_owned()))
    );
    site.refuses_tcp = false;
    site.run(5 * SECOND);
    assert_eq!((site.carrier(), site.registrations), (Some(CarrierKind::Tcp), 2));
}

/// PATH-7: a carrier that failed for a long time is tried at once where the network is another one.
#[test]
fn a_registration_in_another_network_goes_back_to_udp_at_once() {
    let mut site = Site::new(true);
    site.run(600 * SECOND);
    assert_eq!(site.carrier(), Some(CarrierKind::Tcp));
    site.blocks_udp = false;
    // It has failed too often to be tried again soon.
    site.run(5 * SECOND);
    assert_eq!(site.carrier(), Some(CarrierKind::Tcp));
    site.registration.network_changed(site.now);
    site.run(2 * SECOND);
    assert_eq!((site.carrier(), site.registrations), (Some(CarrierKind::Udp), 1));
}

/// PATH-8: an endpoint that received until UDP fell silent, and awaits nothing, asks for a sign of life.
#[test]
fn a_registration_that_only_received_leaves_udp_that_falls_silent() {
    let mut site = Site::new(false);
    let is_ready = (0..20).any(|_| {
        site.run(SECOND / 20);
        site.registration.is_ready()
    });
    assert!(is_ready);
    // What was asked for is answered and acknowledged; since the last look at the path something came.
    site.run(SECOND / 20);
    assert_eq!(site.carrier(), Some(CarrierKind::Udp));
    site.blocks_udp = true;
    site.run(3 * SECOND);
    assert_eq!((site.carrier(), site.registrations), (Some(CarrierKind::Tcp), 1));
}

/// RDV-10.
#[test]
fn a_server_that_relays_for_nobody_is_asked_with_each_registration() {
    let mut site = Site::with(false, false);
    site.run(SECOND);
    let refused = Some(Err(RelayProblem::NotOffered));
    assert_eq!(site.registration.relayed(), refused);
    assert!(site.registration.is_ready() && site.registration.problem().is_none());
    let relay = site.meeting.relay(0);
    site.server.serve_relay(relay);
    site.run(2 * RELAY_PAUSE_MAX);
    assert_eq!(site.registration.relayed(), refused);
    assert!(site.registration.is_ready());
    site.registration.leave(site.now);
    site.run(REGISTRATION_PAUSE + SECOND);
    assert_eq!(site.registration.relayed(), Some(Ok(())));
    assert_eq!(site.registrations, 2);
}

/// RDV-10.
#[test]
fn a_relay_that_the_server_refused_is_asked_for_again_at_growing_pauses_and_holds_nothing_up_meanwhile() {
    let mut site = Site::new(false);
    site.run(SECOND);
    // The server holds on to a socket that this end knows nothing of.
    let held = site.registration.relay.request().unwrap();
    let ending = Ending::Reset;
    let ended = Action::Ended {
        request: held,
        ending,
    };
    site.registration.carry_out(site.now, ended);
    let mut asked = Vec::new();
    for _ in 0..3_600 {
        let due = site.registration.relay_again;
        site.run(SECOND);
        assert!(site.registration.is_ready());
        if let Some(due) = due.filter(|due| *due <= site.now) {
            asked.push(due);
        }
    }
    let problem = Some(Err(RelayProblem::NoRoom));
    assert_eq!(site.registration.relayed(), problem);
    let pauses: Vec<_> = asked.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!(pauses[0] >= 2 * RELAY_PAUSE_FIRST, "{pauses:?}");
    let longest = *pauses.last().unwrap();
    assert!(longest >= RELAY_PAUSE_MAX && longest < RELAY_PAUSE_MAX + SECOND);
    site.registration.engine.end(held, tunnel_proto::End::Done);
    site.run(RELAY_PAUSE_MAX + SECOND);
    assert_eq!(site.registration.relayed(), Some(Ok(())));
    assert!(site.registration.relayed_address().is_some());
    assert_eq!(site.registrations, 1);
}

/// A relayed address that the server did not give.
fn nobody(number: u32) -> SocketAddr {
    let [high, low] = [number >> 16, number & 0xffff].map(|half| half as u16);
    SocketAddr::from((Ipv6Addr::new(0x100, 0, 0, 0, 1, 0, high, low), 1))
}

/// RDV-10, RDV-12: too many questions cost the request.
#[test]
fn a_relay_that_was_lost_is_asked_for_again() {
    let mut site = Site::new(false);
    site.run(SECOND);
    let former = site.registration.relayed_address().unwrap();
    for number in 0..=RELAY_ASKED_BURST {
        // Until it is lost.
        let _ = site.registration.open_context(nobody(number));
        site.registration.close_context(nobody(number));
    }
    let waits = nobody(u32::MAX);
    site.registration.open_context(waits).unwrap();
    site.run(SECOND);
    assert_eq!(site.registration.relayed(), Some(Err(RelayProblem::Ended)));
    // What is tried there need not wait: nothing leads there any more.
    assert_eq!(site.registration.take_closed_contexts(), [waits]);
    assert_eq!(site.registration.contexts().count(), 0);
    assert!(site.registration.is_ready());
    site.run(RELAY_PAUSE_FIRST + SECOND);
    assert_eq!(site.registration.relayed(), Some(Ok(())));
    let address = site.registration.relayed_address();
    assert!(address.is_some_and(|address| address != former));
    assert_eq!(site.registrations, 1);
}

/// RDV-12.
#[test]
fn a_context_that_the_server_refuses_is_told() {
    let mut site = Site::new(false);
    site.run(SECOND);
    site.registration.open_context(nobody(1)).unwrap();
    site.run(SECOND);
    assert_eq!(site.registration.take_closed_contexts(), [nobody(1)]);
    assert_eq!(site.registration.take_closed_contexts(), []);
    assert_eq!(site.registration.relayed(), Some(Ok(())));
}

#[test]
fn of_a_rendezvous_that_moves_from_address_to_address_the_latest_are_remembered_and_the_one_in_use() {
    let mut site = Site::new(false);
    site.run(SECOND);
    let count = 2 * RENDEZVOUS_SERVERS_MAX as u32;
    for number in 0..count {
        site.registration.remember(nobody(number));
    }
    assert_eq!(site.registration.servers.len(), RENDEZVOUS_SERVERS_MAX);
    assert!(site.registration.is_server(server_address()));
    assert!(site.registration.is_server(nobody(count - 1)));
}

/// Of a server whose cover is the site of this name.
fn behind_a_cover(now: Instant) -> Registration {
    let mut key = [0; 32];
    key[0] = 9;
    let link = tunnel_proto::link::Link {
        token: Token::from_bytes(TOKEN),
        endpoints: vec![tunnel_proto::link::Endpoint::parse(&server_address().to_string()).unwrap()],
        proof: tunnel_proto::link::Proof::Cover {
            key,
            name: "site.test".to_owned(),
        },
        tcp_port: None,
        name: String::new(),
    };
    let rendezvous = Rendezvous::from_link(&link.reveal()).unwrap();
    Registration::new(now, &rendezvous, &SecretKey::from_bytes([3; 32]), [1; 32]).unwrap()
}

/// QR1-19, RDV-19.
#[test]
fn an_attempt_from_another_port_leaves_a_connection_that_rests_at_the_genuine_site_alone() {
    let now = Instant::now();
    let mut registration = behind_a_cover(now);
    registration.handle_timeout(now);
    registration.settle(now);
    let first = registration.ways.attempts_over(server_address())[0];
    let redirected = ClientAction::Redirected { attempt: first };
    registration.carry_out(now, Action::Role(redirected));
    let over = CarrierKind::Udp.stand_in(server_address(), 900);
    registration.begin(now, 900, over, "site.test".to_owned());
    registration.handle_socket_opened(now, over, Ok(TCP_PAYLOAD));
    let rests = |registration: &Registration| registration.resting.poll_timeout().is_some();
    assert!(rests(&registration));
    // Once its connection is up, all that comes to the endpoint's port is that one's.
    registration.watch_from(now, 900);
    registration.take_own_socket(now, server_address());
    assert!(!rests(&registration));
}

/// RDV-19.
#[test]
fn all_attempts_but_the_first_at_a_server_with_a_cover_leave_from_ports_of_their_own() {
    let mut now = Instant::now();
    let end = now + 30 * SECOND;
    let mut registration = behind_a_cover(now);
    let mut overs = Vec::new();
    let mut open = Vec::new();
    while now < end {
        registration.handle_timeout(now);
        registration.settle(now);
        let mut is_busy = true;
        while is_busy {
            let mut outbox = Outbox::default();
            is_busy = registration.flush(now, &mut outbox);
            for train in outbox.trains() {
                assert!(train.destination == server_address() || open.contains(&train.destination));
                if overs.last() != Some(&train.destination) {
                    overs.push(train.destination);
                }
            }
            while let Some(change) = registration.poll_socket_change() {
                is_busy = true;
                match change {
                    SocketChange::Close(over) => open.retain(|other| *other != over),
                    SocketChange::Open(over) => {
                        open.push(over);
                        registration.handle_socket_opened(now, over, Ok(TCP_PAYLOAD));
                    }
                }
            }
        }
        now = registration.poll_timeout().unwrap().max(now);
    }
    assert!(overs.len() > 3, "{overs:?}");
    assert_eq!(overs[0], server_address());
    let others = &overs[1..];
    assert!(
        others
            .iter()
            .all(|over| CarrierKind::of(*over) == CarrierKind::Udp
                && CarrierKind::is_marked(*over)
                && CarrierKind::unmark(*over) == server_address())
    );
    let different: std::collections::BTreeSet<_> = others.iter().collect();
    assert_eq!(different.len(), others.len());
    assert!(open.len() <= 1, "{open:?}");
}
