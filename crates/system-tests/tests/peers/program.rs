//! The program between routers: what `ping` tells of a connection that moves, a pipe that is relayed, and a listener
//! that was stopped for longer than its registration lives.

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use testbed::directory::Directory;
use testbed::process::{Process, Signal};
use testbed::wait::wait_until;

use super::moves::{ATTEMPT, MOVE_LIMIT, block, unblock};
use super::world::{FIRST_PORT, Open, PortRestricted, World};
use crate::peer_command::{id, start};

/// Two machines whose networks reach the server, and what their commands need.
struct Scene {
    world: World,
    directory: Directory,
    link: String,
}

impl Scene {
    fn new() -> Self {
        let (world, directory) = (World::new(), Directory::create_for_test().unwrap());
        world.set_kinds([Open, Open], FIRST_PORT);
        let link = directory.write("link", world.link()).unwrap();
        Self {
            world,
            directory,
            link: link.to_str().unwrap().to_owned(),
        }
    }

    fn id(&self, machine: usize) -> String {
        id(
            &self.world.machines[machine],
            &self.directory,
            &machine.to_string(),
        )
    }

    fn start(&self, machine: usize, arguments: &[&str]) -> Process {
        let met = ["--no-lan", "--rendezvous-file", &self.link];
        let (on, name) = (&self.world.machines[machine], machine.to_string());
        start(on, &self.directory, &name, &[arguments, &met].concat())
    }

    /// A listener on the second machine, which is registered.
    fn listener(&self, options: &[&str]) -> Process {
        let listen = [&["listen", "--any", "--no-port-mapping"], options].concat();
        let mut listener = self.start(1, &listen);
        listener.wait_for_line("registered", PROGRAM_LIMIT).unwrap();
        listener
    }
}

#[test]
fn ping_tells_of_each_move_for_people_and_for_programs() {
    require_root!();
    let scene = Scene::new();
    block(&scene.world);
    let _listener = scene.listener(&[]);
    let listening = scene.id(1);
    let ping = [
        "ping",
        &listening,
        "-c",
        "1000000",
        "--interval",
        "20",
        "--timeout",
        "60",
    ];
    let mut for_people = scene.start(0, &ping);
    let told = for_people.wait_for_line(" after ", PROGRAM_LIMIT).unwrap();
    assert!(
        told.contains("the relay of the rendezvous, relayed, over UDP"),
        "{told}"
    );
    let mut for_programs = scene.start(0, &[&ping[..], &["--json"]].concat());
    let told = for_programs
        .wait_for_line("\"connected\"", PROGRAM_LIMIT)
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&told).unwrap()["path"],
        "relayed",
        "{told}"
    );

    unblock(&scene.world);
    let told = for_people.wait_for_starts("moved to ", 1, MOVE_LIMIT).unwrap();
    assert!(
        told.contains("directly, ") && told.ends_with(" s after the start"),
        "{told}"
    );
    let told = for_programs.wait_for_line("\"moved\"", MOVE_LIMIT).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["path"], "direct", "{told}");
    assert!(
        told["address"].as_str().unwrap().starts_with("10.2.0.2:"),
        "{told}"
    );
    assert!(
        told["after_ms"].is_number() && told["carrier"].is_null(),
        "{told}"
    );

    block(&scene.world);
    let back = for_people.wait_for_line("moved to the relay of the rendezvous, relayed", MOVE_LIMIT);
    assert!(back.unwrap().contains("over UDP"));
}

/// RDV-10.
#[test]
fn a_pipe_is_relayed_where_no_other_path_is() {
    require_root!();
    let scene = Scene::new();
    block(&scene.world);
    let mut listener = scene.listener(&["--json", "--once"]);
    let data: String = (0..50_000).map(|number| format!("{number}\n")).collect();
    let listening = scene.id(1);
    let mut pipe = scene.start(0, &["pipe", &listening, "--timeout", "60"]);
    listener.tell("the answer").unwrap();
    listener.close_stdin();
    pipe.tell(data.trim_end()).unwrap();
    pipe.close_stdin();
    assert!(pipe.wait(PROGRAM_LIMIT).unwrap().success(), "{}", pipe.stderr());
    assert_eq!(pipe.stdout(), "the answer\n");
    assert!(
        listener.wait(PROGRAM_LIMIT).unwrap().success(),
        "{}",
        listener.stderr()
    );
    assert!(listener.stdout() == data, "the bytes changed");
    let told = listener.stderr();
    let connected = told.lines().find(|line| line.contains("\"connected\"")).unwrap();
    let connected: Value = serde_json::from_str(connected).unwrap();
    assert_eq!(connected["is_relayed"], true, "{connected}");
    assert!(connected["address"].is_null(), "{connected}");
}

/// RDV-9.
#[test]
fn a_listener_behind_a_router_that_was_stopped_until_it_was_forgotten_is_reached_by_its_id_again() {
    require_root!();
    let scene = Scene::new();
    scene
        .world
        .set_kinds([PortRestricted, PortRestricted], FIRST_PORT);
    let mut listener = scene.listener(&[]);
    let listening = scene.id(1).parse().unwrap();
    let caller = scene.world.peer(0, FIRST_PORT);
    let calls = || {
        let connected = peer::blocking::wait_for(ATTEMPT, caller.connect(listening, &[]));
        connected.is_some_and(|connected| connected.is_ok())
    };
    wait_until("the listener is reached", MOVE_LIMIT, calls);
    listener.signal(Signal::STOP);
    let registered = || {
        scene.world.server.status()["rendezvous"]["registered"]
            .as_u64()
            .unwrap()
    };
    wait_until("the server forgets the listener", MOVE_LIMIT, || {
        registered() == 1
    });
    assert!(!calls());
    listener.signal(Signal::CONT);
    // It learns that its registration is lost, registers anew, and tells so.
    wait_until("the listener is reached again", MOVE_LIMIT, calls);
    listener
        .wait_for_line("not registered at the server of the link any more", PROGRAM_LIMIT)
        .unwrap();
    listener
        .wait_for_starts("registered at the rendezvous", 2, PROGRAM_LIMIT)
        .unwrap();
}
