//! Raw sockets in network namespaces: over the loopback interface, and over a virtual cable between two namespaces.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    DEADLINE, address, in_namespace, options, pattern, with_capabilities, without_offloads,
    without_privileges,
};
use packet::vnet::{GsoType, VnetHeader};
use packet::{Ecn, checksum};
use packet_io::{
    Interest, Link, NeighbourSearch, Outgoing, Poller, PortGuard, RawHead, RawHeads, RawSocket, ReceiveBatch,
    ReceiveMeta, SLOT_BYTES_MAX,
};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, move_into_link_name_space};

const TCP_BYTES: usize = 20;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// A cable between this namespace (10.78.0.1, fd78::1) and another one, `peer` (10.78.0.2, fd78::2).
const CABLE: &str = "mount -t tmpfs none /run && ip netns add peer && ip link add near type veth peer name far netns peer \
     && ip address add 10.78.0.1/24 dev near && ip address add fd78::1/64 dev near nodad && ip link set near up \
     && ip -n peer address add 10.78.0.2/24 dev far && ip -n peer address add fd78::2/64 dev far nodad \
     && ip -n peer link set lo up && ip -n peer link set far up";
/// A firewall in both that drops everything but neighbour discovery.
const FIREWALLS: &str = "for at in '' 'ip netns exec peer'; do $at nft 'table inet t { \
     chain in { type filter hook input priority 0; policy drop; meta l4proto icmpv6 accept; }; \
     chain out { type filter hook output priority 0; policy drop; meta l4proto icmpv6 accept; }; }' || exit 1; \
     $at sysctl -qw net.ipv4.conf.all.rp_filter=1 || exit 1; done";

/// Works in the namespace at the other end of the cable. What it opens stays there.
fn at_the_other_end<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let there = || {
        let namespace = File::open("/run/netns/peer").unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(there).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Has an interface join segments that it receives, as network cards do; false where there is no Python to ask for it.
fn switch_on_gro(interface: &str) -> bool {
    // SIOCETHTOOL with ETHTOOL_SGRO (`linux/ethtool.h`).
    let program = "import ctypes, fcntl, socket, struct, sys\n\
         value = ctypes.create_string_buffer(struct.pack('II', 0x2c, 1))\n\
         request = struct.pack('16sP', sys.argv[1].encode(), ctypes.addressof(value))\n\
         fcntl.ioctl(socket.socket(), 0x8946, request)";
    let status = Command::new("python3").args(["-c", program, interface]).status();
    status.is_ok_and(|status| status.success())
}

fn index_of(interface: &str) -> u32 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    rustix::net::netdevice::name_to_index(&socket, interface).unwrap()
}

/// Finds the way to a neighbour.
fn link(interface: &str, from: SocketAddr, to: SocketAddr) -> Link {
    let mut search = NeighbourSearch::open(index_of(interface), from.ip(), to.ip()).unwrap();
    let deadline = Instant::now() + DEADLINE;
    loop {
        search.ask().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        if let Some(link) = search.answer() {
            return link;
        }
        assert!(Instant::now() < deadline, "no neighbour answers");
    }
}

/// Makes heads as an ordinary sender would, of one connection.
struct Heads {
    link: Link,
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    /// What was taken back.
    returned: usize,
}

