//! TUN devices in a network namespace of each test's own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    DEADLINE, address, in_namespace, in_namespace_of_root, options, pattern, receive, without_privileges,
};
use packet_io::{
    DatagramSocket, Interest, Outgoing, Poller, TUN_FLOOD_UNITS_MAX, TUN_READ_BYTES_MAX, TunDevice, TunError,
    TunFloodLimit, TunOffloads, TunOpenError, TunOverflow, TunQueue, TunRead, UdpSocket, VNET_HEADER_BYTES,
};

const PLAIN: [u8; VNET_HEADER_BYTES] = [0; VNET_HEADER_BYTES];
/// `VIRTIO_NET_HDR_GSO_UDP_L4` (virtio 1.2, section 5.1.6).
const GSO_UDP: u8 = 5;
const NEEDS_CHECKSUM: u8 = 1;
const IP_BYTES: usize = 20;
const HEADERS: usize = IP_BYTES + 8;

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// A device `tunnel` at 10.77.0.1, up, without IPv6, which would talk by itself.
fn device(queues: usize, offloads: TunOffloads) -> TunDevice {
    let device = TunDevice::open(Some("tunnel"), queues, offloads).unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/tunnel/disable_ipv6", "1").unwrap();
    ip("address add 10.77.0.1/24 dev tunnel");
    ip("link set tunnel up");
    device
}

