//! Who takes part: connections, newcomers, users, and the process's own shards.

use std::collections::BTreeMap;
use std::fmt;

use tunnel::snapshot::{Gauge, HandoverCounters, IncomingCounters, ListenerSnapshot, ShardSnapshot};
use tunnel_proto::{AuthorizationCounters, PeerSnapshot, RendezvousCounters, UserId, UserSnapshot};

use super::Exposition;
use super::traffic::{by, sent_and_received};
use crate::users::Register;

/// What carries datagrams.
const CARRIERS: [&str; 2] = ["udp", "tcp"];

/// What is refused before a valid token, by status codes of HTTP.
const REFUSALS: [&str; 3] = ["401", "404", "407"];

/// QUIC connections, and what those that live have together. Each of them alone is a matter of `gramway status`: it
/// has no label but its address.
pub(super) fn connections(
    out: &mut Exposition<'_>,
    connections: Gauge,
    reconnects: u64,
    peers: &[PeerSnapshot],
) -> fmt::Result {
    let by_carrier = CARRIERS.map(|carrier| {
        let count = peers.iter().filter(|peer| peer.carrier == carrier).count();
        ([("carrier", carrier)], count)
    });
    out.gauges(
        "connections",
        "QUIC connections that live, by what carries them: UDP, or packets in TCP's shape",
        by_carrier,
    )?;
    let unauthenticated = peers.iter().filter(|peer| !peer.authenticated).count();
    out.gauge(
        "connections_unauthenticated",
        "Of these, connections whose token has not come yet",
        unauthenticated,
    )?;
    out.counter(
        "connections_opened",
        "QUIC connections since the start",
        connections.total,
    )?;
    out.counter(
        "reconnects",
        "Client: how often the tunnel was up again after no connection was left",
        reconnects,
    )?;
    out.gauge(
        "queue_bytes",
        "Bytes that wait in the datagram queues of all connections",
        peers.iter().map(|peer| peer.queue_bytes as u64).sum::<u64>(),
    )?;
    out.gauge(
        "in_flight_bytes",
        "Bytes that all connections have in flight",
        peers.iter().map(|peer| peer.path.in_flight_bytes).sum::<u64>(),
    )
}

/// Ports of a server that lead to clients.
pub(super) fn listeners(out: &mut Exposition<'_>, listeners: &[ListenerSnapshot]) -> fmt::Result {
    let count = |is_open| {
        let alike = listeners.iter().filter(|listener| listener.is_open == is_open);
        alike.count() as u64
    };
    let by_state = [("open", true), ("closed", false)];
    out.gauges(
        "listeners",
        "Ports of a server that lead to clients: those that it has, or that a client asks for, by whether it listens there",
        by_state.map(|(state, is_open)| ([("state", state)], count(is_open))),
    )
}

/// What became of newcomers at a server.
pub(super) fn newcomers(
    out: &mut Exposition<'_>,
    incoming: IncomingCounters,
    refused_requests: &BTreeMap<String, u64>,
    authorizations: AuthorizationCounters,
) -> fmt::Result {
    let IncomingCounters {
        offered,
        accepted,
        damaged,
        refused,
        retried,
        ignored,
        expired,
        waiting,
        turned_down,
        over_limit,
        pushed_out,
        over_rate,
    } = incoming;
    out.counter(
        "incoming_offered",
        "New connections that peers asked for, within the limits",
        offered,
    )?;
    out.counters(
        "incoming",
        "What became of new connections",
        results([
            ("accepted", accepted),
            ("damaged", damaged),
            ("refused", refused),
            ("retried", retried),
            ("ignored", ignored),
            ("expired", expired),
        ]),
    )?;
    out.gauge(
        "incoming_waiting",
        "New connections that wait for a decision",
        waiting,
    )?;
    out.counter(
        "incoming_packets_turned_down",
        "Packets of first flights whose connection was not accepted just before",
        turned_down,
    )?;
    out.counters(
        "incoming_limited",
        "New connections beyond a limit: not answered as too many were in progress, or asked to prove their address as \
         many came",
        [("in_progress", over_limit), ("rate", over_rate)].map(|(limit, count)| ([("limit", limit)], count)),
    )?;
    out.counter(
        "incoming_pushed_out",
        "Accepted connections that ended before their token came because newcomers needed the room",
        pushed_out,
    )?;
    // Known ones are there before the first, so that a rate sees it.
    let mut refused: BTreeMap<_, _> = REFUSALS.map(|status| (status, 0)).into();
    refused.extend(
        refused_requests
            .iter()
            .map(|(status, count)| (status.as_str(), *count)),
    );
    out.counters(
        "refused_requests",
        "Requests refused before a valid token",
        by("status", &refused),
    )?;
    let AuthorizationCounters {
        asked,
        granted,
        refused,
        expired,
        over_limit,
        too_late,
        waiting,
    } = authorizations;
    out.counter("authorizations_asked", "Questions whose a credential is", asked)?;
    out.counters(
        "authorizations",
        "What became of these questions",
        results([("granted", granted), ("refused", refused), ("expired", expired)]),
    )?;
    out.gauge("authorizations_waiting", "Questions that are open", waiting)?;
    out.counter(
        "authorizations_over_limit",
        "Requests put off without a question because too many were open",
        over_limit,
    )?;
    out.counter(
        "authorizations_too_late",
        "Answers to requests that were gone",
        too_late,
    )
}

