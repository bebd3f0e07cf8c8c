//! A program that is stopped for longer than its connections live, as when a machine sleeps.

use std::time::Duration;

use peer::blocking::{wait, wait_for};
use peer::{CloseReason, Closed, Delivery, Endpoint, SecretKey};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use testbed::directory::Directory;
use testbed::process::Signal;

use crate::peer_command;

/// How long connections to the program that is stopped live; it would wait for 30 seconds by itself.
const IDLE: Duration = Duration::from_secs(2);

#[test]
fn a_listener_that_was_stopped_for_long_is_reached_again_and_who_was_connected_learns_why_that_ended() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let listen = ["listen", "--listen", "0.0.0.0:4000", "--any"];
    let mut listener = peer_command::start(&pair.server, &directory, "listener", &listen);
    listener.wait_for_line("listening at", PROGRAM_LIMIT).unwrap();
    let id = peer_command::id(&pair.server, &directory, "listener")
        .parse()
        .unwrap();
    let address = format!("{PAIR_SERVER_V4}:4000").parse().unwrap();
    let caller = pair.client.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).idle_timeout(IDLE);
        builder.bind("0.0.0.0:0".parse().unwrap()).unwrap()
    });
    let connect = || {
        let connected = wait_for(PROGRAM_LIMIT, caller.connect(id, &[address]));
        connected.unwrap()
    };
    let before = connect().unwrap();
    listener.signal(Signal::STOP);
    let ended = wait_for(PROGRAM_LIMIT, before.receive()).unwrap();
    assert_eq!(ended.err(), Some(Closed(CloseReason::TimedOut)));
    listener.signal(Signal::CONT);
    let after = connect().unwrap();
    let ticket = wait(after.send("good morning", Delivery::unordered())).unwrap();
    assert_eq!(wait_for(PROGRAM_LIMIT, ticket), Some(peer::Outcome::Acked));
}
