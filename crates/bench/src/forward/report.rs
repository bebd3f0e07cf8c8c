//! One line per case, a second one with the counters where something was lost, and one word for what limits.

use std::fmt::Write as _;

use super::Row;
use super::cases::{Case, Load};
use super::measure::Measurement;
use crate::table::{Align, Table, count, gigabits, mebibytes, percent};
use crate::tunnel::End;

/// Loss above this fraction makes a case unclean.
const CLEAN_LOSS: f64 = 0.0005;

/// A process that used more than this share of a core had no more to give.
const CORE_FULL: f64 = 0.93;

/// Likewise for the machine.
const MACHINE_FULL: f64 = 0.96;

/// A receiver that got this share of the offered rate was limited by the offer.
const OFFER_MET: f64 = 0.99;

/// How to read the table.
pub(super) const LEGEND: &str = "\
rates: payload Gbit/s at the sink (sent: at the generator); loss: direct, relay, gramway in %; of dir, of rel: gramway's rate
as % of direct and of the plaintext two-hop relay; cpu s/GB and MiB peak: client/server; limit: what stopped gramway";

fn table() -> Table {
    Table::new(&[
        ("case", 23, Align::Left),
        ("sent", 5, Align::Right),
        ("direct", 6, Align::Right),
        ("relay", 5, Align::Right),
        ("gramway", 7, Align::Right),
        ("loss %", 16, Align::Right),
        ("of dir", 6, Align::Right),
        ("of rel", 6, Align::Right),
        ("cpu s/GB", 9, Align::Right),
        ("MiB peak", 9, Align::Right),
        ("limit", 0, Align::Left),
    ])
}

/// The titles.
pub(super) fn header() -> String {
    table().header()
}

/// The lines of one case.
pub(super) fn lines(row: &Row, details: bool) -> Vec<String> {
    if let [Some(direct), Some(relay), Some(gramway)] = [row.direct.echo, row.relay.echo, row.gramway.echo] {
        let pair = |echo: crate::latency::EchoReport| format!("{:.0}/{:.0}", echo.p50_us, echo.p99_us);
        let times = |ours: f64, theirs: f64| ours / theirs.max(1e-9);
        return vec![format!(
            "{:<23}  p50/p99 us: direct {}, relay {}, gramway {} ({:.2}x/{:.2}x direct), lost {}",
            row.case.name,
            pair(direct),
            pair(relay),
            pair(gramway),
            times(gramway.p50_us, direct.p50_us),
            times(gramway.p99_us, direct.p99_us),
            gramway.lost
        )];
    }
    let calls = [&row.direct, &row.relay, &row.gramway].map(|run| Some((run, run.worst_call?)));
    if let [Some(direct), Some(relay), Some(gramway)] = calls {
        let of = |(run, call): (&Measurement, crate::flow::FlowReport)| {
            format!(
                "{} % {:.1}/{:.1} ({})",
                percent(1.0 - call.loss),
                call.p50_ms,
                call.p99_ms,
                gigabits(run.receiver_bits_per_second)
            )
        };
        return vec![format!(
            "{:<23}  worst of four, arrived, p50/p99 ms (flood, Gbit/s): direct {}, relay {}, gramway {}",
            row.case.name,
            of(direct),
            of(relay),
            of(gramway)
        )];
    }
    let rate = |run: &Measurement| gigabits(run.receiver_bits_per_second);
    let share = |of: &Measurement| {
        percent(row.gramway.receiver_bits_per_second / of.receiver_bits_per_second.max(1.0))
    };
    let is_tcp = matches!(row.case.load, Load::Tcp { .. });
    let losses = [&row.direct, &row.relay, &row.gramway]
        .map(|run| percent(run.loss))
        .join(" ");
    let peaks = row
        .gramway
        .ends
        .as_ref()
        .map(|ends| ends.each_ref().map(|end| mebibytes(end.usage.peak_bytes)));
    let cpu = row
        .gramway
        .hop_cpu_per_gigabyte
        .map(|seconds| format!("{seconds:.2}"));
    let cells = [
        row.case.name.clone(),
        gigabits(row.gramway.sender_bits_per_second),
        rate(&row.direct),
        rate(&row.relay),
        rate(&row.gramway),
        if is_tcp { String::new() } else { losses },
        share(&row.direct),
        share(&row.relay),
        cpu.join("/"),
        peaks.map_or_else(String::new, |peaks| peaks.join("/")),
        row.limit.clone(),
    ];
    let mut lines = vec![table().row(&cells)];
    if let Some(ends) = &row.gramway.ends {
        let clean = row.gramway.loss < CLEAN_LOSS && ends.iter().all(|end| end.counters.drops().is_empty());
        if details || !clean {
            lines.extend(counters(row, ends));
        }
    }
    lines
}

