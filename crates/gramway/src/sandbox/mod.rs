//! What a server or client gives up before it opens its first socket to others and starts its first thread, and a relay
//! between its sockets and its first thread, so that all threads are confined alike: privileges (`privileges.rs`),
//! files by Landlock (`files.rs`) and system calls by seccomp (`calls.rs`), the last, because the others need calls
//! that it refuses. `peer.rs` says it of `gramway peer` and
//! of transfers.
//!
//! No program is run, nothing of the machine is changed, and only the state directory is written. With a TUN device the
//! host's network is changed by a helper (`crate::helper`), which is confined as well: it keeps the privileges, more
//! files and more calls, for itself, its guardians and the programs that keep name servers. What a kernel does not have
//! is told, and the rest holds.

mod calls;
mod files;
mod peer;
mod privileges;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;
use serde_json::{Value, json};
use tunnel::config::CarrierChoice;

use calls::Calls;
pub(crate) use peer::{OfPeer, confine_peer, confine_transfer};

use crate::config::Settings;
use crate::exit::Problem;
use crate::helper::HostAccess;
use crate::log;
use crate::state::StateDirectory;

/// What this process goes on needing.
#[derive(Clone, Debug)]
pub(crate) struct Needs<'a> {
    state: &'a StateDirectory,
    /// Directories whose files are read again.
    reads: Vec<PathBuf>,
    /// The directory of traces.
    traces: Option<&'a Path>,
    /// The config file that was named, to be read again at a reload.
    config: Option<&'a Path>,
    /// The host's network is changed, by a helper.
    has_tun: bool,
    /// The helper sets the machine's name servers.
    sets_names: bool,
    /// It listens on a port that may be privileged.
    listens: bool,
    /// Larger socket buffers than the system lets everybody have.
    exceeds_buffers: bool,
    /// Packets in TCP's shape.
    has_tcp: bool,
    /// Packets of a router's network for other machines, and answers from their addresses.
    has_tproxy: bool,
}

impl<'a> Needs<'a> {
    pub(crate) fn of_server(state: &'a StateDirectory, settings: &'a Settings) -> Self {
        Self {
            listens: true,
            sets_names: false,
            has_tcp: settings.tcp.is_some(),
            has_tproxy: false,
            ..Self::of_client(state, settings, CarrierChoice::UDP)
        }
    }

    pub(crate) fn of_client(
        state: &'a StateDirectory,
        settings: &'a Settings,
        carriers: CarrierChoice,
    ) -> Self {
        let has_tun = settings.tun.name.is_some();
        Self {
            state,
            reads: Vec::new(),
            traces: settings.qlog.directory.as_deref(),
            config: None,
            has_tun,
            sets_names: has_tun && settings.tun.sets_names(),
            // Forwards and proxies may have local ports below 1,024.
            listens: !settings.forward.is_empty()
                || !settings.proxies.is_empty()
                || settings.tproxy.port.is_some(),
            exceeds_buffers: privileges::exceed_limits(
                settings.common.receive_buffer_bytes,
                settings.common.send_buffer_bytes,
            ),
            has_tcp: carriers.tcp_port.is_some(),
            has_tproxy: settings.tproxy.port.is_some(),
        }
    }

    /// With a config file outside the state directory.
    pub(crate) fn with_config(self, config: Option<&'a Path>) -> Self {
        Self { config, ..self }
    }

    /// With files in these directories that are read again.
    pub(crate) fn reading(self, reads: Vec<PathBuf>) -> Self {
        Self { reads, ..self }
    }

    /// Capabilities that it keeps.
    pub(crate) fn capabilities(&self) -> CapabilitySet {
        privileges::of_tunnel(self)
    }

    /// Directories that it writes to.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &Path> {
        self.traces.into_iter().chain([self.state.path()])
    }

    /// Makes the state directory, unless a sandbox `is_unwanted`: what does not exist cannot be allowed.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn make_directories(&self, is_unwanted: bool) -> Result<MadeDirectories, Problem> {
        if is_unwanted {
            return Ok(MadeDirectories::default());
        }
        make_directory(self.state.path()).map(MadeDirectories)
    }

    /// The way to changes of the host's network: by a helper, unless a sandbox `is_unwanted`.
    ///
    /// # Errors
    /// As of [`HostAccess::start`].
    pub(crate) fn host_access(&self, is_unwanted: bool) -> Result<HostAccess, Problem> {
        if !self.has_tun && !self.has_tproxy {
            return Ok(HostAccess::none());
        }
        let directory = host::runtime_directory(self.state.path());
        HostAccess::start(&directory, !is_unwanted, self.sets_names)
    }
}

