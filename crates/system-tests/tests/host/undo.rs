//! What the kernel does not undo by itself: it comes back at the end, by the guardian after a kill, or at the next
//! start.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ::host::{
    GUARDIAN_SUBCOMMAND, GuardianProgram, Nat, Network, ReversePathFilter, Undo, Uplink, recover,
    reverse_path_filter,
};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::topology::{self, Routed};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::{Process, Signal};
use testbed::wait::wait_until;

use super::{
    add_interface, add_routes, add_tun, address, assert_same, half_defaults, parameters, prefix, state,
};

/// Where the process that is killed keeps its list of changes; only then does its test do anything.
const DIRECTORY_VARIABLE: &str = "GRAMWAY_TEST_HOST_DIRECTORY";

pub(super) fn guardian() -> GuardianProgram {
    GuardianProgram {
        program: gramway_binary(),
        arguments: vec![GUARDIAN_SUBCOMMAND.into()],
    }
}

/// A machine with the parameters that switching forwarding would spoil.
fn particular_machine() -> Namespace {
    let machine = Namespace::create().unwrap();
    for name in ["eth0", "eth0.7"] {
        add_interface(&machine, name);
    }
    machine
        .set_parameter("net.ipv4.conf.all.accept_redirects", "0")
        .unwrap();
    machine
        .set_parameter("net.ipv4.conf.eth0.forwarding", "1")
        .unwrap();
    machine
        .set_parameter("net.ipv6.conf.eth0.accept_ra", "1")
        .unwrap();
    machine
}

fn is_forwarding(machine: &Namespace) -> bool {
    let parameters = parameters(machine);
    parameters["ip_forward"] == "1"
        && parameters["/proc/sys/net/ipv6/conf/all/forwarding"] == "1"
        && parameters["/proc/sys/net/ipv6/conf/eth0/accept_ra"] == "2"
}

pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".json"));
    files
}

#[test]
fn forwarding_comes_back_as_it_was_after_the_last_who_needs_it() {
    require_root!();
    require_program!("nft");
    let (machine, directory) = (particular_machine(), Directory::create_for_test().unwrap());
    let before = state(&machine);
    machine.inside(|| {
        let mut first = Undo::new(directory.path(), guardian());
        let mut second = Undo::new(directory.path(), guardian());
        assert_eq!(files(directory.path()).len(), 0);
        first.enable_forwarding(true, true).unwrap();
        assert!(is_forwarding(&machine));
        second.enable_forwarding(true, true).unwrap();
        assert_eq!(files(directory.path()).len(), 2);
        assert_eq!(recover(directory.path()), Vec::<String>::new());
        first.undo().unwrap();
        assert!(is_forwarding(&machine));
        drop(second);
    });
    assert_eq!(files(directory.path()).len(), 0);
    assert_same(&before, &state(&machine));
}

#[test]
fn what_an_administrator_set_since_is_kept() {
    require_root!();
    let (machine, directory) = (particular_machine(), Directory::create_for_test().unwrap());
    machine.inside(|| {
        let mut undo = Undo::new(directory.path(), guardian());
        undo.enable_forwarding(true, true).unwrap();
        machine
            .set_parameter("net.ipv6.conf.eth0.accept_ra", "0")
            .unwrap();
        machine.set_parameter("net.ipv4.ip_forward", "0").unwrap();
        machine.run("ip", ["link", "del", "eth0.7"]).unwrap();
        undo.undo().unwrap();
    });
    let after = parameters(&machine);
    assert_eq!(after["/proc/sys/net/ipv6/conf/eth0/accept_ra"], "0");
    assert_eq!(after["/proc/sys/net/ipv6/conf/all/forwarding"], "0");
}

#[test]
fn a_strict_filter_lets_answers_in_by_an_exception_route() {
    require_root!();
    require_program!("ping", "nft");
    let (network, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
    let tun = add_tun(&network.client);
    network
        .client
        .set_parameter("net.ipv4.conf.eth0.rp_filter", "1")
        .unwrap();
    assert_eq!(
        network.client.inside(|| reverse_path_filter("eth0")),
        ReversePathFilter::Strict
    );
    assert_eq!(
        network.client.inside(|| reverse_path_filter("tun0")),
        ReversePathFilter::Loose
    );
    network.client.inside(|| {
        add_routes(&mut Network::open().unwrap(), &half_defaults(tun)[..2]);
    });
    let before = state(&network.client);
    let answers = || {
        let mut ping = network.client.command("ping");
        ping.args(["-I", "eth0", "-c", "1", "-W", "1", topology::ROUTED_SERVER_V4]);
        ping.output().unwrap().status.success()
    };
    assert!(!answers());
    let client = &network.client;
    client.inside(|| {
        let server = address(topology::ROUTED_SERVER_V4);
        let mut network = Network::open().unwrap();
        let uplink = network.uplink_towards(server, Some(tun)).unwrap().unwrap();
        let mut undo = Undo::new(directory.path(), guardian());
        undo.set_exception_route(server, &uplink).unwrap();
        assert!(answers());
        // The same again: what the kernel dropped is back, and the list was not written.
        let listed = || std::fs::metadata(&files(directory.path())[0]).unwrap().ino();
        let (written, host_route) = (listed(), format!("{server}/32"));
        for _ in 0..2 {
            undo.set_exception_route(server, &uplink).unwrap();
            assert!(answers() && listed() == written);
            client.run("ip", ["route", "delete", &host_route]).unwrap();
            assert!(!answers());
        }
        let elsewhere = Uplink {
            gateway: Some(address("10.77.0.9")),
            ..uplink.clone()
        };
        undo.set_exception_route(server, &elsewhere).unwrap();
        assert!(!answers());
        undo.set_exception_route(server, &uplink).unwrap();
        assert!(answers());
        undo.undo().unwrap();
        assert!(!answers());
        undo.set_exception_route(server, &uplink).unwrap();
    });
    assert_same(&before, &state(&network.client));
}

#[test]
fn a_process_that_changes_the_host_where_another_test_asks_for_it() {
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) else {
        return;
    };
    let mut undo = Undo::new(Path::new(&directory), guardian());
    undo.enable_forwarding(true, true).unwrap();
    let mut network = Network::open().unwrap();
    let server = address("192.0.2.1");
    let uplink = network.uplink_towards(server, None).unwrap().unwrap();
    undo.set_exception_route(server, &uplink).unwrap();
    let _nat = Nat::start(uplink.index, &[prefix("10.99.0.0/24")]).unwrap();
    let stop = Path::new(&directory).join("stop");
    eprintln!("the host is changed");
    wait_until("the end of the test", 4 * PROGRAM_LIMIT, || stop.exists());
}