impl Heads {
    fn new(link: Link, from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            link,
            from,
            to,
            sequence: 1_000,
            returned: 0,
        }
    }

    fn tcp(&self, payload: usize) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend([(TCP_BYTES as u8 / 4) << 4, ACK, 0xff, 0xff, 0, 0, 0, 0]);
        let sum = checksum::pseudo_header(self.from.ip(), self.to.ip(), 6, TCP_BYTES + payload);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        tcp
    }

    /// IP header before `upper` bytes of another protocol.
    fn ip(&self, protocol: u8, upper: usize) -> Vec<u8> {
        let mut ip = Vec::new();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                ip.extend([0x45, 0]);
                ip.extend(((20 + upper) as u16).to_be_bytes());
                ip.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                let sum = !checksum::sum(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                ip.extend([0x60, 0, 0, 0]);
                ip.extend((upper as u16).to_be_bytes());
                ip.extend([protocol, 64]);
                ip.extend(from.octets());
                ip.extend(to.octets());
            }
            _ => panic!("addresses of two versions"),
        }
        ip
    }

    fn head(&self, headers: &[u8], vnet: VnetHeader) -> RawHead {
        let mut bytes = [0; RawHead::BYTES_MAX];
        bytes[..headers.len()].copy_from_slice(headers);
        RawHead {
            link: self.link,
            vnet,
            bytes,
            len: headers.len(),
        }
    }

    fn tcp_head(&self, len: usize, segment_size: usize) -> RawHead {
        let mut headers = self.ip(6, TCP_BYTES + len);
        let checksum_start = headers.len() as u16;
        headers.extend(self.tcp(len));
        let gso = match (segment_size < len, self.from.is_ipv4()) {
            (false, _) => GsoType::None,
            (true, true) => GsoType::TcpV4,
            (true, false) => GsoType::TcpV6,
        };
        let vnet = VnetHeader {
            needs_checksum: true,
            gso,
            gso_size: if gso == GsoType::None {
                0
            } else {
                segment_size as u16
            },
            checksum_start,
            checksum_offset: 16,
            ..VnetHeader::default()
        };
        self.head(&headers, vnet)
    }

    /// An error about a packet that went the other way.
    fn too_big(&self) -> RawHead {
        let back = Self::new(self.link, self.to, self.from);
        let quoted = [back.ip(6, TCP_BYTES), back.tcp(0)[..8].to_vec()].concat();
        let (protocol, start) = if self.from.is_ipv4() {
            (1, [3, 4])
        } else {
            (58, [2, 0])
        };
        let mut headers = self.ip(protocol, 8 + quoted.len());
        headers.extend(start);
        headers.extend([0, 0, 0, 0, 5, 0]);
        headers.extend(quoted);
        self.head(&headers, VnetHeader::default())
    }
}

impl RawHeads for Heads {
    fn make(
        &mut self,
        _: usize,
        payload: &[u8],
        segment_size: usize,
        _: &mut Vec<u8>,
    ) -> io::Result<RawHead> {
        let head = self.tcp_head(payload.len(), segment_size);
        self.sequence += payload.len() as u32;
        Ok(head)
    }

    fn take_back(&mut self, _: usize, len: usize) {
        self.sequence -= len as u32;
        self.returned += len;
    }
}

/// A received packet: where its IP payload begins, its bytes, the size of its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    bytes: Vec<u8>,
    segment_size: Option<u16>,
    link: Link,
}

impl Packet {
    fn tcp(&self) -> &[u8] {
        &self.bytes[if self.bytes[0] >> 4 == 4 { 20 } else { 40 }..]
    }

    fn payload(&self) -> &[u8] {
        &self.tcp()[TCP_BYTES..]
    }
}

/// Receives what is there once.
fn take(socket: &mut RawSocket, batch: &mut ReceiveBatch) -> Vec<Packet> {
    let mut packets = Vec::new();
    let read = |packet: packet_io::RawPacket<'_>| {
        assert!(
            !packet.is_unverified
                || checksum::verify(packet.bytes)
                || packet.bytes[9] == 1
                || packet.bytes[6] == 58
        );
        packets.push(Packet {
            bytes: packet.bytes.to_vec(),
            segment_size: packet.segment_size,
            link: packet.link,
        });
        let start = packet.bytes.len() - packets.last().unwrap().payload().len();
        let meta = ReceiveMeta {
            source: "192.0.2.1:1".parse().unwrap(),
            local: None,
            target: None,
            ecn: Ecn::NotEct,
            segment_size: packet.segment_size.map_or(usize::MAX, usize::from),
            len: 0,
            truncated: false,
        };
        (start < packet.bytes.len()).then_some((meta, start..packet.bytes.len()))
    };
    let count = socket.receive(batch, read).unwrap();
    assert_eq!(count, packets.len());
    // The batch holds the payloads, and those only.
    let payloads = packets
        .iter()
        .map(Packet::payload)
        .filter(|payload| !payload.is_empty());
    assert!(batch.iter().map(|received| received.payload).eq(payloads));
    packets
}

