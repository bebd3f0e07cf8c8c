//! Services that are registered from outside: requests with a `:protocol` of their own, whose content their own state
//! machines read and write.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use masque::request::{connect_udp, extended_connect};
use masque::{HeaderList, datagram};
use quic::limits as quic_limits;
use sim::{LinkConfig, for_each_seed};
use tunnel_proto::{
    ClientAction, Ending, NoService, RequestId, Service, ServiceProvider, ServiceRequest, ServiceStream,
    Target, UserId, UserSnapshot, limits,
};

use crate::support::{DELAY, End, SECOND, Script, Setup, World, stranger, user};

const MEBIBYTE: u64 = 1 << 20;

/// What an end has seen, also when it is gone.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    received: u64,
    datagrams: Vec<Vec<u8>>,
    endings: Vec<Ending>,
}

pub(crate) type Journal = Arc<Mutex<Seen>>;

fn seen<T>(journal: &Journal, look: impl FnOnce(&mut Seen) -> T) -> T {
    look(&mut journal.lock().expect("nobody panicked with it"))
}

/// Sends back what comes, at the pace at which it is taken; with `stands` only after it is woken.
#[derive(Debug)]
struct Echo {
    stands: bool,
    resets_at: u64,
    journal: Journal,
}

impl Service for Echo {
    fn handle_content(&mut self, _: Instant, content: &mut Bytes, stream: &mut ServiceStream<'_>) {
        if self.stands {
            return;
        }
        let before = content.len();
        stream.send(content);
        let received = seen(&self.journal, |seen| {
            seen.received += (before - content.len()) as u64;
            seen.received
        });
        if received >= self.resets_at {
            stream.reset();
        }
    }

    fn handle_datagram(&mut self, _: Instant, payload: &[u8], stream: &mut ServiceStream<'_>) {
        seen(&self.journal, |seen| seen.datagrams.push(payload.to_vec()));
        stream.send_datagram(payload);
    }

    fn handle_wake(&mut self, _: Instant, _: &mut ServiceStream<'_>) {
        self.stands = false;
    }

    fn handle_end(&mut self, ending: &Ending) {
        seen(&self.journal, |seen| seen.endings.push(ending.clone()));
    }
}

/// Sends bytes that follow from their place, ends, and checks what comes back.
#[derive(Debug)]
struct Asking {
    bytes: u64,
    /// Bytes cut into pieces so far, and the last piece.
    cut: u64,
    piece: Bytes,
    datagrams: Vec<Vec<u8>>,
    journal: Journal,
}

impl Asking {
    fn boxed(bytes: u64) -> (Box<Self>, Journal) {
        let journal = Journal::default();
        let asking = Self {
            bytes,
            cut: 0,
            piece: Bytes::new(),
            datagrams: Vec::new(),
            journal: journal.clone(),
        };
        (Box::new(asking), journal)
    }

    fn fill(&mut self, stream: &mut ServiceStream<'_>) {
        while stream.send(&mut self.piece) {
            if self.cut == self.bytes {
                return stream.finish();
            }
            let end = self.bytes.min(self.cut + 10_000);
            self.piece = (self.cut..end).map(byte).collect();
            self.cut = end;
        }
    }

    /// Bytes that the tunnel has taken.
    fn sent(&self) -> u64 {
        self.cut - self.piece.len() as u64
    }
}

impl Service for Asking {
    fn handle_open(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        for payload in &self.datagrams {
            stream.send_datagram(payload);
        }
        self.fill(stream);
    }

    fn handle_writable(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        self.fill(stream);
    }

    fn handle_content(&mut self, _: Instant, content: &mut Bytes, _: &mut ServiceStream<'_>) {
        seen(&self.journal, |seen| {
            for taken in content.split_to(content.len()) {
                assert_eq!(taken, byte(seen.received), "at byte {}", seen.received);
                seen.received += 1;
            }
        });
    }

    fn handle_datagram(&mut self, _: Instant, payload: &[u8], _: &mut ServiceStream<'_>) {
        seen(&self.journal, |seen| seen.datagrams.push(payload.to_vec()));
    }

    fn handle_end(&mut self, ending: &Ending) {
        seen(&self.journal, |seen| seen.endings.push(ending.clone()));
    }
}

fn byte(place: u64) -> u8 {
    (place ^ (place >> 8) ^ (place >> 16)) as u8
}

/// Has an echo at `/`, one that stands at `/stands`, one that breaks off at `/resets`, and what it refuses elsewhere.
#[derive(Default)]
struct Echoes {
    journal: Journal,
    asked: Arc<Mutex<Vec<(RequestId, UserId)>>>,
}