/// The sandbox of this process, which lasts as long as the process.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// What holds, for `status`; null without one.
    report: Value,
    _made: MadeDirectories,
}

/// Directories that were made for the state, the outermost first. Where nothing came into them, they are removed with
/// this: a start that failed leaves the disk as it was.
#[derive(Debug, Default)]
pub(crate) struct MadeDirectories(Vec<PathBuf>);

impl Sandbox {
    /// Confines this process; nothing at all where it `is_unwanted`. `host` changes the host's network, and runs.
    pub(crate) fn enter(needs: &Needs, host: &HostAccess, is_unwanted: bool, made: MadeDirectories) -> Self {
        if is_unwanted {
            return Self {
                report: Value::Null,
                _made: made,
            };
        }
        let rules = files::of_tunnel(needs, made.0.first());
        let calls = if needs.has_tcp {
            Calls::PacketSockets
        } else {
            Calls::Program
        };
        let (mut report, told) = confine(privileges::of_tunnel(needs), rules, calls);
        warn(&told);
        report["helper"] = host.report();
        Self { report, _made: made }
    }

    /// What holds, for programs.
    pub(crate) fn report(&self) -> Value {
        self.report.clone()
    }
}

/// The two ends of `gramway relay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfRelay {
    /// Listens to UDP and opens connections.
    NearClients,
    /// Listens to connections.
    NearTarget,
}

/// Confines a relay whose sockets are open and whose threads do not run yet.
pub(crate) fn confine_relay(relay: OfRelay) {
    let calls = match relay {
        OfRelay::NearClients => Calls::PacketSockets,
        OfRelay::NearTarget => Calls::Program,
    };
    warn(&confine(privileges::of_relay(relay), files::of_relay(), calls).1);
}

fn warn(told: &[String]) {
    for text in told {
        log::warning("sandbox", format!("the sandbox does not hold for {text}"));
    }
}

/// Confines the helper, whose lists of changes are in `directory`. What holds.
pub(crate) fn confine_helper(directory: &Path, sets_names: bool) -> Value {
    // The first change makes it otherwise, or tells why not.
    let _ = make_directory(directory);
    // What does not hold for it does not for its parent, which tells.
    let rules = files::of_helper(directory, sets_names);
    confine(privileges::OF_HELPER, rules, Calls::Children).0
}

/// Confines the launcher of a server, and all that it starts, to these capabilities, as bits, and to writing in these
/// directories, which exist. What it starts confines itself further.
pub(crate) fn confine_launcher(capabilities: u64, writes: &[PathBuf]) {
    let kept = CapabilitySet::from_bits_truncate(capabilities);
    // What does not hold for it does not for its parent, which tells.
    confine_but_calls(kept, files::of_launcher(writes), &mut Vec::new());
}

/// Confines this process, and all that it starts from here on. What holds, and what does not and why.
fn confine(kept: CapabilitySet, rules: files::Rules, calls: Calls) -> (Value, Vec<String>) {
    let mut told = Vec::new();
    let (privileges, files) = confine_but_calls(kept, rules, &mut told);
    let calls = calls::confine(calls).map_err(|error| told.push(format!("system calls: {error}")));
    let report = json!({
        "capabilities": privileges,
        "no_new_privileges": rustix::thread::no_new_privs().unwrap_or(false),
        "files": files,
        "system_calls": calls.is_ok(),
    });
    (report, told)
}

/// Capabilities that stay, and whether files are confined; `told` what does not hold.
fn confine_but_calls(
    kept: CapabilitySet,
    rules: files::Rules,
    told: &mut Vec<String>,
) -> (Vec<String>, bool) {
    let privileges = privileges::keep(kept).unwrap_or_else(|error| {
        told.push(format!("privileges: {error}"));
        Vec::new()
    });
    let files = match files::confine(rules) {
        Ok(true) => true,
        Ok(false) => {
            told.push("files: this kernel has no Landlock, or it is switched off".to_owned());
            false
        }
        Err(error) => {
            told.push(format!("files: {error}"));
            false
        }
    };
    (privileges, files)
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            // It is in use, which is the rule.
            let _ = fs::remove_dir(path);
        }
    }
}