/// Receives until `count` packets are there.
fn receive(socket: &mut RawSocket, count: usize) -> Vec<Packet> {
    let mut batch = ReceiveBatch::new(8, SLOT_BYTES_MAX);
    let mut poller = Poller::new().unwrap();
    poller.add(socket, 0, Interest::READABLE).unwrap();
    let (mut ready, mut packets, deadline) = (Vec::new(), Vec::new(), Instant::now() + DEADLINE);
    while packets.len() < count {
        assert!(
            Instant::now() < deadline,
            "{} of {count} packets came",
            packets.len()
        );
        poller.wait(&mut ready, Some(Duration::from_millis(10))).unwrap();
        packets.extend(take(socket, &mut batch));
    }
    assert_eq!(packets.len(), count);
    packets
}

fn segments(packets: &[Packet]) -> Vec<&[u8]> {
    let of = |packet: &Packet| packet.segment_size.map_or(usize::MAX, usize::from);
    packets
        .iter()
        .flat_map(|packet| {
            packet
                .payload()
                .chunks(of(packet).min(packet.payload().len().max(1)))
        })
        .collect()
}

/// Segments that the kernel's own TCP has sent with RST.
fn resets() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let names = lines.next().unwrap().split_whitespace();
    let values = lines.next().unwrap().split_whitespace();
    let sent = names.zip(values).find(|(name, _)| *name == "OutRsts");
    sent.unwrap().1.parse().unwrap()
}

#[test]
fn a_super_segment_crosses_the_loopback_interface_whole() {
    let name = "a_super_segment_crosses_the_loopback_interface_whole";
    if !in_namespace(name, "true") {
        return;
    }
    for (at, wildcard) in [
        ("127.0.0.1:0", "0.0.0.0:0"),
        ("[::1]:0", "[::]:0"),
        ("127.0.0.1:0", "[::]:0"),
    ] {
        let (guard, own) = (
            PortGuard::take(address(wildcard)).unwrap(),
            PortGuard::take(address(at)).unwrap(),
        );
        let (mut server, from) = (guard.local_addr(), own.local_addr());
        let mut listener = RawSocket::listen(server, 1, &options()).unwrap().remove(0);
        server.set_ip(from.ip());
        let mut heads = Heads::new(link("lo", from, server), from, server);
        let mut client = RawSocket::connect(from, server, index_of("lo"), &options()).unwrap();
        let data = pattern(64 * 1_000 - 300, 7);
        let messages = [
            Outgoing::connected(&data, 1_000),
            Outgoing::connected(&data[..500], 0),
        ];
        let outcome = client.send(&messages, &mut heads);
        assert_eq!(
            (outcome.messages, outcome.segments, outcome.blocked),
            (2, 65, false),
            "{at}"
        );
        let packets = receive(&mut listener, 2);
        assert_eq!(packets[0].segment_size, Some(1_000));
        assert_eq!(
            (packets[0].payload(), packets[1].payload()),
            (&data[..], &data[..500])
        );
        assert_eq!(packets[1].segment_size, None);
        // The way back is known.
        let mut answers = Heads::new(packets[0].link, server, from);
        let outcome = listener.send(&[Outgoing::connected(&data[..2_500], 1_200)], &mut answers);
        assert_eq!(outcome.segments, 3);
        assert_eq!(
            segments(&receive(&mut client, 1)),
            [&data[..1_200], &data[1_200..2_400], &data[2_400..2_500]]
        );
    }
}

#[test]
fn the_kernel_says_nothing_about_a_guarded_port() {
    let name = "the_kernel_says_nothing_about_a_guarded_port";
    if in_namespace(name, CABLE) {
        kernel_says_nothing(PortGuard::take);
    }
}

#[test]
fn the_kernel_says_nothing_about_a_port_guarded_without_cap_net_admin() {
    let name = "the_kernel_says_nothing_about_a_port_guarded_without_cap_net_admin";
    if in_namespace(name, CABLE) {
        kernel_says_nothing(|at| with_capabilities(CapabilitySet::NET_RAW, || PortGuard::take(at)));
    }
}

