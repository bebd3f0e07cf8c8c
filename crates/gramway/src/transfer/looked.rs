//! What a receiver is told that only looks: a line of each file that is offered, with what would become of it, and what
//! all come to.

use std::fmt;

use files::Would;
use serde_json::{Value, json};

use crate::{output, units};

/// The line of one; `would` only in a dry run.
pub(super) fn offered(path: &str, bytes: u64, missing: u64, would: Option<Would>) -> String {
    let missing = match (missing, would) {
        (0, None | Some(Would::Keep | Would::Skip)) => None,
        (0, _) if bytes > 0 => Some("nothing of it missing".to_owned()),
        (missing, _) if missing < bytes => Some(format!("{} of it missing", units::bytes(missing))),
        _ => None,
    };
    let what = match would {
        None | Some(Would::Store) => None,
        Some(Would::Overwrite) => Some("would be overwritten"),
        Some(Would::Rename) => Some("under this name, as another file has its own"),
        Some(Would::Keep) => Some("there"),
        Some(Would::Skip) => Some("would be skipped, as another file is there"),
        Some(Would::Ask) => Some("would ask, as another file is there"),
    };
    let marks: Vec<&str> = what.into_iter().chain(missing.as_deref()).collect();
    let marks = match marks.is_empty() {
        true => String::new(),
        false => format!("  ({})", marks.join(", ")),
    };
    format!("{:>8}  {}{marks}", units::bytes(bytes), output::shown(path))
}

/// All that was offered; bytes of those that would be stored are counted as missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Looked {
    files: u64,
    bytes: u64,
    missing: u64,
    there: u64,
    overwritten: u64,
    renamed: u64,
    skipped: u64,
    asked: u64,
    /// Whether it is known what would become of them.
    is_dry_run: bool,
}

impl Looked {
    pub(super) fn add(&mut self, bytes: u64, missing: u64, would: Option<Would>) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.missing = self.missing.saturating_add(missing);
        self.is_dry_run |= would.is_some();
        match would {
            None | Some(Would::Store) => {}
            Some(Would::Overwrite) => self.overwritten += 1,
            Some(Would::Rename) => self.renamed += 1,
            Some(Would::Keep) => self.there += 1,
            Some(Would::Skip) => self.skipped += 1,
            Some(Would::Ask) => self.asked += 1,
        }
    }

    pub(super) fn as_json(self) -> Value {
        json!({
            "files": self.files, "bytes": self.bytes, "missing": self.missing,
            "there": self.there, "overwritten": self.overwritten, "renamed": self.renamed,
            "skipped": self.skipped, "asked": self.asked,
        })
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, files) = (units::bytes(self.bytes), units::count(self.files));
        let noun = if self.files == 1 { "file" } else { "files" };
        write!(formatter, "{bytes:>8}  in {files} {noun}")?;
        if self.is_dry_run {
            write!(
                formatter,
                ", of which {} would be received",
                units::bytes(self.missing)
            )?;
        }
        for (count, what) in [
            (self.there, "there"),
            (self.overwritten, "overwritten"),
            (self.renamed, "under another name"),
            (self.skipped, "skipped"),
            (self.asked, "to ask about"),
        ] {
            if count > 0 {
                write!(formatter, "; {} {what}", units::count(count))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::events::EventName;
    use super::*;

    #[test]
    fn each_file_says_what_would_become_of_it() {
        for (would, missing, expected) in [
            (None, 5_000, "  5.0 kB  a"),
            (Some(Would::Store), 5_000, "  5.0 kB  a"),
            (Some(Would::Store), 2_000, "  5.0 kB  a  (2.0 kB of it missing)"),
            (
                Some(Would::Overwrite),
                2_000,
                "  5.0 kB  a  (would be overwritten, 2.0 kB of it missing)",
            ),
            (
                Some(Would::Overwrite),
                0,
                "  5.0 kB  a  (would be overwritten, nothing of it missing)",
            ),
            (Some(Would::Store), 0, "  5.0 kB  a  (nothing of it missing)"),
            (Some(Would::Keep), 0, "  5.0 kB  a  (there)"),
            (
                Some(Would::Skip),
                0,
                "  5.0 kB  a  (would be skipped, as another file is there)",
            ),
            (
                Some(Would::Ask),
                5_000,
                "  5.0 kB  a  (would ask, as another file is there)",
            ),
        ] {
            assert_eq!(offered("a", 5_000, missing, would), expected);
        }
        // An empty file has nothing that could be missing.
        assert_eq!(offered("none", 0, 0, None), "     0 B  none");
        assert_eq!(offered("none", 0, 0, Some(Would::Store)), "     0 B  none");
        assert_eq!(offered("\u{1b}[2J", 0, 0, None), r"     0 B  \u{1b}[2J");
    }

    #[test]
    fn the_last_line_has_the_sums() {
        let mut listed = Looked::default();
        listed.add(6, 6, None);
        assert_eq!(listed.to_string(), "     6 B  in 1 file");
        let mut looked = Looked::default();
        for (bytes, missing, would) in [
            (4_000, 4_000, Would::Store),
            (3_000, 1_000, Would::Overwrite),
            (2_000, 0, Would::Keep),
            (1_000, 1_000, Would::Ask),
        ] {
            looked.add(bytes, missing, Some(would));
        }
        assert_eq!(
            looked.to_string(),
            " 10.0 kB  in 4 files, of which 6.0 kB would be received; 1 there; 1 overwritten; 1 to ask about"
        );
        assert_eq!(looked.as_json()["missing"], 6_000);
        let fields = looked.as_json();
        let mut fields = fields.as_object().unwrap().keys();
        assert!(fields.all(|field| EventName::OfferedEnd.has(field)));
    }
}
