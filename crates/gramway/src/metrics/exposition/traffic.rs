//! What became of datagrams, packets and bytes.

use std::collections::BTreeMap;
use std::fmt;

use tunnel::snapshot::{Classified, Gauge, IoCounters, QuicCounters, SourceCounters, TcpCounters};
use tunnel_proto::{Direction, DropReason, TimeSamples};

use super::{Buckets, Exposition};

/// Microseconds of a second.
const MICROSECONDS: f64 = 1e6;

/// Shorter times are one bucket: no path and no timer is that exact.
const TIME_MIN_MICROSECONDS: u64 = 128;

/// The datagram path. For each direction holds
/// `accepted + split + parity_sent + repaired = sent + joined + parity_received + dropped + waiting`.
pub(super) fn directions(out: &mut Exposition<'_>, ingress: &Direction, egress: &Direction) -> fmt::Result {
    let both = [("ingress", ingress), ("egress", egress)];
    let of = |count: fn(&Direction) -> u64| {
        both.map(|(direction, counters)| ([("direction", direction)], count(counters)))
    };
    out.counters(
        "datagrams_accepted",
        "Datagrams and IP packets that came in: ingress is into the tunnel, egress out of it",
        of(|direction| direction.account.accepted),
    )?;
    out.counters(
        "datagrams_sent",
        "Datagrams and IP packets that were sent on",
        of(|direction| direction.account.sent),
    )?;
    out.counters(
        "datagrams_split",
        "Fragments beyond the first of each payload that was split",
        of(|direction| direction.account.split),
    )?;
    out.counters(
        "datagrams_joined",
        "Fragments beyond the first of each payload that was put together",
        of(|direction| direction.account.joined),
    )?;
    out.counters(
        "datagrams_repaired",
        "Payloads that were lost and rebuilt from parity",
        of(|direction| direction.account.repaired),
    )?;
    out.counters(
        "parity_datagrams_sent",
        "Parity datagrams made for repair",
        of(|direction| direction.account.parity_sent),
    )?;
    out.counters(
        "parity_sent_bytes",
        "Bytes of parity datagrams made for repair",
        of(|direction| direction.account.parity_sent_bytes),
    )?;
    out.counters(
        "parity_datagrams_received",
        "Parity datagrams that came, used or not",
        of(|direction| direction.account.parity_received),
    )?;
    let drops = both.into_iter().flat_map(|(direction, counters)| {
        DropReason::ALL.map(|reason| {
            let labels = [("direction", direction), ("reason", reason.name())];
            (labels, counters.account.dropped(reason))
        })
    });
    out.counters(
        "datagrams_dropped",
        "Datagrams and IP packets that were given up; ARCHITECTURE.md describes the reasons",
        drops,
    )?;
    out.gauges(
        "datagrams_waiting",
        "Datagrams and IP packets in queues and in reassembly",
        of(|direction| direction.waiting),
    )
}

/// All QUIC connections together.
pub(super) fn quic(out: &mut Exposition<'_>, counters: &QuicCounters) -> fmt::Result {
    let QuicCounters {
        packets_sent,
        packets_received,
        bytes_sent,
        bytes_received,
        datagrams_sent,
        datagrams_received,
        acks_sent,
        acks_received,
        stream_frames_sent,
        stream_frames_received,
        packets_lost,
        window_cuts,
        lost_mtu_probes,
        black_holes,
        trains_sent,
        train_segments_sent,
    } = *counters;
    out.counters(
        "quic_packets",
        "QUIC packets",
        sent_and_received(packets_sent, packets_received),
    )?;
    out.counters(
        "quic_bytes",
        "Bytes of QUIC packets",
        sent_and_received(bytes_sent, bytes_received),
    )?;
    out.counters(
        "quic_datagram_frames",
        "DATAGRAM frames",
        sent_and_received(datagrams_sent, datagrams_received),
    )?;
    out.counters(
        "quic_ack_frames",
        "ACK frames",
        sent_and_received(acks_sent, acks_received),
    )?;
    out.counters(
        "quic_stream_frames",
        "STREAM frames",
        sent_and_received(stream_frames_sent, stream_frames_received),
    )?;
    out.counter("quic_packets_lost", "QUIC packets declared lost", packets_lost)?;
    out.counter("quic_window_cuts", "Cuts of congestion windows", window_cuts)?;
    out.counter(
        "quic_mtu_probes_lost",
        "Probes of the path MTU that were lost",
        lost_mtu_probes,
    )?;
    out.counter(
        "quic_black_holes",
        "Paths that stopped carrying large packets",
        black_holes,
    )?;
    out.counter(
        "quic_trains_sent",
        "Trains handed to the socket, each in one piece",
        trains_sent,
    )?;
    out.counter(
        "quic_train_segments_sent",
        "QUIC packets in these trains",
        train_segments_sent,
    )
}

