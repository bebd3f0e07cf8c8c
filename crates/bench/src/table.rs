//! Plain-text tables whose rows appear as they are measured, and numbers as people read them.

use std::fmt::Write as _;

/// Where a cell stands in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Columns of fixed width, because rows are printed one by one. Longer cells push the rest of their row.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, usize, Align)>,
}

impl Table {
    /// Columns by title, width in characters, and alignment.
    pub(crate) fn new(columns: &[(&'static str, usize, Align)]) -> Self {
        Self {
            columns: columns.to_vec(),
        }
    }

    /// The line of titles.
    pub(crate) fn header(&self) -> String {
        let titles: Vec<String> = self
            .columns
            .iter()
            .map(|(title, _, _)| (*title).to_owned())
            .collect();
        self.row(&titles)
    }

    /// One line.
    pub(crate) fn row(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for ((_, width, align), cell) in self.columns.iter().zip(cells) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}"),
                Align::Right => write!(line, "{cell:>width$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Bits per second as Gbit/s with two decimals (`1.23`), below 0.1 with three.
pub(crate) fn gigabits(bits_per_second: f64) -> String {
    let gigabits = bits_per_second / 1e9;
    if gigabits < 0.1 {
        format!("{gigabits:.3}")
    } else {
        format!("{gigabits:.2}")
    }
}

/// A fraction as per cent. Zero is `0`, and something above zero never looks like it.
pub(crate) fn percent(fraction: f64) -> String {
    match fraction * 100.0 {
        percent if percent <= 0.0 => "0".to_owned(),
        percent if percent < 0.01 => "<0.01".to_owned(),
        percent if percent < 10.0 => format!("{percent:.2}"),
        percent => format!("{percent:.0}"),
    }
}

/// A count with the suffix k, M or G from ten thousand on.
pub(crate) fn count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{:.1}k", number as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.2}M", number as f64 / 1e6),
        _ => format!("{:.2}G", number as f64 / 1e9),
    }
}

/// Bytes as MiB with one decimal.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_space() {
        let table = Table::new(&[
            ("case", 6, Align::Left),
            ("rate", 5, Align::Right),
            ("limit", 8, Align::Left),
        ]);
        assert_eq!(table.header(), "case     rate  limit");
        assert_eq!(
            table.row(&["a".into(), "1.50".into(), "cpu".into()]),
            "a        1.50  cpu"
        );
        assert_eq!(
            table.row(&["too long".into(), "1".into(), String::new()]),
            "too long      1"
        );
    }

    #[test]
    fn numbers_read_well_and_a_small_loss_is_not_zero() {
        assert_eq!(
            (gigabits(2.345e9), gigabits(5e6)),
            ("2.35".to_owned(), "0.005".to_owned())
        );
        assert_eq!(
            [percent(0.0), percent(0.000_01), percent(0.012_3), percent(0.5)],
            ["0", "<0.01", "1.23", "50"]
        );
        assert_eq!(
            [count(9_999), count(12_345), count(3_210_000)],
            ["9999", "12.3k", "3.21M"]
        );
        assert_eq!(mebibytes(3 << 19), "1.5");
    }
}