impl ServiceProvider for Echoes {
    fn open(&mut self, _: Instant, asked: &ServiceRequest<'_>) -> Result<Box<dyn Service>, NoService> {
        self.asked
            .lock()
            .expect("nobody panicked with it")
            .push((asked.id, asked.user));
        let echo = |stands, resets_at| -> Box<dyn Service> {
            let journal = self.journal.clone();
            Box::new(Echo {
                stands,
                resets_at,
                journal,
            })
        };
        match asked.path {
            "/" => Ok(echo(false, u64::MAX)),
            "/stands" => Ok(echo(true, u64::MAX)),
            "/resets" => Ok(echo(false, 100_000)),
            "/closed" => Err(NoService::Forbidden),
            "/full" => Err(NoService::Unavailable),
            _ => Err(NoService::NotFound),
        }
    }
}

/// What the server's ends have seen, and who asked for them.
pub(crate) type Registered = (Journal, Arc<Mutex<Vec<(RequestId, UserId)>>>);

pub(crate) fn register(world: &mut World) -> Registered {
    let echoes = Echoes::default();
    let registered = (echoes.journal.clone(), echoes.asked.clone());
    world.server().engine.serve("echo", Box::new(echoes));
    registered
}

fn world(setup: Setup) -> (World, Journal) {
    let mut world = World::connected(setup);
    let (journal, _) = register(&mut world);
    (world, journal)
}

fn open(world: &mut World, path: &str, service: Box<Asking>) -> RequestId {
    let now = world.now();
    world.client().engine.open_service(now, "echo", path, service)
}

/// A line that an endless sender does not fill at once.
fn at_rate(bits_per_second: u64) -> Setup {
    Setup::on(LinkConfig {
        delay: DELAY,
        rate_bits_per_second: Some(bits_per_second),
        queue_bytes: 256 << 10,
        ..LinkConfig::default()
    })
}

fn owner(world: &mut World) -> UserSnapshot {
    world.server().engine.users()[&UserId::OWNER].clone()
}

/// A request for a service, as another make sends it.
pub(crate) fn request(protocol: &str, token: &tunnel_proto::Token) -> HeaderList {
    extended_connect("server.test:443", protocol, "/", &token.reveal())
}

/// Bytes that a server's end has taken.
pub(crate) fn received(echo: &Journal) -> u64 {
    seen(echo, |seen| seen.received)
}

#[test]
fn what_a_service_gets_and_sends_arrives_whole_under_loss_and_it_ends_when_both_sides_have() {
    for_each_seed(4, |seed| {
        let link = LinkConfig {
            delay: DELAY,
            loss: 0.02,
            reorder: 0.02,
            ..LinkConfig::default()
        };
        let (mut world, echo) = world(Setup {
            seed,
            ..Setup::on(link)
        });
        let (asking, journal) = Asking::boxed(MEBIBYTE);
        open(&mut world, "/", asking);
        world.run(SECOND / 10);
        assert_eq!(
            (owner(&mut world).sessions, owner(&mut world).sessions_total),
            (1, 1)
        );
        world.run(60 * SECOND);
        seen(&journal, |seen| {
            assert_eq!(
                (seen.received, &seen.endings[..]),
                (MEBIBYTE, &[Ending::Finished][..])
            );
        });
        seen(&echo, |seen| assert_eq!(seen.endings, [Ending::Finished]));
        assert_eq!(owner(&mut world).sessions, 0);
        assert_eq!(world.client().endings(), [&Ending::Finished]);
    });
}

#[test]
fn it_waits_for_the_tunnel_as_other_requests_do() {
    let mut world = World::with_server(Setup::default());
    register(&mut world);
    world.client = world.add_client(&user());
    let (asking, journal) = Asking::boxed(1_000);
    let id = open(&mut world, "/", asking);
    assert!(world.client().engine.is_queued(id));
    world.run(SECOND);
    assert_eq!(seen(&journal, |seen| seen.received), 1_000);
    let established = |action: &ClientAction| *action == ClientAction::Established { request: id };
    assert_eq!(world.client().count(established), 1);
}

#[test]
fn datagrams_of_a_service_pass_both_ways_and_stand_in_the_account() {
    let (mut world, echo) = world(Setup::default());
    let (mut asking, journal) = Asking::boxed(0);
    // The last one fits no datagram.
    asking.datagrams = vec![vec![1; 10], Vec::new(), vec![2; 1_000], vec![3; 2_000]];
    let expected = asking.datagrams[..3].to_vec();
    open(&mut world, "/", asking);
    world.run(SECOND);
    for journal in [&journal, &echo] {
        assert_eq!(seen(journal, |seen| seen.datagrams.clone()), expected);
    }
    let ledgers = [world.client, world.server].map(|end| world.tunnel(end).ledger());
    let counted = ledgers.map(|ledger| {
        let (ingress, egress) = (ledger.ingress, ledger.egress);
        (ingress.accepted, ingress.sent, egress.accepted, egress.sent)
    });
    assert_eq!(counted, [(4, 3, 3, 3), (3, 3, 3, 3)]);
}

