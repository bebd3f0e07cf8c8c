//! A socket that treats datagrams like a bad network, controlled by a seed: the same calls meet the same faults.
//!
//! Faults strike single datagrams, in each direction by its own settings. There is no clock: what is delayed waits for
//! a number of later calls (sends and receives alike) on the same socket, and what is reordered falls behind some of
//! its followers and waits for the next call. So something may be held when the kernel has nothing more to signal;
//! call [`DatagramSocket::receive`] again while [`FaultySocket::held`] is not zero.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use packet::{Ecn, segments};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::batch::{ReceiveBatch, ReceiveMeta};
use crate::datagram::{DatagramSocket, IoStats, Outgoing, SendOutcome};
use crate::limits::{DELAY_CALLS_MAX, FAULTY_BATCH_SLOTS, FAULTY_HELD_MAX, REORDER_SPAN, SLOT_BYTES_MAX};

/// Probability of each fault per datagram, 0 to 1; all 0 by default. Several may strike the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// It vanishes.
    pub loss: f64,
    /// It comes twice.
    pub duplicate: f64,
    /// It comes behind up to three of its followers.
    pub reorder: f64,
    /// It comes up to four calls later.
    pub delay: f64,
    /// Its end is missing.
    pub truncate: f64,
    /// One bit is flipped.
    pub corrupt: f64,
}

/// What happened to the datagrams of one direction:
/// `taken + duplicated = passed + lost + refused + held`, where held is [`FaultySocket::held`] of that direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Came in.
    pub taken: u64,
    /// Went out.
    pub passed: u64,
    /// Vanished.
    pub lost: u64,
    /// Extra copies made.
    pub duplicated: u64,
    /// Put behind followers.
    pub reordered: u64,
    /// Held for later calls.
    pub delayed: u64,
    /// Shortened.
    pub truncated: u64,
    /// Changed.
    pub corrupted: u64,
    /// Dropped by the real socket when it was their turn; sending only.
    pub refused: u64,
}

/// One direction: datagrams with what belongs to them, on their way.
struct Lane<T> {
    faults: Faults,
    random: StdRng,
    counts: FaultCounts,
    sequence: u64,
    /// By the call from which on they may go, then by place, then by order of coming.
    held: BTreeMap<(u64, u64, u64), (T, Vec<u8>)>,
}

impl<T: Clone> Lane<T> {
    fn new(seed: u64, faults: Faults) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self {
            faults,
            random,
            counts: FaultCounts::default(),
            sequence: 0,
            held: BTreeMap::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.held.len() >= FAULTY_HELD_MAX
    }

    /// Takes one datagram in during call `call`.
    fn push(&mut self, call: u64, about: T, payload: &[u8]) {
        // Every draw is made for every datagram, so that one probability does not shift the others' luck.
        let mut strikes = |probability: f64| self.random.random::<f64>() < probability;
        let lost = strikes(self.faults.loss);
        let duplicated = strikes(self.faults.duplicate);
        let reordered = strikes(self.faults.reorder);
        let delayed = strikes(self.faults.delay);
        let truncated = strikes(self.faults.truncate) && !payload.is_empty();
        let corrupted = strikes(self.faults.corrupt) && !payload.is_empty();
        let mut payload = payload.to_vec();
        let position = self.random.random_range(0..payload.len().max(1));
        let bit = self.random.random_range(0..8);
        let wait = self.random.random_range(1..=DELAY_CALLS_MAX);
        let places = self.random.random_range(1..=REORDER_SPAN);

        self.counts.taken += 1;
        if lost {
            self.counts.lost += 1;
            return;
        }
        if corrupted {
            payload[position] ^= 1 << bit;
            self.counts.corrupted += 1;
        }
        if truncated {
            payload.truncate(position);
            self.counts.truncated += 1;
        }
        self.counts.duplicated += u64::from(duplicated);
        self.counts.reordered += u64::from(reordered);
        self.counts.delayed += u64::from(delayed);
        let due = call + if delayed { wait } else { u64::from(reordered) };
        for _ in 0..1 + u64::from(duplicated) {
            // Twice the sequence leaves an odd place between each two, for one that falls back.
            let place = 2 * self.sequence + if reordered { 2 * places + 1 } else { 0 };
            self.held
                .insert((due, place, self.sequence), (about.clone(), payload.clone()));
            self.sequence += 1;
        }
    }

