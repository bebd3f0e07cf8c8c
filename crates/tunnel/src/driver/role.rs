//! Where a client's shard and a server's differ: what the event loop, which is the same for both, leaves to the role.

use std::io;
use std::time::Instant;

use packet_io::{UdpSocket, VNET_HEADER_BYTES};
use tunnel_proto::{AllowedTarget, AttemptId, Ending, RequestId};

use super::Shard;
use super::inner_turns::Served;
use super::neighbours::Cost;
use super::resolver::Answer;
use super::sources::{Source, SourceId};
use crate::carrier::OfferedSocket;
use crate::snapshot::{ShardSnapshot, Snapshot};

/// The role of a shard: [`Client`](super::client::Client) or [`Server`](super::server::Server).
pub(super) trait Role: Sized + Send + 'static {
    /// The role of its engine.
    type Proto: tunnel_proto::Role<Action = Self::Action> + Send;
    /// What only this role's engine asks for.
    type Action: Send;
    /// Inner ends of requests that only this role has.
    type Inner: Send;
    /// Its descriptors that belong to no request.
    type Source: Source + Send;
    /// What only shards of this role hand to each other.
    type Message: Cost + Send;

    /// As a snapshot calls it.
    const NAME: &'static str;

    /// When [`Role::turn`] has something to do.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Where the shard stands, unless it drains.
    fn state_name(&self) -> &'static str;

    /// What is due.
    fn turn(shard: &mut Shard<Self>, now: Instant);

    /// What was received that QUIC reads nothing of ([`super::delivery::Delivery::strangers`]).
    fn take_strangers(shard: &mut Shard<Self>, now: Instant);

    /// QUIC's packets are about to leave.
    fn before_sending(_: &mut Shard<Self>) {}

    /// A source, which is there, is ready.
    fn source_ready(shard: &mut Shard<Self>, now: Instant, id: SourceId);

    /// The deadline of a source, which is there, has passed.
    fn source_due(shard: &mut Shard<Self>, now: Instant, id: SourceId);

    /// Carries out what the engine asks for.
    fn carry_out(shard: &mut Shard<Self>, now: Instant, action: Self::Action);

    /// A name was resolved.
    fn resolved(shard: &mut Shard<Self>, now: Instant, answer: Answer);

    /// Another shard handed something over.
    fn handed_over(shard: &mut Shard<Self>, now: Instant, message: Self::Message);

    /// The socket of an inner end of this role is ready.
    fn inner_ready(shard: &mut Shard<Self>, now: Instant, id: RequestId);

    /// There is content for a request that has no relay.
    fn content_came(_: &mut Shard<Self>, _: Instant, _: RequestId) {}

    /// An inner socket of this role has its turn ([`super::inner_turns`]).
    fn serve_inner(_: &mut Shard<Self>, _: Instant, _: RequestId) -> Served {
        Served::default()
    }

    /// Another thread may have left something for this shard.
    fn woken(shard: &mut Shard<Self>, now: Instant);

    /// The engine has ended a request; its inner end is closed next.
    fn request_ended(shard: &mut Shard<Self>, now: Instant, id: RequestId, ending: &Ending);

    /// Closes an inner end of this role.
    fn close_inner(shard: &mut Shard<Self>, id: RequestId, inner: Self::Inner);

    /// Replaces a server's explicit permissions.
    fn allow_targets(_: &mut Shard<Self>, _: &[AllowedTarget]) {}

    /// Nothing new is accepted from here on; what runs goes on.
    fn start_drain(shard: &mut Shard<Self>);

    /// Offers the outer socket to a process that is to take it over.
    ///
    /// # Errors
    /// It cannot be taken over.
    fn offer(_: &mut Shard<Self>) -> io::Result<OfferedSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Nobody took it over.
    fn withdraw(_: &mut Shard<Self>) {}

    /// The end of the shard is near.
    fn end(shard: &mut Shard<Self>, now: Instant);

    /// ICMP says that nobody listens where the outer socket sends to.
    fn port_is_closed(shard: &mut Shard<Self>, now: Instant);

    /// The carrier of an attempt to connect has received something.
    fn attempt_ready(shard: &mut Shard<Self>, now: Instant, attempt: AttemptId);

    /// A packet or super-packet that the TUN gave.
    fn send_packet(
        shard: &mut Shard<Self>,
        now: Instant,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &mut [u8],
    );

    /// Sends the trains that were collected for inner sockets.
    fn send_trains(shard: &mut Shard<Self>);

    /// Every inner UDP socket that is open.
    fn for_each_inner_socket(shard: &mut Shard<Self>, each: impl FnMut(&mut UdpSocket));

    /// Enters what only this role knows: in the process's snapshot and in this shard's part of it.
    fn complete(shard: &mut Shard<Self>, snapshot: &mut Snapshot, own: &mut ShardSnapshot);
}