/// A machine whose network such a process has changed.
struct Changed {
    process: Process,
    machine: Namespace,
    before: String,
    directory: Directory,
}

impl Changed {
    fn new() -> Self {
        let (machine, directory) = (particular_machine(), Directory::create_for_test().unwrap());
        machine
            .run("ip", ["address", "add", "10.10.0.2/24", "dev", "eth0"])
            .unwrap();
        machine
            .run("ip", ["route", "add", "default", "via", "10.10.0.1"])
            .unwrap();
        let before = state(&machine);
        let mut command = machine.command(std::env::current_exe().unwrap());
        command
            .args([
                "host::undo::a_process_that_changes_the_host_where_another_test_asks_for_it",
                "--exact",
                "--nocapture",
            ])
            .env(DIRECTORY_VARIABLE, directory.path())
            .env("GRAMWAY_TEST_PROGRAM", gramway_binary());
        let mut process = Process::start(command, "changing").unwrap();
        process
            .wait_for_line("the host is changed", PROGRAM_LIMIT)
            .unwrap();
        let changed = Self {
            process,
            machine,
            before,
            directory,
        };
        assert!(is_forwarding(&changed.machine));
        let after = state(&changed.machine);
        assert!(
            after.contains("192.0.2.1") && after.contains("masquerade"),
            "{after}"
        );
        changed
    }

    /// The process ID of the guardian.
    fn guardian(&self) -> rustix::process::Pid {
        let tasks = format!("/proc/{}/task", self.process.id());
        let children = std::fs::read_dir(tasks)
            .unwrap()
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
        let children: String = children.collect();
        let id = children.split_whitespace().next().unwrap().parse().unwrap();
        rustix::process::Pid::from_raw(id).unwrap()
    }

    fn wait_until_undone(&self) {
        wait_until("the list of changes to go", PROGRAM_LIMIT, || {
            files(self.directory.path()).is_empty()
        });
        assert_same(&self.before, &state(&self.machine));
    }
}

#[test]
fn an_ordinary_end_leaves_nothing_and_no_guardian() {
    require_root!();
    require_program!("nft");
    let mut changed = Changed::new();
    let guardian = changed.guardian();
    std::fs::write(changed.directory.join("stop"), "").unwrap();
    assert!(changed.process.wait(PROGRAM_LIMIT).unwrap().success());
    changed.wait_until_undone();
    assert!(rustix::process::test_kill_process(guardian).is_err());
}

#[test]
fn the_guardian_cleans_up_after_a_killed_process_and_outlives_signals() {
    require_root!();
    require_program!("nft");
    let mut changed = Changed::new();
    let guardian = changed.guardian();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        rustix::process::kill_process(guardian, signal).unwrap();
    }
    changed.process.kill();
    changed.wait_until_undone();
    wait_until("the guardian's end", PROGRAM_LIMIT, || {
        rustix::process::test_kill_process(guardian).is_err()
    });
}

#[test]
fn the_next_start_cleans_up_after_both_were_killed() {
    require_root!();
    require_program!("nft");
    let mut changed = Changed::new();
    let guardian = changed.guardian();
    rustix::process::kill_process(guardian, Signal::KILL).unwrap();
    let directory = changed.directory.path().to_owned();
    assert_eq!(
        changed.machine.inside(|| recover(&directory)),
        Vec::<String>::new(),
        "the process lives"
    );
    changed.process.kill();
    assert_eq!(
        recover(&directory),
        Vec::<String>::new(),
        "it is another network's"
    );
    assert!(is_forwarding(&changed.machine));
    let told = changed.machine.inside(|| recover(&directory));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("net.ipv4.ip_forward") && told[0].contains("192.0.2.1"),
        "{told:?}"
    );
    changed.wait_until_undone();
}
