//! Peers that find each other by a server: who is registered, who is told what, and what a hostile one gets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use packet::CarrierKind;
use tunnel_proto::rendezvous::{
    Guests, Membership, Message, PROTOCOL, PeerKeyBytes, Reason, RegistrationPath, Rendezvous, statement,
};
use tunnel_proto::{
    Answer, AuthorizationId, Authorizer, ClientAction, Credentials, Decision, Ending, RequestId, SoleOwner,
    limits,
};

use crate::support::{End, MILLISECOND, SECOND, Setup, World, user};

/// A server with rendezvous, and clients of its owner.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) rendezvous: Rendezvous,
    woken: Arc<AtomicUsize>,
    pub(crate) clients: Vec<SocketAddr>,
    /// The registration of each client.
    pub(crate) requests: Vec<RequestId>,
}

fn keys(number: usize) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[number as u8 + 1; 32]).expect("32 bytes are a seed")
}

pub(crate) fn id(number: usize) -> PeerKeyBytes {
    let key = keys(number);
    let key = key.public_key().as_ref().try_into();
    key.expect("a key has 32 bytes")
}

/// By which a peer is registered on the connection with this exporter.
pub(crate) fn path(number: usize, exporter: &[u8; 32]) -> RegistrationPath {
    let signature = keys(number).sign(&statement(exporter));
    let signature = signature.as_ref().try_into();
    RegistrationPath {
        peer: id(number),
        signature: signature.expect("a signature has 64 bytes"),
    }
}

/// Lets in the owner and its guests.
struct OwnerAndGuests {
    owner: SoleOwner,
    guests: Guests,
    /// Bytes of one guest.
    bytes_of_guest: u64,
}

impl Authorizer for OwnerAndGuests {
    fn authorize(
        &mut self,
        now: Instant,
        id: AuthorizationId,
        credentials: &Credentials<'_>,
        remote: SocketAddr,
    ) -> Answer {
        match self.guests.authorize(now, credentials, remote) {
            Some(Decision::Granted(mut grant)) => {
                assert_eq!(grant.limits.bytes, limits::GUEST_BYTES_MAX);
                grant.limits.bytes = self.bytes_of_guest;
                Answer::Now(Decision::Granted(grant))
            }
            Some(refused) => Answer::Now(refused),
            None => self.owner.authorize(now, id, credentials, remote),
        }
    }
}

impl Site {
    pub(crate) fn new(shards: u8, clients: usize) -> Self {
        let mut world = World::with_server(Setup::default());
        let server = world.server;
        world.start_shards(server, shards);
        let woken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&woken);
        let wake = move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let rendezvous = Rendezvous::new(usize::from(shards), Box::new(wake));
        for (index, shard) in world.shards(server).iter_mut().enumerate() {
            shard.engine.serve(PROTOCOL, rendezvous.provider(index));
            shard.engine.serve_relay(rendezvous.relay(index));
        }
        let clients: Vec<_> = (0..clients).map(|_| world.add_client(&user())).collect();
        for client in &clients {
            world.wait_until_up(*client);
        }
        Self {
            world,
            rendezvous,
            woken,
            clients,
            requests: Vec::new(),
        }
    }

    /// A server of one shard, whose clients may invite guests.
    pub(crate) fn with_guests(clients: usize) -> Self {
        Self::with_guests_of(clients, limits::GUEST_BYTES_MAX)
    }

    /// The same whose guests are granted so many bytes.
    pub(crate) fn with_guests_of(clients: usize, bytes_of_guest: u64) -> Self {
        let mut site = Self::new(1, 0);
        let guests = Guests::new([3; 32]);
        let authorizer = OwnerAndGuests {
            owner: SoleOwner::new(vec![user()]),
            guests: guests.clone(),
            bytes_of_guest,
        };
        site.world.start_server_for(Box::new(authorizer), 1);
        site.rendezvous = Rendezvous::with_guests(1, Box::new(|_| {}), Some(guests));
        let server = &mut site.world.server().engine;
        server.serve(PROTOCOL, site.rendezvous.provider(0));
        server.serve_relay(site.rendezvous.relay(0));
        for client in 0..clients {
            let address = site.world.add_client(&user());
            site.add(address, client);
        }
        site
    }

    /// A server of one shard that is there already, without guests, and clients of it, each registered.
    pub(crate) fn of(mut world: World, clients: &[SocketAddr]) -> Self {
        let rendezvous = Rendezvous::new(1, Box::new(|_| {}));
        let server = &mut world.server().engine;
        server.serve(PROTOCOL, rendezvous.provider(0));
        server.serve_relay(rendezvous.relay(0));
        let mut site = Self {
            world,
            rendezvous,
            woken: Arc::default(),
            clients: Vec::new(),
            requests: Vec::new(),
        };
        for (number, client) in clients.iter().enumerate() {
            site.add(*client, number);
        }
        site
    }

    /// A client or guest that connects, and is registered.
    pub(crate) fn add(&mut self, address: SocketAddr, number: usize) {
        self.world.wait_until_up(address);
        self.clients.push(address);
        let request = self.register(self.clients.len() - 1, number);
        self.requests.push(request);
        self.run();
    }

    pub(crate) fn registered(shards: u8, clients: usize) -> Self {
        let mut site = Self::new(shards, clients);
        for index in 0..clients {
            let request = site.register(index, index);
            site.requests.push(request);
        }
        site.run();
        site
    }

    /// A client asks to be registered by this key.
    pub(crate) fn register(&mut self, client: usize, number: usize) -> RequestId {
        let exporter = self.client(client).exporter().expect("it is connected");
        self.register_with(client, number, &exporter)
    }

    fn register_with(&mut self, client: usize, number: usize, exporter: &[u8; 32]) -> RequestId {
        let path = path(number, exporter);
        let now = self.world.now();
        let service = Box::new(Membership::default());
        self.client(client)
            .open_service(now, PROTOCOL, &path.to_string(), service)
    }

    pub(crate) fn client(&mut self, client: usize) -> &mut tunnel_proto::Engine<tunnel_proto::Client> {
        let address = self.clients[client];
        &mut self.world.client_at(address).engine
    }

    pub(crate) fn say(&mut self, client: usize, messages: &[Message]) {
        let (request, now) = (self.requests[client], self.world.now());
        let membership = self
            .client(client)
            .service::<Membership>(request)
            .expect("it is registered");
        for message in messages {
            assert!(membership.say(message.clone()));
        }
        let address = self.clients[client];
        self.world.client_at(address).wake_service(now, request);
    }

    pub(crate) fn heard(&mut self, client: usize) -> Vec<Message> {
        let request = self.requests[client];
        let membership = self
            .client(client)
            .service::<Membership>(request)
            .expect("it is registered");
        std::iter::from_fn(|| membership.hear()).collect()
    }

    /// Lets messages pass; shards get turns as if they were woken.
    pub(crate) fn run(&mut self) {
        for _ in 0..200 {
            self.world.run(MILLISECOND);
            self.world.server();
        }
    }

    /// Sockets of peers, and the contexts between them.
    pub(crate) fn relayed(&self) -> (u64, u64) {
        let counters = self.rendezvous.counters();
        (counters.sockets, counters.contexts)
    }

    pub(crate) fn endings(&mut self, client: usize) -> Vec<Ending> {
        let address = self.clients[client];
        self.world
            .client_at(address)
            .endings()
            .into_iter()
            .cloned()
            .collect()
    }
}

