//! A server that takes the addresses away and gives them back: a foreign one, because ours never does.

use system_tests::{require_go, require_program, require_root};
use testbed::process::Signal;

use super::*;

/// The proxy's address in the tunnel, and the client's.
const PROXY: &str = "10.99.0.1";
const LEASE: &str = "10.99.0.7";

#[test]
fn an_empty_assignment_takes_the_lease_and_not_the_protection() {
    require_root!();
    require_program!("nft", "ping");
    let programs = require_go!();
    let watched = Watched::new();
    let mut command = watched.machines.server.command(programs.join("server"));
    let own = format!("{PROXY}/24");
    command.args(["--listen", LISTEN, "--own", &own, "--lease", LEASE]);
    let mut proxy = Process::start(command, "foreign").unwrap();
    let greeting: Value = serde_json::from_str(&proxy.wait_for_line("{", PROGRAM_LIMIT).unwrap()).unwrap();
    let mut client = watched.start_client(greeting["link"].as_str().unwrap(), &[]);
    watched.send();
    let machine = &watched.machines.first;
    let has_lease = |wanted: bool| {
        wait_until("the lease to come or go", PROGRAM_LIMIT, || {
            addresses(machine).contains(&LEASE.to_owned()) == wanted
        });
    };
    has_lease(true);
    reaches(machine, PROXY);
    watched.assert_closed("with a lease");
    proxy.signal(Signal::USR1);
    has_lease(false);
    watched.assert_closed("after an empty assignment");
    assert!(watched.has_kill_switch());
    proxy.signal(Signal::USR2);
    has_lease(true);
    reaches(machine, PROXY);
    watched.assert_closed("with the lease again");
    assert_eq!(client.stop(), Some(0));
    watched.assert_open("after the end");
}
