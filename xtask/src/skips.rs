//! Which system tests were skipped, and whether each skip is one that CONTRIBUTING.md allows.
//!
//! Tests that lack something (root, a kernel feature) append `SKIPPED: TEST: REASON` to a log. People see the list; in
//! CI, where everything is there, a skip that is not on record fails the run.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::repository::Repository;

/// Heading in CONTRIBUTING.md; the list items below it name tests in backticks.
const HEADING: &str = "## Allowed skips";

/// Prints what was skipped; with `strict`, a skip that CONTRIBUTING.md does not name is an error.
pub(crate) fn report(repository: &Repository, log: &Path, strict: bool) -> Result<()> {
    let skips = std::fs::read_to_string(log).unwrap_or_default();
    let policy = std::fs::read_to_string(repository.root().join("CONTRIBUTING.md"))
        .context("CONTRIBUTING.md cannot be read")?;
    let allowed = allowed(&policy);
    let mut refused = Vec::new();
    for line in skips.lines() {
        println!("{line}");
        if !allowed.contains(&test_name(line)) {
            refused.push(line);
        }
    }
    if strict && !refused.is_empty() {
        bail!(
            "{} skipped tests are not under \"{HEADING}\" in CONTRIBUTING.md; provide what they lack, or name them \
             there with the reason:\n{}",
            refused.len(),
            refused.join("\n")
        );
    }
    Ok(())
}

/// The test in `SKIPPED: TEST: REASON`; test names may contain `::`.
fn test_name(line: &str) -> &str {
    let rest = line.strip_prefix("SKIPPED: ").unwrap_or(line);
    rest.split_once(": ").map_or(rest, |(name, _)| name)
}

fn allowed(policy: &str) -> Vec<&str> {
    policy
        .lines()
        .skip_while(|line| line.trim_end() != HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("- `")?.split_once('`').map(|(name, _)| name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_items_below_the_heading_are_allowed() {
        let policy = "- `early`: no\n## Allowed skips\nText.\n- `house::one`: why\n- `two`\n\n## Style\n- `late`: no\n";
        assert_eq!(allowed(policy), ["house::one", "two"]);
    }

    #[test]
    fn a_test_name_ends_before_its_reason() {
        assert_eq!(test_name("SKIPPED: house::one: needs root: really"), "house::one");
        assert_eq!(test_name("garbage"), "garbage");
    }
}
