//! How `bench forward`, `bench l3` and `bench paths` go through their cases: what they are asked for, which cases are
//! chosen, and one after the other measured, printed and saved. A case that fails keeps none of the others from its turn.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use testbed::programs;

use crate::Error;
use crate::error::During;

/// Runs of each contestant in a case, of which the median counts.
const RUNS: usize = 5;

/// Flags of both benchmarks.
#[derive(Args, Clone, Debug, Default)]
pub struct MatrixOptions {
    /// Also write the results as JSON, updated after each case
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// One run of each contestant instead of the median of five
    #[arg(long)]
    pub quick: bool,
    /// Duration of each run in seconds [default: 2; l3: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: Option<u32>,
    /// Run only cases whose name contains this; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
}

/// A line of a matrix.
pub(crate) trait Case {
    /// What `--only` matches.
    fn name(&self) -> &str;
}

/// A case that was measured.
pub(crate) struct Measured<R> {
    /// For the file.
    pub(crate) row: R,
    /// For people.
    pub(crate) lines: Vec<String>,
    /// Whether all was measured that the benchmark cannot do without.
    pub(crate) is_whole: bool,
}

impl MatrixOptions {
    /// Runs of each contestant in a case.
    pub(crate) fn runs(&self) -> usize {
        if self.quick { 1 } else { RUNS }
    }

    /// The cases whose names were given, or all.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn choose<C: Case>(&self, all: Vec<C>) -> Result<Vec<C>, Error> {
        let is_chosen = |case: &C| {
            let mut patterns = self.only.iter();
            self.only.is_empty() || patterns.any(|pattern| case.name().contains(pattern))
        };
        let (chosen, others): (Vec<C>, Vec<C>) = all.into_iter().partition(is_chosen);
        if chosen.is_empty() {
            let names: Vec<&str> = others.iter().map(Case::name).collect();
            let names = names.join(" ");
            return Err(Error::Usage(format!(
                "--only matches no case; there are: {names}"
            )));
        }
        Ok(chosen)
    }

    /// Writes the results so far where they are wanted.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn save(&self, results: &impl Serialize) -> Result<(), Error> {
        self.json
            .as_deref()
            .map_or(Ok(()), |path| write_json(path, results))
    }
}

/// Measures the cases, prints each at once and lets `save` have all rows so far.
///
/// # Errors
/// Which cases failed or are not whole; output or file that cannot be written.
pub(crate) fn go_through<C: Case, R>(
    cases: Vec<C>,
    output: &mut dyn Write,
    mut measure: impl FnMut(C) -> Result<Measured<R>, Error>,
    save: impl Fn(&[R]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for case in cases {
        let name = case.name().to_owned();
        let measured = match measure(case) {
            Ok(measured) => measured,
            Err(error) => {
                print(output, &format!("{name}  FAILED: {error}"))?;
                failed.push(name);
                continue;
            }
        };
        for line in &measured.lines {
            print(output, line)?;
        }
        if !measured.is_whole {
            failed.push(name);
        }
        rows.push(measured.row);
        save(&rows)?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Error::Cases(failed.join(", ")))
    }
}

/// Says what to do where a benchmark with namespaces lacks root or one of these programs, each with its Debian package.
///
/// # Errors
/// [`Error::NotPermitted`], [`Error::Missing`].
pub(crate) fn check_system(needed: &[(&str, &str)]) -> Result<(), Error> {
    check_root()?;
    let missing = needed
        .iter()
        .filter(|(name, _)| programs::find(&[name]).is_none());
    let (names, packages): (Vec<_>, Vec<_>) = missing.copied().unzip();
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::Missing {
        programs: names.join(", "),
        packages: packages.join(" "),
    })
}

/// Says what to do where iperf3 is missing.
///
/// # Errors
/// [`Error::IperfMissing`].
pub(crate) fn check_iperf() -> Result<(), Error> {
    if testbed::iperf::is_installed() {
        Ok(())
    } else {
        Err(Error::IperfMissing)
    }
}

/// Says that it needs root, before a row fails for it.
///
/// # Errors
/// [`Error::NotPermitted`].
pub(crate) fn check_root() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::NotPermitted(
        "this benchmark makes network namespaces and devices, which only root may: start it with sudo"
            .to_owned(),
    ))
}

/// A line that is seen at once.
pub(crate) fn print(output: &mut dyn Write, line: &str) -> Result<(), Error> {
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .during(|| "print the table".to_owned())
}

/// Writes `results` as one JSON document.
pub(crate) fn write_json(path: &Path, results: &impl Serialize) -> Result<(), Error> {
    let failed = |source| Error::Results {
        path: path.to_owned(),
        source,
    };
    let text = serde_json::to_string_pretty(results).map_err(|source| failed(source.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Case for &'static str {
        fn name(&self) -> &str {
            self
        }
    }

    fn only(patterns: &[&str]) -> MatrixOptions {
        MatrixOptions {
            only: patterns.iter().map(ToString::to_string).collect(),
            ..MatrixOptions::default()
        }
    }

    #[test]
    fn patterns_choose_cases_and_where_none_fits_all_names_are_told() {
        let all = || vec!["tcp", "tcp-4", "udp"];
        assert_eq!(only(&[]).choose(all()).unwrap(), all());
        assert_eq!(only(&["4", "udp"]).choose(all()).unwrap(), ["tcp-4", "udp"]);
        let error = only(&["sctp"]).choose(all()).unwrap_err().to_string();
        assert!(error.ends_with("there are: tcp tcp-4 udp"), "{error}");
    }

    #[test]
    fn cases_that_fail_are_named_at_the_end_and_the_others_are_measured_and_saved() {
        let measure = |case: &'static str| match case {
            "broken" => Err(Error::Setup("no wire".to_owned())),
            _ => Ok(Measured {
                row: case,
                lines: vec![format!("{case} done")],
                is_whole: case != "half",
            }),
        };
        let saved = std::cell::RefCell::new(Vec::new());
        let save = |rows: &[&'static str]| {
            saved.borrow_mut().push(rows.to_vec());
            Ok(())
        };
        let mut output = Vec::new();
        let error = go_through(vec!["broken", "half", "good"], &mut output, measure, save).unwrap_err();
        assert!(matches!(error, Error::Cases(names) if names == "broken, half"));
        assert_eq!(saved.into_inner(), [vec!["half"], vec!["half", "good"]]);
        let text = String::from_utf8(output).unwrap();
        assert!(text.starts_with("broken  FAILED: "), "{text}");
        assert!(text.ends_with("half done\ngood done\n"), "{text}");
    }
}
