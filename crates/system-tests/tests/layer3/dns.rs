//! Name servers of the TUN. systemd-resolved and resolvconf are played by scripts that write down what they are told;
//! `/etc/resolv.conf` is a file of the test, mounted for the client alone.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use system_tests::service::Service;
use system_tests::tunnel::with_mounts;
use system_tests::{require_program, require_root};

use super::*;

/// What the client's machine asks without a tunnel: its router.
const ROUTER: &str = "192.0.2.1";

/// Words that start a program on a machine that has the program `name` and this `/etc/resolv.conf`, and the file that
/// the program may write to, `$TOLD`.
fn with_program(
    name: &str,
    script: &str,
    resolv_conf: &str,
    directory: &Directory,
) -> (Vec<String>, PathBuf) {
    let (program, resolv) = (directory.join(name), directory.join("resolv.conf"));
    let told = directory.join("told");
    // Where a program that is confined with its client may write.
    let text = format!("#!/bin/sh\nTOLD=/run/test/told\n{script}\n");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::write(&resolv, resolv_conf).unwrap();
    // One of the places where programs of the system are looked for, and the only one that can be made here.
    let programs = "/run/current-system/sw/bin";
    let words = with_mounts(&format!(
        "mount -t tmpfs none /run && mkdir -p {programs} && cp '{}' {programs} && mkdir /run/test && \
         mount --bind '{}' /run/test && mount --bind '{}' /etc/resolv.conf",
        program.display(),
        directory.path().display(),
        resolv.display()
    ));
    (words, told)
}

/// The same where `resolvectl` is `script`, and programs ask systemd-resolved, which is [`resolved`].
pub(super) fn with_resolvectl(script: &str, directory: &Directory) -> (Vec<String>, PathBuf) {
    with_program("resolvectl", script, "nameserver 127.0.0.53\n", directory)
}

/// systemd-resolved as far as it is looked for: its socket.
pub(super) fn resolved(machine: &Namespace) -> Service {
    Service::udp(machine, "127.0.0.53:53", |_, _, _| {})
}

/// A client with name servers on such a machine.
fn connect_with_dns(
    machine: &Namespace,
    server: &Server,
    script: &str,
    directory: &Directory,
) -> (Client, PathBuf, Service) {
    let resolved = resolved(machine);
    let (wrapper, told) = with_resolvectl(script, directory);
    let client = connect_by(
        &wrapper,
        machine,
        server,
        &["--dns", SERVER_V4, "--dns", SERVER_V6],
        directory,
    );
    (client, told, resolved)
}

/// A client with a default route, its TUN there.
pub(super) fn connect_by(
    wrapper: &[String],
    machine: &Namespace,
    server: &Server,
    options: &[&str],
    directory: &Directory,
) -> Client {
    let options = [&[TUN, "--default-route"][..], options].concat();
    let (place, link) = (machine.place(), server.link());
    let files = directory.path();
    let mut client = Client::start_unconnected_by(wrapper, &place, "client", &link, &[], &options, files);
    client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
    client
}

/// A machine whose `/etc/resolv.conf` is a file of ours, and its client.
struct WithFile {
    client: Client,
    _server: Server,
    machines: Machines,
    file: PathBuf,
    _directory: Directory,
}

/// What stands in the file before.
fn routers_file() -> String {
    format!("# by hand\nsearch lan\nnameserver {ROUTER}\n")
}

impl WithFile {
    fn new() -> Self {
        let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
        let server = machines.serve(&["--nat"], &directory);
        let file = directory.join("resolv.conf");
        fs::write(&file, routers_file()).unwrap();
        let wrapper = with_mounts(&format!("mount --bind '{}' /etc/resolv.conf", file.display()));
        let client = connect_by(
            &wrapper,
            &machines.first,
            &server,
            &["--dns", SERVER_V4],
            &directory,
        );
        Self {
            client,
            _server: server,
            machines,
            file,
            _directory: directory,
        }
    }

    fn wait_until_set(&self) {
        wait_until("our name server", PROGRAM_LIMIT, || is_ours(&self.file));
    }

    fn wait_until_back(&self, before: &str) {
        wait_until("the former name servers", PROGRAM_LIMIT, || {
            fs::read_to_string(&self.file).unwrap() == before
        });
    }