#[test]
fn a_service_that_takes_nothing_holds_up_its_own_stream_alone_and_goes_on_when_it_is_woken() {
    let mut world = World::connected(Setup::default());
    let (echo, asked) = register(&mut world);
    let (asking, journal) = Asking::boxed(100 * MEBIBYTE);
    let id = open(&mut world, "/stands", asking);
    world.run(10 * SECOND);
    // What the windows of both ends and one read hold, and not a byte of it at the service.
    let sent = |world: &mut World| {
        let asking = world.client().engine.service::<Asking>(id);
        asking.map(|asking| asking.sent()).expect("it is open")
    };
    let stopped_at = sent(&mut world);
    let held_max = u64::from(quic_limits::STREAM_WINDOW_BYTES)
        + quic_limits::SEND_WINDOW_BYTES
        + (limits::STREAM_READ_BYTES + limits::SERVICE_OUTPUT_BYTES_MAX) as u64;
    assert!((MEBIBYTE..=held_max).contains(&stopped_at), "{stopped_at}");
    assert_eq!(seen(&echo, |seen| seen.received), 0);
    let tcp = world.open_tcp(Script::sending(4 * MEBIBYTE), Script::sending(MEBIBYTE));
    world.run(10 * SECOND);
    let server = world.server;
    assert_eq!(world.tunnel(server).tcp(tcp).read, 4 * MEBIBYTE);
    assert_eq!(sent(&mut world), stopped_at);
    let (id, _) = asked.lock().expect("nobody panicked with it")[0];
    let now = world.now();
    world.server().wake_service(now, id);
    world.run(60 * SECOND);
    assert_eq!(seen(&journal, |seen| seen.received), 100 * MEBIBYTE);
}

#[test]
fn a_drain_lets_a_service_go_on_and_begins_no_other_and_a_close_ends_it_at_both_ends() {
    let (mut world, echo) = world(at_rate(100_000_000));
    let (asking, journal) = Asking::boxed(u64::MAX);
    open(&mut world, "/", asking);
    world.run(SECOND / 10);
    world.server().engine.start_drain();
    let before = seen(&journal, |seen| seen.received);
    let (late, waiting) = Asking::boxed(10);
    open(&mut world, "/", late);
    world.run(SECOND);
    assert!(seen(&journal, |seen| seen.received) > before + MEBIBYTE);
    // It waits for another server.
    assert_eq!(seen(&waiting, |seen| seen.received), 0);
    assert_eq!(seen(&waiting, |seen| seen.endings.clone()), []);
    let now = world.now();
    world.client().data.stop_reconnecting();
    world.server().engine.close_all(now);
    world.run(SECOND);
    for journal in [&journal, &echo] {
        assert_eq!(
            seen(journal, |seen| seen.endings.clone()),
            [Ending::ConnectionLost]
        );
    }
    assert_eq!(owner(&mut world).sessions, 0);
}

#[test]
fn either_side_may_break_a_service_off_and_the_other_hears_of_it() {
    let (mut world, echo) = world(at_rate(100_000_000));
    let (asking, journal) = Asking::boxed(u64::MAX);
    open(&mut world, "/resets", asking);
    world.run(SECOND);
    for journal in [&journal, &echo] {
        assert_eq!(
            seen(journal, |seen| std::mem::take(&mut seen.endings)),
            [Ending::Reset]
        );
    }
    let (asking, journal) = Asking::boxed(u64::MAX);
    let id = open(&mut world, "/", asking);
    world.run(SECOND / 10);
    world.client().engine.end(id, tunnel_proto::End::Failed);
    world.run(SECOND);
    assert_eq!(seen(&echo, |seen| seen.endings.clone()), [Ending::Reset]);
    assert_eq!(seen(&journal, |seen| seen.endings.len()), 0, "its owner ended it");
    assert_eq!(owner(&mut world).sessions, 0);
}

/// Sends something once, and leaves its side open.
#[derive(Debug)]
struct Saying(Bytes);

impl Service for Saying {
    fn handle_open(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        assert!(stream.send(&mut self.0));
    }

    fn handle_content(&mut self, _: Instant, content: &mut Bytes, _: &mut ServiceStream<'_>) {
        content.clear();
    }
}

