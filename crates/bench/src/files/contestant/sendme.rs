//! sendme, without relays and servers that tell addresses: its ticket has the sender's addresses.

use std::fs;
use std::process::Command;

use super::super::trial::{Sender, Transfer, Trial};
use super::{RIVALS, needed};
use crate::Error;
use crate::error::During;
use crate::limits::FILES_HASH_TIMEOUT;

/// What stands before the ticket.
const TICKET: &str = "sendme receive ";

pub(super) fn start(trial: &Trial<'_>) -> Result<Transfer, Error> {
    let program = needed(RIVALS, "sendme")?;
    let command = |verb: &str| {
        let mut command = Command::new(&program);
        command.args([verb, "--relay", "disabled", "--no-progress"]);
        command
    };
    // It keeps its data in its working directory, and what it has received too.
    let at_sender = trial.place.join("sendme");
    fs::create_dir_all(&at_sender).during(|| format!("make {}", at_sender.display()))?;
    let mut send = command("send");
    send.args(["--ticket-type", "addresses"])
        .arg(&trial.source.path)
        .current_dir(at_sender);
    let clock = trial.clock();
    let mut send = trial.start(&trial.network.server, &send, "sendme send")?;
    // It hashes everything before.
    let line = send.wait_for_line(TICKET, FILES_HASH_TIMEOUT)?;
    let ticket = line.trim().trim_start_matches(TICKET).to_owned();
    let mut receive = command("receive");
    receive.arg(ticket).current_dir(trial.to);
    Ok(Transfer {
        clock,
        receiver: trial.start(&trial.network.client, &receive, "sendme receive")?,
        sender: Some(Sender {
            process: send,
            stays: true,
        }),
        servers: Vec::new(),
    })
}
