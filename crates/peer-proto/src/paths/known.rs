//! One path, and what checks have told of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::is_relayed;
use crate::limits::{SEARCH_PAUSE, SILENCE_MIN};

/// Requests of a path whose answers may come.
const ASKED_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Known {
    pub(super) address: SocketAddr,
    pub(super) is_relayed: bool,
    /// When something authentic last came from there, or it became known.
    pub(super) heard_at: Instant,
    /// When the newest request left that was answered.
    pub(super) answered: Option<Instant>,
    pub(super) round_trip: Duration,
    /// Answers since a request was not answered.
    pub(super) in_a_row: u32,
    /// Requests that were not answered.
    open: VecDeque<(u64, Instant)>,
}

impl Known {
    pub(super) fn new(now: Instant, address: SocketAddr) -> Self {
        Self {
            address,
            is_relayed: is_relayed(address),
            heard_at: now,
            answered: None,
            round_trip: Duration::MAX,
            in_a_row: 0,
            open: VecDeque::new(),
        }
    }

    pub(super) fn asked(&mut self, now: Instant, number: u64) {
        if self.open.front().is_some_and(|(_, at)| *at + SILENCE_MIN < now) {
            self.in_a_row = 0;
        }
        if self.open.len() >= ASKED_MAX {
            self.open.pop_front();
        }
        self.open.push_back((number, now));
    }

    /// Whether it answers a request that is open: not another time.
    pub(super) fn take_answer(&mut self, now: Instant, number: u64) -> bool {
        let Some(place) = self.open.iter().position(|(asked, _)| *asked == number) else {
            return false;
        };
        let (_, at) = self.open[place];
        self.open.drain(..=place);
        self.answered = self.answered.max(Some(at));
        self.round_trip = now.saturating_duration_since(at);
        self.in_a_row += 1;
        true
    }

    /// Whether a request from there should be answered by one: nothing was asked and nothing answered lately.
    pub(super) fn is_worth_asking(&self, now: Instant) -> bool {
        let asked = self.open.back().is_some_and(|(_, at)| now < *at + SEARCH_PAUSE);
        let answered = self.answered.is_some_and(|at| now < at + SILENCE_MIN);
        !asked && !answered
    }
}
