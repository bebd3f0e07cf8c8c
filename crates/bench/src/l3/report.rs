//! The table: one line per case, and below it what gramway dropped and who did not run.

use super::Row;
use super::cases::Load;
use super::contestant::{ALL, Contestant};
use super::measure::Measurement;
use crate::table::{Align, Table, count, gigabits, percent};

/// How to read the table.
pub(super) const LEGEND: &str = "\
rates: payload Gbit/s at the receiver; of dir, of wg: gramway's rate beside that of direct and of wireguard-go; loss (direct), cpu
and MiB: wireguard-go, quincy, gramway; cpu: seconds per gigabyte of both ends' processes; MiB: largest resident size of the larger end";

/// The three tunnels.
const TUNNELS: [Contestant; 3] = [Contestant::WireguardGo, Contestant::Quincy, Contestant::Gramway];

fn table() -> Table {
    Table::new(&[
        ("case", 15, Align::Left),
        ("direct", 6, Align::Right),
        ("wireguard-go", 12, Align::Right),
        ("quincy", 6, Align::Right),
        ("gramway", 7, Align::Right),
        ("of dir", 6, Align::Right),
        ("of wg", 6, Align::Right),
        ("loss %", 16, Align::Right),
        ("cpu s/GB", 14, Align::Right),
        ("MiB peak", 11, Align::Right),
    ])
}

/// The titles.
pub(super) fn header() -> String {
    table().header()
}

/// The lines of one case.
pub(super) fn lines(row: &Row) -> Vec<String> {
    let of = |contestant| row.results.get(&contestant);
    let mut lines = if matches!(row.case.load, Load::Ping) {
        pings(row)
    } else {
        let each = |contestants: &[Contestant], cell: &dyn Fn(&Measurement) -> String| {
            let cells = contestants
                .iter()
                .map(|contestant| of(*contestant).map_or_else(|| "-".to_owned(), cell));
            cells.collect::<Vec<_>>()
        };
        let rates = each(&ALL, &|run| gigabits(run.receiver_bits_per_second));
        let ratio = |other| match (of(Contestant::Gramway), of(other)) {
            (Some(ours), Some(theirs)) => {
                format!(
                    "{:.2}x",
                    ours.receiver_bits_per_second / theirs.receiver_bits_per_second.max(1.0)
                )
            }
            _ => "-".to_owned(),
        };
        let losses = match row.case.load {
            Load::Udp { .. } => each(&ALL, &|run| percent(run.loss)).join(" "),
            Load::Tcp { .. } | Load::Ping => String::new(),
        };
        let cpu = each(&TUNNELS, &|run| {
            format!("{:.2}", run.tunnel_cpu_per_gigabyte.iter().sum::<f64>())
        });
        let peaks = each(&TUNNELS, &|run| {
            let peak = run.peak_bytes.into_iter().max().unwrap_or(0);
            format!("{:.0}", peak as f64 / f64::from(1 << 20))
        });
        let mut cells = vec![row.case.name.to_owned()];
        cells.extend(rates);
        cells.extend([ratio(Contestant::Direct), ratio(Contestant::WireguardGo), losses]);
        cells.extend([cpu.join(" "), peaks.join(" ")]);
        vec![table().row(&cells)]
    };
    lines.extend(drops(row));
    lines.extend(
        row.failures
            .iter()
            .map(|(contestant, reason)| format!("    {}: {reason}", contestant.name())),
    );
    lines
}

/// What gramway's ends dropped, where they did.
fn drops(row: &Row) -> Option<String> {
    let ends = row.results.get(&Contestant::Gramway)?.counters.as_ref()?;
    let [client, server] = ends.each_ref().map(|end| {
        let drops = end.drops();
        let drops = drops
            .iter()
            .map(|(reason, number)| format!("{reason} {}", count(*number)));
        Some(drops.collect::<Vec<_>>().join(", "))
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| "none".to_owned())
    });
    (client != "none" || server != "none")
        .then(|| format!("    gramway drops: client {client}; server {server}"))
}

fn pings(row: &Row) -> Vec<String> {
    let line = |(contestant, run): (&Contestant, &Measurement)| {
        let [idle, beside] = run.pings?;
        Some(format!(
            "    {:<12}  p50/p99 ms: idle {:.1}/{:.1}, beside TCP at {} Gbit/s {:.1}/{:.1} (+{:.1} ms p99), lost {} of {}",
            contestant.name(),
            idle.p50_ms,
            idle.p99_ms,
            gigabits(run.receiver_bits_per_second),
            beside.p50_ms,
            beside.p99_ms,
            beside.p99_ms - idle.p99_ms,
            idle.lost + beside.lost,
            idle.sent + beside.sent,
        ))
    };
    let mut lines = vec![format!("{}:", row.case.name)];
    lines.extend(row.results.iter().filter_map(line));
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::cases;
    use super::super::ping::PingReport;
    use super::*;

    fn row(name: &str, results: &[(Contestant, Measurement)]) -> Row {
        Row {
            case: cases::all().into_iter().find(|case| case.name == name).unwrap(),
            seconds: 1,
            results: results.iter().cloned().collect(),
            receiver_rates: BTreeMap::new(),
            failures: vec![(Contestant::Quincy, "it said no".to_owned())],
            link: None,
        }
    }

    #[test]
    fn a_contestant_that_did_not_run_is_a_dash_and_a_reason() {
        let run = |gigabits: f64| Measurement {
            receiver_bits_per_second: gigabits * 1e9,
            tunnel_cpu_per_gigabyte: [0.5, 0.25],
            ..Measurement::default()
        };
        let results = [
            (Contestant::Direct, run(10.0)),
            (Contestant::WireguardGo, run(2.0)),
            (Contestant::Gramway, run(5.0)),
        ];
        let lines = lines(&row("tcp-up-1", &results));
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].contains("0.50x") && lines[0].contains("2.50x"),
            "{}",
            lines[0]
        );
        assert!(lines[0].contains("0.75 - 0.75"), "{}", lines[0]);
        assert_eq!(lines[1], "    quincy: it said no");
        assert!(header().chars().count() < 130, "{}", header());
    }

    #[test]
    fn pings_show_what_the_load_adds() {
        let ping = |p99_ms| PingReport {
            sent: 500,
            p99_ms,
            ..PingReport::default()
        };
        let run = Measurement {
            pings: Some([ping(20.5), ping(31.0)]),
            ..Measurement::default()
        };
        let lines = lines(&row("ping-beside-tcp", &[(Contestant::Direct, run)]));
        assert!(
            lines[1].contains("direct") && lines[1].contains("+10.5 ms"),
            "{lines:?}"
        );
    }
}
