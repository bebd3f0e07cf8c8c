//! The table: one line per case, and below it what gramway dropped and who did not run.

use super::cases::Load;
use super::measure::Measurement;
use super::{Contestant, Rival, Row};
use crate::table::{Align, Table, count, gigabits, percent};

/// Narrowest column of rates.
const RATE_WIDTH_MIN: usize = 6;

/// How the results of these contestants are shown.
pub(super) struct Report {
    /// The columns of rates: the wire, the rivals, this program.
    contestants: Vec<Contestant>,
    table: Table,
}

impl Report {
    /// The table with a column for each of the rivals, installed or not.
    pub(super) fn new(rivals: &[Rival]) -> Self {
        Self::of(rivals.iter().map(|rival| rival.contestant))
    }

    fn of(rivals: impl IntoIterator<Item = Contestant>) -> Self {
        let mut contestants = vec![Contestant::DIRECT];
        contestants.extend(rivals);
        contestants.push(Contestant::GRAMWAY);
        let tunnels = contestants.len() - 1;
        let mut columns = vec![("case", 15, Align::Left)];
        columns.extend(contestants.iter().map(|contestant| {
            let name = contestant.name();
            (name, name.len().max(RATE_WIDTH_MIN), Align::Right)
        }));
        columns.push(("of dir", 6, Align::Right));
        if contestants.contains(&Contestant::WIREGUARD_GO) {
            columns.push(("of wg", 6, Align::Right));
        }
        columns.extend([
            ("loss %", 4 * contestants.len(), Align::Right),
            ("cpu s/GB", (5 * tunnels - 1).max(8), Align::Right),
            ("MiB peak", (4 * tunnels - 1).max(8), Align::Right),
        ]);
        Self {
            table: Table::new(&columns),
            contestants,
        }
    }

    /// The titles.
    pub(super) fn header(&self) -> String {
        self.table.header()
    }

    /// How to read the table.
    pub(super) fn legend(&self) -> String {
        let tunnels: Vec<&str> = self.tunnels().iter().map(|tunnel| tunnel.name()).collect();
        let of_wireguard = if self.contestants.contains(&Contestant::WIREGUARD_GO) {
            "; of wg: beside that of wireguard-go"
        } else {
            ""
        };
        format!(
            "rates: payload Gbit/s at the receiver; of dir: gramway's rate beside that of direct{of_wireguard}\n\
             loss (direct), cpu and MiB: {}; cpu: seconds per gigabyte of both ends' processes; MiB: largest resident size of the \
             larger end",
            tunnels.join(", ")
        )
    }

    fn tunnels(&self) -> &[Contestant] {
        &self.contestants[1..]
    }

    /// The lines of one case.
    pub(super) fn lines(&self, row: &Row) -> Vec<String> {
        let mut lines = match row.case.load {
            Load::Ping => self.pings(row),
            Load::Calls { .. } => self.calls(row),
            Load::Tcp { .. } | Load::Udp { .. } => vec![self.rates(row)],
        };
        lines.extend(drops(row));
        lines.extend(
            row.failures
                .iter()
                .map(|(contestant, reason)| format!("    {}: {reason}", contestant.name())),
        );
        lines
    }

    fn rates(&self, row: &Row) -> String {
        let of = |contestant: &Contestant| row.results.get(contestant);
        let each = |contestants: &[Contestant], cell: &dyn Fn(&Measurement) -> String| {
            let cells = contestants
                .iter()
                .map(|contestant| of(contestant).map_or_else(|| "-".to_owned(), cell));
            cells.collect::<Vec<_>>()
        };
        let ratio = |other| match (of(&Contestant::GRAMWAY), of(other)) {
            (Some(ours), Some(theirs)) => {
                format!(
                    "{:.2}x",
                    ours.receiver_bits_per_second / theirs.receiver_bits_per_second.max(1.0)
                )
            }
            _ => "-".to_owned(),
        };
        let losses = match row.case.load {
            Load::Udp { .. } => each(&self.contestants, &|run| percent(run.loss)).join(" "),
            Load::Tcp { .. } | Load::Ping | Load::Calls { .. } => String::new(),
        };
        let cpu = each(self.tunnels(), &|run| {
            format!("{:.2}", run.tunnel_cpu_per_gigabyte.iter().sum::<f64>())
        });
        let peaks = each(self.tunnels(), &|run| {
            let peak = run.peak_bytes.into_iter().max().unwrap_or(0);
            format!("{:.0}", peak as f64 / f64::from(1 << 20))
        });
        let mut cells = vec![row.case.name.to_owned()];
        cells.extend(each(&self.contestants, &|run| {
            gigabits(run.receiver_bits_per_second)
        }));
        cells.push(ratio(&Contestant::DIRECT));
        if self.contestants.contains(&Contestant::WIREGUARD_GO) {
            cells.push(ratio(&Contestant::WIREGUARD_GO));
        }
        cells.extend([losses, cpu.join(" "), peaks.join(" ")]);
        self.table.row(&cells)
    }

    fn pings(&self, row: &Row) -> Vec<String> {
        let line = |contestant: &Contestant| {
            let run = row.results.get(contestant)?;
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
        lines.extend(self.contestants.iter().filter_map(line));
        lines
    }

    fn calls(&self, row: &Row) -> Vec<String> {
        let line = |contestant: &Contestant| {
            let run = row.results.get(contestant)?;
            let call = run.worst_call?;
            Some(format!(
                "    {:<12}  worst of four: {} % arrived, p50/p99 ms {:.1}/{:.1}, beside a flood of which {} Gbit/s arrived",
                contestant.name(),
                percent(1.0 - call.loss),
                call.p50_ms,
                call.p99_ms,
                gigabits(run.receiver_bits_per_second),
            ))
        };
        let mut lines = vec![format!("{}:", row.case.name)];
        lines.extend(self.contestants.iter().filter_map(line));
        lines
    }
}

/// What gramway's ends dropped, where they did.
fn drops(row: &Row) -> Option<String> {
    let ends = row.results.get(&Contestant::GRAMWAY)?.counters.as_ref()?;
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
            failures: vec![(Contestant::WIREGUARD_GO, "it said no".to_owned())],
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
        let results = [(Contestant::DIRECT, run(10.0)), (Contestant::GRAMWAY, run(5.0))];
        let report = Report::of([Contestant::WIREGUARD_GO]);
        let lines = report.lines(&row("tcp-up-1", &results));
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].contains("0.50x") && lines[0].contains("- 0.75"),
            "{}",
            lines[0]
        );
        assert_eq!(lines[1], "    wireguard-go: it said no");
        assert!(report.legend().contains("of wg"), "{}", report.legend());
    }

    #[test]
    fn without_rivals_only_the_wire_and_gramway_have_columns() {
        let report = Report::of([]);
        let titles: Vec<String> = report
            .header()
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect();
        assert_eq!(titles[..5], ["case", "direct", "gramway", "of", "dir"]);
        assert!(!report.legend().contains("wireguard"), "{}", report.legend());
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
        let lines = Report::of([]).lines(&row("ping-beside-tcp", &[(Contestant::DIRECT, run)]));
        assert!(
            lines[1].contains("direct") && lines[1].contains("+10.5 ms"),
            "{lines:?}"
        );
    }
}