fn counters(row: &Row, [client, server]: &[End; 2]) -> [String; 2] {
    // Datagrams flow from client to server, except where the server of iperf3 sends.
    let reverse = matches!(row.case.load, Load::Tcp { reverse: true, .. });
    let (from, to) = if reverse {
        (server, client)
    } else {
        (client, server)
    };
    let mut traffic = format!(
        "    packets {}, datagrams {}, acks out {} back {}, segments/send {:.1}, upstream {} in {} sends",
        count(from.counters.packets_sent()),
        count(from.counters.datagrams_sent()),
        count(from.counters.acks_sent()),
        count(to.counters.acks_sent()),
        from.counters.segments_per_send(),
        count(to.counters.inner_segments_sent()),
        count(to.counters.inner_sends()),
    );
    if let Some(bytes) = row.payload_bytes {
        let _ = write!(traffic, ", payload {bytes} B");
    }
    let ours: u64 = [client, server]
        .iter()
        .flat_map(|end| end.counters.drops())
        .filter_map(kernel)
        .sum();
    let losses = format!(
        "    drops client {}; server {}; kernel elsewhere {}; path lost {} + {}; reordered {}, twice {}",
        drops(client),
        drops(server),
        count(row.gramway.kernel_drops.saturating_sub(ours)),
        count(client.counters.packets_lost()),
        count(server.counters.packets_lost()),
        count(row.gramway.reordered),
        count(row.gramway.duplicates),
    );
    [traffic, losses]
}

fn kernel((reason, number): (String, u64)) -> Option<u64> {
    reason.starts_with("kernel").then_some(number)
}

fn drops(end: &End) -> String {
    let drops = end.counters.drops();
    if drops.is_empty() {
        return "none".to_owned();
    }
    drops
        .iter()
        .map(|(reason, number)| format!("{reason} {}", count(*number)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// One word for what kept the tunnel from more: the offer was met, a process had no more CPU, or else where most
/// was lost.
pub(super) fn limit(case: &Case, run: &Measurement) -> String {
    let met = case
        .load
        .offered()
        .is_some_and(|offered| run.receiver_bits_per_second > OFFER_MET * offered as f64);
    let kept_up = case.load.offered().is_some() && run.loss < CLEAN_LOSS;
    if run.echo.is_some() || met || kept_up {
        return "source".to_owned();
    }
    let Some([client, server]) = &run.ends else {
        return String::new();
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    if run.hop_cores[0] > CORE_FULL || run.hop_cores[1] > CORE_FULL || run.busy_cores > MACHINE_FULL * cores {
        let who = ["client", "server"][usize::from(run.hop_cores[1] > run.hop_cores[0])];
        let full = run.hop_cores[0].max(run.hop_cores[1]) > CORE_FULL;
        return if full {
            format!("cpu ({who})")
        } else {
            "cpu (all)".to_owned()
        };
    }
    let all: Vec<(String, u64)> = [client, server]
        .iter()
        .flat_map(|end| end.counters.drops())
        .collect();
    let inside: u64 = all.iter().cloned().filter_map(kernel).sum();
    let queues: u64 = all.iter().map(|(_, number)| *number).sum::<u64>() - inside;
    let path = client.counters.packets_lost() + server.counters.packets_lost();
    let congested = client.counters.window_cuts() + server.counters.window_cuts() > 0;
    let candidates = [
        (run.kernel_drops.max(inside), "kernel buffer"),
        (queues, if congested { "cwnd" } else { "queue" }),
        (path, "cwnd"),
    ];
    let worst = candidates
        .into_iter()
        .max_by_key(|(number, _)| *number)
        .filter(|(number, _)| *number > 0);
    worst.map_or("source", |(_, word)| word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    fn case(name: &str) -> Case {
        cases::all().into_iter().find(|case| case.name == name).unwrap()
    }

    fn run(gigabits: f64, loss: f64, hop_cores: [f64; 2]) -> Measurement {
        let ends = Some([End::default(), End::default()]);
        Measurement {
            receiver_bits_per_second: gigabits * 1e9,
            loss,
            hop_cores,
            ends,
            ..Measurement::default()
        }
    }

    #[test]
    fn a_met_offer_is_limited_by_the_source() {
        assert_eq!(
            limit(&case("iperf3-1150-1G-1f"), &run(0.999, 0.0, [0.5, 0.5])),
            "source"
        );
    }

    #[test]
    fn a_full_core_names_its_process_and_lost_packets_name_their_place() {
        assert_eq!(
            limit(&case("iperf3-1150-2G-1f"), &run(1.5, 0.2, [0.6, 0.97])),
            "cpu (server)"
        );
        let mut lossy = run(1.5, 0.2, [0.4, 0.4]);
        lossy.kernel_drops = 1_000;
        assert_eq!(limit(&case("iperf3-1150-2G-1f"), &lossy), "kernel buffer");
    }

    #[test]
    fn a_clean_case_is_one_line_and_a_lossy_one_has_its_counters() {
        let row = |loss| Row {
            case: case("iperf3-1150-2G-1f"),
            payload_bytes: Some(1_150),
            direct: run(2.0, 0.0, [0.0; 2]),
            relay: run(2.0, 0.0, [0.2; 2]),
            gramway: run(1.5, loss, [0.5; 2]),
            receiver_rates: Default::default(),
            limit: "queue".to_owned(),
        };
        let clean = lines(&row(0.0), false);
        assert_eq!(clean.len(), 1);
        assert!(
            clean[0].starts_with("iperf3-1150-2G-1f") && clean[0].ends_with("queue"),
            "{clean:?}"
        );
        assert!(clean[0].contains("0 0 0"), "{clean:?}");
        let lossy = lines(&row(0.25), false);
        assert_eq!(lossy.len(), 3);
        assert!(lossy[2].contains("drops client none; server none"), "{lossy:?}");
        assert!(header().chars().count() < 125, "{}", header());
    }
}
