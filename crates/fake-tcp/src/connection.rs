//! One connection: its state, and what each segment, datagram and timeout changes (RFC 9293 section 3.10, with what
//! specs/fake-tcp.md leaves out). What is to be sent comes back as a [`Reply`], which the stack writes.

mod receiving;
mod sealing;
mod sending;
mod timing;

use std::time::{Duration, Instant};

use crate::lengths::Lengths;
use crate::profile::Profile;
use crate::seal::Seal;
use crate::secret::Announced;
use crate::segment::{Options, Segment};
use crate::sequence::Sequence;
use crate::stack::CloseReason;
use crate::tuple::Tuple;

pub(crate) use sealing::Checked;
pub(crate) use sending::Reply;
use timing::Timing;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Our SYN is out.
    SynSent,
    /// The peer's SYN came, ours is not acknowledged.
    SynReceived,
    /// The peer has accepted, and has not said its salt (FTCP-24).
    Keying,
    /// Datagrams pass.
    Established,
    /// Our FIN is out.
    Closing,
    /// Over; its addresses are kept from the next connection (FTCP-17).
    Quarantined {
        /// Whether any SYN opens the next one at once: the peer has forgotten this one.
        is_reset: bool,
    },
}

/// What a segment, a timeout or a call led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The payload is for the user.
    pub(crate) deliver: bool,
    pub(crate) reply: Option<Reply>,
    pub(crate) change: Option<Change>,
    /// The segment does not belong to this connection's present.
    pub(crate) is_outside: bool,
}

impl Outcome {
    fn reply(reply: Reply) -> Self {
        Self {
            reply: Some(reply),
            ..Self::default()
        }
    }

    fn change(change: Change) -> Self {
        Self {
            change: Some(change),
            ..Self::default()
        }
    }

    fn outside(reply: Option<Reply>) -> Self {
        Self {
            reply,
            is_outside: true,
            ..Self::default()
        }
    }
}

/// A step in a connection's life that others have to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// No datagram passes any more.
    Ended(CloseReason),
    /// Nothing remains of it.
    Forgotten,
    /// A SYN begins the next connection between the same addresses.
    Replaced,
}

/// What all connections of a stack have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) profile: Profile,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) idle: Option<Duration>,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) tuple: Tuple,
    settings: Settings,
    state: State,
    /// The peer opened it.
    is_passive: bool,
    /// The handshake was complete.
    was_open: bool,
    send: SendSide,
    receive: ReceiveSide,
    lengths: Lengths,
    /// With a key.
    seal: Option<Box<Seal>>,
    timing: Timing,
}

/// Our direction.
#[derive(Clone, Copy, Debug)]
struct SendSide {
    initial: Sequence,
    /// What the peer acknowledged.
    acknowledged: Sequence,
    next: Sequence,
    /// Bytes that may be ahead of `acknowledged`.
    window: u32,
    window_max: u32,
    announced: Announced,
    /// Least MTU that a router told, and until when it counts.
    path_mtu: Option<(u16, Instant)>,
    /// Distinguishes packets: flow label, and the first IPv4 ID.
    label: u32,
    packets: u16,
    timestamp: u32,
    mss: u16,
}

/// The peer's direction.
#[derive(Clone, Copy, Debug, Default)]
struct ReceiveSide {
    initial: Sequence,
    next: Sequence,
    /// What we acknowledged last.
    acknowledged: Sequence,
    /// Data came.
    has_data: bool,
    /// The peer's SYN offered SACK and a window scale.
    offered: Options,
    /// Longest segment that the peer sends.
    segment_bytes_max: u16,
}

/// What a new connection starts with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) tuple: Tuple,
    pub(crate) initial: Sequence,
    pub(crate) label: u32,
    pub(crate) timestamp: u32,
    pub(crate) mss: u16,
    pub(crate) seal: Option<Box<Seal>>,
}

impl Connection {
    /// One that we open; a [`Reply::Syn`] is due.
    pub(crate) fn open(now: Instant, start: Start, settings: Settings) -> Self {
        let mut connection = Self::new(now, start, settings, State::SynSent, false);
        connection.timing.transmit(now);
        connection
    }

