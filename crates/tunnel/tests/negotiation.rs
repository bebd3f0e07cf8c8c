//! Local TCP connections that name their target themselves, by a protocol of one line: `HOST:PORT`, to which the client
//! answers `yes`, or `no` and the reason. An empty line is answered with what is wanted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use packet_io::SocketOptions;
use quic::SteerKey;
use support::{LIMIT, client_config, connected, listening, server_config};
use tunnel::carrier::{Carrier, Carriers, UdpOrTcp};
use tunnel::config::{ClientConfig, Forward, Proxy};
use tunnel::handle::Handle;
use tunnel::limits;
use tunnel::snapshot::Snapshot;
use tunnel_proto::{Negotiation, NotOpened, Progress, Protocol, Socks};

struct Line;

impl Negotiation for Line {
    fn handle_received(&mut self, received: &mut BytesMut, answer: &mut BytesMut) -> Progress {
        while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let line = received.split_to(end);
            received.advance(1);
            if line.is_empty() {
                answer.extend_from_slice(b"HOST:PORT\n");
                continue;
            }
            return match std::str::from_utf8(&line).ok().and_then(|line| line.parse().ok()) {
                Some(target) => Progress::Named(target),
                None => {
                    answer.extend_from_slice(b"no: not a target\n");
                    Progress::Refused
                }
            };
        }
        Progress::Unfinished
    }

    fn handle_opened(&mut self, answer: &mut BytesMut) {
        answer.extend_from_slice(b"yes\n");
    }

    fn handle_failed(&mut self, failure: NotOpened, answer: &mut BytesMut) {
        let reason = match failure {
            NotOpened::TooLong => "too long".to_owned(),
            NotOpened::TooLate => "too late".to_owned(),
            NotOpened::NoTunnel => "no tunnel".to_owned(),
            NotOpened::NoRelay => "no relay".to_owned(),
            NotOpened::Refused { status, error } => {
                format!("{status} {}", error.map_or("", |error| error.token()))
            }
        };
        answer.extend_from_slice(format!("no: {reason}\n").as_bytes());
    }
}

/// A client with two shards of which one has a stripe, and takes what comes to the other one.
fn start_with_one_stripe(mut config: ClientConfig) -> Handle {
    config.common.connections = Some(2);
    let carriers: Arc<dyn Carriers> = Arc::new(OneStripe::default());
    let client = tunnel::client::start_over(config, &carriers).unwrap();
    connected(&client);
    // Until then the other shard keeps what comes to it for a stripe of its own.
    std::thread::sleep(tunnel_proto::limits::STRIPE_GRACE);
    client
}

/// A listener of this protocol at a free port.
fn line_proxy() -> Proxy {
    Proxy {
        listen: free_port(),
        negotiator: Arc::new(|| Box::new(Line)),
    }
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// A target that sends back what it receives, and closes after its client has.
fn echo_target() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut back = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut &stream, &mut back);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

/// A server, and its client with one proxy.
struct Tunnel {
    _server: Handle,
    client: Handle,
    proxy: SocketAddr,
}

impl Tunnel {
    fn start() -> Self {
        let (config, pin) = server_config();
        let server = tunnel::server::start(config).unwrap();
        let proxy = line_proxy();
        let client = tunnel::client::start(ClientConfig {
            proxies: vec![proxy.clone()],
            ..client_config(listening(&server), pin)
        });
        let client = client.unwrap();
        connected(&client);
        Self {
            _server: server,
            client,
            proxy: proxy.listen,
        }
    }

    fn connect(&self) -> TcpStream {
        connect(self.proxy)
    }

    fn snapshot(&self) -> Snapshot {
        self.client.controller().snapshot().unwrap()
    }