/// Reads once, when there is something.
fn read(queue: &mut TunQueue, buffer: &mut [u8]) -> TunRead {
    let mut poller = Poller::new().unwrap();
    poller.add(queue, 0, Interest::READABLE).unwrap();
    let (mut ready, deadline) = (Vec::new(), Instant::now() + DEADLINE);
    loop {
        if let Some(read) = queue.read(buffer).unwrap() {
            return read;
        }
        assert!(Instant::now() < deadline, "nothing came");
        poller.wait(&mut ready, Some(Duration::from_millis(10))).unwrap();
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum = words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// A UDP packet from 10.77.0.2 whose checksum is partial: the sum of its pseudo-header.
fn udp_packet(to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let (length, udp_length) = (HEADERS + payload.len(), 8 + payload.len());
    let mut packet = vec![
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1,
    ];
    packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    let checksum = !(sum(&packet) as u16);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut pseudo = packet[12..20].to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend((udp_length as u16).to_be_bytes());
    packet.extend(4444_u16.to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend((udp_length as u16).to_be_bytes());
    packet.extend((sum(&pseudo) as u16).to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

fn super_header(gso: u8, gso_size: u16) -> [u8; VNET_HEADER_BYTES] {
    let mut header = [0; VNET_HEADER_BYTES];
    header[0] = NEEDS_CHECKSUM;
    header[1] = gso;
    header[2..4].copy_from_slice(&(HEADERS as u16).to_le_bytes());
    header[4..6].copy_from_slice(&gso_size.to_le_bytes());
    header[6..8].copy_from_slice(&(IP_BYTES as u16).to_le_bytes());
    header[8..10].copy_from_slice(&6_u16.to_le_bytes());
    header
}

#[test]
fn a_device_has_its_name_index_and_offloads_and_vanishes_with_its_queues() {
    let name = "a_device_has_its_name_index_and_offloads_and_vanishes_with_its_queues";
    if !in_namespace(name, "true") {
        return;
    }
    let first = TunDevice::open(None, 1, TunOffloads::default()).unwrap();
    let second = TunDevice::open(None, 3, TunOffloads::NONE).unwrap();
    assert_eq!((&*first.name, &*second.name), ("gramway0", "gramway1"));
    assert_eq!((first.queues.len(), second.queues.len()), (1, 3));
    assert!(first.offloads.checksum && first.offloads.tso4 && first.offloads.tso6);
    assert_eq!(second.offloads, TunOffloads::NONE);
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap().stdout;
    let links = String::from_utf8(links).unwrap();
    for device in [&first, &second] {
        let start = format!("{}: {}: ", device.index, device.name);
        assert!(
            links.lines().any(|line| line.starts_with(&start)),
            "{start}\n{links}"
        );
    }
    let error = TunDevice::open(Some("gramway1"), 1, TunOffloads::default()).unwrap_err();
    assert!(
        matches!(&error, TunOpenError::InUse(name) if name == "gramway1"),
        "{error}"
    );
    drop(first);
    let again = TunDevice::open(Some("gramway0"), 1, TunOffloads::default()).unwrap();
    assert_eq!(again.name, "gramway0");
}

#[test]
fn what_keeps_a_device_from_being_made_is_said_in_a_sentence() {
    let name = "what_keeps_a_device_from_being_made_is_said_in_a_sentence";
    if !in_namespace(name, "true") {
        return;
    }
    let open = |name, queues| TunDevice::open(name, queues, TunOffloads::default()).unwrap_err();
    assert!(matches!(open(Some("a/b"), 1), TunOpenError::BadParameter(_)));
    assert!(matches!(open(None, 0), TunOpenError::BadParameter(_)));
    assert!(matches!(open(None, 257), TunOpenError::BadParameter(_)));
    let error = without_privileges(|| open(None, 1));
    assert!(matches!(error, TunOpenError::NotPermitted), "{error}");
    for part in ["sudo", "AmbientCapabilities=CAP_NET_ADMIN"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_train_of_a_local_program_is_read_as_one_super_packet() {
    let name = "a_train_of_a_local_program_is_read_as_one_super_packet";
    if !in_namespace(name, "true") {
        return;
    }
    let mut device = device(1, TunOffloads::default());
    if !device.offloads.uso {
        return eprintln!("{name}: not run, this kernel has no USO");
    }
    let queue = &mut device.queues[0];
    let mut from = UdpSocket::connect(None, address("10.77.0.2:5555"), &options()).unwrap();
    let payload = pattern(9_500, 3);
    assert_eq!(
        from.send(&[Outgoing::connected(&payload, 1000)])
            .unwrap()
            .segments,
        10
    );
    from.send(&[Outgoing::connected(b"alone", 0)]).unwrap();
    let mut buffer = vec![0; TUN_READ_BYTES_MAX];
    let whole = read(queue, &mut buffer);
    assert_eq!(
        (whole.header[1], whole.header[4..6].to_vec()),
        (GSO_UDP, vec![0xe8, 0x03])
    );
    assert_eq!(whole.packet(&buffer)[HEADERS..], payload);
    let alone = read(queue, &mut buffer);
    assert_eq!(
        (alone.header[1], &alone.packet(&buffer)[HEADERS..]),
        (0, &b"alone"[..])
    );
    assert_eq!(queue.read(&mut buffer).unwrap(), None);
    // Finished segments from here on.
    assert_eq!(queue.set_offloads(TunOffloads::NONE).unwrap(), TunOffloads::NONE);
    from.send(&[Outgoing::connected(&payload, 1000)]).unwrap();
    for segment in payload.chunks(1000) {
        let read = read(queue, &mut buffer);
        assert_eq!((read.header, &read.packet(&buffer)[HEADERS..]), (PLAIN, segment));
    }
    let stats = queue.stats();
    assert_eq!((stats.reads, stats.super_reads, stats.plain_reads), (12, 1, 11));
    let bytes = 9_500 + HEADERS + 5 + HEADERS + 9_500 + 10 * HEADERS;
    assert_eq!((stats.bytes_read, stats.errors), (bytes as u64, 0));
}

#[test]
fn a_super_packet_with_a_partial_checksum_reaches_a_local_program_as_a_train() {
    let name = "a_super_packet_with_a_partial_checksum_reaches_a_local_program_as_a_train";
    if !in_namespace(name, "true") {
        return;
    }
    let mut device = device(1, TunOffloads::default());
    let queue = &mut device.queues[0];
    let mut receiver = UdpSocket::bind(address("10.77.0.1:0"), &options()).unwrap();
    let to = receiver.local_addr().unwrap();
    let payload = pattern(9_500, 4);
    queue
        .write(&super_header(0, 0), &udp_packet(to, b"alone"))
        .unwrap();
    assert_eq!(receive(&mut receiver, 1)[0].payload, b"alone");
    let packet = udp_packet(to, &payload);
    match queue.write(&super_header(GSO_UDP, 1000), &packet) {
        Ok(()) => {
            let segments = receive(&mut receiver, 10);
            let expected = payload.chunks(1000);
            assert!(segments.iter().map(|segment| &segment.payload[..]).eq(expected));
            assert_eq!((queue.stats().writes, queue.stats().super_writes), (2, 1));
            assert_eq!(queue.stats().bytes_written, (packet.len() + HEADERS + 5) as u64);
        }
        Err(TunError::OffloadRefused) => eprintln!("{name}: this kernel takes no UDP super-packets"),
        Err(error) => panic!("{error}"),
    }
    // A kind that does not exist, and a checksum beyond the packet.
    let refused_before = queue.stats().refused;
    let mut outside = super_header(0, 0);
    outside[6..8].copy_from_slice(&60_000_u16.to_le_bytes());
    for header in [super_header(0x7e, 1000), outside] {
        let error = queue.write(&header, &packet).unwrap_err();
        assert!(matches!(error, TunError::OffloadRefused), "{error}");
    }
    assert_eq!(queue.stats().refused, refused_before + 2);
    // What is not IP is refused for another reason.
    let error = queue.write(&PLAIN, &[0; 40]).unwrap_err();
    assert!(matches!(error, TunError::Other(_)), "{error}");
    assert_eq!(queue.stats().errors, 1);
    queue
        .write(&super_header(0, 0), &udp_packet(to, b"and on"))
        .unwrap();
    assert_eq!(receive(&mut receiver, 1)[0].payload, b"and on");
}

#[test]
fn the_flows_of_a_detached_queue_move_to_the_others() {
    let name = "the_flows_of_a_detached_queue_move_to_the_others";
    if !in_namespace(name, "true") {
        return;
    }
    let mut device = device(2, TunOffloads::default());
    let [first, second] = &mut device.queues[..] else {
        panic!("two queues were asked for");
    };
    let flows: Vec<_> = (0..64)
        .map(|_| UdpSocket::connect(None, address("10.77.0.2:5555"), &options()).unwrap())
        .collect();
    let mut flows = flows;
    let mut counts = |first: &mut TunQueue, second: &mut TunQueue| {
        for flow in &mut flows {
            flow.send(&[Outgoing::connected(b"hello", 0)]).unwrap();
        }
        let mut buffer = vec![0; TUN_READ_BYTES_MAX];
        // The kernel has queued them when the send returns.
        [first, second].map(|queue| std::iter::from_fn(|| queue.read(&mut buffer).unwrap()).count())
    };
    let [left, right] = counts(first, second);
    assert!(left > 0 && right > 0 && left + right == 64, "{left} and {right}");
    first.detach().unwrap();
    first.detach().unwrap();
    assert!(!first.is_attached());
    assert_eq!(counts(first, second), [0, 64]);
    first.attach().unwrap();
    let [left, right] = counts(first, second);
    assert!(left > 0 && right > 0 && left + right == 64, "{left} and {right}");
}

#[test]
fn replies_come_to_the_queue_where_the_flow_was_written() {
    let name = "replies_come_to_the_queue_where_the_flow_was_written";
    if !in_namespace(name, "true") {
        return;
    }
    let mut device = device(4, TunOffloads::default());
    let mut receiver = UdpSocket::bind(address("10.77.0.1:0"), &options()).unwrap();
    let to = receiver.local_addr().unwrap();
    let mut buffer = vec![0; TUN_READ_BYTES_MAX];
    for place in [2, 0, 3, 1, 2] {
        let queue = &mut device.queues[place];
        queue.write(&super_header(0, 0), &udp_packet(to, b"ask")).unwrap();
        let from = receive(&mut receiver, 1)[0].source;
        receiver.send(&[Outgoing::to(from, b"answer", 0)]).unwrap();
        assert_eq!(&read(queue, &mut buffer).packet(&buffer)[HEADERS..], b"answer");
    }
}

#[test]
fn a_device_that_is_down_or_removed_is_told_apart_from_other_failures() {
    let name = "a_device_that_is_down_or_removed_is_told_apart_from_other_failures";
    if !in_namespace(name, "true") {
        return;
    }
    let mut device = device(1, TunOffloads::default());
    let queue = &mut device.queues[0];
    let packet = udp_packet(address("10.77.0.1:9"), b"hello");
    let mut buffer = vec![0; TUN_READ_BYTES_MAX];
    ip("link set tunnel down");
    let error = queue.write(&super_header(0, 0), &packet).unwrap_err();
    assert!(matches!(error, TunError::Down), "{error}");
    assert_eq!(queue.read(&mut buffer).unwrap(), None);
    ip("link delete tunnel");
    let error = queue.write(&super_header(0, 0), &packet).unwrap_err();
    assert!(matches!(error, TunError::Gone), "{error}");
    let error = queue.read(&mut buffer).unwrap_err();
    assert!(matches!(error, TunError::Gone), "{error}");
    // The event loop comes to know of it.
    let (mut poller, mut ready) = (Poller::new().unwrap(), Vec::new());
    poller.add(queue, 7, Interest::READABLE).unwrap();
    poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
    assert!(ready.iter().any(|event| event.readable), "{ready:?}");
}

#[test]
fn what_nobody_read_in_time_is_counted_and_a_short_buffer_gets_the_start_of_a_packet() {
    let name = "what_nobody_read_in_time_is_counted_and_a_short_buffer_gets_the_start_of_a_packet";
    if !in_namespace(name, "mount -t sysfs sysfs /sys") {
        return;
    }
    let mut device = device(1, TunOffloads::NONE);
    let overflow = TunOverflow::open(&device.name).unwrap();
    assert_eq!(overflow.packets().unwrap(), 0);
    ip("link set tunnel txqueuelen 4");
    let socket = std::net::UdpSocket::bind("10.77.0.1:0").unwrap();
    for length in [1_000, 100, 1_000, 100, 1_000, 100] {
        socket.send_to(&pattern(length, 0), "10.77.0.2:9").unwrap();
    }
    assert_eq!(overflow.packets().unwrap(), 2);
    let mut short = [0; VNET_HEADER_BYTES + 500];
    let mut lengths = Vec::new();
    while let Some(read) = device.queues[0].read_cut(&mut short).unwrap() {
        lengths.push(read.len);
        let total = u16::from_be_bytes([read.packet(&short)[2], read.packet(&short)[3]]);
        assert_eq!(usize::from(total) > 500, read.len == 500);
    }
    assert_eq!(lengths, [500, HEADERS + 100, 500, HEADERS + 100]);
    // Where not even the header fits, the packet is lost.
    for length in [0, VNET_HEADER_BYTES - 1] {
        socket.send_to(b"hello", "10.77.0.2:9").unwrap();
        let error = device.queues[0].read_cut(&mut short[..length]).unwrap_err();
        assert!(matches!(error, TunError::Other(_)), "{length} bytes: {error}");
    }
}

/// The device with the limit; `None`, and told, where this kernel or its administrator lets nobody load programs.
fn limited_device(queues: usize) -> Option<TunDevice> {
    let mut device = device(queues, TunOffloads::default());
    match TunFloodLimit::load() {
        Ok(limit) => device.limit_floods(&limit).unwrap(),
        // What the verifier refuses is PermissionDenied as well, but EACCES.
        Err(error)
            if [libc::EPERM, libc::ENOSYS]
                .map(Some)
                .contains(&error.raw_os_error()) =>
        {
            println!("not tested: no program can be loaded: {error}");
            return None;
        }
        Err(error) => panic!("the program is not loaded: {error}"),
    }
    assert!(device.offloads.uso, "a kernel that loads the program has them");
    Some(device)
}

/// Super-packets of [`send_super_packets`] that may wait: each begins three units.
const LIMIT: u32 = TUN_FLOOD_UNITS_MAX.div_ceil(3);

/// Sends so many super-packets of ten datagrams, 10,028 bytes, and one short packet behind them.
fn send_super_packets(count: u32) {
    let socket = UdpSocket::bind(address("10.77.0.1:0"), &options()).unwrap();
    let payload = pattern(10_000, 0);
    let mut socket = socket;
    for _ in 0..count {
        let to = address("10.77.0.2:9");
        socket.send(&[Outgoing::to(to, &payload, 1_000)]).unwrap();
    }
    socket
        .send(&[Outgoing::to(address("10.77.0.2:9"), b"short", 0)])
        .unwrap();
}

/// Reads everything that waits: how many super-packets, and how many others.
fn read_all(queue: &mut TunQueue) -> (u32, u32) {
    let mut buffer = vec![0; TUN_READ_BYTES_MAX];
    let (mut long, mut short) = (0, 0);
    while let Some(read) = queue.read(&mut buffer).unwrap() {
        if read.header[1] == GSO_UDP {
            long += 1;
        } else {
            short += 1;
        }
    }
    (long, short)
}

#[test]
fn of_udp_super_packets_no_more_than_the_limit_wait_and_all_others_pass() {
    let name = "of_udp_super_packets_no_more_than_the_limit_wait_and_all_others_pass";
    if !in_namespace_of_root(name, "true") {
        return;
    }
    let Some(mut device) = limited_device(1) else {
        return;
    };
    ip("link set tunnel txqueuelen 1024");
    let queue = &mut device.queues[0];
    for _ in 0..3 {
        send_super_packets(3 * LIMIT);
        send_super_packets(1);
        assert_eq!(read_all(queue), (LIMIT, 2));
    }
    send_super_packets(LIMIT);
    // Each that is read makes room for another.
    let mut buffer = vec![0; TUN_READ_BYTES_MAX];
    for _ in 0..7 {
        assert_eq!(queue.read(&mut buffer).unwrap().unwrap().header[1], GSO_UDP);
    }
    send_super_packets(100);
    assert_eq!(read_all(queue), (LIMIT, 2));
    // Those that a full queue drops behind the program are forgotten once it is empty.
    ip("link set tunnel txqueuelen 10");
    send_super_packets(20);
    assert_eq!(read_all(queue), (10, 0));
    ip("link set tunnel txqueuelen 1024");
    send_super_packets(2 * LIMIT);
    assert_eq!(read_all(queue), (LIMIT, 1));
}

#[test]
fn the_limit_of_each_queue_stays_its_own_when_queues_leave_and_come_back() {
    let name = "the_limit_of_each_queue_stays_its_own_when_queues_leave_and_come_back";
    if !in_namespace_of_root(name, "true") {
        return;
    }
    let Some(mut device) = limited_device(3) else {
        return;
    };
    ip("link set tunnel txqueuelen 1024");
    let flood = |device: &mut TunDevice| {
        // Enough flows that the kernel gives each queue several times its limit.
        for _ in 0..64 {
            send_super_packets(LIMIT / 8);
        }
        let queues = device.queues.iter_mut();
        let attached = queues.filter(|queue| queue.is_attached());
        attached.map(|queue| read_all(queue).0).collect::<Vec<_>>()
    };
    assert_eq!(flood(&mut device), [LIMIT; 3]);
    // The kernel gives the last queue the index of one that leaves.
    device.queues[0].detach().unwrap();
    for _ in 0..2 {
        assert_eq!(flood(&mut device), [LIMIT; 2]);
    }
    device.queues[0].attach().unwrap();
    device.queues[1].detach().unwrap();
    for _ in 0..2 {
        assert_eq!(flood(&mut device), [LIMIT; 2]);
    }
    device.queues[1].attach().unwrap();
    for _ in 0..2 {
        assert_eq!(flood(&mut device), [LIMIT; 3]);
    }
}
