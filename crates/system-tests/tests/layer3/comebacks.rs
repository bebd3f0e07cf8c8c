//! A client or a server comes back, again and again: nothing wears off.

use std::io::{Read, Write};
use std::net::TcpStream;

use system_tests::service::{self, Service};
use system_tests::{require_program, require_root};

use super::*;

/// How often either end comes back.
const COMEBACKS: usize = 20;

/// A client's connections; all but the first begin when the device has its routes.
const CONNECTIONS: &str = "2";

/// What a TUN carries over 1,500 bytes of IPv4.
const WHOLE_MTU: u64 = 1_432;

/// Waits until each of the client's connections was made again so often and has found how much its path carries, and
/// the device has that MTU.
fn wait_for_whole_mtu(tunnel: &Tunnel, reconnects: usize) {
    let mut seen = Value::Null;
    let found = holds_within(PATH_LIMIT, || {
        // A client learns of a restart when it sends something.
        ping(&tunnel.machines.first, SERVER_V4, &["-W", "0.1"]);
        seen = tunnel.client.status();
        let mut stripes = seen["shards"].as_array().unwrap().iter();
        let is_whole = |shard: &Value| {
            let path_mtu = shard["stripe"]["path_mtu"].as_u64();
            shard["reconnects"].as_u64() >= Some(reconnects as u64)
                && path_mtu.is_some_and(|bytes| bytes >= WHOLE_MTU)
        };
        stripes.all(is_whole) && mtu(&tunnel.machines.first) == WHOLE_MTU
    });
    assert!(found, "TUN {}: {:#}", mtu(&tunnel.machines.first), seen["shards"]);
}

#[test]
fn the_mtu_is_the_whole_one_after_each_of_twenty_reconnects_and_twenty_starts() {
    require_root!();
    require_program!("ping");
    let mut tunnel = Tunnel::new(
        1500,
        &["--nat", "--connections", CONNECTIONS],
        &["--default-route", "--connections", CONNECTIONS],
    );
    wait_for_whole_mtu(&tunnel, 0);
    for reconnects in 1..=COMEBACKS {
        tunnel.server.start_again();
        wait_for_whole_mtu(&tunnel, reconnects);
    }
    for _ in 0..COMEBACKS {
        tunnel.client.start_again();
        wait_for_whole_mtu(&tunnel, 0);
    }
}

/// What a download sends at once, and how much shows that it flows.
const CHUNK_BYTES: usize = 16 << 10;
const FLOWING_BYTES: usize = 512 * CHUNK_BYTES;

/// How long the server is away, several times as long as its peers wait before they send again.
const SERVER_AWAY: Duration = Duration::from_secs(5);

/// Reads so much of a download.
fn read_on(download: &TcpStream) {
    let read = std::io::copy(&mut download.take(FLOWING_BYTES as u64), &mut std::io::sink());
    assert_eq!(read.unwrap(), FLOWING_BYTES as u64, "the download has ended");
}

#[test]
fn a_download_through_nat_survives_a_server_that_is_killed_and_started_again() {
    require_root!();
    require_program!("nft");
    let machines = Machines::new(1500);
    let before = crate::host::state(&machines.server);
    let directory = Directory::create_for_test().unwrap();
    let mut server = machines.serve(&["--nat"], &directory);
    let client = connect(
        &machines.first,
        "client",
        &server,
        &["--default-route"],
        &directory,
    );
    let _world = Service::tcp(&machines.world, "203.0.113.2:80", |mut stream| {
        while stream.write_all(&[7; CHUNK_BYTES]).is_ok() {}
    });
    let download = service::connect(&machines.first, "203.0.113.2:80");
    read_on(&download);
    server.kill();
    std::thread::sleep(SERVER_AWAY);
    server.start_again();
    read_on(&download);
    drop(client);
    assert_eq!(server.stop(), Some(0));
    // The guardian of the dead process has seen its successor, and gone.
    crate::host::assert_same(&before, &crate::host::state(&machines.server));
}

/// SESSION-14, SESSION-15.
#[test]
fn two_machines_with_a_copied_state_directory_get_an_address_each_and_are_told() {
    require_root!();
    require_program!("ping");
    let mut tunnel = Tunnel::new(1500, &[], &[]);
    let before = addresses(&tunnel.machines.first);
    let copy = tunnel.directory.join("second");
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(
        tunnel.client.state().join("client-1.id"),
        copy.join("client-1.id"),
    )
    .unwrap();
    let mut second = connect(
        &tunnel.machines.second,
        "second",
        &tunnel.server,
        &[],
        &tunnel.directory,
    );
    for (process, told) in [
        (tunnel.server.process(), "two machines with the same name"),
        (second.process(), "so this one gets another address"),
        (tunnel.client.process(), "and gets another address"),
    ] {
        process.wait_for_line(told, PROGRAM_LIMIT).unwrap();
    }
    let machines = &tunnel.machines;
    for machine in [&machines.first, &machines.second] {
        reaches(machine, SERVER_V4);
        reaches(machine, SERVER_V6);
    }
    assert_eq!(addresses(&machines.first), before);
    let others = addresses(&machines.second);
    assert!(
        !others.is_empty() && others.iter().all(|address| !before.contains(address)),
        "{others:?}"
    );
    // Neither takes anything from the other any more.
    for machine in [&machines.first, &machines.second] {
        let pings = ping_says(machine, SERVER_V4, &["-c", "20", "-i", "0.05"]);
        assert!(pings.contains(" 0% packet loss"), "{pings}");
    }
    assert_conserved(&second.status());
    tunnel.check();
}
