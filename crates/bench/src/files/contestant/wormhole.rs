//! magic-wormhole, with a mailbox server and a transit relay of its own on the sender's machine.

use std::process::Command;

use super::super::trial::{Sender, Transfer, Trial};
use super::{RIVALS_PYTHON, needed};
use crate::Error;
use crate::limits::FILES_START_TIMEOUT;
use crate::network::SERVER;

/// The code by which both ends meet.
const CODE: &str = "7-bench-files";

/// Where the mailbox server listens.
const MAILBOX_PORT: u16 = 4_000;

/// Where the transit relay listens. Both ends reach each other, so it carries nothing.
const TRANSIT_PORT: u16 = 4_001;

pub(super) fn start(trial: &Trial<'_>) -> Result<Transfer, Error> {
    let program = needed(RIVALS_PYTHON, "wormhole")?;
    let server = |what: &str, port: u16| {
        let mut command = Command::new(needed(RIVALS_PYTHON, "twist")?);
        command.args([what, &format!("--port=tcp:{port}:interface={SERVER}")]);
        if what == "wormhole-mailbox" {
            command.arg("--channel-db=:memory:");
        }
        trial.start_server(&command, what, port)
    };
    let servers = vec![
        server("wormhole-mailbox", MAILBOX_PORT)?,
        server("transitrelay", TRANSIT_PORT)?,
    ];
    let command = |verb: &str| {
        let mut command = Command::new(&program);
        command.arg(format!("--relay-url=ws://{SERVER}:{MAILBOX_PORT}/v1"));
        command.arg(format!("--transit-helper=tcp:{SERVER}:{TRANSIT_PORT}"));
        command.args([verb, "--hide-progress"]);
        command
    };
    let mut send = command("send");
    send.args(["--code", CODE]).arg(&trial.source.path);
    let mut receive = command("receive");
    receive.args(["--accept-file", "--output-file"]).arg(trial.to);
    receive.arg(CODE);
    let clock = trial.clock();
    let mut send = trial.start(&trial.network.server, &send, "wormhole send")?;
    send.wait_for_line("code is", FILES_START_TIMEOUT)?;
    Ok(Transfer {
        clock,
        receiver: trial.start(&trial.network.client, &receive, "wormhole receive")?,
        sender: Some(Sender {
            process: send,
            stays: false,
        }),
        servers,
    })
}