#[test]
fn a_service_whose_owner_is_done_ends_at_the_other_end_after_what_was_sent() {
    let mut world = World::connected(Setup::default());
    let (echo, asked) = register(&mut world);
    let now = world.now();
    let open = |world: &mut World| {
        let service = Box::new(Saying(vec![7; 10_000].into()));
        world.client().engine.open_service(now, "echo", "/", service)
    };
    let id = open(&mut world);
    let established = |action: &ClientAction| *action == ClientAction::Established { request: id };
    world.run_until(SECOND, |world| world.client().count(established) == 1);
    world.client().engine.end(id, tunnel_proto::End::Done);
    assert_eq!(world.client().engine.closing(), 1);
    world.run(SECOND);
    assert_eq!(
        seen(&echo, |seen| (seen.received, seen.endings.len())),
        (10_000, 1)
    );
    assert_eq!(world.client().endings().len(), 0, "its owner ended it");
    // One that the server has not answered yet.
    let id = open(&mut world);
    world.run(DELAY / 2);
    world.client().engine.end(id, tunnel_proto::End::Done);
    world.run(SECOND);
    assert_eq!(asked.lock().expect("nobody panicked with it").len(), 2);
    assert_eq!(seen(&echo, |seen| seen.endings.len()), 2);
    assert_eq!(
        (owner(&mut world).sessions, world.client().engine.closing()),
        (0, 0)
    );
}

#[test]
fn a_provider_says_what_is_there_and_a_refused_request_holds_no_place() {
    let (mut world, _) = world(Setup::default());
    for (path, expected) in [("/closed", 403), ("/full", 503), ("/nothing", 404)] {
        let (asking, journal) = Asking::boxed(10);
        open(&mut world, path, asking);
        world.run(SECOND);
        let endings = seen(&journal, |seen| seen.endings.clone());
        assert!(
            matches!(endings[..], [Ending::Refused { status, .. }] if status == expected),
            "{path}: {endings:?}"
        );
    }
    assert_eq!(
        (owner(&mut world).sessions, owner(&mut world).sessions_total),
        (0, 3)
    );
}

#[test]
fn strangers_hear_the_same_of_a_service_that_is_there_and_of_one_that_is_not() {
    let mut world = World::with_server(Setup::default());
    let (_, asked) = register(&mut world);
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let answers = ["echo", "nothing"].map(|protocol| {
        let stream = world.foreign(foreign).request(&request(protocol, &stranger()));
        world.run(SECOND);
        world.foreign(foreign).response(stream)
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(world.server().engine.refused_requests()["404"], 2);
    assert!(asked.lock().expect("nobody panicked with it").is_empty());
    let stream = world.foreign(foreign).request(&request("echo", &user()));
    world.run(SECOND);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    assert_eq!(asked.lock().expect("nobody panicked with it")[0].1, UserId::OWNER);
}

#[test]
fn a_guessed_token_counts_at_a_service_as_anywhere() {
    // Whether the service is there or not, or it could be found out.
    for protocol in ["echo", "nothing"] {
        let mut world = World::with_server(Setup::default());
        register(&mut world);
        let foreign = world.add_foreign_client();
        world.run(SECOND);
        for _ in 0..limits::WRONG_TOKENS_PER_CONNECTION {
            world.foreign(foreign).request(&request(protocol, &stranger()));
        }
        world.run(2 * SECOND);
        assert!(world.foreign(foreign).closed.is_some(), "{protocol}");
    }
}

#[test]
fn content_and_datagrams_of_another_make_reach_a_service_also_those_that_overtook_the_request() {
    let mut world = World::with_server(Setup::default());
    let (echo, _) = register(&mut world);
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    // Its streams are numbered in order: this one's datagram is there before its request.
    let target = Target::new("sink-0", 7).expect("a well-formed target");
    let first =
        world
            .foreign(foreign)
            .request(&connect_udp("server.test:443", &target, &user().reveal(), None));
    world.run(SECOND);
    let (prefix, used) = datagram::prefix(u64::from(first) / 4 + 1, 0);
    world
        .foreign(foreign)
        .datagram([&prefix[..used], b"early"].concat());
    world.run(2 * DELAY);
    let stream = world.foreign(foreign).request(&request("echo", &user()));
    world.run(2 * DELAY);
    let came = seen(&echo, |seen| seen.datagrams.clone());
    assert_eq!(came, [b"early".to_vec()], "it waits for nothing else");
    let (header, used) = masque::data_frame_header(5);
    world.foreign(foreign).write(stream, &header[..used]);
    world.foreign(foreign).write(stream, b"lines");
    world.run(SECOND);
    seen(&echo, |seen| {
        assert_eq!(
            (seen.received, &seen.datagrams[..]),
            (5, &[b"early".to_vec()][..])
        );
    });
}
