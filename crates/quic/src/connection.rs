//! One connection: its state around the core, the datagrams that the core holds, and the connection's report.

mod closing;
mod peer;
mod sending;
mod stopped;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use closing::Closing;
use packet::OwnerKey;
use quinn_proto::{ConnectionError, ConnectionEvent, Datagram, Dir, Transmit, VarInt};
use sending::Turn;
use stopped::Stopped;

pub(crate) use peer::Peer;
use watch::Watch;

use crate::admission::Place;
use crate::cap::Cap;
use crate::config::Profile;
use crate::congestion::Gate;
use crate::counters::{ConnectionReport, Counters};
use crate::error::CloseReason;
use crate::event::ConnectionKey;
use crate::memory::Charge;
use crate::pacer::Pacer;
use crate::trace::Trace;
use crate::unread::Unread;
use crate::{limits, translate};

/// Streams of one direction that an authenticated peer may have open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamGrant {
    /// Before it has opened one.
    unused: u32,
    at_first: u32,
    at_most: u32,
}

/// The same for both directions; `None`: as many as in our transport parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamGrants {
    bidirectional: Option<StreamGrant>,
    unidirectional: Option<StreamGrant>,
}

impl StreamGrants {
    /// Of a connection that we began to a server.
    pub(crate) const NONE: Self = Self {
        bidirectional: None,
        unidirectional: None,
    };

    /// Of peers, whoever began the connection.
    pub(crate) const PEER: Self = {
        const fn grant(unused: u32) -> Option<StreamGrant> {
            Some(StreamGrant {
                unused,
                at_first: limits::PEER_STREAMS_AT_FIRST,
                at_most: limits::PEER_STREAMS,
            })
        }
        Self {
            bidirectional: grant(limits::PEER_STREAMS_UNUSED[0]),
            unidirectional: grant(limits::PEER_STREAMS_UNUSED[1]),
        }
    };

    /// Of a client that may have so many requests.
    pub(crate) fn of_client(requests: u32) -> Self {
        let requests = StreamGrant {
            unused: limits::AUTHENTICATED_STREAMS_AT_FIRST,
            at_first: limits::AUTHENTICATED_STREAMS_AT_FIRST,
            at_most: requests,
        };
        Self {
            bidirectional: Some(requests),
            unidirectional: None,
        }
    }

    fn of(&self, direction: Dir) -> Option<StreamGrant> {
        match direction {
            Dir::Bi => self.bidirectional,
            Dir::Uni => self.unidirectional,
        }
    }
}

pub(crate) struct Connection {
    pub(crate) proto: quinn_proto::Connection,
    key: ConnectionKey,
    /// When its first packet was made, or had come.
    begun: Instant,
    profile: Profile,
    gate: Gate,
    pacer: Pacer,
    /// The rate of the `fixed` profile.
    cap: Option<Cap>,
    /// Part of the latest trains that carried datagrams, 0 to 1.
    datagram_share: f32,
    /// When pacing, or the `fixed` profile's rate, lets more packets go.
    pub(crate) paced_until: Option<Instant>,
    /// Takes its trace, until it is known whose connection this is.
    pub(crate) trace: Option<Arc<dyn Trace>>,
    /// Its place among the strangers, until a valid token comes.
    pub(crate) place: Option<Place>,
    /// What it keeps in memory, while it has a place.
    pub(crate) charge: Charge,
    /// Until when the handshake has to be complete, and then until when a valid token has to come.
    pub(crate) deadline: Option<Instant>,
    /// Until when a valid token has to come.
    pub(crate) token_deadline: Option<Instant>,
    /// Streams that its peer may have open once it is authenticated.
    pub(crate) streams: StreamGrants,
    /// Window of each, and bytes of ours that may be unacknowledged.
    pub(crate) stream_window: u32,
    /// [`crate::Event::Closed`] is among the events; what follows is draining.
    pub(crate) closed: bool,
    /// It was closed by us, and the peer has not answered.
    pub(crate) closing: Option<Box<Closing>>,
    /// The caller has asked for that event.
    pub(crate) end_is_told: bool,
    /// The core has said so, and says it once: an illegal packet that comes behind that makes it draining again, for ever.
    pub(crate) has_drained: bool,
    pub(crate) unsettled: bool,
    pub(crate) ready: bool,
    /// Whose turns it has; given when it is put among the others.
    pub(crate) owner: Option<OwnerKey>,
    /// The deadline as it stands in the endpoint's timer set.
    pub(crate) timer: Option<Instant>,
    stopped: Stopped,
    pub(crate) peer: Peer,
    /// The handshake is complete.
    pub(crate) is_established: bool,
    /// The peer's address, as far as it was told.
    pub(crate) remote: SocketAddr,
    /// The endpoint is covered.
    is_covered: bool,
    /// Streams whose reader does not take what has come.
    pub(crate) standing_readers: usize,
    /// Bytes that the peer may send beyond what was read.
    receive_window: u32,
    /// What of its streams is not read, among peers.
    pub(crate) unread: Unread,
    /// It was told that the peer wants credit.
    credit_wanted: bool,
    datagrams_handed: u64,
    datagrams_dropped: u64,
    trains_sent: u64,
    held_back: u64,
    idle: u64,
    turn: Turn,
    /// Changes of the path are told: among peers, once the handshake is complete.
    watch: Option<Box<Watch>>,
}

