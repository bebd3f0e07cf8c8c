//! The table: a line for each figure of a case, below them what they had to reach, and who did not run.

use super::Row;
use super::cases::Figure;
use super::contestant::Contestant;
use crate::table::{Align, Table, count};

/// How to read the table.
pub(super) const LEGEND: &str = "\
messages/s: that arrived, in fan-both at both ends together; conns/s: with a first message from the server; KiB each: by how much an
idle connection makes the server's resident memory grow; cores: processors that client and server used, of each
iroh: relays and discovery off; iroh and quinn: a uni stream for each reliable message, datagrams for unreliable ones, one stream of
high priority for round trips; gramway: driven by the program's runtime, as iroh and quinn are; threads: the same with a thread of its
own for each endpoint, not judged; all: 4,096 messages and 16 MiB under way at most (fan-*: 64 messages), both ends on this machine";

fn table() -> Table {
    let mut columns = vec![("case", 14, Align::Left), ("", 10, Align::Left)];
    columns.extend(Contestant::ALL.map(|contestant| (contestant.name(), 8, Align::Right)));
    columns.push(("cores", 39, Align::Right));
    Table::new(&columns)
}

/// The titles.
pub(super) fn header() -> String {
    table().header()
}

fn shown(figure: Figure, value: f64) -> String {
    match figure {
        Figure::Memory => format!("{value:.1}"),
        Figure::Messages | Figure::Megabits | Figure::Median | Figure::Tail | Figure::Connections => {
            count(value.round() as u64)
        }
    }
}

/// The lines of one case.
pub(super) fn lines(row: &Row) -> Vec<String> {
    let dash = || "-".to_owned();
    let cores = |contestant: Contestant| {
        let run = row.runs.get(&contestant).and_then(|runs| runs.last());
        run.map_or_else(dash, |run| format!("{:.2}+{:.2}", run.cores[0], run.cores[1]))
    };
    let mut lines = Vec::new();
    for demand in &row.case.demands {
        let mut cells = match lines.is_empty() {
            true => vec![row.case.name.to_owned()],
            false => vec![String::new()],
        };
        cells.push(demand.figure.unit().to_owned());
        cells.extend(Contestant::ALL.map(|contestant| {
            let medians = row.medians.get(&contestant);
            medians.map_or_else(dash, |medians| shown(demand.figure, medians[&demand.figure]))
        }));
        if lines.is_empty() {
            cells.push(Contestant::ALL.map(cores).join(" "));
        }
        lines.push(table().row(&cells));
    }
    lines.extend(row.checks.iter().map(|check| format!("    {check}")));
    let failures = row.failures.iter();
    lines.extend(failures.map(|(contestant, reason)| format!("    {}: {reason}", contestant.name())));
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::cases;
    use super::super::measure::Measurement;
    use super::*;

    #[test]
    fn each_figure_has_a_line_and_a_contestant_that_did_not_run_a_dash_and_a_reason() {
        let case = cases::all()
            .into_iter()
            .find(|case| case.name == "round-trips")
            .unwrap();
        let run = Measurement {
            figures: BTreeMap::from([(Figure::Median, 41.4), (Figure::Tail, 12_345.0)]),
            cores: [0.25, 0.5],
        };
        let medians = BTreeMap::from([
            (Contestant::Gramway, run.figures.clone()),
            (Contestant::Quinn, run.figures.clone()),
        ]);
        let lines = lines(&Row {
            checks: case.checks(&medians),
            case,
            medians,
            runs: BTreeMap::from([(Contestant::Gramway, vec![run])]),
            failures: vec![(Contestant::Iroh, "it said no".to_owned())],
        });
        let cells: Vec<Vec<&str>> = lines
            .iter()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            cells[0],
            [
                "round-trips",
                "p50",
                "us",
                "41",
                "-",
                "-",
                "41",
                "0.25+0.50",
                "-",
                "-",
                "-"
            ]
        );
        assert_eq!(cells[1], ["p99", "us", "12.3k", "-", "-", "12.3k"]);
        assert!(
            lines[2].contains("1.00 x the better rival's p50 us"),
            "{}",
            lines[2]
        );
        assert_eq!(lines[4], "    iroh: it said no");
        assert!(header().chars().count() < 120, "{}", header());
    }
}