/// Where peers of a server's users find each other.
pub(super) fn rendezvous(out: &mut Exposition<'_>, counters: RendezvousCounters) -> fmt::Result {
    let RendezvousCounters {
        registered,
        registrations,
        over_limit,
        unproved,
        calls,
        absent,
        busy,
        answers,
        sockets,
        contexts,
        relayed_bytes,
    } = counters;
    out.gauge(
        "rendezvous_peers",
        "Peers registered at the rendezvous",
        registered,
    )?;
    out.counters(
        "rendezvous_registrations",
        "What became of requests to be registered at the rendezvous",
        results([
            ("registered", registrations),
            ("over_limit", over_limit),
            ("unproved", unproved),
        ]),
    )?;
    out.counter("rendezvous_calls", "Calls of peers at the rendezvous", calls)?;
    out.counters(
        "rendezvous_unreachable",
        "Calls that were not handed on",
        results([("absent", absent), ("busy", busy)]),
    )?;
    out.counter("rendezvous_answers", "Answers of peers who were called", answers)?;
    out.gauge(
        "rendezvous_sockets",
        "Sockets of peers between which the server relays",
        sockets,
    )?;
    out.gauge("rendezvous_contexts", "Contexts of these sockets", contexts)?;
    out.counter(
        "rendezvous_relayed_bytes",
        "Bytes of sealed packets relayed between peers",
        relayed_bytes,
    )
}

