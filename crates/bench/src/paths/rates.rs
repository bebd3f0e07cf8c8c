//! Rates over time as CSV: a line for each tenth of a second of each TCP run.

use std::fmt::Write as _;

use super::CaseResults;

/// The whole file.
pub(super) fn csv(cases: &[CaseResults]) -> String {
    let mut text = "cell,load,contestant,round,seconds,bits_per_second\n".to_owned();
    for row in cases.iter().flat_map(|case| &case.rows) {
        for (contestant, runs) in &row.runs {
            for (round, run) in runs.iter().enumerate() {
                for step in &run.steps {
                    let _ = writeln!(
                        text,
                        "{},{},{},{},{:.1},{:.0}",
                        row.cell,
                        row.load.name(),
                        contestant.name(),
                        round + 1,
                        step.seconds,
                        step.bits_per_second
                    );
                }
            }
        }
    }
    text
}
