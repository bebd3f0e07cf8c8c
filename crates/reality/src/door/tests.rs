//! A door with a replay window, in virtual time.

mod flood;
mod replays;
mod take_over;

use aws_lc_rs::agreement::{PrivateKey, X25519};

use super::*;
use crate::authenticator::{Binding, seal};
use crate::credentials::UserKey;
use crate::replay::{BootId, ReplayWindow};
use crate::test_hellos::{HelloShape, hello};
use crate::test_initials::{DESTINATION_ID, initial, initial_with, two_initials};

const BOOT: BootId = [0xb0; 16];
const START: u32 = 1_900_000_000;
const WINDOW: Duration = limits::CLOCK_WINDOW;

fn server() -> ServerKey {
    ServerKey::from_bytes(&[5; 32])
}

fn user() -> UserKey {
    UserKey::derive(&[6; 32])
}

fn recogniser() -> Arc<Recogniser<UserKey>> {
    Arc::new(Recogniser {
        keys: vec![server()],
        users: user(),
        window: WINDOW,
    })
}

/// A sealed hello of a client with this key.
fn message(key: u8, time: u32) -> Vec<u8> {
    let client = PrivateKey::from_private_key(&X25519, &[key; 32]).expect("a key");
    let mut message = hello(&client, HelloShape::Hybrid);
    let server = server();
    let shared = server.public().agree(&client).expect("no zeros");
    let binding = Binding {
        version: 1,
        destination_id: &DESTINATION_ID,
    };
    let sealed = seal(&message, &binding, &shared, server.public(), &user(), time);
    message[6..38].copy_from_slice(&sealed.expect("a hello").0);
    message
}

/// A client's two first datagrams.
fn flight(key: u8) -> [Vec<u8>; 2] {
    two_initials(&message(key, START))
}

fn path(port: u16) -> Path {
    Path {
        remote: ([192, 0, 2, 1], port).into(),
        local: None,
    }
}

/// What came of what was put in.
#[derive(Clone, PartialEq, Eq)]
enum Seen {
    /// The cover got it from this client.
    Cover(u16, Vec<u8>),
    /// This client got it of the cover.
    Client(u16, Vec<u8>),
    /// QUIC got it, of a handshake that was taken over before.
    Passed(u16, Vec<u8>),
    /// QUIC got this client's connection.
    TakenOver(u16, Vec<Vec<u8>>),
    /// The socket of this client's flow was closed.
    Closed(u16),
}

/// Without the bytes, which nobody reads.
impl std::fmt::Debug for Seen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = |bytes: &[u8]| format!("{:02x?} of {}", &bytes[..bytes.len().min(4)], bytes.len());
        match self {
            Self::Cover(port, bytes) => write!(formatter, "Cover({port}, {})", head(bytes)),
            Self::Client(port, bytes) => write!(formatter, "Client({port}, {})", head(bytes)),
            Self::Passed(port, bytes) => write!(formatter, "Passed({port}, {})", head(bytes)),
            Self::TakenOver(port, all) => {
                let heads: Vec<String> = all.iter().map(|bytes| head(bytes)).collect();
                write!(formatter, "TakenOver({port}, {heads:?})")
            }
            Self::Closed(port) => write!(formatter, "Closed({port})"),
        }
    }
}

