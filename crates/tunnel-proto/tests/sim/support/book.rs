//! What was sent and what has arrived: every payload names its session and its number, and its bytes follow from
//! both, so that a corrupted, doubled or misled one shows itself.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Bytes in which a payload carries session and number; shorter ones are recognized by their length alone.
const NAME_BYTES: usize = 8;

/// Which way a payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From a client's source to a target.
    Up,
    /// From a target to a client's source.
    Down,
}

#[derive(Default)]
struct Session {
    sizes: Vec<usize>,
    arrived: [BTreeSet<u32>; 2],
    short: BTreeMap<usize, [u32; 3]>,
    counts: [u64; 2],
}

/// The payloads of all sessions of a world.
#[derive(Default)]
pub(crate) struct Book {
    sessions: BTreeMap<u32, Session>,
    /// Whose payloads are anything.
    hostile: BTreeSet<u32>,
}

impl Book {
    /// Number of a new session.
    pub(crate) fn session(&mut self) -> u32 {
        let number = self.sessions.len() as u32;
        self.sessions.insert(number, Session::default());
        number
    }

    /// A session's peer sends anything, which is only counted.
    pub(crate) fn is_hostile(&mut self, session: u32) {
        self.hostile.insert(session);
    }

    /// The next payload of a session.
    pub(crate) fn payload(&mut self, session: u32, size: usize) -> Vec<u8> {
        let entry = self.sessions.entry(session).or_default();
        if size < NAME_BYTES {
            entry.short.entry(size).or_default()[2] += 1;
            return vec![session as u8; size];
        }
        entry.sizes.push(size);
        content(session, entry.sizes.len() as u32 - 1, size)
    }

    /// Takes a payload that has arrived at the end of `session`.
    pub(crate) fn arrived(&mut self, session: u32, way: Way, payload: &[u8]) {
        let entry = self.sessions.entry(session).or_default();
        entry.counts[way as usize] += 1;
        if self.hostile.contains(&session) {
            return;
        }
        if payload.len() < NAME_BYTES {
            let short = entry.short.entry(payload.len()).or_default();
            short[way as usize] += 1;
            assert!(payload.iter().all(|byte| *byte == session as u8), "corrupted");
            assert!(short[way as usize] <= short[2], "a payload arrived twice {way:?}");
            return;
        }
        let (name, _) = payload.split_at(NAME_BYTES);
        let [a, b, c, d, e, f, g, h] = *name else {
            unreachable!("split at its length")
        };
        let named = u32::from_be_bytes([a, b, c, d]);
        let number = u32::from_be_bytes([e, f, g, h]);
        assert_eq!(named, session, "a payload of another session arrived {way:?}");
        let size = entry.sizes.get(number as usize).copied();
        assert_eq!(size, Some(payload.len()), "a payload has another length");
        assert!(
            payload == content(session, number, payload.len()),
            "a payload was corrupted"
        );
        assert!(
            entry.arrived[way as usize].insert(number),
            "a payload arrived twice {way:?}"
        );
    }

    /// Payloads of a session that have arrived.
    pub(crate) fn count(&self, session: u32, way: Way) -> u64 {
        self.sessions[&session].counts[way as usize]
    }

    /// Numbers of the payloads of eight bytes and more that have arrived.
    pub(crate) fn numbers(&self, session: u32, way: Way) -> &BTreeSet<u32> {
        &self.sessions[&session].arrived[way as usize]
    }

    /// Payloads that have arrived, of all sessions.
    pub(crate) fn total(&self, way: Way) -> u64 {
        self.sessions
            .values()
            .map(|session| session.counts[way as usize])
            .sum()
    }
}

fn content(session: u32, number: u32, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    StdRng::seed_from_u64(u64::from(session) << 32 | u64::from(number)).fill(&mut bytes[NAME_BYTES..]);
    bytes[..4].copy_from_slice(&session.to_be_bytes());
    bytes[4..NAME_BYTES].copy_from_slice(&number.to_be_bytes());
    bytes
}