impl Connection {
    pub(crate) fn new(
        begun: Instant,
        proto: quinn_proto::Connection,
        key: ConnectionKey,
        profile: Profile,
        gate: Gate,
        peer: Peer,
        is_covered: bool,
    ) -> Self {
        Self {
            remote: proto.remote_address(),
            proto,
            key,
            begun,
            profile,
            gate,
            pacer: Pacer::default(),
            datagram_share: 0.0,
            cap: match profile {
                Profile::Fixed { bits_per_second } => Some(Cap::new(bits_per_second)),
                Profile::Throughput | Profile::Latency => None,
            },
            paced_until: None,
            trace: None,
            place: None,
            charge: Charge::default(),
            deadline: None,
            token_deadline: None,
            streams: StreamGrants::NONE,
            stream_window: limits::STREAM_WINDOW_BYTES,
            closed: false,
            closing: None,
            end_is_told: false,
            has_drained: false,
            unsettled: false,
            ready: false,
            owner: None,
            timer: None,
            stopped: Stopped::default(),
            peer,
            is_established: false,
            is_covered,
            standing_readers: 0,
            receive_window: 0,
            unread: Unread::default(),
            credit_wanted: false,
            datagrams_handed: 0,
            datagrams_dropped: 0,
            trains_sent: 0,
            held_back: 0,
            idle: 0,
            turn: Turn::FIRST,
            watch: None,
        }
    }

    /// Gives a packet of a peer to the core.
    pub(crate) fn handle_packet_of_peer(&mut self, now: Instant, event: ConnectionEvent) {
        let may_have_waited = self.stopped.may_have_waited(now, self.timer);
        let round_trip = self.proto.rtt();
        self.proto.handle_event(event);
        if may_have_waited && self.proto.rtt() > round_trip && !self.proto.is_closed() {
            self.proto.path_changed(now);
        }
    }

    /// It may have something to send; its owner, unless it is queued there already.
    pub(crate) fn become_ready(&mut self) -> Option<OwnerKey> {
        let was_ready = std::mem::replace(&mut self.ready, true);
        self.owner.filter(|_| !was_ready)
    }

    pub(crate) fn close_reason(&self, error: &ConnectionError) -> CloseReason {
        let refused = self.peer.refusal();
        refused.unwrap_or_else(|| translate::close_reason(error))
    }

    /// Whether a client may use it for its tunnel, or a server for the client.
    pub(crate) fn is_tunnel(&self) -> bool {
        !self.closed && !self.peer.is_genuine_site()
    }

    /// Whether nothing leaves any more: an end before the handshake's is told to nobody behind a front door (QR1-21, QR1-22).
    pub(crate) fn is_mute(&self) -> bool {
        self.is_covered && !self.is_established && self.proto.side().is_server() && self.proto.is_closed()
    }

    /// Whether its peer has shown no valid token to us; a client asks its server for none.
    pub(crate) fn is_stranger(&self) -> bool {
        self.place.is_some()
    }

    /// Lets an authenticated peer open more streams once it uses any, and once it uses half of what it may.
    pub(crate) fn grant_streams(&mut self, direction: Dir) {
        let Some(grant) = self.streams.of(direction).filter(|_| !self.is_stranger()) else {
            return;
        };
        let granted = self.proto.max_concurrent_streams(direction);
        let open = self.proto.streams().remote_open_streams(direction);
        let more = if open * 2 > granted { granted * 2 } else { granted };
        let least = if open > 0 { grant.at_first } else { grant.unused };
        let more = more.max(u64::from(least)).min(u64::from(grant.at_most));
        if more != granted {
            let count = VarInt::from_u64(more).expect("it is at most 16,384");
            self.proto.set_max_concurrent_streams(direction, count);
        }
    }

