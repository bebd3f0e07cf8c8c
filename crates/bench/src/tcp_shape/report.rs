//! The table: one line per case, below it what it had to reach, and who did not run.

use super::Row;
use super::cases::Load;
use super::contestant::Contestant;
use super::measure::Measurement;
use crate::table::{Align, Table, count, gigabits, percent};

/// How to read the table.
pub(super) const LEGEND: &str = "rates: payload Gbit/s at the receiver, connections: new ones a second; c.: the tunnel with \
    --carrier\nloss: direct, relay, phantun, gramway; cpu: seconds per gigabyte of both ends' processes, relay, phantun, gramway";

/// Between what loss and processor time are compared.
const RELAYS: [Contestant; 4] = [
    Contestant::Direct,
    Contestant::Relay,
    Contestant::Phantun,
    Contestant::Gramway,
];

/// How the results are shown.
pub(super) struct Report {
    table: Table,
}

impl Report {
    /// The columns.
    pub(super) fn new() -> Self {
        let mut columns = vec![("case", 14, Align::Left)];
        columns.extend(Contestant::ALL.map(|contestant| (contestant.name(), 7, Align::Right)));
        columns.extend([("loss %", 20, Align::Right), ("cpu s/GB", 14, Align::Right)]);
        Self {
            table: Table::new(&columns),
        }
    }

    /// The titles.
    pub(super) fn header(&self) -> String {
        self.table.header()
    }

    /// The lines of one case.
    pub(super) fn lines(&self, row: &Row) -> Vec<String> {
        let each = |contestants: &[Contestant], cell: &dyn Fn(&Measurement) -> String| {
            let cells = contestants
                .iter()
                .map(|contestant| row.results.get(contestant).map_or_else(|| "-".to_owned(), cell));
            cells.collect::<Vec<_>>()
        };
        let mut cells = vec![row.case.name.to_owned()];
        cells.extend(each(&Contestant::ALL, &|run| match run.connections {
            Some(run) => count(run.per_second as u64),
            None => gigabits(run.receiver_bits_per_second),
        }));
        if matches!(row.case.load, Load::Iperf { .. } | Load::Own { .. }) {
            cells.push(each(&RELAYS, &|run| percent(run.loss)).join(" "));
            let cpu = |run: &Measurement| format!("{:.2}", run.hop_cpu_per_gigabyte.iter().sum::<f64>());
            cells.push(each(&RELAYS[1..], &cpu).join(" "));
        }
        let mut lines = vec![self.table.row(&cells)];
        lines.extend(row.results.iter().filter_map(|(contestant, run)| {
            let run = run.connections?;
            let [client, server] = run.bytes_each;
            let (name, lost) = (contestant.name(), run.lost);
            Some(format!(
                "    {name}: {client:.0} / {server:.0} bytes a connection at client / server, {lost} not answered"
            ))
        }));
        lines.extend(row.checks.iter().map(|check| format!("    {check}")));
        lines.extend(
            row.failures
                .iter()
                .map(|(contestant, reason)| format!("    {}: {reason}", contestant.name())),
        );
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::super::connections::ConnectionsReport;
    use super::*;

    fn lines(name: &str, results: &[(Contestant, Measurement)]) -> Vec<String> {
        let case = cases::all().into_iter().find(|case| case.name == name).unwrap();
        let results = results.iter().cloned().collect();
        Report::new().lines(&Row {
            checks: case.checks(&results),
            case,
            results,
            runs: std::collections::BTreeMap::new(),
            failures: vec![(Contestant::Phantun, "it said no".to_owned())],
        })
    }

    #[test]
    fn a_contestant_that_did_not_run_is_a_dash_and_a_reason() {
        let run = Measurement {
            receiver_bits_per_second: 2e9,
            hop_cpu_per_gigabyte: [0.5, 0.25],
            ..Measurement::default()
        };
        let lines = lines(
            "iperf3-max",
            &[(Contestant::Relay, run.clone()), (Contestant::Gramway, run)],
        );
        assert!(
            lines[0].contains("2.00        -     2.00") && lines[0].contains("0.75 - 0.75"),
            "{}",
            lines[0]
        );
        assert!(lines[1].contains("1.00 of the plaintext relay"), "{}", lines[1]);
        assert_eq!(lines[2], "    phantun: it said no");
    }

    #[test]
    fn connections_show_their_rate_and_their_memory() {
        let run = Measurement {
            connections: Some(ConnectionsReport {
                per_second: 12_345.6,
                lost: 1,
                bytes_each: [900.0, 1_100.0],
            }),
            ..Measurement::default()
        };
        let lines = lines("connections", &[(Contestant::Gramway, run)]);
        assert!(lines[0].contains("12.3k"), "{}", lines[0]);
        assert!(lines[1].contains("900 / 1100 bytes"), "{}", lines[1]);
        assert!(lines[2].contains("1.07 KiB a connection"), "{}", lines[2]);
    }
}
