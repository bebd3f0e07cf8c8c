//! `gramway send` and `receive` of two peers that know each other, as they ship; without compression where a transfer
//! is resumed, as its cut is told by the bytes that have come.

use testbed::programs;

use super::super::trial::{Sender, Transfer, Trial};
use crate::Error;
use crate::limits::FILES_START_TIMEOUT;
use crate::network::SERVER;

pub(super) fn start(trial: &Trial<'_>) -> Result<Transfer, Error> {
    let state = |name: &str| trial.place.join(name);
    let id = |name: &str| {
        let mut command = trial.programs.gramway();
        command.args(["peer", "id", "--state"]).arg(state(name));
        programs::said(&mut command)
    };
    let (of_sender, of_receiver) = (id("sender"), id("receiver"));
    let listen = format!("{SERVER}:4000");
    let mut send = trial.programs.gramway();
    send.arg("send").arg(&trial.source.path);
    send.args(["--peer", &of_receiver, "--no-lan", "--listen", &listen, "--state"]);
    send.arg(state("sender"));
    if trial.case.is_resumed() {
        // The bytes on the wire tell how much has come.
        send.args(["--compress", "no"]);
    }
    let mut receive = trial.programs.gramway();
    receive.args(["receive", "--peer", &format!("{of_sender}@{listen}"), "--no-lan"]);
    receive.arg("--state").arg(state("receiver"));
    receive.arg("--to").arg(trial.to);
    let clock = trial.clock();
    let mut send = trial.start(&trial.network.server, &send, "gramway send")?;
    send.wait_for_line("waiting for the peer", FILES_START_TIMEOUT)?;
    Ok(Transfer {
        clock,
        receiver: trial.start(&trial.network.client, &receive, "gramway receive")?,
        sender: Some(Sender {
            process: send,
            stays: false,
        }),
        servers: Vec::new(),
    })
}
