//! Calls beside a flood of super-packets, which fills the TUN device of its sender as fast as that takes them.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use testbed::iperf::IperfResult;

use crate::children::Load;
use crate::error::During;
use crate::flow::{self, FlowPlan, FlowReport};
use crate::generator::{GeneratorOptions, GeneratorReport};
use crate::network::Network;
use crate::sink::{SinkOptions, SinkReport};
use crate::{Error, Programs, hidden, limits};

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
    let sink = SinkOptions {
        listen: destination,
        echo: false,
        receive_buffer_bytes: Some(limits::LOAD_BUFFER_BYTES),
    };
    let sink = to.wrap(&programs.load_with(hidden::SINK, &sink)?);
    let (sink, _) = Load::launch::<SocketAddr>(hidden::SINK, sink)?;
    let generator = GeneratorOptions {
        destination,
        payload_bytes: payload_bytes as usize,
        flows: 1,
        offered_bits_per_second: None,
        seconds: f64::from(seconds),
    };
    let generator = from.wrap(&programs.load_with(hidden::GENERATE, &generator)?);
    let (generator, _) = Load::launch::<SocketAddr>(hidden::GENERATE, generator)?;
    let sent: GeneratorReport = generator.report(Duration::from_secs(u64::from(seconds)))?;
    let received: SinkReport = sink.finish()?;
    let elapsed = received.seconds.max(sent.seconds).max(1e-9);
    let missing = sent.datagrams.saturating_sub(received.total.received);
    Ok(IperfResult {
        sender_bits_per_second: sent.bytes as f64 * 8.0 / sent.seconds.max(1e-9),
        receiver_bits_per_second: received.bytes as f64 * 8.0 / elapsed,
        loss: missing as f64 / sent.datagrams.max(1) as f64,
        datagrams: sent.datagrams,
        lost_datagrams: missing,
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