    /// One that the peer opens by `syn`; a [`Reply::SynAck`] is due.
    pub(crate) fn accept(now: Instant, start: Start, settings: Settings, syn: &Segment) -> Self {
        let mut connection = Self::new(now, start, settings, State::SynReceived, true);
        connection.take_syn(syn);
        connection.timing.transmit(now);
        connection
    }

    /// One of which a cookie says everything; `segment` brought it. It is to be received next.
    pub(crate) fn restore(
        now: Instant,
        start: Start,
        settings: Settings,
        segment: &Segment,
        announced: Announced,
    ) -> Self {
        let mut connection = Self::new(now, start, settings, State::SynReceived, true);
        connection.send.announced = announced;
        connection.receive.initial = segment.sequence.plus(u32::MAX);
        connection.receive.next = segment.sequence;
        connection.receive.acknowledged = segment.sequence;
        // It may not prove that it is the peer's.
        connection.timing.transmit(now);
        connection
    }

    fn new(now: Instant, start: Start, settings: Settings, state: State, is_passive: bool) -> Self {
        Self {
            tuple: start.tuple,
            settings,
            state,
            is_passive,
            was_open: false,
            send: SendSide {
                initial: start.initial,
                acknowledged: start.initial,
                next: start.initial.plus(1),
                window: 0,
                window_max: 0,
                announced: Announced::default(),
                path_mtu: None,
                label: start.label,
                packets: 0,
                timestamp: start.timestamp,
                mss: start.mss,
            },
            receive: ReceiveSide {
                segment_bytes_max: start.mss,
                ..ReceiveSide::default()
            },
            lengths: Lengths::default(),
            seal: start.seal,
            timing: Timing::new(now),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Whether the peer opened it.
    pub(crate) fn is_passive(&self) -> bool {
        self.is_passive
    }

    /// Whether its handshake was complete at some time.
    pub(crate) fn was_open(&self) -> bool {
        self.was_open
    }

    /// Whether it waits for the third segment of a handshake that the peer began.
    pub(crate) fn is_half_open(&self) -> bool {
        self.is_passive && self.state == State::SynReceived
    }

    /// Ends it in order: by FIN, or RST where the peer knows no FIN. Where datagrams do not pass it is forgotten.
    pub(crate) fn close(&mut self, now: Instant) -> Outcome {
        match self.state {
            State::Established if self.settings.profile == Profile::Phantun => {
                let reply = Some(Reply::Reset(self.send.next));
                self.quarantine(now, true);
                Outcome {
                    reply,
                    ..Outcome::default()
                }
            }
            State::Established => {
                self.finish(now);
                Outcome::reply(Reply::Fin)
            }
            State::SynSent => Outcome::change(Change::Forgotten),
            State::SynReceived | State::Keying => Outcome {
                reply: Some(Reply::Reset(self.send.next)),
                change: Some(Change::Forgotten),
                ..Outcome::default()
            },
            State::Closing | State::Quarantined { .. } => Outcome::default(),
        }
    }

    /// Our FIN leaves.
    fn finish(&mut self, now: Instant) {
        self.state = State::Closing;
        self.send.next = self.send.next.plus(1);
        self.timing.acknowledge = None;
        self.timing.attempts = 0;
        self.timing.transmit(now);
    }

    fn quarantine(&mut self, now: Instant, is_reset: bool) {
        self.state = State::Quarantined { is_reset };
        self.timing.quarantine(now);
    }

    /// Ends it for `reason`.
    fn end(&mut self, now: Instant, reason: CloseReason, reply: Option<Reply>) -> Outcome {
        self.quarantine(now, matches!(reason, CloseReason::Reset | CloseReason::Refused));
        Outcome {
            reply,
            change: Some(Change::Ended(reason)),
            ..Outcome::default()
        }
    }

    /// Everything about the peer's direction that its SYN says.
    fn take_syn(&mut self, syn: &Segment) {
        self.receive.initial = syn.sequence;
        self.receive.next = syn.sequence.plus(1);
        self.receive.acknowledged = syn.sequence;
        self.receive.offered = syn.options;
        self.receive.segment_bytes_max = syn
            .options
            .mss
            .map_or(self.send.mss, |mss| mss.min(self.send.mss));
        self.send.announced = Announced {
            mss: syn.options.mss,
            window_scale: syn.options.window_scale,
        };
        self.send.window = syn.window.into();
        self.send.window_max = syn.window.into();
    }
}