    /// Kills the client and all that would clean up behind it.
    fn kill_both(&mut self) {
        for guardian in guardians(&self.machines.first) {
            // One that has ended needs no signal.
            let _ = kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL);
        }
        self.client.kill();
    }

    fn says(&mut self, text: &str) {
        wait_until(text, PROGRAM_LIMIT, || {
            self.client.process().stderr().contains(text)
        });
    }
}

/// Whether our name server is the only one there.
fn is_ours(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let servers: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("nameserver"))
        .collect();
    servers == [format!("nameserver {SERVER_V4}")]
}

#[test]
fn the_file_names_our_servers_alone_and_is_put_back_after_an_end_and_after_every_kill() {
    require_root!();
    let mut machine = WithFile::new();
    let before = routers_file();
    machine.wait_until_set();
    assert!(
        fs::read_to_string(&machine.file)
            .unwrap()
            .contains("\nsearch lan\n")
    );
    machine.says(&format!(
        "name servers {SERVER_V4}, set in /etc/resolv.conf; {ROUTER} is asked no more"
    ));
    let names = &machine.client.status()["tun"]["names"];
    assert_eq!(names["set_by"][0], "/etc/resolv.conf");
    assert_eq!(machine.client.stop(), Some(0));
    assert_eq!(fs::read_to_string(&machine.file).unwrap(), before);

    // The guardian puts it back.
    machine.client.start_again();
    machine.wait_until_set();
    machine.client.kill();
    machine.wait_until_back(&before);

    // The next start does, and sets ours again.
    machine.client.start_again();
    machine.wait_until_set();
    machine.kill_both();
    assert!(is_ours(&machine.file));
    machine.client.start_again();
    machine.says("left behind: /etc/resolv.conf");
    machine.says("; 192.0.2.1 is asked no more");
    machine.wait_until_set();
    assert_eq!(machine.client.stop(), Some(0));
    assert_eq!(fs::read_to_string(&machine.file).unwrap(), before);
}

#[test]
fn what_another_program_writes_is_told_replaced_and_put_back_at_the_end() {
    require_root!();
    let mut machine = WithFile::new();
    machine.wait_until_set();
    let theirs = "# Generated by NetworkManager\nnameserver 192.0.2.9\n";
    fs::write(&machine.file, theirs).unwrap();
    machine.wait_until_set();
    machine.says("because another program had set others; 192.0.2.9 is asked no more");
    assert_eq!(machine.client.stop(), Some(0));
    assert_eq!(fs::read_to_string(&machine.file).unwrap(), theirs);

    // What was written after a kill is nobody's to undo.
    machine.client.start_again();
    machine.wait_until_set();
    machine.kill_both();
    fs::write(&machine.file, routers_file()).unwrap();
    machine.client.start_again();
    machine.says("/etc/resolv.conf is left as it is: another program has changed it since");
    machine.wait_until_set();
    machine.client.kill();
    machine.wait_until_back(&routers_file());
}

#[test]
fn resolvconf_is_told_to_use_our_servers_alone_and_to_forget_them_after_a_kill() {
    require_root!();
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let written = format!("# Generated by resolvconf\nnameserver {ROUTER}\n");
    // It writes down what it is told, and then the file: as openresolv does with -x.
    let script = format!(
        "echo \"$@\" >>$TOLD\nif [ $1 = -a ]; then line=\"nameserver {SERVER_V4}\"; cat >>$TOLD; \
         else line='nameserver {ROUTER}'; fi\nprintf '# Generated by resolvconf\\n%s\\n' \"$line\" >/etc/resolv.conf"
    );
    let (wrapper, told) = with_program("resolvconf", &script, &written, &directory);
    let mut client = connect_by(
        &wrapper,
        &machines.first,
        &server,
        &["--dns", SERVER_V4],
        &directory,
    );
    let added = format!("-a tun0 -m 0 -x\nnameserver {SERVER_V4}\n");
    wait_until("the name server", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).unwrap_or_default() == added
    });
    wait_until("the news", PROGRAM_LIMIT, || {
        client.process().stderr().contains("set in resolvconf;")
    });
    client.kill();
    let removed = format!("{added}-d tun0 -f\n");
    wait_until("the end of the name server", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).unwrap() == removed
    });
    assert_eq!(
        fs::read_to_string(directory.join("resolv.conf")).unwrap(),
        written
    );
}

