//! How a message is to be delivered, and what became of it.

use std::time::Duration;

use bytes::Bytes;

/// In which order messages reach the other program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they come.
    #[default]
    Unordered,
    /// In the order of sending within this channel; channels do not wait for each other. Messages that are repeated
    /// on loss arrive without gaps, others may be missing. What came behind a gap when the connection ended is read
    /// last ([`Received::is_behind_gap`]).
    Ordered(u32),
    /// Only the newest of this key: an older message that waits is dropped, one that comes late is not delivered.
    Latest(u32),
}

/// How long a message is repeated until the peer has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reliability {
    /// Sent once. One that fits no packet has a stream, which repairs losses.
    Unreliable,
    /// Until this time after it was sent.
    Deadline(Duration),
    /// While the connection lives.
    #[default]
    Reliable,
}

/// How a message is to be delivered: reliably, unordered, with priority 0 where nothing else is said.
///
/// ```
/// # use peer_proto as peer;
/// use std::time::Duration;
/// use peer::{Delivery, Order, Reliability};
///
/// let position_of_player_7 = Delivery::latest(7);
/// let chat = Delivery::ordered(1).with_priority(5);
/// let video = Delivery::unordered().with_deadline(Duration::from_millis(80));
/// assert_eq!(position_of_player_7.order, Order::Latest(7));
/// assert_eq!((chat.priority, video.reliability), (5, Reliability::Deadline(Duration::from_millis(80))));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// In which order.
    pub order: Order,
    /// How long it is repeated.
    pub reliability: Reliability,
    /// Messages of a higher priority leave first, but never before earlier ones of their channel.
    pub priority: u8,
}

impl Delivery {
    /// Reliable, in whatever order.
    #[must_use]
    pub fn unordered() -> Self {
        Self::default()
    }

    /// Reliable, in the order of this channel.
    #[must_use]
    pub fn ordered(channel: u32) -> Self {
        Self {
            order: Order::Ordered(channel),
            ..Self::default()
        }
    }

    /// The newest value of this key, reliable until it is superseded.
    #[must_use]
    pub fn latest(key: u32) -> Self {
        Self {
            order: Order::Latest(key),
            ..Self::default()
        }
    }

    /// The same, sent once only.
    #[must_use]
    pub fn unreliable(mut self) -> Self {
        self.reliability = Reliability::Unreliable;
        self
    }

    /// The same, given up after this time.
    #[must_use]
    pub fn with_deadline(mut self, after: Duration) -> Self {
        self.reliability = Reliability::Deadline(after);
        self
    }

    /// The same with this priority.
    #[must_use]
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }
}

/// Names a message that was taken for sending, among those of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// How a ticket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The peer has the whole message. It does not deliver one that is longer than it takes: one that fits a packet, or
    /// that had come whole before its refusal was heard, is acknowledged all the same.
    Acked,
    /// The deadline passed first; the message may have arrived all the same.
    Expired,
    /// It is not sent, or not sent again.
    Dropped(DropReason),
}

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// A newer value of its key took its place.
    Superseded,
    /// It was sent once and not acknowledged.
    Lost,
    /// It is longer than the peer takes, or came too slowly while the peer was short of room.
    Refused,
    /// The connection ended first.
    ConnectionEnded,
}

/// A message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its bytes.
    pub body: Bytes,
    /// The order that its sender chose.
    pub order: Order,
    /// The connection ended before an earlier message of its channel came.
    pub is_behind_gap: bool,
}