/// How long things took.
pub(super) fn times(out: &mut Exposition<'_>, times: &TimeSamples) -> fmt::Result {
    let TimeSamples {
        handshakes,
        round_trips,
        queue_waits,
    } = *times;
    let buckets = |histogram| Buckets {
        histogram,
        per_unit: MICROSECONDS,
        smallest: TIME_MIN_MICROSECONDS,
    };
    out.single(
        "handshake_seconds",
        "Handshakes that were completed, from the first packet",
        &buckets(handshakes),
    )?;
    out.single(
        "round_trip_seconds",
        "Smoothed round trips, one a second of each connection with a token",
        &buckets(round_trips),
    )?;
    out.single(
        "queue_wait_seconds",
        "Wait of the oldest datagram in the queue, 0 where none waits, one a second of each connection with a token",
        &buckets(queue_waits),
    )
}

/// What the outer socket received, by what it was.
pub(super) fn classified(out: &mut Exposition<'_>, classified: &Classified) -> fmt::Result {
    let Classified {
        ours,
        other_shard,
        predecessor,
        given_away,
        returned,
        dropped,
    } = classified;
    let classes = [
        ("quic", *ours),
        ("other_shard", *other_shard),
        ("predecessor", *predecessor),
        ("given_away", *given_away),
    ];
    out.counters(
        "outer_datagrams",
        "Datagrams of the outer socket: read by QUIC, of another shard, of the process before an upgrade, or given away, as to the cover",
        classes.map(|(class, count)| ([("class", class)], count)),
    )?;
    out.counter(
        "outer_datagrams_returned",
        "Of those read by QUIC, datagrams that it knew nothing of and that were given away then",
        *returned,
    )?;
    out.counters(
        "outer_datagrams_dropped",
        "Datagrams of the outer socket that were given up unread",
        by("reason", dropped),
    )
}

