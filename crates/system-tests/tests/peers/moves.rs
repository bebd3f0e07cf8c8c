//! What becomes of connections when routers and addresses change, while messages flow.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peer::blocking::{wait, wait_for};
use peer::{CloseReason, Delivery, Endpoint, EndpointEvent, Peer, PeerPath};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;

use super::world::{FIRST_PORT, FullCone, Open, PortRestricted, Symmetric, World, first_message};

/// How long one attempt to connect is given where there will be others.
pub(super) const ATTEMPT: Duration = Duration::from_secs(4);

/// How long a move may take: a search for a direct path comes up to half a minute after the one before.
pub(super) const MOVE_LIMIT: Duration = Duration::from_secs(90);

/// Between two messages of a test.
const PACE: Duration = Duration::from_millis(5);

/// Messages after the rendezvous is known to be gone.
const MESSAGES_WITHOUT: u32 = 100;

/// The endpoint was registered, and has told that it is so no longer.
fn has_told_of_the_loss(endpoint: &Endpoint) -> bool {
    let mut events = endpoint.events();
    let told = std::iter::from_fn(|| wait_for(Duration::ZERO, events.next_event()).flatten());
    let of_registration = told.filter_map(|event| match event {
        EndpointEvent::Registered { .. } => Some(false),
        EndpointEvent::Unregistered => Some(true),
        _ => None,
    });
    of_registration.last() == Some(true)
}

/// RDV-9.
#[test]
fn connections_live_on_without_the_rendezvous_and_others_are_made_when_it_is_back() {
    require_root!();
    let mut world = World::new();
    world.set_kinds([PortRestricted, PortRestricted], FIRST_PORT);
    let (one, two) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    let (_, ends) = first_message(&one, &two, PROGRAM_LIMIT).unwrap();
    world.server.kill();
    let mut talk = Talk::new(ends);
    talk.until("both ends have told that the rendezvous is gone", |_| {
        has_told_of_the_loss(&one) && has_told_of_the_loss(&two)
    });
    talk.go_on(MESSAGES_WITHOUT);
    talk.finish();
    world.server.start_again();
    testbed::wait::wait_until("another meeting", PROGRAM_LIMIT, || {
        first_message(&two, &one, ATTEMPT).is_some()
    });
}

/// Numbered messages one after the other in one channel, which all have to come.
pub(super) struct Talk {
    ends: [Peer; 2],
    sent: u32,
    received: u32,
}

impl Talk {
    pub(super) fn new(ends: [Peer; 2]) -> Self {
        Self {
            ends,
            sent: 0,
            received: 0,
        }
    }

    /// Goes on until `condition`.
    pub(super) fn until(&mut self, what: &str, condition: impl Fn(&[Peer; 2]) -> bool) -> Duration {
        let begin = Instant::now();
        while !condition(&self.ends) {
            assert!(begin.elapsed() < MOVE_LIMIT, "{what}: {:?}", self.paths());
            self.say();
            let next = Instant::now() + PACE;
            self.hear(|| next.saturating_duration_since(Instant::now()));
        }
        println!("{what} after {:?}: {:?}", begin.elapsed(), self.paths());
        begin.elapsed()
    }

    /// Goes on with so many messages.
    fn go_on(&mut self, messages: u32) {
        for _ in 0..messages {
            self.say();
            let next = Instant::now() + PACE;
            self.hear(|| next.saturating_duration_since(Instant::now()));
        }
    }

    fn say(&mut self) {
        let body = self.sent.to_be_bytes().to_vec();
        drop(wait(self.ends[0].send(body, Delivery::ordered(1))).unwrap());
        self.sent += 1;
    }

    fn hear(&mut self, left: impl Fn() -> Duration) {
        while self.received < self.sent {
            let Some(message) = wait_for(left(), self.ends[1].receive()) else {
                return;
            };
            let body = message.unwrap().body;
            assert_eq!(body, self.received.to_be_bytes().to_vec(), "in order, each once");
            self.received += 1;
        }
    }

    /// All that was said, and one more, has come.
    pub(super) fn finish(mut self) {
        self.say();
        let end = Instant::now() + PROGRAM_LIMIT;
        self.hear(|| end.saturating_duration_since(Instant::now()));
        assert_eq!(self.received, self.sent);
    }

    fn paths(&self) -> [Option<PeerPath>; 2] {
        self.ends.each_ref().map(Peer::path)
    }
}

fn are_relayed(ends: &[Peer; 2]) -> bool {
    ends.iter()
        .all(|end| matches!(end.path(), Some(PeerPath::Relayed(_))))
}

fn are_direct(ends: &[Peer; 2]) -> bool {
    ends.iter()
        .all(|end| matches!(end.path(), Some(PeerPath::Direct(_))))
}

/// PEER-17, PEER-19, PEER-20.
#[test]
fn a_relayed_pair_moves_to_a_direct_path_that_opens_and_back_when_it_closes_and_nothing_is_lost() {
    require_root!();
    let world = World::new();
    world.set_kinds([Symmetric, Symmetric], FIRST_PORT);
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    let (took, ends) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
    println!("first message after {took:?}");
    let mut talk = Talk::new(ends);
    talk.until("relayed", are_relayed);
    for _ in 0..2 {
        world.set_kinds([FullCone, Open], FIRST_PORT);
        talk.until("direct", are_direct);
        block(&world);
        talk.until("relayed again", are_relayed);
        unblock(&world);
    }
    talk.finish();
}

