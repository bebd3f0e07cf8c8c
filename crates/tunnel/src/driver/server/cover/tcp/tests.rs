//! Connections through the thread to a web server of a few lines, by real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener as StdListener, TcpStream as StdStream};

use super::*;

/// For whatever should happen at once, on any machine.
const LIMIT: Duration = Duration::from_secs(60);

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A cover that treats each connection so, and what passes connections on to it.
struct Scene {
    splice: CoverTcp,
    front: SocketAddr,
}

impl Scene {
    fn new(idle: Duration, treat: impl Fn(StdStream) + Send + Sync + 'static) -> Self {
        let web = StdListener::bind((LOCAL, 0)).unwrap();
        let port = web.local_addr().unwrap().port();
        let treat = Arc::new(treat);
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in web.incoming().flatten() {
                let treat = Arc::clone(&treat);
                thread::spawn(move || treat(stream));
            }
        });
        Self::before(port, idle)
    }

    /// In front of what listens at `port`, if anything does.
    fn before(port: u16, idle: Duration) -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let cover = Arc::new(CoverAddress::new("127.0.0.1", port, listen, None));
        let (splice, bound, warnings) = CoverTcp::start(cover, LOCAL, &[(0, port)], idle).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        Self {
            splice,
            front: bound[0],
        }
    }

    fn connect(&self) -> StdStream {
        let stream = StdStream::connect(self.front).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Waits until the counters say so.
    fn wait(&self, is_so: impl Fn(CoverTcpCounters) -> bool) -> CoverTcpCounters {
        let deadline = Instant::now() + LIMIT;
        loop {
            let counters = self.splice.counters();
            if is_so(counters) {
                return counters;
            }
            assert!(Instant::now() < deadline, "{counters:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Reads all that the client sends, and only then answers with ten times as much.
fn answer_tenfold(mut stream: StdStream) {
    let mut request = Vec::new();
    stream.read_to_end(&mut request).unwrap();
    for _ in 0..10 {
        stream.write_all(&request).unwrap();
    }
}

fn is_reset(stream: &mut StdStream) -> bool {
    let mut byte = [0];
    stream
        .read(&mut byte)
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn bytes_and_the_end_of_each_direction_are_passed_on() {
    let scene = Scene::new(LIMIT, answer_tenfold);
    let mut client = scene.connect();
    // More than all buffers on the way hold.
    let request: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    client.write_all(&request).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer == request.repeat(10));
    let counters = scene.wait(|counters| counters.open == 0);
    assert_eq!(
        counters,
        CoverTcpCounters {
            total: 1,
            bytes_to_cover: 1_000_000,
            bytes_from_cover: 10_000_000,
            ..CoverTcpCounters::default()
        }
    );
}

#[test]
fn a_reset_of_the_cover_is_passed_on() {
    let scene = Scene::new(LIMIT, |mut stream| {
        // The connection stands at both ends by then.
        stream.read_exact(&mut [0]).unwrap();
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let mut client = scene.connect();
    client.write_all(b"x").unwrap();
    assert!(is_reset(&mut client));
    let counters = scene.wait(|counters| counters.reset == 1);
    assert_eq!((counters.total, counters.failed), (1, 0));
}

#[test]
fn a_cover_that_does_not_listen_resets() {
    let unused = StdListener::bind((LOCAL, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let scene = Scene::before(unused, LIMIT);
    assert!(is_reset(&mut scene.connect()));
    scene.wait(|counters| counters.failed == 1 && counters.open == 0);
}

#[test]
fn a_network_has_no_more_connections_than_its_part() {
    let scene = Scene::new(LIMIT, answer_tenfold);
    let mut held: Vec<_> = (0..limits::COVER_STREAMS_PER_PREFIX)
        .map(|_| scene.connect())
        .collect();
    scene.wait(|counters| counters.total == limits::COVER_STREAMS_PER_PREFIX as u64);
    assert!(is_reset(&mut scene.connect()));
    scene.wait(|counters| counters.over_limit == 1);
    // One that ends makes room.
    let mut first = held.remove(0);
    first.shutdown(Shutdown::Write).unwrap();
    first.read_to_end(&mut Vec::new()).unwrap();
    scene.wait(|counters| counters.open < limits::COVER_STREAMS_PER_PREFIX as u64);
    let mut later = scene.connect();
    later.write_all(b"x").unwrap();
    later.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    later.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"xxxxxxxxxx");
}

#[test]
fn a_connection_that_moves_nothing_for_long_is_reset() {
    let scene = Scene::new(Duration::from_millis(50), answer_tenfold);
    assert!(is_reset(&mut scene.connect()));
    scene.wait(|counters| counters.reset == 1 && counters.open == 0);
}

#[test]
fn a_port_in_use_is_told_and_the_others_are_had() {
    let taken = StdListener::bind((LOCAL, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let cover = Arc::new(CoverAddress::new("127.0.0.1", 443, listen, None));
    let (_splice, bound, warnings) = CoverTcp::start(cover, LOCAL, &[(port, 443), (0, 80)], LIMIT).unwrap();
    assert_eq!(bound.len(), 1);
    assert!(
        warnings[0].starts_with(&format!("TCP port {port} cannot be had")),
        "{warnings:?}"
    );
    assert!(warnings[0].contains("--no-cover-tcp"));
}
