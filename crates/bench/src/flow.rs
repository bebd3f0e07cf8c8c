//! A flow of datagrams between two places of one machine, each numbered and stamped with its time, because all places share
//! a clock. iperf3 is not used: it gives up when the first datagram of a run is lost.
//!
//! The client sends probes until the server answers, so that a session exists before anything counts. Then one side sends at
//! an even rate, and the other keeps what arrives.

use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use serde::Serialize;
use testbed::place::Place;

use crate::error::During;
use crate::median::percentile;
use crate::{Error, limits};

/// Number and time of a datagram, eight bytes each.
const STAMP_BYTES: usize = 16;

/// The number of a first probe and of its answer.
const PROBE: u64 = u64::MAX;

/// Pause between probes.
const PROBE_GAP: Duration = Duration::from_millis(50);

/// How long a flow listens after its last datagram was sent, beside a round trip: the longest queue of the matrix.
const DRAIN: Duration = Duration::from_millis(500);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowPlan {
    /// Whether the client sends.
    pub(crate) is_up: bool,
    /// Bytes of each datagram.
    pub(crate) payload_bytes: usize,
    /// Datagrams per second.
    pub(crate) per_second: f64,
    /// How long datagrams are sent before they count: a tunnel finds the rate of its path meanwhile.
    pub(crate) warm_up: Duration,
    /// How long they count.
    pub(crate) duration: Duration,
    /// Of the empty link.
    pub(crate) round_trip: Duration,
}

/// What became of the datagrams that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct FlowReport {
    /// Datagrams sent.
    pub(crate) sent: u64,
    /// Datagrams that arrived, each counted once.
    pub(crate) received: u64,
    /// Lost fraction, 0 to 1.
    pub(crate) loss: f64,
    /// Payload bits per second that arrived.
    pub(crate) bits_per_second: f64,
    /// Median time on the way, in milliseconds.
    pub(crate) p50_ms: f64,
    /// 99th percentile, in milliseconds.
    pub(crate) p99_ms: f64,
}

impl FlowReport {
    /// What is worse of two in each respect.
    pub(crate) fn worst(self, other: Self) -> Self {
        let least = if other.loss > self.loss { other } else { self };
        Self {
            p50_ms: self.p50_ms.max(other.p50_ms),
            p99_ms: self.p99_ms.max(other.p99_ms),
            ..least
        }
    }
}

/// Runs a flow between `client`, through `entrance`, and a socket on `target` in `server`.
///
/// # Errors
/// When a socket cannot be made, no answer comes back, or no datagram arrives.
pub(crate) fn run(
    [client, server]: [&Place; 2],
    entrance: SocketAddr,
    target: SocketAddr,
    plan: &FlowPlan,
) -> Result<FlowReport, Error> {
    let listener = server.inside(|| bind(target))??;
    let socket = client.inside(|| connect(entrance))??;
    measure(&socket, &listener, entrance, plan)
}

fn bind(target: SocketAddr) -> Result<UdpSocket, Error> {
    UdpSocket::bind(target).during(|| format!("bind {target} for datagrams"))
}

fn connect(entrance: SocketAddr) -> Result<UdpSocket, Error> {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(entrance).map(|()| socket));
    socket.during(|| format!("send datagrams to {entrance}"))
}

fn measure(
    socket: &UdpSocket,
    listener: &UdpSocket,
    entrance: SocketAddr,
    plan: &FlowPlan,
) -> Result<FlowReport, Error> {
    for socket in [listener, socket] {
        // Root may exceed the system's limit; where it may not, the usual buffer is tried.
        let _ = sockopt::set_socket_recv_buffer_size_force(socket, limits::LOAD_BUFFER_BYTES);
    }
    open_session(socket, listener, entrance)?;
    let epoch = Instant::now();
    let (from, to) = if plan.is_up {
        (socket, listener)
    } else {
        (listener, socket)
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| plan.receive(to, epoch));
        let sender = scope.spawn(|| plan.send(from, epoch));
        let sent = sender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let delays = receiver
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.during(|| "send datagrams".to_owned())?;
        let report = plan.report(&delays);
        // Times of nothing would be 0, the best there is.
        if report.received == 0 {
            return Err(Error::Child {
                program: format!("the flow through {entrance}"),
                reason: format!("of {} datagrams none arrived", report.sent),
            });
        }
        Ok(report)
    })
}