    /// Waits until no local connection is left, in whatever state.
    fn settled(&self) -> Snapshot {
        let deadline = Instant::now() + LIMIT;
        loop {
            let snapshot = self.snapshot();
            let open = |kind| snapshot.sources.get(kind).map_or(0, |counters| counters.open);
            if snapshot.tcp.open + open("negotiation") + open("farewell") == 0 {
                return snapshot;
            }
            assert!(Instant::now() < deadline, "{:?}", snapshot.sources);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn connect(proxy: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(proxy).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn read_exactly(stream: &mut TcpStream, expected: &str) {
    let mut read = vec![0; expected.len()];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(String::from_utf8_lossy(&read), expected);
}

/// Reads to an orderly end.
fn read_rest(stream: &mut TcpStream) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn a_line_that_comes_byte_by_byte_opens_its_target_and_each_side_ends_on_its_own() {
    let (tunnel, target) = (Tunnel::start(), echo_target());
    let mut local = tunnel.connect();
    local.write_all(b"\n").unwrap();
    read_exactly(&mut local, "HOST:PORT\n");
    for byte in format!("{target}\n").bytes() {
        let events = tunnel.snapshot().sources["negotiation"].events;
        local.write_all(&[byte]).unwrap();
        let deadline = Instant::now() + LIMIT;
        while tunnel.snapshot().sources["negotiation"].events == events {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    read_exactly(&mut local, "yes\n");
    local.write_all(b"hello").unwrap();
    read_exactly(&mut local, "hello");
    local.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_rest(&mut local), "");
    let tcp = tunnel.settled().tcp;
    assert_eq!((tcp.total, tcp.failed), (1, 0));
    // The negotiation is no content.
    assert_eq!((tcp.bytes_in, tcp.bytes_out), (5, 5));
}

#[test]
fn what_follows_the_line_at_once_reaches_the_target_first_and_whole() {
    let (tunnel, target) = (Tunnel::start(), echo_target());
    let line = format!("\n{target}\n");
    for len in [1, 1_000, 16_000, 3_000_000] {
        let mut local = tunnel.connect();
        let content: Vec<u8> = (0..len).map(|index: u32| (index % 251) as u8).collect();
        let mut writer = local.try_clone().unwrap();
        let sent = [line.as_bytes(), &content].concat();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        read_exactly(&mut local, "HOST:PORT\nyes\n");
        let mut echoed = Vec::new();
        local.read_to_end(&mut echoed).unwrap();
        assert!(echoed == content, "{} of {len} bytes", echoed.len());
        writing.join().unwrap();
    }
    let tcp = tunnel.settled().tcp;
    assert_eq!((tcp.total, tcp.failed), (4, 0));
    assert_eq!((tcp.bytes_in, tcp.bytes_out), (3_017_001, 3_017_001));
}

#[test]
fn a_program_hears_why_it_gets_no_connection_whatever_it_still_sends() {
    let tunnel = Tunnel::start();
    let nobody = free_port();
    let endless = "a".repeat(200_000);
    let refused = [
        ("nonsense\n".to_owned(), "no: not a target\n"),
        (endless, "no: too long\n"),
        (format!("{nobody}\nand more"), "no: 502 connection_refused\n"),
        (
            "[::1]:9\nand more".to_owned(),
            "no: 502 destination_ip_prohibited\n",
        ),
        (
            format!("\n\n{nobody}\n"),
            "HOST:PORT\nHOST:PORT\nno: 502 connection_refused\n",
        ),
    ];
    for (sent, expected) in &refused {
        let mut local = tunnel.connect();
        local.write_all(sent.as_bytes()).unwrap();
        assert_eq!(read_rest(&mut local), *expected);
    }
    let gone = tunnel.connect();
    (&gone).write_all(b"127.0.0").unwrap();
    drop(gone);
    let snapshot = tunnel.settled();
    assert_eq!((snapshot.tcp.total, snapshot.tcp.failed), (6, 6));
    assert_eq!(snapshot.sources["negotiation"].total, 6);
    assert_eq!(snapshot.sources["tcp_listener"].open, 1);
}

#[test]
fn a_program_that_names_no_target_in_time_hears_so_and_delays_nobody() {
    let (tunnel, target) = (Tunnel::start(), echo_target());
    let (mut silent, mut halting) = (tunnel.connect(), tunnel.connect());
    halting.write_all(b"127.0.0").unwrap();
    let mut other = tunnel.connect();
    other.write_all(format!("{target}\nhello").as_bytes()).unwrap();
    read_exactly(&mut other, "yes\nhello");
    assert_eq!(tunnel.snapshot().sources["negotiation"].open, 2);
    assert_eq!(read_rest(&mut silent), "no: too late\n");
    assert_eq!(read_rest(&mut halting), "no: too late\n");
    other.write_all(b" again").unwrap();
    read_exactly(&mut other, " again");
    // They are held until the program lets go, but not for ever.
    let deadline = Instant::now() + LIMIT;
    while tunnel.snapshot().sources["farewell"].open > 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    let sources = tunnel.snapshot().sources;
    assert_eq!(
        (sources["negotiation"].deadlines, sources["farewell"].deadlines),
        (2, 2)
    );
    assert_eq!(tunnel.snapshot().tcp.open, 1);
}

#[test]
fn without_a_tunnel_a_program_hears_so() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = line_proxy();
    let client = tunnel::client::start(ClientConfig {
        proxies: vec![proxy.clone()],
        ..client_config(silent.local_addr().unwrap(), [0; 32])
    });
    let client = client.unwrap();
    let mut local = connect(proxy.listen);
    local.write_all(b"example.com:80\nGET /").unwrap();
    assert_eq!(read_rest(&mut local), "no: no tunnel\n");
    drop(local);
    let tcp = client.controller().snapshot().unwrap().tcp;
    assert_eq!((tcp.total, tcp.failed), (1, 1));
}

/// UDP that lets one stripe out and no other.
#[derive(Default)]
struct OneStripe(AtomicBool);

impl Carriers for OneStripe {
    fn listen(
        &self,
        listen: SocketAddr,
        count: usize,
        key: &SteerKey,
        options: &SocketOptions,
    ) -> std::io::Result<Vec<Box<dyn Carrier>>> {
        UdpOrTcp::default().listen(listen, count, key, options)
    }

    fn connect(
        &self,
        local: Option<SocketAddr>,
        server: SocketAddr,
        options: &SocketOptions,
    ) -> std::io::Result<Box<dyn Carrier>> {
        if self.0.swap(true, Ordering::Relaxed) {
            return Err(ErrorKind::NetworkUnreachable.into());
        }
        UdpOrTcp::default().connect(local, server, options)
    }
}

#[test]
fn connections_of_both_kinds_go_to_a_sibling_where_the_stripe_is_down() {
    /// Of so many connections, none comes to one of two listeners once in 2^32 runs.
    const CONNECTIONS: usize = 32;
    let target = echo_target();
    let (config, pin) = server_config();
    let server = tunnel::server::start(config).unwrap();
    let (proxy, fixed) = (line_proxy(), free_port());
    let config = ClientConfig {
        proxies: vec![proxy.clone()],
        forwards: vec![Forward {
            protocol: Protocol::Tcp,
            listen: fixed,
            host: target.ip().to_string(),
            port: target.port(),
        }],
        ..client_config(listening(&server), pin)
    };
    let client = start_with_one_stripe(config);
    let mut given = 0;
    for (listener, named, answer) in [
        (fixed, String::new(), ""),
        (proxy.listen, format!("{target}\n"), "yes\n"),
    ] {
        for _ in 0..CONNECTIONS {
            let mut local = connect(listener);
            local.write_all(format!("{named}hello").as_bytes()).unwrap();
            local.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_rest(&mut local), format!("{answer}hello"));
        }
        let snapshot = client.controller().snapshot().unwrap();
        let before = given;
        given = snapshot.shards.iter().map(|shard| shard.handover.given).sum();
        assert!(given > before, "none went to the sibling");
    }
    let snapshot = client.controller().snapshot().unwrap();
    assert_eq!(snapshot.state, "connected");
    // A connection counts once, wherever it was accepted.
    assert_eq!(
        (snapshot.tcp.total, snapshot.tcp.failed),
        (2 * CONNECTIONS as u64, 0)
    );
}

/// A SOCKS5 listener.
fn socks_proxy(listen: SocketAddr) -> Proxy {
    Proxy {
        listen,
        negotiator: Arc::new(|| Box::new(Socks::default())),
    }
}

/// A connection of SOCKS5 whose association is there, and a socket that sends to its relay alone.
fn associate(proxy: SocketAddr) -> (TcpStream, UdpSocket) {
    let mut control = connect(proxy);
    control
        .write_all(b"\x05\x01\0\x05\x03\0\x01\0\0\0\0\0\0")
        .unwrap();
    // The relay is at the address that the connection came in on.
    let (kind, host) = match proxy.ip() {
        IpAddr::V4(ip) => (1, ip.octets().to_vec()),
        IpAddr::V6(ip) => (4, ip.octets().to_vec()),
    };
    let mut answer = vec![0; 8 + host.len()];
    control.read_exact(&mut answer).unwrap();
    let (begin, port) = answer.split_last_chunk::<2>().unwrap();
    assert_eq!(*begin, [&[5, 0, 5, 0, 0, kind][..], &host].concat());
    // From where the connection comes, which need not be where it leads.
    let own = control.local_addr().unwrap().ip();
    let socket = UdpSocket::bind((own, 0)).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.connect((proxy.ip(), u16::from_be_bytes(*port))).unwrap();
    (control, socket)
}

/// A datagram for a target that sends back what it receives.
fn to_udp_echo() -> Vec<u8> {
    let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = target.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((length, source)) = target.recv_from(&mut datagram) {
            let _ = target.send_to(&datagram[..length], source);
        }
    });
    [&b"\0\0\0\x01\x7f\0\0\x01"[..], &port.to_be_bytes(), b"hello"].concat()
}

fn assert_echoed(socket: &UdpSocket, sent: &[u8]) {
    socket.send(sent).unwrap();
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer).unwrap();
    assert_eq!(answer[..length], *sent);
}

