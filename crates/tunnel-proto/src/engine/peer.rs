//! What the tunnel knows of one QUIC connection.

use std::collections::HashMap;
use std::time::Duration;

use masque::split::Reassembler;
use quic::{ConnectionKey, StreamId};
use repair::{LossMeter, Plan};

use super::held_back::Meter;
use super::hold_queue::HoldQueue;
use super::queue::FairQueue;
use super::request::RequestId;
use crate::access::User;
use crate::limits;

pub(crate) struct Peer {
    pub(crate) connection: ConnectionKey,
    pub(crate) h3: masque::Connection,
    /// Our control and QPACK streams; open as long as the connection.
    pub(crate) own_streams: Vec<StreamId>,
    /// All requests with a stream of this connection, by Quarter Stream ID, until they end.
    pub(crate) requests: HashMap<u64, RequestId>,
    /// Server: the first Quarter Stream ID above all that the peer has used.
    pub(crate) next_request: u64,
    /// The session of the last datagram: most often the next one's, too.
    last: Option<(u64, RequestId)>,
    pub(crate) queue: FairQueue,
    pub(crate) early: HoldQueue<u64>,
    pub(crate) reassembler: Reassembler,
    /// Largest DATAGRAM frame payload at present, in bytes.
    pub(crate) datagram_max: usize,
    /// How long the fragments of a payload wait in the queue.
    pub(crate) fragment_time_max: Duration,
    /// TCP forwards whose content the driver has not read.
    pub(crate) unread: usize,
    /// Server: whose it is.
    pub(crate) user: Option<User>,
    /// A valid token was seen (server), or ours was taken (client).
    pub(crate) authenticated: bool,
    pub(crate) wrong_tokens: u32,
    /// Requests with repair.
    pub(crate) repairing: usize,
    /// Bytes that their copies take.
    pub(crate) repair_bytes: usize,
    /// How lossy the path is, measured while there are some, and the parity that it needs.
    pub(crate) loss: LossMeter,
    pub(crate) plan: Plan,
    /// Frames, or the rest of one, for our control stream that found no credit.
    pub(crate) control_unsent: Vec<u8>,
    /// Whether the path holds back what we send.
    pub(crate) meter: Meter,
}

impl Peer {
    pub(crate) fn new(role: masque::Role, connection: ConnectionKey) -> Self {
        Self {
            connection,
            h3: masque::Connection::new(role),
            own_streams: Vec::new(),
            requests: HashMap::new(),
            next_request: 0,
            last: None,
            queue: FairQueue::default(),
            early: HoldQueue::new(limits::EARLY_BYTES_MAX),
            reassembler: Reassembler::new(),
            datagram_max: 0,
            fragment_time_max: limits::QUEUE_TIME_MAX,
            unread: 0,
            user: None,
            authenticated: false,
            wrong_tokens: 0,
            repairing: 0,
            repair_bytes: 0,
            loss: LossMeter::default(),
            plan: Plan::default(),
            control_unsent: Vec::new(),
            meter: Meter::default(),
        }
    }

    /// The round trip is known (again).
    pub(crate) fn measured(&mut self, round_trip: Duration) {
        self.fragment_time_max = limits::QUEUE_TIME_MAX.max(limits::FRAGMENT_ROUND_TRIPS * round_trip);
    }

    pub(crate) fn request(&mut self, quarter: u64) -> Option<RequestId> {
        if let Some((last, id)) = self.last
            && last == quarter
        {
            return Some(id);
        }
        let id = *self.requests.get(&quarter)?;
        self.last = Some((quarter, id));
        Some(id)
    }

    /// The peer has opened a request's stream.
    pub(crate) fn accept(&mut self, quarter: u64, id: RequestId) {
        self.requests.insert(quarter, id);
        self.next_request = self.next_request.max(quarter + 1);
    }

    /// A stream is another request's from here on.
    pub(crate) fn give_stream(&mut self, quarter: u64, id: RequestId) {
        self.requests.insert(quarter, id);
        self.last = None;
    }

    pub(crate) fn forget(&mut self, quarter: u64) {
        self.requests.remove(&quarter);
        self.last = None;
    }

    /// Whether the peer has said that it takes HTTP Datagrams, and as a server extended CONNECT.
    pub(crate) fn takes_connect_udp(&self) -> Option<bool> {
        let settings = self.h3.peer_settings()?;
        Some(settings.h3_datagram && settings.extended_connect && self.datagram_max > 0)
    }
}
