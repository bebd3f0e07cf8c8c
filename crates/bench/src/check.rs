//! A result and what it must reach. A miss is reported; it is not an error.

use serde::Serialize;

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// From the first to the second.
    Within(f64, f64),
    /// Only reported.
    Free,
}

/// A value and what it must be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Check {
    /// What it is, with its unit.
    pub(crate) what: String,
    /// The value.
    pub(crate) value: f64,
    /// What it must be.
    pub(crate) must: Bound,
}

impl Check {
    /// A check of `value`.
    pub(crate) fn new(what: impl Into<String>, value: f64, must: Bound) -> Self {
        let what = what.into();
        Self { what, value, must }
    }

    /// Whether it is what it must be. What is no number is not.
    pub(crate) fn holds(&self) -> bool {
        match self.must {
            Bound::AtLeast(least) => self.value >= least,
            Bound::AtMost(most) => self.value <= most,
            Bound::Within(least, most) => (least..=most).contains(&self.value),
            Bound::Free => true,
        }
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, value, must } = self;
        write!(formatter, "{value:.2} {what}")?;
        match must {
            Bound::AtLeast(least) => write!(formatter, " (must: >= {least})")?,
            Bound::AtMost(most) => write!(formatter, " (must: <= {most})")?,
            Bound::Within(least, most) => write!(formatter, " (must: {least} to {most})")?,
            Bound::Free => {}
        }
        if !self.holds() {
            formatter.write_str(" MISSED")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_at_its_limit_and_what_is_no_number_holds_none() {
        let check = |value, must| Check::new("of it", value, must);
        for (value, must, holds) in [
            (1.3, Bound::AtMost(1.3), true),
            (1.31, Bound::AtMost(1.3), false),
            (0.95, Bound::AtLeast(0.95), true),
            (0.6, Bound::Within(0.4, 0.6), true),
            (0.3, Bound::Within(0.4, 0.6), false),
            (f64::NAN, Bound::AtMost(1.3), false),
            (f64::NAN, Bound::Free, true),
        ] {
            assert_eq!(check(value, must).holds(), holds, "{value} {must:?}");
        }
        assert_eq!(
            check(1.5, Bound::AtMost(1.3)).to_string(),
            "1.50 of it (must: <= 1.3) MISSED"
        );
        assert_eq!(
            check(0.5, Bound::Within(0.4, 0.6)).to_string(),
            "0.50 of it (must: 0.4 to 0.6)"
        );
    }
}
