//! Prefixes whose users were here lately, bounded in number and time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use crate::limits;

/// When somebody from a prefix showed a valid token last.
#[derive(Debug)]
pub(super) struct Lately {
    prefixes: BTreeMap<IpAddr, Instant>,
    prefixes_max: usize,
}

impl Lately {
    /// Of one of so many shards, which has its part of the bound.
    pub(super) fn new(shards: u8) -> Self {
        Self {
            prefixes: BTreeMap::new(),
            prefixes_max: limits::KNOWN_PREFIXES_MAX / usize::from(shards),
        }
    }

    pub(super) fn has(&self, now: Instant, prefix: IpAddr) -> bool {
        let at = self.prefixes.get(&prefix);
        at.is_some_and(|at| now.duration_since(*at) < limits::KNOWN_PREFIX_TIME)
    }

    /// Where there are too many, the one that was here longest ago is forgotten.
    pub(super) fn remember(&mut self, now: Instant, prefix: IpAddr) {
        self.prefixes.insert(prefix, now);
        if self.prefixes.len() > self.prefixes_max
            && let Some((&oldest, _)) = self.prefixes.iter().min_by_key(|(_, at)| **at)
        {
            self.prefixes.remove(&oldest);
        }
    }
}
