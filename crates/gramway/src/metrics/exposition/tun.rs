//! The TUN device, its leases, and name servers.

use std::fmt;

use tunnel::snapshot::{NameServerCounters, TunCounters, TunSnapshot};

use super::Exposition;

pub(super) fn device(out: &mut Exposition<'_>, tun: &TunSnapshot) -> fmt::Result {
    let TunSnapshot {
        name: _,
        mtu,
        sessions,
        leases,
        leases_kept,
        // Addresses.
        lease_list: _,
        names,
        name_server,
        io,
    } = tun;
    out.gauge("tun_mtu_bytes", "Longest packet that the TUN device takes", *mtu)?;
    out.gauge("ip_sessions", "IP sessions that are open", *sessions)?;
    out.gauge("leases", "Leases that clients hold", leases.open)?;
    out.counter("leases_given", "Leases that were given", leases.total)?;
    out.gauge(
        "leases_kept",
        "Leases that are kept, those of clients that are gone included",
        *leases_kept,
    )?;
    queues(out, *io)?;
    let has_failed = names.as_ref().is_some_and(|names| names.error.is_some());
    out.gauge(
        "name_servers_failed",
        "Client: 1 while the machine should ask the tunnel's name servers and does not",
        u32::from(has_failed),
    )?;
    name_server.map_or(Ok(()), |counters| questions(out, counters))
}

fn queues(out: &mut Exposition<'_>, io: TunCounters) -> fmt::Result {
    let TunCounters {
        reads,
        super_reads,
        plain_reads,
        bytes_read,
        writes,
        super_writes,
        bytes_written,
        refused,
        errors,
        step_downs,
    } = io;
    let both = |read: u64, written: u64| {
        [("read", read), ("written", written)].map(|(direction, count)| ([("direction", direction)], count))
    };
    out.counters(
        "tun_packets",
        "Packets and super-packets of the TUN device",
        both(reads, writes),
    )?;
    out.counters(
        "tun_super_packets",
        "Super-packets of the TUN device, each of many packets",
        both(super_reads, super_writes),
    )?;
    out.counters(
        "tun_bytes",
        "Bytes of the TUN device",
        both(bytes_read, bytes_written),
    )?;
    out.counter("tun_plain_reads", "Packets that were read alone", plain_reads)?;
    out.counter(
        "tun_super_packets_refused",
        "Super-packets that the kernel refused; their packets were written one by one",
        refused,
    )?;
    out.counter(
        "tun_errors",
        "Reads and writes of the TUN device that failed",
        errors,
    )?;
    out.counter(
        "tun_step_downs",
        "How often a kind of super-packet was given up",
        step_downs,
    )
}

fn questions(out: &mut Exposition<'_>, counters: NameServerCounters) -> fmt::Result {
    let NameServerCounters {
        questions,
        answered,
        unanswered,
        malformed,
        over_limit,
        waiting,
        streams,
        streams_over_limit,
    } = counters;
    out.counter(
        "name_questions",
        "Messages of clients to the server's name server",
        questions,
    )?;
    let results = [
        ("answered", answered),
        ("unanswered", unanswered),
        ("malformed", malformed),
        ("over_limit", over_limit),
    ];
    out.counters(
        "name_answers",
        "What became of these messages",
        results.map(|(result, count)| ([("result", result)], count)),
    )?;
    out.gauge("name_questions_waiting", "Questions that are open", waiting)?;
    out.gauge(
        "name_streams",
        "TCP connections to the name server that are open",
        streams,
    )?;
    out.counter(
        "name_streams_over_limit",
        "TCP connections to the name server beyond what one client, or all, may have",
        streams_over_limit,
    )
}
