//! `path_stats` of `gramway peer ping --json`. The names stay; docs/peer-events.md lists them.

use std::time::Duration;

use peer::PathStats;
use serde_json::{Value, json};

/// All of it.
pub(super) fn as_json(stats: &PathStats) -> Value {
    json!({
        "remote": stats.remote,
        "is_relayed": stats.is_relayed,
        "round_trip_ms": milliseconds(stats.round_trip),
        "round_trip_latest_ms": milliseconds(stats.round_trip_latest),
        "round_trip_min_ms": milliseconds(stats.round_trip_min),
        "round_trip_variation_ms": milliseconds(stats.round_trip_variation),
        "queueing_delay_ms": milliseconds(stats.queueing_delay),
        "delivery_bytes_per_second": stats.delivery_bytes_per_second,
        "pacing_bytes_per_second": stats.pacing_bytes_per_second,
        "random_loss_per_million": stats.random_loss_per_million,
        "congestion_window_bytes": stats.congestion_window,
        "in_flight_bytes": stats.in_flight,
        "path_mtu_bytes": stats.path_mtu,
        "packet_body_bytes_max": stats.packet_body_max,
        "waiting_bytes": stats.waiting_bytes,
        "unread_bytes": stats.unread_bytes,
        "lost_bytes": stats.bytes_lost,
        "congestion_marks": stats.congestion_marks,
        "packets": packets(stats),
        "messages_sent": messages_sent(stats),
        "messages_received": messages_received(stats),
    })
}

/// A time in milliseconds, to the microsecond.
pub(super) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn packets(stats: &PathStats) -> Value {
    let counters = &stats.counters;
    json!({
        "sent": counters.packets_sent,
        "received": counters.packets_received,
        "lost": counters.packets_lost,
        "sent_bytes": counters.bytes_sent,
        "received_bytes": counters.bytes_received,
        "datagram_frames_sent": counters.datagrams_sent,
        "datagram_frames_received": counters.datagrams_received,
        "stream_frames_sent": counters.stream_frames_sent,
        "stream_frames_received": counters.stream_frames_received,
        "acknowledgements_sent": counters.acks_sent,
        "acknowledgements_received": counters.acks_received,
        "window_cuts": counters.window_cuts,
        "mtu_probes_lost": counters.lost_mtu_probes,
        "black_holes": counters.black_holes,
        "trains_sent": counters.trains_sent,
        "train_segments_sent": counters.train_segments_sent,
    })
}

fn messages_sent(stats: &PathStats) -> Value {
    let sent = &stats.sent;
    json!({
        "accepted": sent.accepted,
        "acked": sent.acked,
        "expired": sent.expired,
        "superseded": sent.superseded,
        "lost": sent.lost,
        "refused": sent.refused,
        "connection_ended": sent.connection_ended,
        "pending": sent.pending,
        "repeated": sent.repeated,
    })
}

fn messages_received(stats: &PathStats) -> Value {
    let received = &stats.received;
    json!({
        "received": received.received,
        "delivered": received.delivered,
        "superseded": received.superseded,
        "overtaken": received.overtaken,
        "held": received.held,
        "duplicates": received.duplicates,
        "no_room": received.no_room,
        "too_large": received.too_large,
    })
}
