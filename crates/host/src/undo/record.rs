//! The file of changes: the process that made them, the changes, and how each is undone.
//!
//! A parameter is only set back while it has the value it was given; an exception route is only removed where it is
//! marked as ours; and neither where another living process needs the same. So the order in which processes end does
//! not matter, and nobody's later decision is overwritten.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::trust;
use crate::default_route::{self, Rule};
use crate::dns::NamesChange;
use crate::error::{Explain, HostError};
use crate::holder::Holder;
use crate::limits::UNDO_FILE_BYTES_MAX;
use crate::network::Network;
use crate::parameter;
use crate::prefix::Prefix;
use crate::route::Route;

/// The format of the file.
const VERSION: u32 = 1;

/// What to undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// A kernel parameter.
    Parameter {
        name: String,
        before: String,
        after: String,
    },
    /// A route to one address over another interface than the TUN.
    Route {
        destination: IpAddr,
        index: u32,
        gateway: Option<IpAddr>,
        source: Option<IpAddr>,
    },
    /// A rule of routing.
    Rule(Rule),
    /// A table of ours, with all its routes.
    Table { number: u32 },
    /// Connections are translated ([`crate::Nat`]). The kernel undoes it; the guardian keeps the connections for a
    /// while.
    Nat,
    /// The machine's name servers are others.
    Names(NamesChange),
}

/// The file's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) holder: Holder,
    pub(super) changes: Vec<Change>,
}

impl Change {
    /// What it changes, for people.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Parameter { name, .. } => name.replace('/', "."),
            Self::Route { destination, .. } => format!("the route to {destination}"),
            Self::Rule(_) => "a rule of routing".to_owned(),
            Self::Table { number } => format!("the routing table {number}"),
            Self::Nat => "NAT".to_owned(),
            Self::Names(names) => names.subject(),
        }
    }

    /// What stays of it where its owner has died, for people; NAT goes with its owner.
    pub(super) fn left_behind(&self) -> Option<String> {
        let is_gone = match self {
            Self::Nat => true,
            Self::Names(names) => names.is_overtaken(),
            _ => false,
        };
        (!is_gone).then(|| self.subject())
    }

    /// What it does to the machine's name servers.
    pub(super) fn names(&self) -> Option<&NamesChange> {
        match self {
            Self::Names(names) => Some(names),
            _ => None,
        }
    }

    /// The same, where others of the living go on needing what it changed.
    fn handed_on(self, others: &[Record]) -> Self {
        match self {
            Self::Names(names) => {
                let all = others.iter().flat_map(|other| &other.changes);
                Self::Names(names.handed_on(all.filter_map(Self::names)))
            }
            other => other,
        }
    }

    /// Makes it; it is on the list by now.
    pub(super) fn make(&self) -> Result<(), HostError> {
        match self {
            Self::Parameter { name, after, .. } => parameter::write(name, after),
            &Self::Route {
                destination,
                index,
                gateway,
                source,
            } => Network::open()?.add_marked_route(&exception(destination, index, gateway, source)),
            Self::Rule(rule) => Network::open()?.add_rule(rule),
            // Its owner makes it.
            Self::Table { .. } | Self::Nat | Self::Names(_) => Ok(()),
        }
    }

    /// Whether this program makes such changes.
    fn is_one_of_ours(&self) -> bool {
        match self {
            Self::Parameter { name, before, after } => {
                parameter::is_changed_by_us(name)
                    && [before, after]
                        .iter()
                        .all(|value| parameter::is_whole_number(value))
            }
            _ => true,
        }
    }

    /// Whether it is a parameter of this directory.
    pub(super) fn is_parameter_below(&self, directory: &str) -> bool {
        matches!(self, Self::Parameter { name, .. } if name.starts_with(directory))
    }

    /// Whether both changes are about the same thing, so that taking back one would break the other.
    fn shares_with(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Parameter { name, after, .. },
                Self::Parameter {
                    name: also,
                    after: wanted,
                    ..
                },
            ) => name == also && after == wanted,
            _ => self == other,
        }
    }

    fn take_back(&self) -> Result<(), HostError> {
        match self {
            Self::Parameter { name, before, after } => match parameter::read(name) {
                Ok(value) if value == *after => parameter::write(name, before),
                Ok(_) => Ok(()),
                // Its interface is gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(HostError::new(format!("read {}", self.subject()), error)),
            },
            &Self::Route {
                destination,
                index,
                gateway,
                source,
            } => Network::open()?.remove_marked_route(&exception(destination, index, gateway, source)),
            Self::Rule(rule) => Network::open()?.remove_rule(rule),
            &Self::Table { number } => default_route::clear(&mut Network::open()?, number),
            // Gone with its owner.
            Self::Nat => Ok(()),
            Self::Names(names) => names.take_back(),
        }
    }
}

fn exception(destination: IpAddr, index: u32, gateway: Option<IpAddr>, source: Option<IpAddr>) -> Route {
    Route {
        gateway,
        source,
        ..Route::on_link(Prefix::host(destination), index)
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
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
            let change = change.handed_on(others);
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