pub(crate) fn call(callee: usize) -> Message {
    Message::Call {
        callee: id(callee),
        transaction: [callee as u8; 12],
        key: [7; 16],
    }
}

/// RDV-5, RDV-7, RDV-8.
#[test]
fn each_peer_learns_its_address_and_those_of_whom_it_meets_across_shards() {
    let mut site = Site::registered(3, 4);
    assert_eq!(site.rendezvous.counters().registered, 4);
    let local = |client: usize| SocketAddr::from(([10, 0, 0, client as u8], 4_000));
    for client in 0..4 {
        let observed = site.clients[client];
        let heard = site.heard(client);
        let [Message::Observed(address)] = heard[..] else {
            panic!("{heard:?}");
        };
        assert_eq!(address.ip(), observed.ip());
        site.say(client, &[Message::Addresses(vec![local(client)])]);
    }
    site.run();
    let woken_before = site.woken.load(Ordering::SeqCst);
    for caller in 0..4 {
        for callee in (0..4).filter(|callee| *callee != caller) {
            site.say(caller, &[call(callee)]);
            site.run();
            let heard = site.heard(callee);
            let [
                Message::Called {
                    caller: from,
                    transaction,
                    key,
                    ref addresses,
                    relayed: None,
                },
            ] = heard[..]
            else {
                panic!("{heard:?}");
            };
            assert_eq!(
                (from, transaction, key),
                (id(caller), [callee as u8; 12], [7; 16])
            );
            assert_eq!(addresses[0].ip(), site.clients[caller].ip());
            assert_eq!(addresses[1..], [local(caller)]);
            site.say(
                callee,
                &[Message::Answer {
                    caller: from,
                    transaction,
                }],
            );
            site.run();
            let heard = site.heard(caller);
            let [
                Message::Answered {
                    callee: from,
                    transaction,
                    ref addresses,
                    relayed: None,
                },
            ] = heard[..]
            else {
                panic!("{heard:?}");
            };
            assert_eq!((from, transaction), (id(callee), [callee as u8; 12]));
            assert_eq!(addresses[1..], [local(callee)]);
        }
    }
    assert!(site.woken.load(Ordering::SeqCst) >= woken_before + 24);
}

/// RDV-5.
#[test]
fn who_does_not_prove_its_key_on_its_own_connection_is_not_registered() {
    let mut site = Site::new(1, 2);
    // The signature of another connection.
    let exporter = site.client(1).exporter().expect("it is connected");
    site.register_with(0, 0, &exporter);
    let now = site.world.now();
    let service = Box::new(Membership::default());
    site.client(0).open_service(now, PROTOCOL, "/nobody/", service);
    site.run();
    let refused = |status| Ending::Refused { status, error: None };
    assert_eq!(site.endings(0), [refused(403), refused(404)]);
    assert_eq!(site.rendezvous.counters().registered, 0);
}