    /// Gives an authenticated peer a window that streams which nobody reads do not fill.
    pub(crate) fn widen_receive_window(&mut self) {
        if self.is_stranger() {
            return;
        }
        let standing = u32::try_from(self.standing_readers).unwrap_or(u32::MAX);
        let standing = standing.min(limits::STANDING_READERS_MAX);
        let window = limits::connection_window_bytes(self.stream_window, standing);
        if window > self.receive_window {
            self.receive_window = window;
            self.proto.set_receive_window(VarInt::from_u32(window));
        }
    }

    /// Counts what came in packets since the last call by the pieces of streams that were in them. Whether the peer, which
    /// still has a stranger's credit, wants more than that for the first time. A stream that was given up has used
    /// credit for bytes that were lost and never come, so that what came no longer tells.
    pub(crate) fn look_at_streams(&mut self) -> bool {
        let received = self.proto.stats().frame_rx;
        self.unread.look(received.stream);
        let wants_credit = self.receive_window == 0
            && self.proto.side().is_server()
            && (received.reset_stream > 0 || self.unread.came() >= u64::from(limits::CREDIT_WANTED_BYTES));
        wants_credit && !std::mem::replace(&mut self.credit_wanted, true)
    }

    /// Whether what is not read may be all that the peer is allowed to send: an eighth of what was read may not have
    /// been given back yet.
    pub(crate) fn may_lack_credit(&self) -> bool {
        let window = match (self.receive_window, self.proto.side().is_server()) {
            (0, true) => limits::UNAUTHENTICATED_CREDIT_BYTES,
            (0, false) => limits::connection_window_bytes(self.stream_window, 0),
            (widened, _) => widened,
        };
        self.unread.bytes_max() >= u64::from(window - window / 8)
    }

    fn holds_no_datagram(&mut self) -> bool {
        self.proto.datagrams().send_buffer_space() + size_of::<Datagram>() == limits::DATAGRAM_SEND_BYTES
    }

    /// Datagrams that the core took and has given up since the last question.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        if !self.closed && !self.holds_no_datagram() {
            return 0;
        }
        let gone = self.datagrams_handed - self.proto.stats().frame_tx.datagram;
        gone - std::mem::replace(&mut self.datagrams_dropped, gone)
    }

    /// Datagrams that the core holds.
    pub(crate) fn datagrams_held(&self) -> u64 {
        if self.closed {
            return 0;
        }
        self.datagrams_handed - self.proto.stats().frame_tx.datagram - self.datagrams_dropped
    }

    /// Frames received of which QUIC may keep the content until it is read.
    pub(crate) fn frames_kept(&self) -> u64 {
        let received = self.proto.stats().frame_rx;
        received.stream + received.crypto
    }

    /// Frames that the peer has proved to have sent, and that are not counted by their content.
    pub(crate) fn frames_received(&self) -> u64 {
        let received = self.proto.stats().frame_rx;
        received.acks + received.ping + received.datagram + received.stream
    }

    pub(crate) fn counters(&self) -> Counters {
        translate::counters(&self.proto.stats(), self.trains_sent, self.gate.cuts())
    }

    /// Bytes under way.
    pub(crate) fn in_flight(&self) -> u64 {
        self.gate.allowance().in_flight
    }

    pub(crate) fn report(&mut self) -> ConnectionReport {
        let allowance = self.gate.allowance();
        let round_trips = self.gate.round_trips();
        let stats = self.proto.stats();
        ConnectionReport {
            remote: self.proto.remote_address(),
            begun: self.begun,
            authenticated: !self.is_stranger(),
            rtt: self.proto.rtt(),
            rtt_latest: round_trips.latest,
            rtt_min: self.proto.min_rtt(),
            rtt_variation: round_trips.variation,
            congestion_window: allowance.window,
            in_flight: allowance.in_flight,
            acknowledgements: self.gate.acknowledgements(),
            held_back: self.held_back,
            idle: self.idle,
            pacing_bits_per_second: (allowance.bytes_per_second < u64::MAX)
                .then(|| allowance.bytes_per_second.saturating_mul(8)),
            profile: self.profile,
            path: self.gate.estimate(),
            path_mtu: self.proto.current_mtu(),
            datagram_max: self.proto.datagrams().max_size(),
            bytes_lost: stats.path.lost_bytes,
            congestion_marks: self.gate.marks(),
            counters: self.counters(),
        }
    }

    /// Writes the one packet that says that the connection has ended, which is forgotten then.
    pub(crate) fn farewell(&mut self, now: Instant, bytes: &mut Vec<u8>) -> Option<Transmit> {
        // The core would hold it back where data waits behind a closed gate.
        self.gate.set_open(true);
        self.proto.poll_transmit(now, 1, bytes)
    }
}