/// What holds, for people; of a process that tells nothing of it, nothing.
pub(crate) fn as_text(report: Option<&Value>) -> Option<String> {
    let report = report?;
    if report.is_null() {
        return Some("none".to_owned());
    }
    let own = one_as_text(report);
    Some(match report.get("helper").filter(|helper| !helper.is_null()) {
        Some(helper) => format!("{own}; its helper: {}", one_as_text(helper)),
        None => own,
    })
}

fn one_as_text(report: &Value) -> String {
    let capabilities: Vec<_> = report["capabilities"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let holds = |key: &str, name: &str| {
        let not = if report[key] == true { "" } else { "not " };
        format!("{name} {not}confined")
    };
    let kept = match capabilities.as_slice() {
        [] => "no capabilities".to_owned(),
        some => format!("capabilities {}", some.join(", ")),
    };
    let (files, calls) = (holds("files", "files"), holds("system_calls", "system calls"));
    format!("{kept}; {files}, {calls}")
}

/// Makes a directory for this user alone, with those above it; which ones were missing, the outermost first.
fn make_directory(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let mut missing: Vec<_> = path
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .map(Path::to_path_buf)
        .collect();
    missing.reverse();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Problem::file("create the state directory", path, &error))?;
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_nothing_came_into_goes_again_and_one_in_use_stays() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("a/b");
        drop(MadeDirectories(make_directory(&inner).unwrap()));
        assert!(!place.path().join("a").exists());
        let made = make_directory(&inner).unwrap();
        assert_eq!(made, [place.path().join("a"), inner.clone()]);
        fs::write(inner.join("file"), "").unwrap();
        drop(MadeDirectories(made));
        assert!(inner.join("file").exists() && make_directory(&inner).unwrap().is_empty());
    }

    /// The state directory of the process that confines itself where the test below asks for it.
    const CONFINED: &str = "GRAMWAY_TEST_CONFINED";

    /// Seccomp confines the whole process, so that the test needs one of its own.
    #[test]
    fn a_process_without_a_tun_reaches_its_state_alone_and_runs_nothing() {
        let Some(place) = std::env::var_os(CONFINED).map(PathBuf::from) else {
            let place = tempfile::tempdir().unwrap();
            fs::write(place.path().join("outside"), "").unwrap();
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "sandbox::tests::a_process_without_a_tun_reaches_its_state_alone_and_runs_nothing",
                ])
                .env(CONFINED, place.path())
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{told}");
            return;
        };
        let state = StateDirectory::locate(Some(&place.join("state")), |_| None).unwrap();
        let settings = Settings::default();
        let needs = Needs::of_server(&state, &settings);
        let made = needs.make_directories(false).unwrap();
        let sandbox = Sandbox::enter(&needs, &HostAccess::none(), false, made);
        let report = sandbox.report();
        for what in ["no_new_privileges", "files", "system_calls"] {
            assert_eq!(report[what], true, "{report}");
        }
        state.create().unwrap();
        let try_all = || {
            assert!(fs::read(state.file("version")).is_ok() && fs::read("/proc/self/status").is_ok());
            for error in [
                fs::read(place.join("outside")).unwrap_err(),
                fs::write(place.join("new"), "").unwrap_err(),
                fs::write("/proc/self/comm", "x").unwrap_err(),
            ] {
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            }
            assert!(std::process::Command::new("/bin/true").status().is_err());
            let packets = rustix::net::AddressFamily::PACKET;
            let socket = rustix::net::socket(packets, rustix::net::SocketType::RAW, None);
            assert_eq!(socket.unwrap_err(), rustix::io::Errno::NOSYS);
            assert!(rustix::thread::set_no_new_privs(false).is_err());
        };
        try_all();
        std::thread::scope(|scope| scope.spawn(try_all).join().unwrap());
    }

    #[test]
    fn what_holds_is_one_line() {
        let report = json!({
            "capabilities": ["net_admin", "net_raw"], "no_new_privileges": true, "files": true, "system_calls": false,
        });
        assert_eq!(
            as_text(Some(&report)).unwrap(),
            "capabilities net_admin, net_raw; files confined, system calls not confined"
        );
        let with_helper =
            json!({ "capabilities": [], "files": true, "system_calls": true, "helper": report });
        assert_eq!(
            as_text(Some(&with_helper)).unwrap(),
            "no capabilities; files confined, system calls confined; its helper: capabilities net_admin, net_raw; \
             files confined, system calls not confined"
        );
        assert_eq!(as_text(Some(&Value::Null)).unwrap(), "none");
        assert_eq!(as_text(None), None);
    }
}