#[test]
fn where_resolvconf_goes_on_naming_others_the_file_is_replaced_as_well() {
    require_root!();
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let written = format!("# Generated by resolvconf\nnameserver {ROUTER}\n");
    let (wrapper, told) = with_program("resolvconf", "echo \"$1\" >>$TOLD", &written, &directory);
    let mut client = connect_by(
        &wrapper,
        &machines.first,
        &server,
        &["--dns", SERVER_V4],
        &directory,
    );
    let file = directory.join("resolv.conf");
    wait_until("our name server", PROGRAM_LIMIT, || is_ours(&file));
    wait_until("the news", PROGRAM_LIMIT, || {
        client
            .process()
            .stderr()
            .contains("set in resolvconf and /etc/resolv.conf;")
    });
    assert_eq!(client.stop(), Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    assert_eq!(fs::read_to_string(&told).unwrap(), "-a\n-d\n");
}

#[test]
fn what_was_refused_is_tried_again_until_it_is_taken() {
    require_root!();
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let refusing = directory.join("refusing");
    fs::write(&refusing, "").unwrap();
    let script = format!(
        "if [ -e '{}' ]; then echo 'no bus' >&2; exit 1; fi; echo \"$@\" >>$TOLD",
        refusing.display()
    );
    let (mut client, told, _resolved) = connect_with_dns(&machines.first, &server, &script, &directory);
    wait_until("the warning", PROGRAM_LIMIT, || {
        let said = client.process().stderr();
        said.contains("no bus; names go on to those who were asked before, trying again")
    });
    assert!(client.status()["tun"]["names"]["error"].is_string());
    fs::remove_file(&refusing).unwrap();
    wait_until("the name servers", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).is_ok_and(|text| text.contains("domain tun0 ~."))
    });
    wait_until("the end of the error", PROGRAM_LIMIT, || {
        client.status()["tun"]["names"]["error"].is_null()
    });
}

#[test]
fn name_servers_are_told_to_systemd_resolved_once_and_leave_with_the_link_after_a_kill() {
    require_root!();
    require_program!("unshare", "ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let (mut client, told, _resolved) =
        connect_with_dns(&machines.first, &server, "echo \"$@\" >>$TOLD", &directory);
    let both = format!("dns tun0 {SERVER_V4} {SERVER_V6}\ndomain tun0 ~.\ndefault-route tun0 yes\n");
    wait_until("the name servers", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).unwrap_or_default() == both
    });
    // What there is to tell is told within a turn of half a second.
    reaches(&machines.first, SERVER_V4);
    machines
        .first
        .run("ping", ["-n", "-i", "0.1", "-c", "20", SERVER_V4])
        .unwrap();
    assert!(!client.process().stderr().contains("warning: systemd-resolved"));
    client.kill();
    wait_until("the end of the link", PROGRAM_LIMIT, || {
        !machines
            .first
            .run("ip", ["-o", "link", "show"])
            .unwrap()
            .contains("tun0")
    });
}

#[test]
fn a_systemd_resolved_that_refuses_is_quoted_and_the_tunnel_works_without() {
    require_root!();
    require_program!("unshare", "ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let script = "echo 'Failed to connect to bus' >&2; exit 1";
    let (mut client, _, _resolved) = connect_with_dns(&machines.first, &server, script, &directory);
    let expected = format!("`resolvectl dns tun0 {SERVER_V4} {SERVER_V6}`: Failed to connect to bus");
    wait_until("the warning", PROGRAM_LIMIT, || {
        client.process().stderr().contains(&expected)
    });
    reaches(&machines.first, SERVER_V4);
}

#[test]
fn a_systemd_resolved_that_hangs_holds_up_no_packet() {
    require_root!();
    require_program!("unshare", "ping");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let server = machines.serve(&["--nat"], &directory);
    let script = "echo begun >>$TOLD; exec sleep 60";
    let (mut client, told, _resolved) = connect_with_dns(&machines.first, &server, script, &directory);
    wait_until("the call of resolvectl", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).is_ok_and(|text| text.contains("begun"))
    });
    // It is given five seconds; a shard that waited for it would answer none of these.
    let pings = ["-n", "-i", "0.05", "-c", "40", "-W", "2", SERVER_V4];
    let said = machines.first.run("ping", pings).unwrap();
    assert!(said.contains(" 0% packet loss"), "{said}");
    wait_until("the warning", PROGRAM_LIMIT, || {
        client
            .process()
            .stderr()
            .contains("systemd-resolved did not take the name servers")
    });
}
