//! Who transfers: how each is found, started at both ends, and measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;
use testbed::process::Process;
use testbed::programs;
use testbed::usage::ended_children_cpu_seconds;

use crate::error::During;
use crate::network::{Network, SERVER};
use crate::{Error, Programs};

/// How long a run may take at most.
const RUN_MAX: Duration = Duration::from_secs(600);

/// How long a sender may take to be ready.
const START_MAX: Duration = Duration::from_secs(20);

/// Where what is not in the system's directories may be found: `cargo xtask setup --rivals` installs it there.
const CROC: &str = "rivals/bin/croc";

/// The code by which croc's two ends meet.
const CROC_CODE: &str = "4711-bench-of-files";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contestant {
    /// Copies on one machine: the floor.
    Cp,
    Gramway,
    Croc,
    Scp,
    Rsync,
}

/// What one run took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// Of all processes at both ends.
    pub(super) cpu_seconds: f64,
    /// The larger one of both ends, where that is measured.
    pub(super) peak_bytes: Option<u64>,
}

impl Contestant {
    pub(super) const ALL: [Self; 5] = [Self::Cp, Self::Gramway, Self::Croc, Self::Scp, Self::Rsync];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Gramway => "gramway",
            Self::Croc => "croc",
            Self::Scp => "scp",
            Self::Rsync => "rsync",
        }
    }

    /// What it says of itself; `Err`: it is not there, and how to get it.
    pub(super) fn version(self) -> Result<Option<String>, String> {
        match self {
            Self::Cp | Self::Gramway => Ok(None),
            Self::Croc => match croc() {
                Some(path) => Ok(Some(programs::said(Command::new(path).arg("--version")))),
                None => Err("croc is not installed: cargo xtask setup --rivals".to_owned()),
            },
            Self::Scp | Self::Rsync => {
                if sshd().is_none() || programs::find(&["ssh"]).is_none() {
                    return Err(format!(
                        "{}: no sshd; apt-get install openssh-server openssh-client",
                        self.name()
                    ));
                }
                match (self, programs::find(&["rsync"])) {
                    (Self::Rsync, None) => Err("rsync is not installed: apt-get install rsync".to_owned()),
                    (Self::Rsync, Some(_)) => {
                        let said = programs::said(Command::new("rsync").arg("--version"));
                        Ok(said.lines().next().map(str::to_owned))
                    }
                    _ => Ok(Some(programs::said(Command::new("ssh").arg("-V")))),
                }
            }
        }
    }

    /// Brings `source` into the directory `to`. `place` is for keys and states.
    pub(super) fn run(
        self,
        programs: &Programs,
        network: &Network,
        source: &Path,
        to: &Path,
        place: &Path,
    ) -> Result<Run, Error> {
        fs::create_dir(to).during(|| format!("make {}", to.display()))?;
        let before = ended_children_cpu_seconds();
        let (seconds, peak_bytes) = match self {
            Self::Cp => {
                let mut command = network.client.command("cp");
                command.arg("-r").arg(source).arg(to);
                (timed(command, "cp")?.0, None)
            }
            Self::Gramway => gramway(programs, network, source, to, place)?,
            Self::Croc => (run_croc(network, source, to)?, None),
            Self::Scp => {
                let (_sshd, ssh) = start_sshd(network, place)?;
                let mut command = network.client.command("scp");
                command.args(["-q", "-r"]).args(&ssh).args(["-P", "2222"]);
                command.arg(format!("root@{SERVER}:{}", source.display())).arg(to);
                (timed(command, "scp")?.0, None)
            }
            Self::Rsync => {
                let (_sshd, ssh) = start_sshd(network, place)?;
                let mut command = network.client.command("rsync");
                command
                    .args(["-a", "-z", "-e"])
                    .arg(format!("ssh -p 2222 {}", ssh.join(" ")));
                command.arg(format!("root@{SERVER}:{}", source.display())).arg(to);
                (timed(command, "rsync")?.0, None)
            }
        };
        Ok(Run {
            seconds,
            cpu_seconds: ended_children_cpu_seconds() - before,
            peak_bytes,
        })
    }
}

