//! Two QUIC ends on one thread: what a datagram costs the sender and the receiver.
//!
//! The ends run in virtual time with a round trip of 200 us, so that pacing and timers never wait, and only the time
//! inside each end's calls counts: the sender's includes the acknowledgements that it reads, the receiver's those
//! that it writes. In memory, the copy from train to receive buffer stands for the network and is not counted; over
//! sockets, each side's system calls are.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, SocketOptions, UdpSocket};
use serde::Serialize;

use super::bare::Bare;
use super::end::{Arrived, End, PAYLOAD_BYTES};
use super::ours::Ours;
use super::{Effort, identity::Identity};
use crate::error::During;
use crate::median::median_index;
use crate::{Error, limits};

/// One way.
const HALF_ROUND_TRIP: Duration = Duration::from_micros(100);

/// Datagrams before the measured ones: handshake, path MTU discovery and slow start are over then.
const WARM_UP: u64 = 50_000;

/// Longest jump to the next timer: far below the idle timeout, which no jump may reach.
const JUMP_MAX: Duration = Duration::from_millis(25);

/// Rounds without any progress after which the ends are stuck.
const STUCK_ROUNDS: usize = 10_000;

/// What a datagram costs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Drive {
    /// Which QUIC, over what.
    pub(super) name: &'static str,
    /// Payload bytes per datagram.
    pub(super) payload_bytes: usize,
    /// Nanoseconds per datagram at the sender.
    pub(super) send_ns: f64,
    /// Nanoseconds per datagram at the receiver.
    pub(super) receive_ns: f64,
    /// Datagrams that arrived.
    pub(super) received: u64,
    /// Datagrams that did not.
    pub(super) lost: u64,
}

impl Drive {
    /// Payload rate of one thread that is both ends.
    pub(super) fn bits_per_second(&self) -> f64 {
        self.payload_bytes as f64 * 8e9 / (self.send_ns + self.receive_ns).max(1e-9)
    }
}

enum Wire {
    Memory(VecDeque<Arrived>),
    Sockets(Box<Sockets>),
}

struct Sockets {
    sender: UdpSocket,
    receiver: UdpSocket,
    batch: ReceiveBatch,
}

struct Pair<E> {
    ends: [E; 2],
    wires: [Wire; 2],
    now: Instant,
    busy: [Duration; 2],
}

/// Measures ours and bare quinn-proto, alternating, in memory and over sockets.
///
/// # Errors
/// When certificates, connections or sockets can't be made.
pub(super) fn measure(effort: Effort) -> Result<Vec<Drive>, Error> {
    let identity = Identity::new()?;
    let mut runs: [Vec<Drive>; 4] = Default::default();
    for _ in 0..effort.runs {
        runs[0].push(drive(
            "quic, in memory",
            Ours::pair(&identity)?,
            memory(),
            effort,
        )?);
        runs[1].push(drive(
            "bare quinn-proto, in memory",
            Bare::pair(&identity)?,
            memory(),
            effort,
        )?);
        runs[2].push(drive(
            "quic, GSO sockets",
            Ours::pair(&identity)?,
            sockets()?,
            effort,
        )?);
        runs[3].push(drive(
            "bare quinn-proto, GSO sockets",
            Bare::pair(&identity)?,
            sockets()?,
            effort,
        )?);
    }
    let median = |runs: Vec<Drive>| {
        let costs: Vec<f64> = runs
            .iter()
            .map(|drive| drive.send_ns + drive.receive_ns)
            .collect();
        median_index(&costs).and_then(|index| runs.into_iter().nth(index))
    };
    Ok(runs.into_iter().filter_map(median).collect())
}

fn memory() -> [Wire; 2] {
    [Wire::Memory(VecDeque::new()), Wire::Memory(VecDeque::new())]
}

fn sockets() -> Result<[Wire; 2], Error> {
    let options = SocketOptions {
        receive_buffer_bytes: limits::LOAD_BUFFER_BYTES,
        send_buffer_bytes: limits::LOAD_BUFFER_BYTES,
        ..SocketOptions::default()
    };
    let wire = || -> std::io::Result<Wire> {
        let receiver = UdpSocket::bind(([127, 0, 0, 1], 0).into(), &options)?;
        let sender = UdpSocket::connect(None, receiver.local_addr()?, &options)?;
        let batch = ReceiveBatch::new(limits::RECEIVE_SLOTS, limits::RECEIVE_SLOT_BYTES);
        Ok(Wire::Sockets(Box::new(Sockets {
            sender,
            receiver,
            batch,
        })))
    };
    let action = || "make loopback sockets".to_owned();
    Ok([wire().during(action)?, wire().during(action)?])
}

fn drive<E: End>(name: &'static str, ends: [E; 2], wires: [Wire; 2], effort: Effort) -> Result<Drive, Error> {
    let mut pair = Pair {
        ends,
        wires,
        now: Instant::now(),
        busy: [Duration::ZERO; 2],
    };
    pair.run(name, |pair| {
        pair.ends.iter().all(E::is_connected) && pair.ends[1].received() >= WARM_UP
    })?;
    let before = pair.settle(name)?;
    pair.busy = [Duration::ZERO; 2];
    let fed = pair.run(name, |pair| pair.busy[0] + pair.busy[1] >= effort.hop)?;
    let received = pair.settle(name)? - before;
    let each = |busy: Duration| busy.as_nanos() as f64 / received.max(1) as f64;
    let [send_ns, receive_ns] = pair.busy.map(each);
    let lost = fed.saturating_sub(received);
    Ok(Drive {
        name,
        payload_bytes: PAYLOAD_BYTES,
        send_ns,
        receive_ns,
        received,
        lost,
    })
}