struct Scene {
    door: Door<UserKey>,
    replays: ReplayWindow,
    /// What the replay window's owner has written.
    file: Vec<u8>,
    now: Now,
    seen: Vec<Seen>,
    /// Records that wait for the disk, where it is slow.
    is_disk_slow: bool,
    records: Vec<(FlowKey, Tag, u32)>,
    /// Sockets that are open.
    sockets: Vec<(FlowKey, u16)>,
    /// Datagrams of clients so far.
    sent: u64,
    last: Option<Decision>,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            door: Door::new(recogniser(), 1),
            replays: ReplayWindow::restore(None, &BOOT, START - 500, WINDOW),
            file: Vec::new(),
            now: Now {
                // tidy-allow(pure): first instant of virtual time
                instant: Instant::now(),
                unix: START,
            },
            seen: Vec::new(),
            is_disk_slow: false,
            records: Vec::new(),
            sockets: Vec::new(),
            sent: 0,
            last: None,
        };
        scene.file = scene.replays.to_file(&BOOT);
        scene
    }

    /// The process ends and starts again.
    fn restart(&mut self, file: Option<&[u8]>) {
        self.door = Door::new(recogniser(), 1);
        self.replays = ReplayWindow::restore(file, &BOOT, self.now.unix, WINDOW);
        self.sockets.clear();
        self.sent = 0;
    }

    fn send(&mut self, port: u16, datagram: &[u8]) -> &mut Self {
        self.send_on(path(port), datagram)
    }

    fn send_on(&mut self, path: Path, datagram: &[u8]) -> &mut Self {
        self.sent += 1;
        let decision = self.door.handle_datagram(self.now, path, Ecn::Ect0, datagram);
        self.act();
        match decision {
            Decision::Forward(key) => {
                let port = self.socket(key, path.remote.port());
                self.seen.push(Seen::Cover(port, datagram.to_vec()));
            }
            Decision::Pass => self
                .seen
                .push(Seen::Passed(path.remote.port(), datagram.to_vec())),
            Decision::Held | Decision::Dropped => {}
        }
        self.last = Some(decision);
        self.check();
        self
    }

    /// The cover answers this client.
    fn answer(&mut self, port: u16, datagram: &[u8]) -> &mut Self {
        let (key, _) = *self
            .sockets
            .iter()
            .find(|(_, of)| *of == port)
            .expect("the cover heard of it");
        if let Some(path) = self.door.handle_answer(self.now, key, Ecn::NotEct, datagram) {
            self.seen
                .push(Seen::Client(path.remote.port(), datagram.to_vec()));
        }
        self.act();
        self
    }

    /// Time passes, with all that is due.
    fn wait(&mut self, time: Duration) -> &mut Self {
        let end = self.now.instant + time;
        while let Some(due) = self.door.poll_timeout().filter(|due| *due <= end) {
            let passed = due.saturating_duration_since(self.now.instant);
            self.now.instant += passed;
            self.door.handle_timeout(self.now);
            assert!(self.door.poll_timeout() > Some(due) || self.door.poll_timeout().is_none());
            self.act();
        }
        self.now.instant = end;
        self.now.unix += time.as_secs() as u32;
        self
    }

    fn act(&mut self) {
        while let Some(action) = self.door.poll_action() {
            match action {
                Action::Forward(key, datagram) => {
                    let port = self.socket(key, 0);
                    assert_eq!(datagram.ecn, Ecn::Ect0);
                    self.seen.push(Seen::Cover(port, datagram.bytes));
                }
                Action::Answer(path, datagram) => {
                    self.seen.push(Seen::Client(path.remote.port(), datagram.bytes));
                }
                Action::Close(key) => {
                    let place = self.sockets.iter().position(|(of, _)| *of == key);
                    let (_, port) = self.sockets.remove(place.expect("only open sockets are closed"));
                    self.seen.push(Seen::Closed(port));
                }
                Action::Record { flow, tag, time } => {
                    self.records.push((flow, tag, time));
                    if !self.is_disk_slow {
                        self.record();
                    }
                }
                Action::TakeOver(taken) => {
                    assert_eq!(*taken.destination_id, DESTINATION_ID);
                    assert_eq!(taken.recognised.sid, user().sid);
                    let datagrams = taken.datagrams.into_iter().map(|datagram| datagram.bytes);
                    let port = taken.path.remote.port();
                    self.seen.push(Seen::TakenOver(port, datagrams.collect()));
                }
            }
        }
        self.check();
    }

    /// The disk has written.
    fn record(&mut self) {
        for (flow, tag, time) in std::mem::take(&mut self.records) {
            let accepted = self.replays.accept(self.now.unix, &tag, time);
            if let Ok(record) = accepted {
                self.file.extend_from_slice(&record);
            }
            self.door.handle_recorded(self.now, flow, &tag, accepted.is_ok());
        }
    }

    /// The client of an open socket; `port` is who it is where it was not open.
    fn socket(&mut self, key: FlowKey, port: u16) -> u16 {
        if let Some((_, port)) = self.sockets.iter().find(|(of, _)| *of == key) {
            return *port;
        }
        let of = self
            .door
            .flows
            .get(key)
            .map_or(port, |flow| flow.path.remote.port());
        self.sockets.push((key, of));
        of
    }

    /// Every datagram of a client is somewhere.
    fn check(&self) {
        let counters = self.door.counters();
        let waiting: usize = self.waiting().map(|(_, count)| count).sum();
        let all = counters.passed
            + counters.forged
            + counters.relayed
            + counters.taken
            + counters.shed
            + counters.discarded
            + waiting as u64;
        assert_eq!(all, self.sent, "{counters:?}, {waiting} waiting");
        let held: usize = self.waiting().map(|(bytes, _)| bytes).sum();
        assert_eq!(held, self.door.held_bytes());
        assert!(held <= limits::HELD_BYTES_MAX && self.door.flows() <= limits::FLOWS_MAX);
    }

    /// By flow: bytes that wait, and datagrams that went nowhere by now.
    fn waiting(&self) -> impl Iterator<Item = (usize, usize)> {
        let keys = self.door.deadlines.iter().map(|(_, key)| *key);
        keys.filter_map(|key| {
            let flow = self.door.flows.get(key)?;
            let count = match &flow.stage {
                Stage::Relayed => 0,
                Stage::Reading(reading) => reading.held.len() - reading.relayed,
                Stage::Deciding(deciding) => deciding.held.len() - deciding.relayed,
            };
            Some((flow.held_bytes(), count))
        })
    }

    /// What was seen since the last call.
    fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }
}

fn cover(port: u16, datagrams: &[Vec<u8>]) -> Vec<Seen> {
    datagrams
        .iter()
        .map(|datagram| Seen::Cover(port, datagram.clone()))
        .collect()
}

fn taken(port: u16, datagrams: &[&Vec<u8>]) -> Seen {
    Seen::TakenOver(port, datagrams.iter().map(|one| (*one).clone()).collect())
}

const MILLISECOND: Duration = Duration::from_millis(1);
