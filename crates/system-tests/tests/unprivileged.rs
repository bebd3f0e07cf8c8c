//! Without root: a server, a client and the demo as an ordinary user.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, USAGE, gramway_binary};
use system_tests::service::Service;
use system_tests::source::Source;
use system_tests::topology::Pair;
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::process::{Process, Signal};
use testbed::programs::run;

use crate::scene::{OPEN_LOOPBACK, load};

/// About ten seconds of load, on a busy machine.
const DEMO_LIMIT: Duration = Duration::from_secs(90);

/// What both ends ask for.
const RECEIVE_BUFFER_BYTES: u64 = 8 << 20;

const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// The program where everybody may run it, and a home that belongs to nobody.
struct Ordinary {
    program: PathBuf,
    home: PathBuf,
}

impl Ordinary {
    fn new(directory: &Directory) -> Self {
        let (program, home) = (directory.join("gramway"), directory.join("home"));
        // Not copied by this process: a file that a child of another thread holds open for writing cannot be run.
        run(Command::new("cp").arg(gramway_binary()).arg(&program)).unwrap();
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(65_534), Some(65_534)).unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).unwrap();
        Self { program, home }
    }

    fn command(&self, place: &Place, arguments: &[&str]) -> Command {
        let mut command = place.command("setpriv");
        command.args(NOBODY).arg(&self.program).args(arguments);
        command.env("HOME", &self.home).env("TMPDIR", &self.home);
        command.env_remove("XDG_STATE_HOME").current_dir(&self.home);
        command
    }
}

/// The line that says which setting would give larger socket buffers; none where the setting is large.
fn buffers_are_told(process: &mut Process) {
    let setting = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    if setting.trim().parse::<u64>().unwrap() < RECEIVE_BUFFER_BYTES {
        let line = process
            .wait_for_line("warning: the receive buffer", PROGRAM_LIMIT)
            .unwrap();
        assert!(line.contains("sysctl -w net.core.rmem_max="), "{line}");
    }
}

#[test]
fn server_and_client_work_and_tell_how_to_get_larger_buffers() {
    require_root!();
    require_program!("setpriv");
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let ordinary = Ordinary::new(&directory);
    let _echo = Service::udp_echo(&pair.server, "127.0.0.1:7000");
    let start = |place: &Place, name: &str, arguments: &[&str]| {
        Process::start(ordinary.command(place, arguments), name).unwrap()
    };
    let mut arguments = vec!["up", "--listen", "10.77.0.1:4433"];
    arguments.extend(OPEN_LOOPBACK);
    let mut server = start(&pair.server.place(), "server", &arguments);
    server
        .wait_for_starts("print the link with: gramway link --state ", 1, PROGRAM_LIMIT)
        .unwrap();
    let link = run(&mut ordinary.command(&pair.server.place(), &["link"])).unwrap();
    let state = ordinary.home.join(".local/state/gramway");
    assert!(state.join("owner.token").is_file());
    let arguments = ["connect", link.trim(), "-L", "udp:7000=127.0.0.1:7000"];
    let mut client = start(&pair.client.place(), "client", &arguments);
    client.wait_for_starts("connected", 1, PROGRAM_LIMIT).unwrap();
    Source::new(&pair.client, "127.0.0.1:7000").ask(b"as nobody", PROGRAM_LIMIT);
    buffers_are_told(&mut server);
    buffers_are_told(&mut client);
    let arguments = ["up", "--state", "other", "--listen", "10.77.0.1:443"];
    pair.server
        .set_parameter("net.ipv4.ip_unprivileged_port_start", "1024")
        .unwrap();
    let mut refused = start(&pair.server.place(), "refused", &arguments);
    assert_eq!(
        refused.wait(PROGRAM_LIMIT).unwrap().code(),
        Some(PERMISSION),
        "{}",
        refused.stderr()
    );
    let told = refused.stderr();
    for way_out in ["sudo", "AmbientCapabilities=CAP_NET_BIND_SERVICE", "--listen"] {
        assert!(told.contains(way_out), "{told}");
    }
    assert!(!ordinary.home.join("other").exists());
}