/// The outer UDP socket, and all inner ones.
pub(super) fn sockets(out: &mut Exposition<'_>, outer: &IoCounters, inner: &IoCounters) -> fmt::Result {
    let both = [("outer", outer), ("inner", inner)];
    let batches = both.into_iter().flat_map(|(socket, counters)| {
        [
            ("sent", counters.send_batches),
            ("received", counters.receive_batches),
        ]
        .map(|(direction, histogram)| {
            let buckets = Buckets {
                histogram,
                per_unit: 1.0,
                smallest: 1,
            };
            ([("socket", socket), ("direction", direction)], buckets)
        })
    });
    out.histograms(
        "socket_batch_datagrams",
        "UDP datagrams of each call that moved any: outer is the socket of QUIC, inner those of users and targets",
        batches,
    )?;
    let of = |count: fn(&IoCounters) -> u64| {
        both.map(|(socket, counters)| ([("socket", socket)], count(counters)))
    };
    let each_way = |sent: fn(&IoCounters) -> u64, received: fn(&IoCounters) -> u64| {
        both.into_iter().flat_map(move |(socket, counters)| {
            [("sent", sent(counters)), ("received", received(counters))]
                .map(|(direction, count)| ([("socket", socket), ("direction", direction)], count))
        })
    };
    out.counters(
        "socket_calls",
        "Calls of sendmmsg and recvmmsg: outer is the socket of QUIC, inner those of users and targets",
        each_way(|io| io.sends, |io| io.receives),
    )?;
    out.counters(
        "socket_datagrams",
        "UDP datagrams",
        each_way(|io| io.segments_sent, |io| io.segments_received),
    )?;
    out.counters(
        "socket_bytes",
        "Bytes of UDP payload",
        each_way(|io| io.bytes_sent, |io| io.bytes_received),
    )?;
    out.counters(
        "socket_offloaded_messages",
        "Messages that the kernel cut (GSO) or had coalesced (GRO)",
        each_way(|io| io.gso_messages, |io| io.gro_messages),
    )?;
    out.counters(
        "socket_messages_sent",
        "Messages sent, each of one datagram or a train",
        of(|io| io.messages_sent),
    )?;
    out.counters(
        "socket_kernel_drops",
        "Datagrams that the kernel dropped because a receive buffer was full",
        of(|io| io.kernel_drops),
    )?;
    out.counters(
        "socket_split_resends",
        "Messages sent again in pieces because the kernel refused to cut them",
        of(|io| io.split_resends),
    )?;
    out.counters(
        "socket_gso_step_downs",
        "Paths on which segmentation offload was given up",
        of(|io| io.gso_step_downs),
    )?;
    out.counters(
        "socket_full",
        "Sends that found the send buffer full",
        of(|io| io.would_block),
    )?;
    out.gauges(
        "socket_receive_buffer_wanted_bytes",
        "Receive buffer that the largest socket asked for",
        of(|io| io.receive_buffer_wanted as u64),
    )?;
    out.gauges(
        "socket_receive_buffer_bytes",
        "Receive buffer that the largest socket has",
        of(|io| io.receive_buffer_obtained as u64),
    )
}

/// UDP sessions, TCP connections, and descriptors without a request.
pub(super) fn sessions(
    out: &mut Exposition<'_>,
    tcp: TcpCounters,
    udp: Gauge,
    sources: &BTreeMap<String, SourceCounters>,
) -> fmt::Result {
    let TcpCounters {
        open,
        total,
        failed,
        bytes_in,
        bytes_out,
    } = tcp;
    out.gauge("udp_sessions", "UDP sessions that are open", udp.open)?;
    out.counter("udp_sessions_opened", "UDP sessions that were opened", udp.total)?;
    out.gauge("tcp_connections", "TCP connections that are open", open)?;
    out.counter(
        "tcp_connections_opened",
        "TCP connections that were opened",
        total,
    )?;
    out.counter(
        "tcp_connections_failed",
        "TCP connections that could not be opened",
        failed,
    )?;
    let ways = [("ingress", bytes_in), ("egress", bytes_out)];
    out.counters(
        "tcp_bytes",
        "Bytes of TCP connections: ingress is into the tunnel, egress out of it",
        ways.map(|(direction, count)| ([("direction", direction)], count)),
    )?;
    let of = |count: fn(&SourceCounters) -> u64| {
        let kinds = sources.iter();
        kinds.map(move |(kind, counters)| ([("kind", kind.as_str())], count(counters)))
    };
    out.gauges(
        "sources",
        "Descriptors that belong to no request",
        of(|kind| kind.open),
    )?;
    out.counters(
        "sources_opened",
        "Such descriptors that were opened",
        of(|kind| kind.total),
    )?;
    out.counters(
        "source_events",
        "How often one of them was ready",
        of(|kind| kind.events),
    )?;
    out.counters(
        "source_deadlines",
        "Deadlines of theirs that passed",
        of(|kind| kind.deadlines),
    )
}

/// Samples of both directions on the wire.
pub(super) fn sent_and_received(sent: u64, received: u64) -> [([(&'static str, &'static str); 1], u64); 2] {
    [
        ([("direction", "sent")], sent),
        ([("direction", "received")], received),
    ]
}

/// Samples of counts by name.
pub(super) fn by<'a, K: AsRef<str>>(
    label: &'static str,
    counts: &'a BTreeMap<K, u64>,
) -> impl Iterator<Item = ([(&'static str, &'a str); 1], u64)> {
    counts
        .iter()
        .map(move |(name, count)| ([(label, name.as_ref())], *count))
}
