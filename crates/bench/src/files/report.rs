//! The table of `bench files`.

use super::Row;
use crate::table::{Align, Table, mebibytes};

/// How to read the table.
pub(super) const LEGEND: &str = "time: median run, in seconds, from the start of the sending command to the end of the receiving one; > a run that \
was stopped, whose MiB/s are at most that; to disk: the same until all that came is on the disk; CPU: seconds of all processes at both ends; memory: MiB of the largest process";

/// Characters of a reason at its start and at its end; what a program has drawn in between, as bars, says nothing.
const REASON_CHARACTERS: usize = 160;

/// Start and end of a long reason.
pub(super) fn shortened(reason: &str) -> String {
    let letters: Vec<char> = reason
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .collect();
    if letters.len() <= 2 * REASON_CHARACTERS {
        return letters.into_iter().collect();
    }
    let start: String = letters[..REASON_CHARACTERS].iter().collect();
    let end: String = letters[letters.len() - REASON_CHARACTERS..].iter().collect();
    format!("{start} … {end}")
}

fn table() -> Table {
    Table::new(&[
        ("case", 8, Align::Left),
        ("contestant", 10, Align::Left),
        ("time", 8, Align::Right),
        ("to disk", 8, Align::Right),
        ("MiB/s", 8, Align::Right),
        ("CPU", 8, Align::Right),
        ("memory", 8, Align::Right),
        ("runs", 4, Align::Right),
    ])
}

/// The line of titles.
pub(super) fn header() -> String {
    table().header()
}

/// One line for each contestant, one for each check, and what was not measured and why.
pub(super) fn lines(row: &Row) -> Vec<String> {
    let table = table();
    let of_contestants = row.results.iter().map(|(contestant, run)| {
        let sign = if run.is_whole { "" } else { ">" };
        table.row(&[
            row.case.clone(),
            contestant.name().to_owned(),
            format!("{sign}{:.2}", run.seconds),
            format!("{sign}{:.2}", run.disk_seconds),
            format!("{:.1}", run.rate() / f64::from(1 << 20)),
            format!("{:.2}", run.cpu_seconds),
            match run.peak_bytes {
                0 => String::new(),
                bytes => mebibytes(bytes),
            },
            row.runs[contestant].len().to_string(),
        ])
    });
    let first_bytes = row.results.iter().filter_map(|(contestant, run)| {
        let seconds = run.first_bytes_seconds?;
        let name = contestant.name();
        Some(format!(
            "  {name}: first new bytes after {seconds:.2} s, {:.0} MiB over the wire of {:.0}",
            run.wire_bytes as f64 / f64::from(1 << 20),
            row.bytes as f64 / f64::from(1 << 20)
        ))
    });
    let checks = row.checks.iter().map(|check| format!("  {check}"));
    let not_judged = row.not_judged.iter();
    let not_judged = not_judged.map(|demand| format!("  not judged, nobody to compare with: {demand}"));
    let failures = row.failures.iter();
    let failures = failures.map(|(contestant, why)| format!("  {}: {why}", contestant.name()));
    of_contestants
        .chain(first_bytes)
        .chain(checks)
        .chain(not_judged)
        .chain(failures)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_reason_start_and_end_are_kept_on_one_line() {
        assert_eq!(shortened("it\r  ended\n"), "it ended");
        let long = shortened(&format!("why it ended: {} at last", "bar ".repeat(1_000)));
        assert!(
            long.starts_with("why it ended: bar") && long.ends_with("bar at last"),
            "{long}"
        );
        assert_eq!(long.chars().count(), 2 * REASON_CHARACTERS + 3);
    }
}
