//! One stranger's way to the cover, and what is known of it.

use std::time::Instant;

use packet::{Ecn, Path};

use crate::authenticator::Recognised;
use crate::hello_assembly::HelloAssembly;
use crate::limits;

/// A datagram that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its mark.
    pub ecn: Ecn,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// What is done with a flow's datagrams.
#[derive(Debug)]
pub(super) enum Stage {
    /// They go to the cover.
    Relayed,
    /// A hello is put together from them.
    Reading(Box<Reading>),
    /// A hello was recognised, and its connection is about to be taken over.
    Deciding(Box<Deciding>),
}

/// A hello of which something is missing.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) hello: HelloAssembly,
    /// All datagrams of it.
    pub(super) held: Vec<Datagram>,
    /// How many of them went to the cover by now.
    pub(super) relayed: usize,
    /// When they are relayed, and then when reading ends.
    pub(super) deadline: Instant,
}

/// A recognised hello.
#[derive(Debug)]
pub(super) struct Deciding {
    pub(super) hello: HelloAssembly,
    pub(super) recognised: Recognised,
    /// The datagrams of the hello, and what came behind them.
    pub(super) held: Vec<Datagram>,
    /// How many of them make up the hello.
    pub(super) flight: usize,
    /// How many of them went to the cover by now.
    pub(super) relayed: usize,
    /// What the cover answered to these.
    pub(super) answers: Vec<Datagram>,
    /// The replay window has it.
    pub(super) is_recorded: bool,
    /// When the cover would answer.
    pub(super) ready: Instant,
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) path: Path,
    pub(super) stage: Stage,
    /// Bytes from the client.
    pub(super) received: u64,
    /// Bytes to the client.
    pub(super) sent: u64,
    /// The client has heard the cover.
    pub(super) is_answered: bool,
    /// The cover has had a datagram of it.
    pub(super) is_open: bool,
    /// The client sent more than its first flight after an answer, so that its address is proved (QR1-24).
    pub(super) is_established: bool,
    /// When the last datagram came, of either side.
    pub(super) last: Instant,
}

impl Flow {
    pub(super) fn new(now: Instant, path: Path) -> Self {
        Self {
            path,
            stage: Stage::Relayed,
            received: 0,
            sent: 0,
            is_answered: false,
            is_open: false,
            is_established: false,
            last: now,
        }
    }

    /// Whether so many bytes more may go to the client (QR1-24); they are counted then.
    pub(super) fn may_send(&mut self, bytes: usize) -> bool {
        let sent = self.sent + bytes as u64;
        let allowed = self.received.saturating_mul(limits::AMPLIFICATION_MAX);
        let is_challenge = self.sent == 0 && bytes <= limits::FIRST_ANSWER_BYTES_MAX;
        let is_allowed = self.is_established || sent <= allowed || is_challenge;
        if is_allowed {
            self.sent = sent;
            self.is_answered = true;
        }
        is_allowed
    }

    /// When something has to be done about its hello.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Relayed => None,
            Stage::Reading(reading) => Some(reading.deadline),
            Stage::Deciding(deciding) => Some(deciding.deadline),
        }
    }

    /// Datagrams that wait in it.
    pub(super) fn held(&self) -> impl Iterator<Item = &Datagram> {
        let (held, answers): (&[_], &[_]) = match &self.stage {
            Stage::Relayed => (&[], &[]),
            Stage::Reading(reading) => (&reading.held, &[]),
            Stage::Deciding(deciding) => (&deciding.held, &deciding.answers),
        };
        held.iter().chain(answers)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held().map(|datagram| datagram.bytes.len()).sum()
    }
}
