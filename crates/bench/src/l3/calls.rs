//! Calls beside a flood of super-packets, which fills the TUN device of its sender as fast as that takes them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use testbed::iperf::IperfResult;

use crate::error::During;
use crate::flood::Flood;
use crate::flow::{self, FlowPlan, FlowReport};
use crate::network::Network;
use crate::{Error, Programs, limits};

/// Enough that each shard has one.
const CALLS: u16 = 4;

/// Their datagrams per second, and bytes of each.
const PER_SECOND: f64 = 100.0;
const CALL_BYTES: usize = 200;

/// How long they have run when they count: the flood has begun.
const WARM_UP: Duration = Duration::from_millis(800);

/// Where the flood goes; the calls have the ports behind it.
const FLOOD_PORT: u16 = 9_000;

/// One run towards `server`, or with `reverse` from there: the flood, and the worst of the calls.
///
/// # Errors
/// When a process or a call does not start, or nothing arrives of a call.
pub(super) fn measure(
    programs: &Programs,
    network: &Network,
    server: Ipv4Addr,
    reverse: bool,
    [payload_bytes, seconds]: [u32; 2],
) -> Result<(IperfResult, FlowReport), Error> {
    let plan = FlowPlan {
        is_up: !reverse,
        payload_bytes: CALL_BYTES,
        per_second: PER_SECOND,
        warm_up: WARM_UP,
        duration: Duration::from_secs(u64::from(seconds)).saturating_sub(WARM_UP),
        round_trip: Duration::ZERO,
    };
    let places = [network.client.place(), network.server.place()];
    std::thread::scope(|scope| {
        let calls = (1..=CALLS).map(|call| {
            let target = SocketAddr::from((server, FLOOD_PORT + call));
            let (plan, places) = (&plan, places.each_ref());
            scope.spawn(move || flow::run(places, target, target, plan))
        });
        let calls: Vec<_> = calls.collect();
        let flood = flood(programs, network, server, reverse, [payload_bytes, seconds])?;
        let reports = calls.into_iter().map(|call| {
            call.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let reports = reports.collect::<Result<Vec<FlowReport>, Error>>()?;
        let worst = reports.into_iter().reduce(FlowReport::worst);
        Ok((flood, worst.unwrap_or_default()))
    })
}

fn flood(
    programs: &Programs,
    network: &Network,
    server: Ipv4Addr,
    reverse: bool,
    [payload_bytes, seconds]: [u32; 2],
) -> Result<IperfResult, Error> {
    let (from, to, address) = if reverse {
        (&network.server, &network.client, client_address(network, server)?)
    } else {
        (&network.client, &network.server, server)
    };
    let destination = SocketAddr::from((address, FLOOD_PORT));
    let flood = Flood {
        entrance: destination,
        target: destination,
        payload_bytes: payload_bytes as usize,
        flows: 1,
        offered_bits_per_second: None,
        seconds,
        receive_buffer_bytes: Some(limits::LOAD_BUFFER_BYTES),
    };
    let flooded = flood.run(programs, [&from.place(), &to.place()])?;
    let (sent, received) = (&flooded.sent, &flooded.received);
    Ok(IperfResult {
        sender_bits_per_second: flooded.sender_bits_per_second(),
        receiver_bits_per_second: flooded.receiver_bits_per_second(),
        loss: flooded.loss(),
        datagrams: sent.datagrams,
        lost_datagrams: flooded.missing(),
        received_bytes: received.bytes as f64,
        seconds: sent.seconds,
        sender_cpu_seconds: sent.usage.cpu_seconds,
        receiver_cpu_seconds: received.usage.cpu_seconds,
    })
}

/// The address that the client sends from to the server.
fn client_address(network: &Network, server: Ipv4Addr) -> Result<Ipv4Addr, Error> {
    let own = network.client.inside(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((server, FLOOD_PORT))?;
        socket.local_addr()
    });
    match own.during(|| format!("find the way to {server}"))? {
        SocketAddr::V4(own) => Ok(*own.ip()),
        SocketAddr::V6(_) => unreachable!("the socket is IPv4's"),
    }
}
