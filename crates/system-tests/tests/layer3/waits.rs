//! A packet thread never waits: not for a disk, not for a program of the host, not for name servers.
//!
//! Two tunnels do the same at the same time. Datagrams cross them every 10 ms, through a forward and through the TUN,
//! while the client gives its name servers to `resolvectl`, has 500 names asked for, and other clients come and go with
//! new leases, which the server writes down. What is outside answers the first tunnel at once. For the second a sync of
//! a file takes 2 s, `resolvectl` hangs for the 5 s that it is given, and no name has an answer.
//!
//! How long datagrams wait beyond 50 ms is added up for each tunnel. On an idle machine that is nothing; on a busy one
//! it is about the same for both, because each pair of datagrams is sent at the same moment and both tunnels have the
//! same work. What the second has more is due to the outside. Of a flow that crosses a shard which waits for 2 s, the
//! shortest wait there is, 195 datagrams wait for a second on average, and each run has several such waits. What is
//! allowed for chance is a fortieth of one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use system_tests::service::Service;
use system_tests::source::Source;
use system_tests::tunnel::with_mounts;
use system_tests::{require_program, require_root};
use testbed::limits::POLL_INTERVAL;
use testbed::wait::holds_within;

use super::dns::{resolved, with_resolvectl};
use super::*;
use crate::scene::load;

/// Between two datagrams of a flow.
const INTERVAL: Duration = Duration::from_millis(10);

/// A datagram that has no answer by then is late.
const LATE: Duration = Duration::from_millis(50);

/// What datagrams of one kind may wait beyond [`LATE`] by chance, added up: a machine that stands still for 0.7 s once.
/// The shortest that the outside takes, a sync of 2 s, would make 400 s of it.
const EXCESS_BY_CHANCE: Duration = Duration::from_secs(60);

/// On a busy machine, how many times as long as beside it.
const EXCESS_RATIO_MAX: u32 = 3;

/// Flows of each kind: whichever shard has them, each shard's turns are seen by some of them.
const FLOWS: usize = 2;

/// Names that are asked for.
const NAMES: u16 = 500;

/// The first port of the forwards to these names.
const FIRST_PORT: u16 = 20_000;

/// Syncs of the file of leases that the flows outlast.
const SYNCS: usize = 3;

/// Where the server's machine has its name server.
const NAME_SERVER: &str = "127.0.0.2";

/// For all that to pass: the longest is a name without an answer, 8 s.
const OUTSIDE_LIMIT: Duration = Duration::from_secs(120);

/// How long the world around a tunnel takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Quick,
    Slow,
}

impl Outside {
    /// Words that start the server: its name server, and syncs of files as long as they take here, each with a line in
    /// the file `syncs`.
    fn around_server(self, syncs: &Path, directory: &Directory) -> Vec<String> {
        let resolv = directory.join("resolv.server");
        fs::write(&resolv, format!("nameserver {NAME_SERVER}\n")).unwrap();
        let delay = match self {
            Self::Quick => "1",
            Self::Slow => "2000000",
        };
        let mut words = with_mounts(&format!("mount --bind '{}' /etc/resolv.conf", resolv.display()));
        // The tracer is a grandchild, and only the calls that it delays stop for it.
        let strace = "strace --daemonize --follow-forks --seccomp-bpf --signal=none --quiet=all --output";
        words.extend(strace.split(' ').map(str::to_owned));
        words.push(syncs.display().to_string());
        // Leases are synced by fdatasync, and files of the start, for which nobody waits here, by fsync.
        words.push("--trace=fdatasync".to_owned());
        words.push(format!("--inject=fdatasync:delay_enter={delay}"));
        words
    }

    /// What `resolvectl` does.
    fn resolvectl(self) -> &'static str {
        match self {
            Self::Quick => "echo begun >>$TOLD",
            Self::Slow => "echo begun >>$TOLD; exec sleep 60",
        }
    }
}

/// A server and its world. Processes end before their machines, and files go last.
struct World {
    outside: Outside,
    server: Server,
    /// Names that the name server was asked for.
    asked: Arc<Mutex<BTreeSet<Vec<u8>>>>,
    /// A line for each sync of a file.
    syncs: PathBuf,
    _services: [Service; 4],
    machines: Machines,
    directory: Directory,
}

