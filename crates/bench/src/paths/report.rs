//! The table: a line for each load over a link with its verdicts, and below a miss what the link did meanwhile.

use super::contestant::{ALL, Contestant};
use super::measure::Run;
use super::verdict::Check;
use super::{CaseResults, Row, median_run};
use crate::table::{Align, Table, count, percent};

/// How to read the table.
pub(super) const LEGEND: &str = "\
rates: payload Mbit/s at the receiver, medians; loss: of datagrams, beside that of
the link in the same run; of best: of the better of direct and hysteria2; queue: what packets waited for the line, p50/p95/max";

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
                .map(|run| explanation(*contestant, run))
        }));
    }
    lines
}

/// What the link did in a run.
fn explanation(contestant: Contestant, run: &Run) -> String {
    let (link, queue) = (&run.link, run.link.queue);
    let gramway = run.counters.as_ref().map(|ends| {
        let [client, server] = ends.each_ref().map(|end| {
            format!(
                "{} packets lost, {} cuts",
                count(end.packets_lost()),
                end.window_cuts()
            )
        });
        format!("; client {client}; server {server}")
    });
    format!(
        "    {:<9}  queue {:.1}/{:.1}/{:.1} ms; of {} packets {} found it full, {} lost{}",
        contestant.name(),
        queue.p50_ms,
        queue.p95_ms,
        queue.max_ms,
        count(link.sent),
        count(link.queue_full),
        count(link.lost),
        gramway.unwrap_or_default()
    )
}