    /// The next datagram that may go in call `call`.
    fn pop(&mut self, call: u64) -> Option<(T, Vec<u8>)> {
        let entry = self.held.first_entry().filter(|entry| entry.key().0 <= call)?;
        self.counts.passed += 1;
        Some(entry.remove())
    }
}

type Route = (Option<SocketAddr>, Option<IpAddr>, Ecn);

/// A socket with faults in front of it.
pub struct FaultySocket<S> {
    inner: S,
    batch: ReceiveBatch,
    calls: u64,
    receiving: Lane<ReceiveMeta>,
    sending: Lane<Route>,
}

impl<S: DatagramSocket> FaultySocket<S> {
    /// Puts faults in front of `inner`; the directions draw from `seed` independently.
    #[must_use]
    pub fn new(inner: S, seed: u64, receive: Faults, send: Faults) -> Self {
        Self {
            inner,
            batch: ReceiveBatch::new(FAULTY_BATCH_SLOTS, SLOT_BYTES_MAX),
            calls: 0,
            receiving: Lane::new(seed, receive),
            sending: Lane::new(!seed, send),
        }
    }

    /// Changes the faults from the next datagram on.
    pub fn set_faults(&mut self, receive: Faults, send: Faults) {
        self.receiving.faults = receive;
        self.sending.faults = send;
    }

    /// What happened to received datagrams.
    #[must_use]
    pub fn receive_counts(&self) -> FaultCounts {
        self.receiving.counts
    }

    /// What happened to sent datagrams.
    #[must_use]
    pub fn send_counts(&self) -> FaultCounts {
        self.sending.counts
    }

    /// Datagrams that wait for later calls: received ones, sent ones.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        (self.receiving.held.len(), self.sending.held.len())
    }

    /// The real socket.
    #[must_use]
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Hands to the real socket what may go; `false` where it takes no more.
    fn flush(&mut self) -> io::Result<bool> {
        let lane = &mut self.sending;
        let due: Vec<_> = lane
            .held
            .range(..=(self.calls, u64::MAX, u64::MAX))
            .map(|(key, value)| (*key, value))
            .collect();
        let messages: Vec<_> = due
            .iter()
            .map(|(_, ((destination, source, ecn), payload))| Outgoing {
                destination: *destination,
                source: *source,
                ecn: *ecn,
                segment_size: payload.len(),
                payload,
            })
            .collect();
        let outcome = self.inner.send(&messages)?;
        let gone: Vec<_> = due[..outcome.messages].iter().map(|(key, _)| *key).collect();
        for key in gone {
            lane.held.remove(&key);
        }
        lane.counts.passed += outcome.segments;
        lane.counts.refused += outcome.dropped.total();
        Ok(!outcome.blocked)
    }
}