/// Both sockets know each other when it returns.
fn open_session(socket: &UdpSocket, listener: &UdpSocket, entrance: SocketAddr) -> Result<(), Error> {
    let action = || "open a session over datagrams".to_owned();
    for socket in [socket, listener] {
        socket.set_read_timeout(Some(PROBE_GAP)).during(action)?;
    }
    let deadline = Instant::now() + limits::READY_TIMEOUT;
    let probe = PROBE.to_be_bytes().repeat(2);
    let mut buffer = [0; STAMP_BYTES];
    let mut peer = None;
    while Instant::now() < deadline {
        // What is lost on the way is sent again; a tunnel that is not up yet refuses.
        let _ = socket.send(&probe);
        if let Ok((_, from)) = listener.recv_from(&mut buffer) {
            peer = Some(from);
            let _ = listener.send_to(&probe, from);
        }
        if socket.recv(&mut buffer).is_ok()
            && let Some(peer) = peer
        {
            return listener.connect(peer).during(action);
        }
    }
    Err(Error::NotReady {
        program: format!("the flow through {entrance}"),
        reason: "no datagram came back".to_owned(),
    })
}

impl FlowPlan {
    fn total(&self) -> usize {
        (self.per_second * (self.warm_up + self.duration).as_secs_f64()) as usize
    }

    fn send(&self, socket: &UdpSocket, epoch: Instant) -> std::io::Result<()> {
        // Without it the kernel may wake this thread 50 us late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut bytes = vec![0; self.payload_bytes.max(STAMP_BYTES)];
        for number in 0..self.total() {
            let due = epoch + Duration::from_secs_f64(number as f64 / self.per_second);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
            bytes[8..STAMP_BYTES].copy_from_slice(&(epoch.elapsed().as_nanos() as u64).to_be_bytes());
            match socket.send(&bytes) {
                Ok(_) => {}
                // An answer of the other end to an earlier datagram; the present one is not the reason.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Times on the way in milliseconds, by number; `None` did not arrive.
    fn receive(&self, socket: &UdpSocket, epoch: Instant) -> Vec<Option<f64>> {
        let mut delays = vec![None; self.total()];
        let end = epoch + self.warm_up + self.duration + self.round_trip + DRAIN;
        let mut buffer = vec![0; self.payload_bytes.max(STAMP_BYTES)];
        while Instant::now() < end {
            let Ok(STAMP_BYTES..) = socket.recv(&mut buffer) else {
                continue;
            };
            let field = |at: usize| {
                let bytes = buffer[at..at + 8].try_into().expect("eight bytes were taken");
                u64::from_be_bytes(bytes)
            };
            let nanoseconds = (epoch.elapsed().as_nanos() as u64).saturating_sub(field(8));
            let slot = usize::try_from(field(0))
                .ok()
                .and_then(|number| delays.get_mut(number));
            if let Some(slot) = slot {
                slot.get_or_insert(nanoseconds as f64 / 1e6);
            }
        }
        delays
    }

    fn report(&self, delays: &[Option<f64>]) -> FlowReport {
        let warm_up = (self.per_second * self.warm_up.as_secs_f64()) as usize;
        let counted = delays.get(warm_up..).unwrap_or_default();
        let mut arrived: Vec<f64> = counted.iter().copied().flatten().collect();
        let (sent, received) = (counted.len(), arrived.len());
        FlowReport {
            sent: sent as u64,
            received: received as u64,
            loss: (sent - received) as f64 / sent.max(1) as f64,
            bits_per_second: (received * self.payload_bytes * 8) as f64 / self.duration.as_secs_f64(),
            p50_ms: percentile(&mut arrived, 0.5),
            p99_ms: percentile(&mut arrived, 0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_the_warm_up_do_not_count() {
        let plan = FlowPlan {
            is_up: true,
            payload_bytes: 125,
            per_second: 10.0,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(2),
            round_trip: Duration::ZERO,
        };
        let mut delays = vec![None; 10];
        delays.extend([Some(5.0); 15]);
        delays.extend([None; 5]);
        assert_eq!(delays.len(), plan.total());
        let report = plan.report(&delays);
        assert_eq!((report.sent, report.received, report.loss), (20, 15, 0.25));
        assert_eq!((report.bits_per_second, report.p99_ms), (7_500.0, 5.0));
    }
}
