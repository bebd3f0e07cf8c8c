//! The relay's decisions of one shard: which datagrams go to the cover, and which connections are taken over (QR1-6 to
//! QR1-14, QR1-20, QR1-22, QR1-24, QR1-25).
//!
//! A [`Door`] gets the datagrams that belong to no living connection, and says of each what becomes of it. Each path
//! has a flow, to which belongs a socket of the driver, connected to the cover. The first datagrams of a flow may hold
//! a hello of ours. While it is incomplete, they wait for a few milliseconds, and are read on beyond that until the
//! cover answers. Once a hello is recognised, the replay window is asked and its tag put on the file (the driver's
//! work), and when the cover would have answered, the connection is taken over. Wherever that goes wrong, the same
//! datagrams go to the cover, by the same code as those of anybody else.

mod counters;
mod deciding;
mod flow;
mod flows;
mod reading;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet::{Ecn, Path, PrefixBudget};

use crate::authenticator::Recognised;
use crate::credentials::{ServerKey, Users};
use crate::handshakes::{Filtered, Handshakes};
use crate::limits;
use crate::long_header::{ConnectionId, Kind, Part, is_long, parts};
use crate::replay::Tag;

pub use counters::DoorCounters;
pub use flow::Datagram;
pub use flows::FlowKey;

use flow::{Flow, Stage};
use flows::Flows;

/// The time, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Of deadlines.
    pub instant: Instant,
    /// Of hellos: Unix time in seconds.
    pub unix: u32,
}

/// By what hellos are recognised; all shards share it.
#[derive(Debug)]
pub struct Recogniser<U> {
    /// The present key and the one before it (QR1-1).
    pub keys: Vec<ServerKey>,
    /// Whom the server knows.
    pub users: U,
    /// How far clients' clocks may be off (QR1-9).
    pub window: Duration,
}

/// What becomes of a datagram. Actions that are waiting come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the cover over this flow, whose socket is opened if there is none yet.
    Forward(FlowKey),
    /// QUIC reads it.
    Pass,
    /// The door keeps a copy.
    Held,
    /// Nobody gets it.
    Dropped,
}

/// A connection that is taken over.
#[derive(Clone, Debug)]
pub struct TakeOver {
    /// Between which addresses.
    pub path: Path,
    /// Destination connection ID of its first Initial.
    pub destination_id: ConnectionId,
    /// Whose it is, and its keys.
    pub recognised: Recognised,
    /// What came of it, for QUIC, in this order.
    pub datagrams: Vec<Datagram>,
}

/// What the driver has to do.
#[derive(Debug)]
pub enum Action {
    /// Send to the cover.
    Forward(FlowKey, Datagram),
    /// Send to a stranger what the cover answered.
    Answer(Path, Datagram),
    /// Close the flow's socket.
    Close(FlowKey),
    /// Ask the replay window, put the tag on the file, and tell [`Door::handle_recorded`].
    Record {
        /// Whose hello it is.
        flow: FlowKey,
        /// Its tag.
        tag: Tag,
        /// Its time, in seconds of Unix time.
        time: u32,
    },
    /// Give the connection to QUIC.
    TakeOver(Box<TakeOver>),
}

/// The relay of one shard.
pub struct Door<U> {
    recogniser: Arc<Recogniser<U>>,
    /// How long after a hello the cover answers (QR1-29).
    cover_delay: Duration,
    flows_max: usize,
    held_bytes_max: usize,
    flows: Flows,
    handshakes: Handshakes,
    /// Of flows with a hello.
    deadlines: BTreeSet<(Instant, FlowKey)>,
    new_flows: PrefixBudget,
    hellos: PrefixBudget,
    held_bytes: usize,
    actions: VecDeque<Action>,
    /// Packets are opened here.
    space: Vec<u8>,
    counters: DoorCounters,
}

impl<U: Users> Door<U> {
    /// Of one of so many shards, at least one, which have equal parts of the bounds.
    #[must_use]
    pub fn new(recogniser: Arc<Recogniser<U>>, shards: u8) -> Self {
        let shards = u32::from(shards.max(1));
        let budget = |all: u32, prefix: u32| PrefixBudget::new(all / shards, (prefix / shards).max(1));
        Self {
            recogniser,
            cover_delay: Duration::ZERO,
            flows_max: limits::FLOWS_MAX / shards as usize,
            held_bytes_max: limits::HELD_BYTES_MAX / shards as usize,
            flows: Flows::new(),
            handshakes: Handshakes::default(),
            deadlines: BTreeSet::new(),
            new_flows: budget(
                limits::NEW_FLOWS_PER_SECOND,
                limits::NEW_FLOWS_PER_PREFIX_PER_SECOND,
            ),
            hellos: budget(limits::HELLOS_PER_SECOND, limits::HELLOS_PER_PREFIX_PER_SECOND),
            held_bytes: 0,
            actions: VecDeque::new(),
            space: Vec::new(),
            counters: DoorCounters::default(),
        }
    }

    /// Keys or users have changed.
    pub fn set_recogniser(&mut self, recogniser: Arc<Recogniser<U>>) {
        self.recogniser = recogniser;
    }

    /// How long the cover takes for its answer to a hello (QR1-29).
    pub fn set_cover_delay(&mut self, delay: Duration) {
        self.cover_delay = delay.min(limits::COVER_DELAY_MAX);
    }

