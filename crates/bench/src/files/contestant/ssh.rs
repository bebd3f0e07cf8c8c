//! What fetches by ssh: scp, rsync and qcp, from an sshd that is made for the benchmark.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use testbed::process::Process;
use testbed::programs;

use super::super::trial::{Transfer, Trial};
use super::{RIVALS, needed};
use crate::Error;
use crate::error::During;
use crate::network::SERVER;

/// Where sshd listens.
const PORT: u16 = 2_222;

/// What qcp is to take a cable for, in bytes a second and milliseconds: it does not find out, and sends no faster.
const QCP_CABLE: (u64, u64) = (1_250_000_000, 1);

/// Who fetches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Scp,
    Rsync,
    Qcp,
}

pub(super) fn start(trial: &Trial<'_>, by: By) -> Result<Transfer, Error> {
    let (sshd, options) = start_sshd(trial)?;
    let from = format!("root@{SERVER}:{}", trial.source.path.display());
    let command = match by {
        By::Scp => {
            let mut command = Command::new("scp");
            command.args(["-q", "-r", "-P", &PORT.to_string()]).args(options);
            command
        }
        By::Rsync => {
            let mut command = Command::new("rsync");
            command.arg("-a");
            if trial.case.is_compressible() {
                command.arg("-z");
            }
            if trial.case.is_resumed() {
                command.arg("--inplace");
            }
            command.args(["-e", &format!("ssh -p {PORT} {}", options.join(" "))]);
            command
        }
        By::Qcp => {
            let program = needed(RIVALS, "qcp")?;
            let (bytes_per_second, milliseconds) = match trial.case.link() {
                Some(link) => (
                    link.rate_bits_per_second.map_or(QCP_CABLE.0, |bits| bits / 8),
                    2 * link.delay_us / 1_000,
                ),
                None => QCP_CABLE,
            };
            let mut command = Command::new(&program);
            command.args(["--quiet", "--recurse", "--congestion", "bbr"]);
            command.args(["--rx", &bytes_per_second.to_string()]);
            command.args(["--rtt", &milliseconds.to_string()]);
            command.arg("--remote-qcp-binary").arg(&program);
            for option in ["-p".to_owned(), PORT.to_string()].iter().chain(&options) {
                command.args(["-S", option]);
            }
            command
        }
    };
    let mut command = command;
    command.arg(from).arg(trial.to);
    let clock = trial.clock();
    Ok(Transfer {
        clock,
        receiver: trial.start(
            &trial.network.client,
            &command,
            &command.get_program().to_string_lossy(),
        )?,
        sender: None,
        servers: vec![sshd],
    })
}

pub(super) fn sshd() -> Option<PathBuf> {
    programs::find(&["sshd"])
}

/// An sshd at the server's machine with a key made for it, and the options of ssh that get in.
fn start_sshd(trial: &Trial<'_>) -> Result<(Process, Vec<String>), Error> {
    let key = trial.place.join("ssh.key");
    if !key.is_file() {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
        programs::run(&mut command)?;
        fs::create_dir_all("/run/sshd").during(|| "make /run/sshd".to_owned())?;
    }
    let program = sshd().ok_or_else(|| Error::Setup("sshd is not there".to_owned()))?;
    let mut command = Command::new(program);
    command.args(["-D", "-e", "-f", "/dev/null", "-p", &PORT.to_string()]);
    for option in [
        "UsePAM=no".to_owned(),
        "StrictModes=no".to_owned(),
        format!("ListenAddress={SERVER}"),
        "Subsystem=sftp internal-sftp".to_owned(),
        format!("AuthorizedKeysFile={}.pub", key.display()),
    ] {
        command.args(["-o", &option]);
    }
    command.arg("-h").arg(&key);
    let process = trial.start_server(&command, "sshd", PORT)?;
    let options = [
        "StrictHostKeyChecking=no".to_owned(),
        "UserKnownHostsFile=/dev/null".to_owned(),
        "LogLevel=ERROR".to_owned(),
        format!("IdentityFile={}", key.display()),
    ];
    let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]);
    Ok((process, options.collect()))
}