impl World {
    fn new(outside: Outside) -> Self {
        let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
        let syncs = directory.join("syncs");
        let options = [&POOLS[..], &["--nat", "--allow-target", "127.0.0.0/8"]].concat();
        let wrapper = outside.around_server(&syncs, &directory);
        let (place, files) = (machines.server.place(), directory.path());
        let server = Server::start_by(&wrapper, &place, "server", LISTEN, &options, files);
        let asked = Arc::default();
        let services = [
            Service::udp_echo(&machines.server, "127.0.0.1:7"),
            Service::udp_echo(&machines.server, &format!("{SERVER_V4}:7")),
            name_server(&machines.server, outside, Arc::clone(&asked)),
            resolved(&machines.first),
        ];
        Self {
            outside,
            server,
            asked,
            syncs,
            _services: services,
            machines,
            directory,
        }
    }

    /// Starts the client whose datagrams are watched. It calls `resolvectl` as soon as it has a TUN.
    fn connect(&self) -> Client {
        let (wrapper, _) = with_resolvectl(self.outside.resolvectl(), &self.directory);
        let names = (0..NAMES).map(|number| format!("udp:{}=name-{number}.test:9", FIRST_PORT + number));
        let forwards: Vec<_> = names.chain(["udp:7=127.0.0.1:7".to_owned()]).collect();
        let forwards: Vec<_> = forwards.iter().map(String::as_str).collect();
        let options = [TUN, "--default-route", "--dns", SERVER_V4];
        let (place, link) = (self.machines.first.place(), self.server.link());
        let files = self.directory.path();
        let mut client =
            Client::start_unconnected_by(&wrapper, &place, "client", &link, &forwards, &options, files);
        client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
        client
    }

    /// Lets clients come, get a lease and go.
    fn run_guests(&self, stop: &AtomicBool) {
        let (place, link) = (self.machines.second.place(), self.server.link());
        for number in 0_u32.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let (name, files) = (format!("guest-{number}"), self.directory.path());
            let mut guest = Client::start(&place, &name, &link, &[], &[TUN], files);
            guest.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
            guest.stop();
        }
    }

    /// Has each name asked for, by a datagram of its own.
    fn ask_names(&self) {
        let machine = &self.machines.first;
        let socket = machine.inside(|| UdpSocket::bind("127.0.0.1:0").unwrap());
        for port in FIRST_PORT..FIRST_PORT + NAMES {
            socket.send_to(b"who is it", ("127.0.0.1", port)).unwrap();
        }
    }

    /// Syncs of files that are over.
    fn syncs(&self) -> usize {
        let text = fs::read_to_string(&self.syncs).unwrap_or_default();
        text.lines().filter(|line| line.contains("(DELAYED)")).count()
    }

    /// Waits until the outside has taken its time for everything: for syncs that began after this call, `resolvectl`,
    /// and all names.
    fn wait_for_outside(&self, client: &mut Client) {
        let syncs = self.syncs() + 1 + SYNCS;
        wait_until("syncs of leases", OUTSIDE_LIMIT, || self.syncs() >= syncs);
        wait_until("the end of resolvectl", OUTSIDE_LIMIT, || {
            let warning = "systemd-resolved did not take";
            self.outside == Outside::Quick || client.process().stderr().contains(warning)
        });
        wait_until("questions for all names", OUTSIDE_LIMIT, || {
            self.asked.lock().unwrap().len() >= usize::from(NAMES)
        });
        wait_until("the end of all names", OUTSIDE_LIMIT, || {
            self.server.status()["udp_sessions"]["open"].as_u64() <= Some(FLOWS as u64)
        });
    }
}

/// A name server that knows no name, or never says so; it enters what it is asked for in `asked`.
fn name_server(machine: &Namespace, outside: Outside, asked: Arc<Mutex<BTreeSet<Vec<u8>>>>) -> Service {
    let address = format!("{NAME_SERVER}:53");
    Service::udp(machine, &address, move |socket, question, source| {
        // The header has 12 bytes; behind it stands the name, which ends with an empty label (RFC 1035 section 4.1).
        let Some(name) = question
            .get(12..)
            .and_then(|rest| rest.split(|byte| *byte == 0).next())
        else {
            return;
        };
        asked.lock().unwrap().insert(name.to_owned());
        if outside == Outside::Quick {
            let mut answer = question.to_vec();
            // An answer, and the name does not exist.
            (answer[2], answer[3]) = (answer[2] | 0x80, 3);
            socket.send_to(&answer, source).unwrap();
        }
    })
}

/// Datagrams of one source, which are answered.
struct Flow {
    socket: UdpSocket,
    /// By number, when the answer came.
    answered: Mutex<BTreeMap<usize, Instant>>,
}

/// What became of the datagrams of some flows.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sent: usize,
    lost: usize,
    longest: Duration,
    /// What they waited beyond [`LATE`], added up.
    excess: Duration,
}