    /// The handshakes that were taken over: the driver tells of what is sent in them, and of their ends.
    pub fn handshakes(&mut self) -> &mut Handshakes {
        &mut self.handshakes
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> &DoorCounters {
        &self.counters
    }

    /// Flows that there are.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Bytes of datagrams that wait.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The next thing to do; to be asked until there is none after every other call.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A datagram of a client, whose connection ID is that of no living connection, or which begins with a long header.
    pub fn handle_datagram(&mut self, now: Now, path: Path, ecn: Ecn, bytes: &[u8]) -> Decision {
        if is_long(bytes)
            && let Some(filtered) = self.handshakes.filter(path, bytes)
        {
            return match filtered {
                Filtered::Pass => {
                    self.counters.passed += 1;
                    Decision::Pass
                }
                Filtered::Drop => {
                    self.counters.forged += 1;
                    Decision::Dropped
                }
            };
        }
        let Some(key) = self.flow_of(now.instant, path) else {
            self.counters.shed += 1;
            return Decision::Dropped;
        };
        self.flows.touch(key, now.instant);
        let Some(flow) = self.flows.get_mut(key) else {
            return Decision::Dropped;
        };
        flow.received += bytes.len() as u64;
        match &flow.stage {
            Stage::Relayed => {
                let is_proved = flow.is_established;
                let may_begin = !flow.is_answered;
                if !is_proved && !may_begin && is_beyond_first_flight(bytes) {
                    self.flows.establish(key);
                }
                if may_begin && self.begins(now.instant, key, path, bytes) {
                    return self.read(now, key, ecn, bytes);
                }
                self.forward(key)
            }
            Stage::Reading(_) => self.read(now, key, ecn, bytes),
            Stage::Deciding(_) => self.hold(key, ecn, bytes),
        }
    }

    /// A datagram of the cover on this flow; to whom it is sent, if to anybody.
    pub fn handle_answer(&mut self, now: Now, key: FlowKey, ecn: Ecn, bytes: &[u8]) -> Option<Path> {
        let Some(flow) = self.flows.get_mut(key) else {
            self.counters.late += 1;
            return None;
        };
        if let Stage::Deciding(deciding) = &mut flow.stage {
            if self.held_bytes + bytes.len() > self.held_bytes_max
                || deciding.answers.len() >= limits::FLOW_ANSWERS_HELD_MAX
            {
                self.counters.clamped += 1;
                return None;
            }
            self.held_bytes += bytes.len();
            deciding.answers.push(Datagram {
                ecn,
                bytes: bytes.to_vec(),
            });
            return None;
        }
        if !flow.may_send(bytes.len()) {
            self.counters.clamped += 1;
            return None;
        }
        let path = flow.path;
        self.flows.touch(key, now.instant);
        self.counters.answered += 1;
        // The client has heard the cover: no take-over from here on (QR1-13).
        self.release(key);
        Some(path)
    }

    /// What became of [`Action::Record`]: whether the hello is new, and on the file.
    pub fn handle_recorded(&mut self, now: Now, key: FlowKey, tag: &Tag, is_accepted: bool) {
        let Some(Stage::Deciding(deciding)) = self.flows.get_mut(key).map(|flow| &mut flow.stage) else {
            return;
        };
        if deciding.is_recorded || deciding.recognised.keys.tag() != tag {
            return;
        }
        if is_accepted {
            self.deadlines.remove(&(deciding.deadline, key));
            deciding.is_recorded = true;
            deciding.deadline = deciding.ready;
            self.deadlines.insert((deciding.deadline, key));
            self.handle_timeout(now);
        } else {
            self.counters.refused += 1;
            self.release(key);
        }
    }

    /// The driver cannot reach the cover by this flow any more, or has closed its socket.
    pub fn handle_closed(&mut self, key: FlowKey) {
        self.end(key);
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let hello = self.deadlines.first().map(|(deadline, _)| *deadline);
        let end = self.flows.next_end().map(|(end, _)| end);
        [hello, end, self.handshakes.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some((deadline, key)) = self.deadlines.first().copied()
            && deadline <= now.instant
        {
            self.deadlines.remove(&(deadline, key));
            self.hello_is_due(now, key);
        }
        while let Some((end, key)) = self.flows.next_end()
            && end <= now.instant
        {
            self.end(key);
        }
        self.handshakes.handle_timeout(now.instant);
    }

    /// The path's flow, which may be a new one.
    fn flow_of(&mut self, now: Instant, path: Path) -> Option<FlowKey> {
        if let Some(key) = self.flows.find(&path) {
            return Some(key);
        }
        if !self.new_flows.take(now, path.remote.ip()) {
            return None;
        }
        if self.flows.len() >= self.flows_max
            && let Some(quietest) = self.flows.quietest()
        {
            self.counters.evicted += 1;
            self.end(quietest);
        }
        self.counters.flows += 1;
        Some(self.flows.insert(Flow::new(now, path)))
    }

    /// The datagram goes to the cover.
    fn forward(&mut self, key: FlowKey) -> Decision {
        if let Some(flow) = self.flows.get_mut(key) {
            flow.is_open = true;
        }
        self.counters.relayed += 1;
        Decision::Forward(key)
    }
}

/// Whether a client sends this only after it has heard an answer (QR1-24): a Handshake or 1-RTT packet is in it.
fn is_beyond_first_flight(datagram: &[u8]) -> bool {
    parts(datagram).any(|part| match part {
        Part::Long(packet) => packet.kind == Kind::Handshake,
        Part::Short(_) => true,
        Part::Unreadable(_) => false,
    })
}

impl<U> std::fmt::Debug for Door<U> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Door")
            .field("flows", &self.flows.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