/// Runs it to its end: how long it took, and the process for what else is asked.
fn timed(command: Command, name: &str) -> Result<(f64, u64), Error> {
    let began = Instant::now();
    let mut process = Process::start(command, name)?;
    let mut peak = 0;
    while process.try_status().is_none() && began.elapsed() < RUN_MAX {
        peak = process.usage().peak_bytes.max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    let seconds = began.elapsed().as_secs_f64();
    let status = process.wait(Duration::from_secs(1))?;
    match status.success() {
        true => Ok((seconds, peak)),
        false => Err(Error::Setup(format!(
            "{name} ended with {status}: {}",
            process.last_words()
        ))),
    }
}

fn gramway(
    programs: &Programs,
    network: &Network,
    source: &Path,
    to: &Path,
    place: &Path,
) -> Result<(f64, Option<u64>), Error> {
    let state = |name: &str| place.join(name);
    let id = |name: &str| {
        let mut command = programs.gramway();
        command.args(["peer", "id", "--state"]).arg(state(name));
        programs::said(&mut command)
    };
    let (sender, receiver) = (id("sender"), id("receiver"));
    // What the sender remembers of the files would spare it work in later runs.
    let _ = fs::remove_dir_all(state("sender").join("files"));
    let listen = format!("{SERVER}:4000");
    let mut send = programs.gramway();
    send.arg("send")
        .arg(source)
        .args(["--peer", &receiver, "--no-lan", "--listen", &listen, "--state"]);
    send.arg(state("sender"));
    let mut send = Process::start(network.server.wrap(&send), "gramway send")?;
    send.wait_for_line("waiting for the peer", START_MAX)?;
    let mut receive = programs.gramway();
    receive.args([
        "receive",
        "--peer",
        &format!("{sender}@{listen}"),
        "--no-lan",
        "--state",
    ]);
    receive.arg(state("receiver")).arg("--to").arg(to);
    let (seconds, peak) = timed(network.client.wrap(&receive), "gramway receive")?;
    let of_sender = send.usage().peak_bytes;
    send.wait(START_MAX)?;
    Ok((seconds, Some(peak.max(of_sender))))
}

fn croc() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let installed = own.ancestors().nth(2)?.join(CROC);
    installed
        .is_file()
        .then_some(installed)
        .or_else(|| programs::find(&["croc"]))
}

fn run_croc(network: &Network, source: &Path, to: &Path) -> Result<f64, Error> {
    let program = croc().ok_or_else(|| Error::Setup("croc is not there".to_owned()))?;
    let relay = format!("{SERVER}:9009");
    let mut command = network.server.command(&program);
    command.args(["relay", "--host", &SERVER.to_string()]);
    let _relay = Process::start(command, "croc relay")?;
    wait_for_port(network, 9_009)?;
    let mut command = network.server.command(&program);
    command
        .env("CROC_SECRET", CROC_CODE)
        .args(["--ignore-stdin", "--relay", &relay])
        .args(["send", "--no-local", "--code", CROC_CODE])
        .arg(source);
    let mut sender = Process::start(command, "croc send")?;
    sender.wait_for_line("Code is", START_MAX)?;
    let mut command = network.client.command(&program);
    command
        .env("CROC_SECRET", CROC_CODE)
        .args(["--ignore-stdin", "--yes", "--relay", &relay, "--out"])
        .arg(to);
    let (seconds, _) = timed(command, "croc")?;
    sender.end(START_MAX);
    Ok(seconds)
}

/// Waits until something listens there.
fn wait_for_port(network: &Network, port: u16) -> Result<(), Error> {
    let until = Instant::now() + START_MAX;
    let address = (SERVER, port).into();
    while Instant::now() < until {
        let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        if network.client.inside(connect) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(Error::Setup(format!("nothing listens at {address}")))
}

fn sshd() -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/sbin/sshd");
    usual
        .is_file()
        .then_some(usual)
        .or_else(|| programs::find(&["sshd"]))
}

/// An sshd at the server's machine with a key made for it, and the options of ssh that get in.
fn start_sshd(network: &Network, place: &Path) -> Result<(Process, Vec<String>), Error> {
    let key = place.join("ssh.key");
    if !key.is_file() {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .status();
        made.during(|| "make a key for ssh".to_owned())?;
        fs::create_dir_all("/run/sshd").during(|| "make /run/sshd".to_owned())?;
    }
    let program = sshd().ok_or_else(|| Error::Setup("sshd is not there".to_owned()))?;
    let mut command = network.server.command(program);
    command.args([
        "-D",
        "-e",
        "-p",
        "2222",
        "-f",
        "/dev/null",
        "-o",
        "UsePAM=no",
        "-o",
        "StrictModes=no",
    ]);
    command.arg("-o").arg(format!("ListenAddress={SERVER}"));
    command.arg("-o").arg("Subsystem=sftp internal-sftp");
    command
        .arg("-o")
        .arg(format!("AuthorizedKeysFile={}.pub", key.display()));
    command.arg("-h").arg(&key);
    let process = Process::start(command, "sshd")?;
    wait_for_port(network, 2_222)?;
    let options = [
        "StrictHostKeyChecking=no".to_owned(),
        "UserKnownHostsFile=/dev/null".to_owned(),
        "LogLevel=ERROR".to_owned(),
        format!("IdentityFile={}", key.display()),
    ];
    let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]);
    Ok((process, options.collect()))
}
