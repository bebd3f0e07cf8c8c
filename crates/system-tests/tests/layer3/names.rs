//! A server by name, while the name servers that know it are behind the routes of the client's own tunnel.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use system_tests::name_server::answer;
use system_tests::service::Service;
use system_tests::tunnel::with_mounts;
use system_tests::{require_program, require_root};

use super::*;

/// The router's address on the server's side: without a tunnel it is reached by the default route.
const NAME_SERVER: &str = "198.51.100.2";

/// Where the server listens after its move.
const MOVED: &str = "198.51.100.9:4433";

/// A name server that knows one address for every name, and none of IPv6.
fn name_server(machines: &Machines, address: &Arc<Mutex<Ipv4Addr>>) -> Service {
    let address = Arc::clone(address);
    Service::udp(
        &machines.router,
        &format!("{NAME_SERVER}:53"),
        move |socket, question, source| {
            let address = *address.lock().unwrap();
            // Whoever asked asks again, as UDP does.
            let _ = answer(question, address).map(|answer| socket.send_to(&answer, source));
        },
    )
}

/// A client that knows the server by name, behind a default route of its tunnel.
fn connect_by_name(machines: &Machines, server: &Server, directory: &Directory) -> Client {
    let resolv = directory.join("resolv.conf");
    fs::write(&resolv, format!("nameserver {NAME_SERVER}\n")).unwrap();
    let wrapper = with_mounts(&format!("mount --bind '{}' /etc/resolv.conf", resolv.display()));
    let link = server.link().replace(LISTEN, "server.test:4433");
    assert!(link.contains("server.test"), "the link names the server");
    let (place, files) = (machines.first.place(), directory.path());
    let options = [TUN, "--default-route"];
    let mut client = Client::start_unconnected_by(&wrapper, &place, "client", &link, &[], &options, files);
    client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
    client
}

#[test]
fn a_server_by_name_is_found_again_though_its_name_servers_are_beyond_the_tunnel() {
    require_root!();
    require_program!("unshare", "ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let mut server = machines.serve(&["--nat"], &directory);
    let address = Arc::new(Mutex::new(Ipv4Addr::new(198, 51, 100, 1)));
    let names = name_server(&machines, &address);
    let client = connect_by_name(&machines, &server, &directory);
    reaches(&machines.first, WORLD_V4);

    // No name server answers: the address where it was serves.
    drop(names);
    server.kill();
    server.start_again();
    reaches(&machines.first, WORLD_V4);

    // At that address is nobody: the name servers are asked outside the tunnel.
    server.kill();
    machines
        .server
        .run("ip", ["address", "add", "198.51.100.9/24", "dev", "eth0"])
        .unwrap();
    *address.lock().unwrap() = Ipv4Addr::new(198, 51, 100, 9);
    let _names = name_server(&machines, &address);
    let options = [&POOLS[..], &["--nat"]].concat();
    let place = machines.server.place();
    let server = Server::start(&place, "server", MOVED, &options, directory.path());
    reaches(&machines.first, WORLD_V4);
    assert_conserved(&client.status());
    assert_conserved(&server.status());
}
