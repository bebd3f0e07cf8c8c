//! croc, with a relay of its own on the sender's machine, as its sender has one by default on a local network.

use std::process::Command;

use super::super::trial::{Sender, Transfer, Trial};
use super::{RIVALS, needed};
use crate::Error;
use crate::limits::FILES_HASH_TIMEOUT;
use crate::network::SERVER;

/// The code by which both ends meet.
const CODE: &str = "4711-bench-of-files";

/// Where its relay listens first.
const PORT: u16 = 9_009;

pub(super) fn start(trial: &Trial<'_>) -> Result<Transfer, Error> {
    let program = needed(RIVALS, "croc")?;
    let relay_address = format!("{SERVER}:{PORT}");
    let mut relay = Command::new(&program);
    relay.args(["relay", "--host", &SERVER.to_string()]);
    let relay = trial.start_server(&relay, "croc relay", PORT)?;
    let command = || {
        let mut command = Command::new(&program);
        // Without --ignore-stdin it sends what comes through its input, which is a pipe.
        command
            .env("CROC_SECRET", CODE)
            .args(["--ignore-stdin", "--yes", "--relay", &relay_address]);
        if trial.case.is_resumed() {
            // The bytes on the wire tell how much has come.
            command.arg("--no-compress");
        }
        command
    };
    let mut send = command();
    send.args(["send", "--no-local", "--code", CODE])
        .arg(&trial.source.path);
    let mut receive = command();
    receive.arg("--out").arg(trial.to);
    let clock = trial.clock();
    let mut send = trial.start(&trial.network.server, &send, "croc send")?;
    // It hashes everything before.
    send.wait_for_line("Code is", FILES_HASH_TIMEOUT)?;
    Ok(Transfer {
        clock,
        receiver: trial.start(&trial.network.client, &receive, "croc")?,
        sender: Some(Sender {
            process: send,
            stays: false,
        }),
        servers: vec![relay],
    })
}