#[test]
fn an_association_is_at_the_address_that_its_connection_came_in_on() {
    let sent = to_udp_echo();
    let (config, pin) = server_config();
    let server = tunnel::server::start(config).unwrap();
    // All addresses of both IP versions.
    let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, free_port().port()));
    let client = tunnel::client::start(ClientConfig {
        proxies: vec![socks_proxy(listen)],
        ..client_config(listening(&server), pin)
    });
    let client = client.unwrap();
    connected(&client);
    for host in ["127.0.0.1", "127.0.0.3", "::1"] {
        let proxy = SocketAddr::new(host.parse().unwrap(), listen.port());
        let (_control, socket) = associate(proxy);
        assert_echoed(&socket, &sent);
    }
}

#[test]
fn associations_go_to_a_sibling_where_the_stripe_is_down() {
    /// Of so many connections, none comes to one of two listeners once in 2^32 runs.
    const ASSOCIATIONS: usize = 32;
    let sent = to_udp_echo();
    let (config, pin) = server_config();
    let server = tunnel::server::start(config).unwrap();
    let proxy = socks_proxy(free_port());
    let config = ClientConfig {
        proxies: vec![proxy.clone()],
        ..client_config(listening(&server), pin)
    };
    let client = start_with_one_stripe(config);
    let associations: Vec<_> = (0..ASSOCIATIONS).map(|_| associate(proxy.listen)).collect();
    for (_, socket) in &associations {
        assert_echoed(socket, &sent);
    }
    let snapshot = client.controller().snapshot().unwrap();
    let given: u64 = snapshot.shards.iter().map(|shard| shard.handover.given).sum();
    assert!(given > 0, "none went to the sibling");
    assert_eq!(snapshot.sources["association"].open, ASSOCIATIONS as u64);
    assert_eq!((snapshot.tcp.open, snapshot.tcp.failed), (0, 0));
    drop(associations);
    let deadline = Instant::now() + LIMIT;
    while client.controller().snapshot().unwrap().sources["association"].open > 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn new_targets_find_room_where_an_association_has_as_many_sessions_as_it_may() {
    const MORE: usize = 50;
    let (config, pin) = server_config();
    let server = tunnel::server::start(config).unwrap();
    let proxy = socks_proxy(free_port());
    let client = tunnel::client::start(ClientConfig {
        proxies: vec![proxy.clone()],
        ..client_config(listening(&server), pin)
    });
    let client = client.unwrap();
    connected(&client);
    let (_control, socket) = associate(proxy.listen);
    let snapshot = || client.controller().snapshot().unwrap();
    let deadline = Instant::now() + LIMIT;
    let targets = limits::ASSOCIATION_SESSIONS_MAX + MORE;
    for number in 0..targets as u16 {
        // Addresses that the server refuses, so that no sockets are needed there; the client holds them a while.
        let [high, low] = number.to_be_bytes();
        socket
            .send(&[0, 0, 0, 1, 169, 254, high, low, 0, 9, b'x'])
            .unwrap();
        // A socket's buffer does not hold them all.
        while number % 50 == 49 && snapshot().udp_sessions.total <= u64::from(number) {
            assert!(Instant::now() < deadline);
        }
        assert!(number % 50 != 49 || snapshot().udp_sessions.open <= limits::ASSOCIATION_SESSIONS_MAX as u64);
    }
    let udp_sessions = snapshot().udp_sessions;
    assert!(
        udp_sessions.total > limits::ASSOCIATION_SESSIONS_MAX as u64,
        "{udp_sessions:?}"
    );
}