impl<E: End> Pair<E> {
    /// Sends datagrams until `done`; returns how many the sender took.
    fn run(&mut self, name: &str, done: impl Fn(&Self) -> bool) -> Result<u64, Error> {
        let (mut feed, mut idle) = (u64::MAX, 0);
        while !done(self) {
            let mut offered = if self.ends[0].is_connected() { feed } else { 0 };
            let before = offered;
            let moved = self.round(&mut offered)?;
            feed -= before - offered;
            idle = if moved { 0 } else { idle + 1 };
            if idle > STUCK_ROUNDS {
                return Err(Error::Setup(format!("{name}: the connection is stuck")));
            }
        }
        Ok(u64::MAX - feed)
    }

    /// Goes on without new datagrams until nothing arrives any more; returns all that arrived.
    fn settle(&mut self, name: &str) -> Result<u64, Error> {
        let mut quiet = 0;
        let mut received = self.ends[1].received();
        for _ in 0..STUCK_ROUNDS {
            self.round(&mut 0)?;
            let now = self.ends[1].received();
            quiet = if now == received { quiet + 1 } else { 0 };
            received = now;
            if quiet > 8 {
                return Ok(received);
            }
        }
        Err(Error::Setup(format!("{name}: datagrams do not end")))
    }

    /// One round trip; whether anything moved. Where nothing did, time jumps towards the next timer.
    fn round(&mut self, feed: &mut u64) -> Result<bool, Error> {
        let mut moved = false;
        for from in [0, 1] {
            let start = Instant::now();
            if self.ends[from].timeout().is_some_and(|due| due <= self.now) {
                self.ends[from].handle_timeout(self.now);
            }
            let mut nothing = 0;
            self.ends[from].flush(self.now, if from == 0 { &mut *feed } else { &mut nothing });
            self.busy[from] += start.elapsed();
            moved |= !self.ends[from].trains().is_empty();
            self.carry(from)?;
        }
        if !moved && let Some(due) = self.ends.iter_mut().filter_map(E::timeout).min() {
            self.now = self.now.max(due.min(self.now + JUMP_MAX));
        }
        Ok(moved)
    }

    fn carry(&mut self, from: usize) -> Result<(), Error> {
        let to = 1 - from;
        match &mut self.wires[from] {
            Wire::Memory(queue) => {
                queue.extend(self.ends[from].trains().iter().map(|train| Arrived {
                    data: BytesMut::from(&train.bytes[..]),
                    segment_size: train.segment_size,
                    ecn: train.ecn,
                }));
                self.ends[from].release();
                self.now += HALF_ROUND_TRIP;
                let start = Instant::now();
                for arrived in queue.drain(..) {
                    self.ends[to].take(self.now, arrived);
                }
                self.busy[to] += start.elapsed();
            }
            Wire::Sockets(sockets) => {
                let Sockets {
                    sender,
                    receiver,
                    batch,
                } = &mut **sockets;
                let start = Instant::now();
                let messages: Vec<Outgoing<'_>> = self.ends[from]
                    .trains()
                    .iter()
                    .map(|train| Outgoing {
                        ecn: train.ecn,
                        ..Outgoing::connected(&train.bytes, train.segment_size)
                    })
                    .collect();
                sender
                    .send(&messages)
                    .during(|| "send over loopback".to_owned())?;
                self.ends[from].release();
                self.busy[from] += start.elapsed();
                self.now += HALF_ROUND_TRIP;
                let start = Instant::now();
                loop {
                    let count = receiver
                        .receive(batch)
                        .during(|| "receive over loopback".to_owned())?;
                    if count == 0 {
                        break;
                    }
                    for index in 0..count {
                        let (meta, data) = batch.take(index);
                        let arrived = Arrived {
                            data,
                            segment_size: meta.segment_size,
                            ecn: meta.ecn,
                        };
                        self.ends[to].take(self.now, arrived);
                    }
                }
                self.busy[to] += start.elapsed();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_end_carry_datagrams_in_memory_and_over_sockets() {
        let identity = Identity::new().unwrap();
        let effort = Effort {
            sample: Duration::ZERO,
            hop: Duration::from_millis(20),
            runs: 1,
        };
        let drives = [
            drive("ours", Ours::pair(&identity).unwrap(), memory(), effort).unwrap(),
            drive("bare", Bare::pair(&identity).unwrap(), memory(), effort).unwrap(),
            drive(
                "sockets",
                Ours::pair(&identity).unwrap(),
                sockets().unwrap(),
                effort,
            )
            .unwrap(),
        ];
        for drive in drives {
            assert!(
                drive.received > 0 && drive.send_ns > 0.0 && drive.receive_ns > 0.0,
                "{drive:?}"
            );
        }
    }
}
