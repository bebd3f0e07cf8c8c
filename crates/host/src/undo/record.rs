//! The file of changes: the process that made them, and the changes.
//!
//! What another living process needs is not undone, so that the order in which processes end does not matter.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::change::Change;
use super::trust;
use crate::error::{Explain, HostError};
use crate::holder::Holder;
use crate::limits::UNDO_FILE_BYTES_MAX;

/// The format of the file.
const VERSION: u32 = 1;

/// The file's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) holder: Holder,
    pub(super) changes: Vec<Change>,
}

impl Record {
    pub(super) fn new(holder: Holder) -> Self {
        Self {
            version: VERSION,
            holder,
            changes: Vec::new(),
        }
    }

    /// Takes back everything, the latest first; what could not be is left in the record, with the first reason.
    pub(super) fn take_back(&mut self, others: &[Self]) -> Result<(), HostError> {
        let mut failed = None;
        let mut left = Vec::new();
        while let Some(change) = self.changes.pop() {
            if others.iter().any(|other| other.holds(&change)) {
                continue;
            }
            let change = change.handed_on(others.iter().flat_map(|other| &other.changes));
            if let Err(error) = change.take_back() {
                left.push(change);
                failed.get_or_insert(error);
            }
        }
        left.reverse();
        self.changes = left;
        failed.map_or(Ok(()), Err)
    }

    fn holds(&self, change: &Change) -> bool {
        self.changes.iter().any(|own| own.shares_with(change))
    }

    /// Whether connections are translated.
    pub(super) fn has_nat(&self) -> bool {
        self.changes.contains(&Change::Nat)
    }

    /// The change of a parameter, where it is listed.
    pub(super) fn parameter(&self, parameter: &str) -> Option<&Change> {
        let is_it = |change: &&Change| matches!(change, Change::Parameter { name, .. } if name == parameter);
        self.changes.iter().find(is_it)
    }

    /// Lists changes that are not listed yet.
    pub(super) fn add(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            if !self.changes.contains(&change) {
                self.changes.push(change);
            }
        }
    }

    /// Reads a file that nobody else may write.
    pub(super) fn load(file: &Path) -> Result<Self, HostError> {
        let read = || {
            let mut text = Vec::new();
            let list = trust::open_list(file)?;
            list.take(UNDO_FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
            if text.len() as u64 > UNDO_FILE_BYTES_MAX {
                return Err(invalid("it is too long"));
            }
            let record: Self = serde_json::from_slice(&text)?;
            if record.version != VERSION {
                return Err(invalid("another version of gramway wrote it"));
            }
            if !record.changes.iter().all(Change::is_one_of_ours) {
                return Err(invalid("it lists a change that gramway does not make"));
            }
            Ok(record)
        };
        read().explain(|| format!("read the changes listed in {}", file.display()))
    }

    /// Writes the file so that there is always a whole one, for its owner alone; one without changes is removed.
    pub(super) fn save(&self, file: &Path) -> Result<(), HostError> {
        let write = || {
            if self.changes.is_empty() {
                return match fs::remove_file(file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            }
            let fresh = file.with_extension("new");
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            serde_json::to_writer(options.open(&fresh)?, self)?;
            fs::rename(&fresh, file)
        };
        write().explain(|| format!("write the list of changes {}", file.display()))
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads `input` as a list of changes: what was understood is the same after it was written and read again.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    let Ok(record) = serde_json::from_slice::<Record>(input) else {
        return;
    };
    let written = serde_json::to_vec(&record).expect("a list of changes has text for keys");
    let again: Record = serde_json::from_slice(&written).expect("what we write");
    assert_eq!(again, record);
    let mut merged = Record::new(record.holder.clone());
    merged.add(record.changes.iter().cloned());
    assert!(record.changes.iter().all(|change| merged.holds(change)));
    for change in &record.changes {
        assert!(!change.subject().is_empty() || matches!(change, Change::Parameter { .. }));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn parameter(before: &str) -> Change {
        Change::Parameter {
            name: "net/ipv4/ip_forward".to_owned(),
            before: before.to_owned(),
            after: "1".to_owned(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_an_empty_one_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("undo-1-0.json");
        let mut record = Record::new(Holder::this().unwrap());
        record.changes.push(parameter("0"));
        record.changes.push(Change::Route {
            destination: "2001:db8::1".parse().unwrap(),
            index: 3,
            gateway: Some("fe80::1".parse().unwrap()),
            source: None,
        });
        record.save(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Record::load(&file).unwrap(), record);
        record.changes.clear();
        record.save(&file).unwrap();
        assert!(Record::load(&file).is_err() && fs::read_dir(directory.path()).unwrap().count() == 0);
    }

    #[test]
    fn what_a_living_process_needs_is_left() {
        let mut other = Record::new(Holder::this().unwrap());
        other.changes.push(parameter("0"));
        assert!(other.holds(&parameter("1")));
        assert!(other.parameter("net/ipv4/ip_forward").is_some());
        let mut own = Record::new(Holder::this().unwrap());
        own.changes.push(parameter("0"));
        own.take_back(&[other]).unwrap();
        assert!(own.changes.is_empty());
    }

    #[test]
    fn a_list_of_what_we_never_change_is_not_obeyed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("undo-1-0.json");
        let load = |name: &str, before: &str| {
            let mut record = Record::new(Holder::this().unwrap());
            record.changes.push(Change::Parameter {
                name: name.to_owned(),
                before: before.to_owned(),
                after: "1".to_owned(),
            });
            record.save(&file).unwrap();
            Record::load(&file)
        };
        for name in [
            "net/ipv4/ip_forward",
            "net/ipv4/conf/eth0.7/forwarding",
            "net/ipv4/conf/all/accept_redirects",
            "net/ipv4/conf/all/src_valid_mark",
            "net/ipv6/conf/eth0/accept_ra",
        ] {
            assert!(load(name, "0").is_ok(), "{name}");
        }
        for name in [
            "net/core/bpf_jit_enable",
            "net/ipv4/conf/all/rp_filter",
            "net/ipv4/conf/../forwarding",
            "net/ipv4/conf/a/b/forwarding",
            "net/ipv4/conf/forwarding",
            "net/ipv4/tcp_syncookies",
            "kernel/core_pattern",
        ] {
            assert!(load(name, "0").is_err(), "{name}");
        }
        for before in ["", "on", "|/tmp/x", "0\n1"] {
            assert!(load("net/ipv4/ip_forward", before).is_err(), "{before:?}");
        }
    }

    #[test]
    fn a_broken_file_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("undo-1-0.json");
        for text in ["", "{", "{\"version\":9}", "[]"] {
            fs::write(&file, text).unwrap();
            assert!(
                Record::load(&file)
                    .unwrap_err()
                    .to_string()
                    .contains("undo-1-0.json")
            );
        }
    }
}