/// RDV-8.
#[test]
fn who_calls_somebody_absent_or_itself_or_too_often_is_told_so() {
    let mut site = Site::registered(1, 2);
    site.heard(0);
    site.say(0, &[call(77), call(0)]);
    site.run();
    let unreachable = |callee, reason| Message::Unreachable {
        transaction: [callee; 12],
        reason,
    };
    let expected = [unreachable(77, Reason::Absent), unreachable(0, Reason::Busy)];
    assert_eq!(site.heard(0), expected);
    site.heard(1);
    for _ in 0..limits::RENDEZVOUS_CALLS_BURST {
        site.say(0, &[call(1)]);
        site.world.run(MILLISECOND);
    }
    site.run();
    assert!(site.heard(0).contains(&unreachable(1, Reason::Busy)));
    assert!(site.heard(1).len() <= limits::RENDEZVOUS_CALLS_BURST as usize);
}

/// RDV-6.
#[test]
fn a_client_that_says_what_servers_say_is_broken_off() {
    let mut site = Site::registered(1, 1);
    site.say(0, &[Message::Observed(SocketAddr::from(([192, 0, 2, 1], 1)))]);
    site.run();
    assert!(
        matches!(site.endings(0)[..], [Ending::Reset]),
        "{:?}",
        site.endings(0)
    );
    assert_eq!(site.rendezvous.counters().registered, 0);
}

/// RDV-9.
#[test]
fn a_registration_ends_with_its_request_or_when_its_peer_comes_again() {
    let mut site = Site::registered(2, 2);
    // The first peer comes again over the other connection.
    let again = site.register(1, 0);
    site.run();
    assert_eq!(site.rendezvous.counters().registered, 2);
    let own = site.requests[0];
    assert!(site.client(0).service::<Membership>(own).is_none());
    let address = site.clients[1];
    let established = |action: &ClientAction| *action == ClientAction::Established { request: again };
    assert_eq!(site.world.client_at(address).count(established), 1);
    let now = site.world.now();
    site.client(1).disconnect(now);
    site.world.client_at(address).leave(now);
    site.world.run(SECOND);
    site.run();
    assert_eq!(site.rendezvous.counters().registered, 0);
}

/// RDV-9.
#[test]
fn a_registration_ends_that_its_client_is_done_with() {
    let mut site = Site::registered(2, 2);
    let request = site.requests[0];
    site.client(0).end(request, tunnel_proto::End::Done);
    site.run();
    assert_eq!(site.rendezvous.counters().registered, 1);
    assert_eq!(site.endings(0), []);
}

/// RDV-7.
#[test]
fn who_comes_from_another_address_is_told_so_and_others_are_told_of_it() {
    let mut site = Site::registered(1, 2);
    let own = site.clients[0];
    let heard = site.heard(0);
    assert!(matches!(heard[..], [Message::Observed(_)]), "{heard:?}");
    site.heard(1);
    let moved = SocketAddr::new(own.ip(), own.port() + 1);
    site.world.network.rebind(own, moved);
    site.say(0, &[Message::Addresses(Vec::new())]);
    site.run();
    assert_eq!(site.heard(0), [Message::Observed(moved)]);
    site.say(0, &[call(1)]);
    site.run();
    let heard = site.heard(1);
    assert!(
        matches!(&heard[..], [Message::Called { addresses, .. }] if addresses[..] == [moved]),
        "{heard:?}"
    );
}

/// RDV-7.
#[test]
fn others_are_not_told_where_a_client_in_tcps_shape_is_seen() {
    let mut site = Site::registered(1, 2);
    site.heard(1);
    let own = site.clients[0];
    let local = SocketAddr::from(([10, 0, 0, 1], 4_000));
    site.world.network.rebind(own, CarrierKind::Tcp.mark(own));
    site.say(0, &[Message::Addresses(vec![local])]);
    site.run();
    assert_eq!(site.heard(0)[1..], [Message::Observed(own)], "as people know it");
    site.say(0, &[call(1)]);
    site.run();
    let heard = site.heard(1);
    assert!(
        matches!(&heard[..], [Message::Called { addresses, .. }] if addresses[..] == [local]),
        "{heard:?}"
    );
}

/// RDV-9.
#[test]
fn the_registrations_of_a_user_are_bounded() {
    let mut site = Site::new(1, 1);
    for number in 0..=limits::RENDEZVOUS_PEERS_PER_USER_MAX {
        site.register(0, number);
        site.world.run(10 * MILLISECOND);
    }
    site.run();
    assert_eq!(
        site.rendezvous.counters().registered,
        limits::RENDEZVOUS_PEERS_PER_USER_MAX as u64
    );
    assert_eq!(
        site.endings(0),
        [Ending::Refused {
            status: 503,
            error: None
        }]
    );
    // Who is there may come again.
    site.register(0, 0);
    site.run();
    assert_eq!(
        site.rendezvous.counters().registered,
        limits::RENDEZVOUS_PEERS_PER_USER_MAX as u64
    );
}