fn kernel_says_nothing(guard: fn(SocketAddr) -> io::Result<PortGuard>) {
    for (from, at) in [
        ("10.78.0.1:0", "10.78.0.2:0"),
        ("10.78.0.1:0", "[::]:0"),
        ("[fd78::1]:0", "[fd78::2]:0"),
        ("[fd78::1]:0", "[::]:0"),
    ] {
        let own = guard(address(from)).unwrap();
        let guard = at_the_other_end(|| guard(address(at)).unwrap());
        let from = own.local_addr();
        let far_ip: IpAddr = if from.is_ipv4() {
            [10, 78, 0, 2].into()
        } else {
            "fd78::2".parse().unwrap()
        };
        let to = SocketAddr::new(far_ip, guard.local_addr().port());
        let heads = Heads::new(link("near", from, to), from, to);
        let mut near = RawSocket::connect(from, to, index_of("near"), &options()).unwrap();
        let mut far = at_the_other_end(|| RawSocket::listen(to, 1, &options()).unwrap().remove(0));
        let before = at_the_other_end(resets);
        let mut open = heads.tcp_head(0, 0);
        // Acknowledgements, ends and beginnings of connections, to a listener.
        for flags in [ACK, FIN | ACK, SYN, SYN | ACK] {
            open.bytes[open.len - TCP_BYTES + 13] = flags;
            near.send_head(&open).unwrap();
        }
        receive(&mut far, 4);
        let mut batch = ReceiveBatch::new(8, SLOT_BYTES_MAX);
        assert_eq!(take(&mut near, &mut batch), [], "neither RST nor SYN-ACK");
        assert_eq!(at_the_other_end(resets), before);
        // Without the guard the kernel has something to say.
        drop(guard);
        near.send_head(&heads.tcp_head(0, 0)).unwrap();
        let packets = receive(&mut near, 1);
        assert_eq!(packets[0].tcp()[13] & RST, RST);
        assert_eq!(at_the_other_end(resets), before + 1);
    }
}

#[test]
fn boundaries_survive_a_cable_with_and_without_offloads_and_firewalls_do_not_matter() {
    let name = "boundaries_survive_a_cable_with_and_without_offloads_and_firewalls_do_not_matter";
    if !in_namespace(name, &format!("{CABLE} && {FIREWALLS}")) {
        return;
    }
    let data = pattern(9_300, 3);
    let joins = at_the_other_end(|| switch_on_gro("far"));
    for (from, to) in [("10.78.0.1:0", "10.78.0.2:0"), ("[fd78::1]:0", "[fd78::2]:0")] {
        let own = PortGuard::take(address(from)).unwrap();
        let from = own.local_addr();
        let (guard, mut far) = at_the_other_end(|| {
            let guard = PortGuard::take(address(to)).unwrap();
            let listener = RawSocket::listen(guard.local_addr(), 1, &options())
                .unwrap()
                .remove(0);
            (guard, listener)
        });
        let to = guard.local_addr();
        let mut heads = Heads::new(link("near", from, to), from, to);
        let mut near = RawSocket::connect(from, to, index_of("near"), &options()).unwrap();
        let train = Outgoing::connected(&data, 1_200);
        near.send(&[train, train], &mut heads);
        let packets = receive(&mut far, 2);
        assert!(
            packets
                .iter()
                .all(|packet| packet.segment_size == Some(1_200) && packet.payload() == data)
        );
        let mut answers = Heads::new(packets[0].link, to, from);
        far.send(&[train], &mut answers);
        assert_eq!(receive(&mut near, 1)[0].payload(), data);
        // One by one on the wire, with complete checksums; the other end's GRO may join them again.
        ip("link set near gso_max_segs 1");
        near.send(&[train], &mut heads);
        let mut packets = Vec::new();
        while packets
            .iter()
            .map(|packet: &Packet| packet.payload().len())
            .sum::<usize>()
            < data.len()
        {
            packets.extend(receive_some(&mut far));
        }
        assert!(packets.len() > 1 || joins);
        assert_eq!(segments(&packets), data.chunks(1_200).collect::<Vec<_>>());
        ip("link set near gso_max_segs 65535");
        // Too large for the cable.
        let outcome = near.send(&[Outgoing::connected(&data[..1_600], 0)], &mut heads);
        assert_eq!((outcome.dropped.too_large, outcome.segments), (1, 0));
        assert_eq!(heads.returned, 1_600);
        let mut single = RawSocket::connect(from, to, index_of("near"), &without_offloads()).unwrap();
        assert_eq!(single.send(&[train], &mut heads).segments, 8);
        let packets = receive(&mut far, 8);
        assert_eq!(segments(&packets), data.chunks(1_200).collect::<Vec<_>>());
    }
}