impl<S: DatagramSocket> DatagramSocket for FaultySocket<S> {
    /// Every datagram comes as a message of its own.
    fn receive(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize> {
        batch.clear();
        self.calls += 1;
        self.flush()?;
        while !self.receiving.is_full() && self.inner.receive(&mut self.batch)? > 0 {
            for received in self.batch.iter() {
                for payload in received.segments() {
                    self.receiving.push(self.calls, *received.meta, payload);
                }
            }
        }
        while batch.len() < batch.capacity()
            && let Some((meta, payload)) = self.receiving.pop(self.calls)
        {
            let len = payload.len();
            batch.push(
                ReceiveMeta {
                    len,
                    segment_size: len,
                    ..meta
                },
                &payload,
            );
        }
        Ok(batch.len())
    }

    /// Reports every datagram that it took as sent, whatever happens to it later. It is `blocked` while the real socket
    /// is, or while too many are held; then, call again.
    fn send(&mut self, messages: &[Outgoing<'_>]) -> io::Result<SendOutcome> {
        self.calls += 1;
        let mut outcome = SendOutcome {
            blocked: !self.flush()?,
            ..SendOutcome::default()
        };
        for message in messages {
            if outcome.blocked || self.sending.is_full() {
                outcome.blocked = true;
                break;
            }
            for payload in segments(message.payload, message.stride()) {
                self.sending.push(
                    self.calls,
                    (message.destination, message.source, message.ecn),
                    payload,
                );
                outcome.segments += 1;
            }
            outcome.messages += 1;
        }
        self.flush()?;
        Ok(outcome)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Those of the real socket, which does not know of the faults.
    fn stats(&self) -> &IoStats {
        self.inner.stats()
    }
}

impl<S: AsFd> AsFd for FaultySocket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Faults = Faults {
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.1,
        delay: 0.1,
        truncate: 0.1,
        corrupt: 0.1,
    };

    fn run(seed: u64, faults: Faults) -> (Vec<(u32, Vec<u8>)>, FaultCounts, usize) {
        let mut lane = Lane::new(seed, faults);
        let mut out = Vec::new();
        for call in 0..500_u64 {
            for index in 0..4 {
                lane.push(call, call as u32 * 4 + index, &[7; 20]);
            }
            out.extend(std::iter::from_fn(|| lane.pop(call)));
        }
        (out, lane.counts, lane.held.len())
    }

    #[test]
    fn the_same_seed_brings_the_same_faults_and_another_seed_others() {
        assert_eq!(run(1, ALL).0, run(1, ALL).0);
        assert_ne!(run(1, ALL).0, run(2, ALL).0);
    }

    #[test]
    fn every_datagram_is_accounted_for() {
        for seed in 0..20 {
            let (out, counts, held) = run(seed, ALL);
            assert_eq!(out.len() as u64, counts.passed);
            assert_eq!(
                counts.taken + counts.duplicated,
                counts.passed + counts.lost + held as u64
            );
            for count in [counts.lost, counts.duplicated, counts.reordered, counts.delayed] {
                assert!((100..=300).contains(&count), "{counts:?}");
            }
        }
    }

    #[test]
    fn without_faults_everything_passes_in_order() {
        let (out, _, held) = run(1, Faults::default());
        assert_eq!(held, 0);
        assert_eq!(
            out,
            (0..2000).map(|index| (index, vec![7; 20])).collect::<Vec<_>>()
        );
    }

    #[test]
    fn each_fault_does_what_its_name_says() {
        let (out, _, _) = run(
            1,
            Faults {
                duplicate: 1.0,
                ..Faults::default()
            },
        );
        assert!(out.len() == 4000 && out.chunks(2).all(|pair| pair[0] == pair[1]));
        let (out, counts, _) = run(
            1,
            Faults {
                reorder: 0.3,
                ..Faults::default()
            },
        );
        assert!(counts.reordered > 0 && !out.is_sorted());
        let (out, _, held) = run(
            1,
            Faults {
                delay: 1.0,
                ..Faults::default()
            },
        );
        assert!(held > 0 && out[0].0 < 16);
        let (out, _, _) = run(
            1,
            Faults {
                truncate: 1.0,
                ..Faults::default()
            },
        );
        assert!(out.iter().all(|(_, payload)| payload.len() < 20));
        let (out, _, _) = run(
            1,
            Faults {
                corrupt: 1.0,
                ..Faults::default()
            },
        );
        let flipped = |payload: &[u8]| payload.iter().map(|byte| (byte ^ 7).count_ones()).sum::<u32>();
        assert!(
            out.iter()
                .all(|(_, payload)| payload.len() == 20 && flipped(payload) == 1)
        );
        assert!(
            run(
                1,
                Faults {
                    loss: 1.0,
                    ..Faults::default()
                }
            )
            .0
            .is_empty()
        );
    }
}
