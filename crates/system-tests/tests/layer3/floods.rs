//! A flood into a TUN device that nobody reads leaves places for the packets of others.

use std::net::{SocketAddr, UdpSocket};

use packet_io::{DatagramSocket, Outgoing, SocketOptions};
use system_tests::require_root;

use super::*;

/// More than the places of the device.
const SUPER_PACKETS: usize = 3_000;

/// Datagrams of another flow behind them.
const DATAGRAMS: usize = 100;

/// Of one datagram in a super-packet; short, so that the tunnel carries what gets in without a queue of its own.
const SEGMENT_BYTES: usize = 100;

/// Without the limit the flood fills each place, and all datagrams behind it are lost.
#[test]
fn behind_a_flood_of_super_packets_no_datagram_of_another_flow_is_lost_in_the_device() {
    require_root!();
    let options = ["--connections", "1"];
    let mut tunnel = Tunnel::new(1500, &options, &options);
    if tunnel
        .client
        .process()
        .stderr()
        .contains("takes no filter program")
    {
        println!("not tested: this kernel takes no program");
        return;
    }
    reaches(&tunnel.machines.first, SERVER_V4);
    loses_nothing(&mut tunnel, Side::Client);
    loses_nothing(&mut tunnel, Side::Server);
    tunnel.check();
}

/// From which side packets are sent.
#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

fn loses_nothing(tunnel: &mut Tunnel, from: Side) {
    let client: SocketAddr = "10.9.0.2:9000".parse().unwrap();
    let server = SocketAddr::new(SERVER_V4.parse().unwrap(), client.port());
    let Tunnel { machines, .. } = &tunnel;
    let (sender, receiver, to) = match from {
        Side::Client => (&machines.first, &machines.server, server),
        Side::Server => (&machines.server, &machines.first, client),
    };
    let receiver = receiver.inside(|| UdpSocket::bind(to).unwrap());
    receiver.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
    let (mut flood, other) = sender.inside(|| {
        let any = "0.0.0.0:0".parse().unwrap();
        let flood = packet_io::UdpSocket::bind(any, &SocketOptions::default()).unwrap();
        (flood, UdpSocket::bind(any).unwrap())
    });

    // Stopped, it reads nothing.
    let process = match from {
        Side::Client => tunnel.client.process(),
        Side::Server => tunnel.server.process(),
    };
    process.signal(Signal::STOP);
    let train = [0; 2 * SEGMENT_BYTES];
    let discarded = SocketAddr::new(to.ip(), 9);
    for _ in 0..SUPER_PACKETS {
        flood
            .send(&[Outgoing::to(discarded, &train, SEGMENT_BYTES)])
            .unwrap();
    }
    for number in 0..DATAGRAMS {
        other.send_to(&number.to_be_bytes(), to).unwrap();
    }
    process.signal(Signal::CONT);

    let mut buffer = [0; 8];
    for number in 0..DATAGRAMS {
        let (length, _) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!(
            buffer[..length],
            number.to_be_bytes(),
            "in order, and none missing"
        );
    }
}