fn receive_some(socket: &mut RawSocket) -> Vec<Packet> {
    let deadline = Instant::now() + DEADLINE;
    let mut batch = ReceiveBatch::new(8, SLOT_BYTES_MAX);
    loop {
        let packets = take(socket, &mut batch);
        if !packets.is_empty() {
            return packets;
        }
        assert!(Instant::now() < deadline, "nothing came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn flows_spread_over_a_group_and_errors_follow_their_flow() {
    let name = "flows_spread_over_a_group_and_errors_follow_their_flow";
    if !in_namespace(name, "true") {
        return;
    }
    let guard = PortGuard::take(address("[::]:0")).unwrap();
    let port = guard.local_addr().port();
    let mut group = RawSocket::listen(guard.local_addr(), 3, &options()).unwrap();
    let mut batch = ReceiveBatch::new(64, SLOT_BYTES_MAX);
    for ip in ["127.0.0.1", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        let to = SocketAddr::new(ip, port);
        let lo = link("lo", to, to);
        let mut counts = [0; 3];
        for from in (20_000..20_040).map(|port| SocketAddr::new(ip, port)) {
            let _guard = PortGuard::take(from).unwrap();
            let mut sender = RawSocket::connect(from, to, index_of("lo"), &options()).unwrap();
            let mut heads = Heads::new(lo, from, to);
            for _ in 0..3 {
                sender.send(&[Outgoing::connected(b"hello", 0)], &mut heads);
            }
            sender.send_head(&heads.too_big()).unwrap();
            let mut got = group.iter_mut().map(|socket| take(socket, &mut batch).len());
            let got = [got.next().unwrap(), got.next().unwrap(), got.next().unwrap()];
            assert_eq!(got.iter().filter(|count| **count == 4).count(), 1, "{got:?}");
            let index = got.iter().position(|count| *count == 4).unwrap();
            assert_eq!(index, RawSocket::place(to, from, 3));
            counts[index] += 1;
            // And what comes the other way goes to the one peer, as do errors about its packets.
            let mut answers = Heads::new(lo, to, from);
            group[index].send(&[Outgoing::connected(b"answer", 0)], &mut answers);
            group[index].send_head(&answers.too_big()).unwrap();
            assert_eq!(take(&mut sender, &mut batch).len(), 2);
        }
        assert!(counts.iter().all(|count| *count > 2), "{counts:?}");
    }
}

#[test]
fn packets_of_others_are_left_to_the_kernel() {
    let name = "packets_of_others_are_left_to_the_kernel";
    if !in_namespace(name, "true") {
        return;
    }
    let guard = PortGuard::take(address("127.0.0.1:0")).unwrap();
    let to = guard.local_addr();
    let mut listener = RawSocket::listen(to, 1, &options()).unwrap().remove(0);
    let from = address("127.0.0.1:20000");
    let mut sender = RawSocket::connect(from, to, index_of("lo"), &options()).unwrap();
    let lo = link("lo", from, to);
    // A fragment, another port, another address, another protocol, an error about another port.
    let ours = Heads::new(lo, from, to);
    let mut fragment = ours.tcp_head(0, 0);
    fragment.bytes[6] = 0x20;
    let mut other_protocol = ours.tcp_head(0, 0);
    other_protocol.bytes[9] = 17;
    let other_port = Heads::new(lo, from, address("127.0.0.1:9"));
    let other_address = Heads::new(lo, from, SocketAddr::new("127.0.0.2".parse().unwrap(), to.port()));
    let strange = [
        fragment,
        other_protocol,
        other_port.tcp_head(0, 0),
        other_port.too_big(),
        other_address.tcp_head(0, 0),
    ];
    for head in strange {
        sender.send_head(&head).unwrap();
    }
    // A client's socket has one peer.
    let other_peer = Heads::new(lo, address("127.0.0.1:20001"), to);
    let mut one = RawSocket::connect(to, from, index_of("lo"), &options()).unwrap();
    sender.send_head(&other_peer.tcp_head(0, 0)).unwrap();
    sender.send_head(&ours.tcp_head(0, 0)).unwrap();
    assert_eq!(receive(&mut listener, 2).len(), 2);
    let packets = receive(&mut one, 1);
    assert_eq!(packets[0].tcp()[..2], from.port().to_be_bytes());
    let mut batch = ReceiveBatch::new(8, SLOT_BYTES_MAX);
    assert_eq!(take(&mut one, &mut batch), []);
    assert_eq!(take(&mut listener, &mut batch), []);
}

#[test]
fn a_guarded_port_is_taken_until_its_guard_ends() {
    let guard = PortGuard::take(address("127.0.0.1:0")).unwrap();
    let taken = guard.local_addr();
    assert_ne!(taken.port(), 0);
    assert_eq!(
        TcpListener::bind(taken).unwrap_err().kind(),
        io::ErrorKind::AddrInUse
    );
    let error = PortGuard::take(taken).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    let silence = TcpStream::connect_timeout(&taken, Duration::from_millis(50)).unwrap_err();
    assert_eq!(silence.kind(), io::ErrorKind::TimedOut);
    drop(guard);
    // Another test may have got the port for a moment.
    let deadline = Instant::now() + DEADLINE;
    while TcpListener::bind(taken).is_err() {
        assert!(Instant::now() < deadline, "the port does not become free");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_full_socket_blocks_gives_heads_back_and_tells_when_it_takes_more() {
    let name = "a_full_socket_blocks_gives_heads_back_and_tells_when_it_takes_more";
    if !in_namespace(
        name,
        "tc qdisc add dev lo root tbf rate 80mbit burst 64k limit 4m",
    ) {
        return;
    }
    let narrow = packet_io::SocketOptions {
        send_buffer_bytes: 20_000,
        ..options()
    };
    for wildcard in ["127.0.0.1:0", "[::]:0"] {
        let guard = PortGuard::take(address(wildcard)).unwrap();
        let from = SocketAddr::new("127.0.0.1".parse().unwrap(), guard.local_addr().port());
        let to = address("127.0.0.1:20000");
        let mut receiver = RawSocket::connect(to, from, index_of("lo"), &options()).unwrap();
        let mut sender = RawSocket::listen(guard.local_addr(), 1, &narrow)
            .unwrap()
            .remove(0);
        let mut heads = Heads::new(link("lo", from, to), from, to);
        let payloads: Vec<Vec<u8>> = (0..40).map(|salt| pattern(9_500, salt)).collect();
        let mut messages: Vec<_> = payloads
            .iter()
            .map(|payload| Outgoing::connected(payload, 1_000))
            .collect();
        let mut poller = Poller::new().unwrap();
        poller.add(&sender, 0, Interest::BOTH).unwrap();
        let (mut ready, deadline) = (Vec::new(), Instant::now() + DEADLINE);
        while !messages.is_empty() {
            assert!(Instant::now() < deadline);
            let outcome = sender.send(&messages, &mut heads);
            assert_eq!(
                (outcome.blocked, outcome.dropped.total()),
                (outcome.messages < messages.len(), 0)
            );
            messages.drain(..outcome.messages);
            while outcome.blocked && !sender.takes_more() {
                assert!(Instant::now() < deadline);
                poller.wait(&mut ready, Some(DEADLINE)).unwrap();
                assert!(!ready.is_empty(), "nothing woke the sender");
            }
        }
        assert!(sender.stats().would_block > 0 && heads.returned > 0);
        let packets = receive(&mut receiver, 40);
        // What was given back left no gap.
        let sequence = |packet: &Packet| u32::from_be_bytes(packet.tcp()[4..8].try_into().unwrap());
        assert!(
            packets
                .iter()
                .enumerate()
                .all(|(index, packet)| sequence(packet) == 1_000 + 9_500 * index as u32)
        );
        assert!(
            packets
                .iter()
                .map(Packet::payload)
                .eq(payloads.iter().map(|payload| &payload[..]))
        );
    }
}

#[test]
fn without_the_capability_one_sentence_says_what_is_missing() {
    let error = without_privileges(|| {
        RawSocket::listen(address("127.0.0.1:9"), 1, &options())
            .err()
            .unwrap()
    });
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
}
