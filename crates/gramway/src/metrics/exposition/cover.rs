//! The web site that a server looks like, and who was sent there.

use std::fmt;

use tunnel::snapshot::{CoverLooks, CoverSnapshot, CoverTcpCounters, DoorCounters};

use super::Exposition;

/// The site.
pub(super) fn site(out: &mut Exposition<'_>, cover: &CoverSnapshot) -> fmt::Result {
    let CoverSnapshot {
        // Who it is.
        host: _,
        port: _,
        name: _,
        addresses: _,
        trouble,
        silent_seconds,
        unfit,
        // A sentence of `gramway status` for whoever starts it again.
        id_bytes_after_restart: _,
        looks: CoverLooks { total, unanswered },
        profile,
        // In `strangers`.
        tcp: _,
        flows: _,
        relay: _,
        unsent: _,
        remembered: _,
    } = cover;
    let is_reachable = trouble.is_none() && silent_seconds.is_none();
    out.gauge(
        "cover_reachable",
        "1 while the cover is found and answers",
        u32::from(is_reachable),
    )?;
    out.gauge(
        "cover_silent_seconds",
        "For how long the cover has not answered",
        silent_seconds.unwrap_or(0.0),
    )?;
    out.gauge(
        "cover_imitable",
        "1 while the cover can be imitated; else the server looks as the cover did before",
        u32::from(unfit.is_none()),
    )?;
    out.gauge(
        "cover_answer_delay_seconds",
        "How long a hello waits for its answer, as the cover's would",
        profile.answer_delay_ms / 1e3,
    )?;
    out.counter("cover_looks", "Looks at the cover", *total)?;
    out.counter(
        "cover_looks_unanswered",
        "Looks at which the cover did not answer",
        *unanswered,
    )
}

/// Strangers, who get the site.
pub(super) fn strangers(out: &mut Exposition<'_>, cover: &CoverSnapshot) -> fmt::Result {
    let DoorCounters {
        passed,
        forged,
        relayed,
        taken,
        shed,
        discarded,
        answered,
        clamped,
        late,
        flows,
        evicted,
        read,
        unread,
        recognised,
        refused,
        given_up,
        taken_over,
    } = cover.relay;
    let fates = [
        ("passed", passed),
        ("forged", forged),
        ("relayed", relayed),
        ("taken", taken),
        ("shed", shed),
        ("discarded", discarded),
    ];
    out.counters(
        "cover_datagrams",
        "Datagrams at the front door: of clients, left to QUIC at once (passed) or after waiting (taken); of strangers, \
         relayed to the cover, shed as they came too fast, discarded with their flow; forged into a client's handshake",
        fates.map(|(fate, count)| ([("fate", fate)], count)),
    )?;
    let fates = [("sent", answered), ("clamped", clamped), ("late", late)];
    out.counters(
        "cover_answers",
        "Datagrams of the cover: sent to their strangers, beyond what an address without proof gets (clamped), without a \
         stranger (late)",
        fates.map(|(fate, count)| ([("fate", fate)], count)),
    )?;
    out.counter(
        "cover_datagrams_unsent",
        "Datagrams of strangers for which there was no way to the cover",
        cover.unsent,
    )?;
    out.gauge(
        "cover_flows",
        "Addresses of strangers whose datagrams go to the cover",
        cover.flows.open,
    )?;
    out.counter(
        "cover_flows_opened",
        "Such addresses since the start",
        cover.flows.total,
    )?;
    out.counter(
        "door_flows_opened",
        "Flows that the front door has looked at",
        flows,
    )?;
    out.counter(
        "door_flows_evicted",
        "Flows that ended because there were too many",
        evicted,
    )?;
    let hellos = [("read", read), ("unread", unread)];
    out.counters(
        "cover_hellos",
        "First datagrams: read, or left unread because there were too many",
        hellos.map(|(result, count)| ([("result", result)], count)),
    )?;
    out.counter(
        "cover_hellos_recognised",
        "Hellos of clients, those that come again included",
        recognised,
    )?;
    let results = [
        ("taken_over", taken_over),
        ("refused", refused),
        ("given_up", given_up),
    ];
    out.counters(
        "cover_hellos_decided",
        "Recognised hellos: taken over from the cover, refused as they came before or their clock is off, or given up",
        results.map(|(result, count)| ([("result", result)], count)),
    )?;
    out.gauge(
        "cover_hellos_remembered",
        "Hellos that are remembered, so that none is accepted twice",
        cover.remembered,
    )?;
    cover.tcp.map_or(Ok(()), |counters| tcp(out, counters))
}

fn tcp(out: &mut Exposition<'_>, counters: CoverTcpCounters) -> fmt::Result {
    let CoverTcpCounters {
        open,
        total,
        failed,
        reset,
        over_limit,
        bytes_to_cover,
        bytes_from_cover,
    } = counters;
    out.gauge(
        "cover_tcp_connections",
        "TCP connections of strangers that go on to the cover",
        open,
    )?;
    out.counter(
        "cover_tcp_connections_opened",
        "Such connections since the start",
        total,
    )?;
    out.counter(
        "cover_tcp_connections_failed",
        "TCP connections for which the cover was not reached",
        failed,
    )?;
    out.counter(
        "cover_tcp_connections_reset",
        "TCP connections that were reset, or on which nothing moved",
        reset,
    )?;
    out.counter(
        "cover_tcp_connections_over_limit",
        "TCP connections beyond what may be open",
        over_limit,
    )?;
    let ways = [("to_cover", bytes_to_cover), ("from_cover", bytes_from_cover)];
    out.counters(
        "cover_tcp_bytes",
        "Bytes of these connections",
        ways.map(|(direction, count)| ([("direction", direction)], count)),
    )
}