impl Flow {
    /// A flow that has had an answer.
    fn open(machine: &Namespace, listener: &str) -> Self {
        let mut source = Source::new(machine, listener);
        source.ask(b"are you there", PROGRAM_LIMIT);
        let socket = source.socket().try_clone().unwrap();
        socket.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        Self {
            socket,
            answered: Mutex::default(),
        }
    }

    fn receive(&self, stop: &AtomicBool) {
        let mut number = [0; size_of::<usize>()];
        while !stop.load(Ordering::Relaxed) {
            if self
                .socket
                .recv(&mut number)
                .is_ok_and(|length| length == number.len())
            {
                let mut answered = self.answered.lock().unwrap();
                answered
                    .entry(usize::from_ne_bytes(number))
                    .or_insert_with(Instant::now);
            }
        }
    }

    fn add_to(&self, tally: &mut Tally, sent: &[Instant]) {
        let answered = self.answered.lock().unwrap();
        for (number, sent) in sent.iter().enumerate() {
            tally.sent += 1;
            let Some(answered) = answered.get(&number) else {
                tally.lost += 1;
                continue;
            };
            let wait = answered.duration_since(*sent);
            tally.longest = tally.longest.max(wait);
            tally.excess += wait.saturating_sub(LATE);
        }
    }
}

/// Sends the next datagram of each flow, all at once, in every interval. When each was sent.
fn send(flows: &[Flow], stop: &AtomicBool) -> Vec<Instant> {
    let mut sent: Vec<Instant> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Some(last) = sent.last() {
            thread::sleep((*last + INTERVAL).saturating_duration_since(Instant::now()));
        }
        let number = sent.len().to_ne_bytes();
        sent.push(Instant::now());
        for flow in flows {
            // A refusal is like a loss.
            let _ = flow.socket.send(&number);
        }
    }
    sent
}

/// Sets it when it is dropped, after a panic too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has datagrams of all flows sent and answered while the clients' worlds take their time. When each was sent.
fn run(worlds: &[World; 2], clients: &mut [Client; 2], flows: &[Flow]) -> Vec<Instant> {
    let (is_over, is_answered) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (over, answered) = (SetOnDrop(&is_over), SetOnDrop(&is_answered));
        for flow in flows {
            scope.spawn(|| flow.receive(&is_answered));
        }
        let sender = scope.spawn(|| send(flows, &is_over));
        for world in worlds {
            scope.spawn(|| world.run_guests(&is_over));
            world.ask_names();
        }
        for (world, client) in worlds.iter().zip(clients) {
            world.wait_for_outside(client);
        }
        drop(over);
        let sent = sender.join().unwrap();
        let has_all = |flow: &Flow| flow.answered.lock().unwrap().len() == sent.len();
        // What is missing then is lost.
        holds_within(PROGRAM_LIMIT, || flows.iter().all(has_all));
        drop(answered);
        sent
    })
}

#[test]
fn an_outside_that_takes_its_time_holds_up_no_datagram() {
    require_root!();
    require_program!("unshare", "strace");
    let _alone = load();
    let worlds = [Outside::Quick, Outside::Slow].map(World::new);
    let mut clients = worlds.each_ref().map(World::connect);
    let kinds = ["127.0.0.1:7".to_owned(), format!("{SERVER_V4}:7")];
    let mut flows = Vec::new();
    for (kind, world) in kinds
        .iter()
        .flat_map(|kind| worlds.each_ref().map(|world| (kind, world)))
    {
        flows.extend((0..FLOWS).map(|_| Flow::open(&world.machines.first, kind)));
    }
    let sent = run(&worlds, &mut clients, &flows);
    let tallies: Vec<_> = flows
        .chunks(FLOWS)
        .map(|flows| {
            let mut tally = Tally::default();
            flows.iter().for_each(|flow| flow.add_to(&mut tally, &sent));
            tally
        })
        .collect();
    for (kind, tallies) in kinds.iter().zip(tallies.chunks(2)) {
        let (quick, slow) = (tallies[0], tallies[1]);
        assert_eq!(slow.lost, 0, "to {kind}: {slow:?}, beside it {quick:?}");
        assert!(
            slow.excess <= EXCESS_BY_CHANCE + EXCESS_RATIO_MAX * quick.excess,
            "to {kind}: {slow:?}, beside it {quick:?}"
        );
    }
    for (client, world) in clients.iter().zip(&worlds) {
        assert_conserved(&client.status());
        assert_conserved(&world.server.status());
    }
}
