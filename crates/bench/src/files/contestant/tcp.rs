//! What TCP gets of a link, by iperf3: the sender's end sends on one connection for a while.

use testbed::iperf::{self, IperfRun, IperfServer};

use super::super::trial::{Run, Trial};
use crate::Error;
use crate::limits::FILES_TCP_SECONDS;
use crate::network::SERVER;

pub(super) fn run(trial: &Trial<'_>) -> Result<Run, Error> {
    let address = (SERVER, 5_201).into();
    let _server = IperfServer::start(&trial.network.server.place(), address)?;
    let wanted = IperfRun::tcp(address, FILES_TCP_SECONDS).reversed();
    let result = iperf::run(&trial.network.client.place(), &wanted)?;
    Ok(Run {
        seconds: result.seconds,
        disk_seconds: result.seconds,
        bytes: result.received_bytes as u64,
        is_whole: true,
        cpu_seconds: result.sender_cpu_seconds + result.receiver_cpu_seconds,
        peak_bytes: 0,
        wire_bytes: result.received_bytes as u64,
        first_bytes_seconds: None,
    })
}
