//! The table: a line for each load over a link with its verdicts, and below a miss what the link did meanwhile.

use super::contestant::ALL;
use super::measure::Run;
use super::{CaseResults, Row, median_run};
use crate::check::Check;
use crate::emulator::LinkReport;
use crate::table::{Align, Table, count, percent};

/// How to read the table.
pub(super) const LEGEND: &str = "\
rates: payload Mbit/s at the receiver, medians; of best: of the better of direct and hysteria2; points lost: of the datagrams, beyond
what the link lost at random in the same run; queue: how long packets waited for the line, p50/p95/max";

fn table() -> Table {
    Table::new(&[
        ("case", 24, Align::Left),
        ("direct", 6, Align::Right),
        ("gramway", 7, Align::Right),
        ("hysteria2", 9, Align::Right),
        ("tuic", 5, Align::Right),
        ("tuic-bbr", 8, Align::Right),
        ("verdict", 0, Align::Left),
    ])
}

/// The titles.
pub(super) fn header() -> String {
    table().header()
}

/// The lines of one case.
pub(super) fn lines(results: &CaseResults) -> Vec<String> {
    let mut lines: Vec<String> = results.rows.iter().flat_map(row_lines).collect();
    for (number, check) in results.checks.iter().enumerate() {
        let name = if number == 0 { &*results.name } else { "" };
        lines.push(format!("{name:<24}  {check}"));
    }
    if results.checks.iter().any(|check| !check.holds()) {
        lines.extend(results.links.iter().map(|(name, link)| explanation(name, link)));
    }
    let failures = results.failures.iter();
    lines.extend(failures.map(|(contestant, reason)| format!("    {}: {reason}", contestant.name())));
    lines
}

fn row_lines(row: &Row) -> Vec<String> {
    let mut cells = vec![format!("{} {}", row.cell, row.load.name())];
    let cell = |contestant| {
        row.runs
            .get(contestant)
            .and_then(|runs| median_run(runs))
            .map_or_else(
                || "-".to_owned(),
                |run| format!("{:.1}", run.bits_per_second / 1e6),
            )
    };
    cells.extend(ALL.iter().map(cell));
    let verdict: Vec<String> = row.checks.iter().map(Check::to_string).collect();
    cells.push(verdict.join(", "));
    let mut lines = vec![table().row(&cells)];
    if row.load.is_udp() {
        let losses = row.runs.iter().filter_map(|(contestant, runs)| {
            let run = median_run(runs)?;
            let flow = run.flow?;
            let (loss, link) = (percent(flow.loss), percent(run.link_loss()));
            Some(format!(
                "{} {loss} ({link}), {:.0}/{:.0} ms",
                contestant.name(),
                flow.p50_ms,
                flow.p99_ms
            ))
        });
        let losses = losses.collect::<Vec<_>>().join("; ");
        lines.push(format!("    loss % (of the link), one way p50/p99: {losses}"));
    }
    if row.checks.iter().any(|check| !check.holds()) {
        lines.extend(row.runs.iter().filter_map(|(contestant, runs)| {
            let explains = contestant.decides();
            median_run(runs)
                .filter(|_| explains)
                .map(|run| explanation(contestant.name(), &run.link) + &ends(run))
        }));
    }
    lines
}

/// What the link did.
fn explanation(name: &str, link: &LinkReport) -> String {
    let queue = link.queue;
    format!(
        "    {name:<11}  queue {:.1}/{:.1}/{:.1} ms; of {} packets {} found it full, {} lost",
        queue.p50_ms,
        queue.p95_ms,
        queue.max_ms,
        count(link.sent),
        count(link.queue_full),
        count(link.lost),
    )
}

/// What gramway's ends saw.
fn ends(run: &Run) -> String {
    let text = run.counters.as_ref().map(|ends| {
        let [client, server] = ends.each_ref().map(|end| {
            format!(
                "{} packets lost, {} cuts",
                count(end.packets_lost()),
                end.window_cuts()
            )
        });
        format!("; client {client}; server {server}")
    });
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::cases::Load;
    use super::super::cell::Cell;
    use super::super::contestant::Contestant;
    use super::super::setting::row;
    use super::*;

    #[test]
    fn a_miss_is_told_with_what_the_link_did_and_the_median_run_is_shown() {
        let run = |megabits: f64| Run {
            bits_per_second: megabits * 1e6,
            ..Run::default()
        };
        let runs = [
            (Contestant::Direct, vec![run(90.0)]),
            (Contestant::Gramway, vec![run(80.0), run(20.0), run(40.0)]),
        ];
        let cell = Cell::new(100.0, 100.0, 1.0, 1.0);
        let results = CaseResults {
            rows: vec![row(cell, Load::TcpUp, 1, runs.into())],
            failures: vec![(Contestant::Tuic, "it said no".to_owned())],
            ..CaseResults::default()
        };
        let lines = lines(&results);
        assert!(
            lines[0].contains(" 90.0 ") && lines[0].contains(" 40.0 "),
            "{lines:?}"
        );
        assert!(
            lines[0].contains("0.44 of best (must: >= 0.95) MISSED"),
            "{lines:?}"
        );
        assert!(
            lines[2].starts_with("    gramway      queue 0.0/0.0/0.0 ms"),
            "{lines:?}"
        );
        assert_eq!(lines[3], "    tuic: it said no");
    }
}