/// Samples of what became of something.
fn results<const N: usize>(
    results: [(&'static str, u64); N],
) -> [([(&'static str, &'static str); 1], u64); N] {
    results.map(|(result, count)| ([("result", result)], count))
}

/// How many users there are; with their names also what each does.
pub(super) fn users(
    out: &mut Exposition<'_>,
    users: &BTreeMap<UserId, UserSnapshot>,
    names: Option<&Register>,
) -> fmt::Result {
    out.gauge("users", "Users of whom there are counters", users.len())?;
    let connected = users.values().filter(|user| user.connections > 0).count();
    out.gauge("users_connected", "Users with a connection", connected)?;
    let Some(names) = names else {
        return Ok(());
    };
    let named: Vec<_> = users
        .iter()
        .map(|(user, of_it)| (names.name(*user), of_it))
        .collect();
    let of = |count: fn(&UserSnapshot) -> u64| {
        let users = named.iter();
        users.map(move |(name, user)| ([("user", name.as_str())], count(user)))
    };
    out.gauges(
        "user_connections",
        "QUIC connections of a user that are open",
        of(|user| user.connections),
    )?;
    out.counters(
        "user_connections_opened",
        "QUIC connections of a user since the start",
        of(|user| user.connections_total),
    )?;
    out.gauges(
        "user_sessions",
        "UDP sessions, TCP connections and IP sessions of a user that are open",
        of(|user| user.sessions),
    )?;
    out.counters(
        "user_sessions_opened",
        "UDP sessions, TCP connections and IP sessions of a user since the start",
        of(|user| user.sessions_total),
    )?;
    out.gauges(
        "user_leases",
        "Leases kept for clients of a user",
        of(|user| user.leases),
    )?;
    out.counters(
        "user_bytes",
        "Bytes of QUIC packets of a user, both ways",
        of(|user| user.bytes),
    )?;
    out.counters(
        "user_relayed_bytes",
        "Bytes of sealed packets relayed from a user's peers to others",
        of(|user| user.relayed_bytes),
    )?;
    let refused = named.iter().flat_map(|(name, user)| {
        let limits = user.refused.iter();
        limits.map(move |(limit, count)| ([("user", name.as_str()), ("limit", limit.as_str())], *count))
    });
    out.counters(
        "user_refused",
        "How often a limit of a user refused something",
        refused,
    )
}

/// How flows and packets are distributed; of a client also its stripes.
pub(super) fn shards(out: &mut Exposition<'_>, shards: &[ShardSnapshot]) -> fmt::Result {
    let numbered: Vec<_> = shards
        .iter()
        .map(|shard| (shard.index.to_string(), shard))
        .collect();
    let of = |count: fn(&ShardSnapshot) -> u64| {
        let shards = numbered.iter();
        shards.map(move |(index, shard)| ([("shard", index.as_str())], count(shard)))
    };
    out.gauges(
        "shard_connections",
        "QUIC connections of a shard that are open",
        of(|shard| shard.connections.open),
    )?;
    out.counters(
        "shard_connections_opened",
        "QUIC connections of a shard since the start",
        of(|shard| shard.connections.total),
    )?;
    out.gauges(
        "shard_udp_sessions",
        "UDP sessions of a shard that are open",
        of(|shard| shard.udp_sessions.open),
    )?;
    out.counters(
        "shard_udp_sessions_opened",
        "UDP sessions of a shard since the start",
        of(|shard| shard.udp_sessions.total),
    )?;
    out.gauges(
        "shard_tcp_connections",
        "TCP connections of a shard that are open",
        of(|shard| shard.tcp_connections.open),
    )?;
    out.counters(
        "shard_tcp_connections_opened",
        "TCP connections of a shard since the start",
        of(|shard| shard.tcp_connections.total),
    )?;
    let frames = numbered.iter().flat_map(|(index, shard)| {
        sent_and_received(shard.datagrams_sent, shard.datagrams_received)
            .map(|([direction], count)| ([("shard", index.as_str()), direction], count))
    });
    out.counters("shard_datagram_frames", "DATAGRAM frames of a shard", frames)?;
    let handover = numbered.iter().flat_map(|(index, shard)| {
        let HandoverCounters {
            given,
            taken,
            dropped,
        } = shard.handover;
        [("given", given), ("taken", taken), ("dropped", dropped)]
            .map(|(fate, count)| ([("shard", index.as_str()), ("fate", fate)], count))
    });
    out.counters(
        "shard_handover",
        "What a shard gave to others, took from them, or gave up because another does not keep up",
        handover,
    )?;
    // Only a client has stripes.
    let stripes = || {
        let numbered = numbered.iter();
        numbered.filter_map(|(index, shard)| Some(([("shard", index.as_str())], shard.stripe?)))
    };
    let carriers = numbered.iter().filter_map(|(index, shard)| {
        let carrier = shard.carrier?.kind;
        Some(([("shard", index.as_str()), ("carrier", carrier)], 1_u64))
    });
    out.gauges("stripe_up", "Client: 1 for each connection that is up", carriers)?;
    out.gauges(
        "stripe_round_trip_seconds",
        "Client: smoothed round-trip time",
        stripes().map(|(labels, stripe)| (labels, stripe.rtt_ms / 1e3)),
    )?;
    out.gauges(
        "stripe_congestion_window_bytes",
        "Client: congestion window",
        stripes().map(|(labels, stripe)| (labels, stripe.congestion_window_bytes)),
    )?;
    out.gauges(
        "stripe_path_mtu_bytes",
        "Client: UDP payload that the path carries",
        stripes().map(|(labels, stripe)| (labels, u32::from(stripe.path_mtu))),
    )?;
    out.counters(
        "stripe_reconnects",
        "Client: how often a connection was made again",
        of(|shard| shard.reconnects),
    )
}