#[test]
fn capabilities_of_the_file_are_given_up_so_that_no_user_gets_them() {
    require_root!();
    require_program!("setpriv", "setcap");
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let ordinary = Ordinary::new(&directory);
    run(Command::new("setcap")
        .arg("cap_net_admin,cap_dac_override,cap_sys_admin+ep")
        .arg(&ordinary.program))
    .unwrap();
    // What a dead process of this network would have left, had it been written by us.
    let list = ordinary.home.join("undo-1-0.json");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let network = pair.client.inside(|| packet_io::network_cookie().unwrap());
    let change = r#"{"parameter":{"name":"net/ipv4/conf/all/accept_redirects","before":"1","after":"0"}}"#;
    let holder = format!(
        r#"{{"id":1,"started_ticks":1,"boot":"{}","network":{network}}}"#,
        boot.trim()
    );
    let text = format!(r#"{{"version":1,"holder":{holder},"changes":[{change}]}}"#);
    std::fs::write(&list, text).unwrap();
    std::os::unix::fs::chown(&list, Some(65_534), Some(65_534)).unwrap();
    std::fs::set_permissions(&list, std::fs::Permissions::from_mode(0o600)).unwrap();
    let parameter = "net.ipv4.conf.all.accept_redirects";
    pair.client.set_parameter(parameter, "0").unwrap();
    let value = || pair.client.run("sysctl", ["-n", parameter]).unwrap();
    let list = list.to_str().unwrap();
    let guardian = ordinary
        .command(&pair.client.place(), &["_guardian", list])
        .output();
    assert!(!guardian.unwrap().status.success());
    assert_eq!(value().trim(), "0");
    // The list is well formed: root obeys it where it is root's, and refuses it while it is another user's.
    let as_root = || {
        let mut command = pair.client.command(&ordinary.program);
        command
            .args(["_guardian", list])
            .stdin(std::process::Stdio::null());
        command.output().unwrap()
    };
    let refused = as_root();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("belongs to another user"), "{told}");
    assert_eq!(value().trim(), "0");
    for path in [list, ordinary.home.to_str().unwrap()] {
        std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap();
    }
    assert!(as_root().status.success());
    assert_eq!(value().trim(), "1");
}

#[test]
fn root_manages_the_users_of_anothers_state_as_its_owner_also_below_a_closed_directory() {
    require_root!();
    require_program!("setpriv");
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let ordinary = Ordinary::new(&directory);
    let up = ordinary.command(&pair.server.place(), &["up", "--listen", "10.77.0.1:4433"]);
    let mut server = Process::start(up, "server").unwrap();
    server
        .wait_for_starts("print the link with: gramway link --state ", 1, PROGRAM_LIMIT)
        .unwrap();
    server.signal(Signal::TERM);
    server.wait(PROGRAM_LIMIT).unwrap();
    // As systemd closes /var/lib/private.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let state = ordinary.home.join(".local/state/gramway");
    let user = |words: &[&str]| {
        let mut command = Command::new(gramway_binary());
        command.arg("user").args(words).arg("--state").arg(&state);
        command
    };
    let copy = directory.join("copy");
    let copy_name = copy.to_str().unwrap();
    let missing = user(&["backup", copy_name]).output().unwrap();
    assert_eq!(missing.status.code(), Some(USAGE));
    assert!(!copy.exists());
    let link = run(&mut user(&["add", "alice"])).unwrap();
    assert!(link.starts_with("gramway://"), "{link}");
    run(&mut user(&["backup", copy_name])).unwrap();
    let kept = std::fs::metadata(&copy).unwrap();
    assert_eq!((kept.uid(), kept.mode() & 0o777), (0, 0o600));
    run(&mut user(&["remove", "alice"])).unwrap();
    run(&mut user(&["restore", copy_name])).unwrap();
    let list = run(&mut user(&["list"])).unwrap();
    assert!(list.starts_with("alice  "), "{list}");
    for entry in std::fs::read_dir(&state).unwrap() {
        let path = entry.unwrap().path();
        let owner = std::fs::symlink_metadata(&path).unwrap().uid();
        assert_eq!(owner, 65_534, "{}", path.display());
    }

    // A link to an empty file, which SQLite would take for an empty database.
    let victim = directory.join("victim");
    std::fs::write(&victim, "").unwrap();
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(state.join(format!("users.db{ending}")));
    }
    symlink(&victim, state.join("users.db")).unwrap();
    let refused = user(&["add", "bob"]).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{told}");
    assert!(told.contains(state.join("users.db").to_str().unwrap()), "{told}");
    assert_eq!(std::fs::read(&victim).unwrap(), b"");
}

fn demo_passes(command: Command) {
    let mut demo = Process::start(command, "demo").unwrap();
    let status = demo.wait(DEMO_LIMIT).unwrap();
    assert_eq!(status.code(), Some(0), "{}", demo.stderr());
    let told = demo.stdout();
    let last = told.lines().last().unwrap_or_default();
    for part in ["UDP", "TCP", "Gbit/s"] {
        assert!(last.contains(part), "{told}");
    }
}

#[test]
fn the_demo_carries_traffic_and_ends_with_a_summary_as_root_and_as_nobody() {
    require_root!();
    require_program!("setpriv");
    let _load = load();
    let directory = Directory::create_for_test().unwrap();
    let ordinary = Ordinary::new(&directory);
    demo_passes(ordinary.command(&Place::Host, &["demo"]));
    let mut command = Command::new(gramway_binary());
    command.arg("demo");
    demo_passes(command);
}