/// Nothing passes between the two networks.
pub(super) fn block(world: &World) {
    let one = "{ 198.51.1.0/24, 10.1.0.0/24 }";
    let two = "{ 198.51.2.0/24, 10.2.0.0/24 }";
    let rules = format!(
        "table ip block {{\nchain forward {{ type filter hook forward priority 0;\nip saddr {one} ip daddr {two} drop\nip \
         saddr {two} ip daddr {one} drop\n}}\n}}\n"
    );
    world.between[0].nft(&rules).unwrap();
}

pub(super) fn unblock(world: &World) {
    world.between[0].nft("flush ruleset").unwrap();
}

/// RDV-3: where the networks between let nothing through but to the server.
#[test]
fn peers_that_reach_nothing_but_the_server_are_relayed() {
    require_root!();
    let world = World::new();
    world.set_kinds([Open, Open], FIRST_PORT);
    block(&world);
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    let (took, ends) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
    println!("relayed after {took:?}");
    assert!(are_relayed(&ends));
    unblock(&world);
    let mut talk = Talk::new(ends);
    talk.until("direct", are_direct);
    talk.finish();
}

/// What says so may be lost among a stream that fills the way to the rendezvous.
#[test]
fn a_relayed_peer_hears_at_once_that_an_endpoint_closes_whichever_of_them_sends_a_stream() {
    require_root!();
    let world = World::new();
    world.set_kinds([Open, Open], FIRST_PORT);
    block(&world);
    for sender in 0..2 {
        // Those of the first round keep their ports for as long as somebody has a handle.
        let port = FIRST_PORT + sender;
        let (caller, callee) = (world.peer(0, port), world.peer(1, port));
        let (_, ends) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
        assert!(are_relayed(&ends));
        let [closes, stays] = &ends;
        let (sends, receives) = if sender == 0 {
            (closes, stays)
        } else {
            (stays, closes)
        };
        let (mut stream, source) = (wait(sends.open_one_way(0)).unwrap(), receives.clone());
        // Both end with the connection.
        std::thread::spawn(move || while wait(stream.write_chunk(vec![1; 65_536].into())).is_ok() {});
        let (told, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut stream = wait(source.accept_one_way()).unwrap();
            let mut bytes = 0;
            while let Ok(Some(chunk)) = wait(stream.read_chunk(65_536)) {
                bytes += chunk.len();
                let _ = told.send(bytes);
            }
        });
        while heard.recv_timeout(PROGRAM_LIMIT).unwrap() < 4 << 20 {}
        caller.close(7, "enough");
        let begin = Instant::now();
        let reason = wait_for(PROGRAM_LIMIT, stays.closed()).expect("it hears of it");
        println!("end {sender} sends: {reason:?} after {:?}", begin.elapsed());
        assert!(
            matches!(reason, CloseReason::ApplicationClosed { code: 7, .. }),
            "{reason:?}"
        );
        wait_for(PROGRAM_LIMIT, caller.ended()).unwrap();
    }
}

/// RDV-8, PEER-19: both routers forget all mappings, and give others from then on.
#[test]
fn a_router_that_starts_again_ends_no_connection() {
    require_root!();
    let world = World::new();
    world.set_kinds([PortRestricted, PortRestricted], FIRST_PORT);
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    let (_, ends) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
    let mut talk = Talk::new(ends);
    talk.until("direct", are_direct);
    for router in [1, 0] {
        let mut kinds = [PortRestricted, PortRestricted];
        kinds[router] = Symmetric;
        world.set_kinds(kinds, FIRST_PORT);
        world.restart_routers();
        talk.until("relayed", are_relayed);
        world.set_kinds([PortRestricted, PortRestricted], FIRST_PORT);
        world.restart_routers();
        talk.until("direct again", are_direct);
    }
    talk.finish();
}

/// PEER-19: the callee's machine has another address, which QUIC alone does not follow.
#[test]
fn each_end_moves_to_another_address_of_its_machine() {
    require_root!();
    let world = World::new();
    world.set_kinds([Open, Open], FIRST_PORT);
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    let (_, ends) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
    let mut talk = Talk::new(ends);
    talk.until("direct", are_direct);
    for (machine, other) in [(1, 0), (0, 1)] {
        let network = machine + 1;
        let address = |host: u8| format!("10.{network}.0.{host}/24");
        let namespace = &world.machines[machine];
        namespace
            .run("ip", ["addr", "flush", "dev", "eth0", "scope", "global"])
            .unwrap();
        namespace
            .run("ip", ["addr", "add", &address(9), "dev", "eth0"])
            .unwrap();
        let gateway = format!("10.{network}.0.1");
        namespace
            .run("ip", ["route", "replace", "default", "via", &gateway])
            .unwrap();
        let moved = PeerPath::Direct(SocketAddr::from(([10, network as u8, 0, 9], FIRST_PORT)));
        talk.until("at the other address", |ends| ends[other].path() == Some(moved));
    }
    talk.finish();
}
