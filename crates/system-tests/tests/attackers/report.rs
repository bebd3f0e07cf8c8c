//! What a run found, as a table: each measure beside what it has to be. All are taken, whatever the ones before say.

use std::fmt::{Display, Write};

/// The rows so far; printed at the end, also where a panic comes before it.
pub(crate) struct Report {
    title: &'static str,
    rows: Vec<Row>,
    is_finished: bool,
}

struct Row {
    what: String,
    measured: String,
    /// Empty where nothing is asked.
    must: String,
    holds: bool,
}

impl Report {
    pub(crate) fn new(title: &'static str) -> Self {
        Self {
            title,
            rows: Vec::new(),
            is_finished: false,
        }
    }

    /// A measure that nothing is asked of.
    pub(crate) fn tell(&mut self, what: impl Display, measured: impl Display) {
        self.check(what, measured, "", true);
    }

    /// A measure, and whether it is what it must be.
    pub(crate) fn check(
        &mut self,
        what: impl Display,
        measured: impl Display,
        must: impl Display,
        holds: bool,
    ) {
        self.rows.push(Row {
            what: what.to_string(),
            measured: measured.to_string(),
            must: must.to_string(),
            holds,
        });
    }

    /// Prints the table.
    ///
    /// # Panics
    /// When a row does not hold.
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
        println!("{}", self.table());
        let missed = self.rows.iter().filter(|row| !row.holds);
        let missed: Vec<&str> = missed.map(|row| row.what.as_str()).collect();
        assert!(missed.is_empty(), "missed: {}", missed.join("; "));
    }

    fn table(&self) -> String {
        let width = |text: fn(&Row) -> &str| {
            let widths = self.rows.iter().map(|row| text(row).chars().count());
            widths.max().unwrap_or_default()
        };
        let (what, measured) = (width(|row| &row.what), width(|row| &row.measured));
        let mut table = format!("\n{}\n", self.title);
        for row in &self.rows {
            let mark = if row.holds { "" } else { "  MISSED" };
            let line = format!(
                "  {:what$}  {:measured$}  {}{mark}",
                row.what, row.measured, row.must
            );
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{}", line.trim_end());
        }
        table
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.is_finished {
            println!("{}\n  the run ended here", self.table());
        }
    }
}
