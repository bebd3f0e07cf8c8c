//! Name servers of the machine as changes that are undone.

use super::Undo;
use super::change::Change;
use super::directory::Directory;
use crate::dns::{self, FileChange, NameServers, NamesChange, NamesNotSet, NamesWay};

impl Undo {
    /// Has the machine's programs ask these name servers until they are undone; those that were set before by this are
    /// replaced. Who was given them.
    ///
    /// # Errors
    /// Whoever keeps name servers here refuses, or a file cannot be written. What was done by then is undone with
    /// everything else.
    pub fn set_name_servers(&mut self, wanted: &NameServers) -> Result<Vec<NamesWay>, NamesNotSet> {
        let mut ways = dns::ways();
        // Behind what we wrote ourselves, nothing shows who wrote it before.
        for way in self
            .names_changes()
            .filter(|change| !change.is_overtaken())
            .map(way_of)
        {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        ways.sort_unstable();
        for way in &ways {
            match way {
                NamesWay::Resolved => dns::tell_resolved(wanted)?,
                NamesWay::Resolvconf => self.make_names(dns::resolvconf_change(&wanted.interface), wanted)?,
                NamesWay::File => self.replace_file(wanted)?,
            }
        }
        let is_left_to_resolvconf = ways.contains(&NamesWay::Resolvconf) && !ways.contains(&NamesWay::File);
        if is_left_to_resolvconf && wanted.all_names && dns::names_others(&wanted.servers) {
            self.replace_file(wanted)?;
            ways.push(NamesWay::File);
        }
        Ok(ways)
    }

    /// Undoes everything, and has systemd-resolved forget what it was told of this interface, where it is one of
    /// `ways`.
    ///
    /// # Errors
    /// What could not be undone.
    pub fn unset_name_servers(&mut self, interface: &str, ways: &[NamesWay]) -> Result<(), NamesNotSet> {
        if ways.contains(&NamesWay::Resolved) {
            dns::revert_resolved(interface)?;
        }
        Ok(self.undo()?)
    }

    /// Whether nobody else has changed what was set.
    #[must_use]
    pub fn name_servers_hold(&self) -> bool {
        !self.names_changes().any(NamesChange::is_overtaken)
    }

    fn names_changes(&self) -> impl Iterator<Item = &NamesChange> {
        let changes = self.watch.iter().flat_map(|watch| &watch.record.changes);
        changes.filter_map(Change::names)
    }

    fn replace_file(&mut self, wanted: &NameServers) -> Result<(), NamesNotSet> {
        let others = Directory::make(&self.directory)?.others(&self.file());
        let theirs = others
            .iter()
            .flat_map(|other| &other.changes)
            .filter_map(Change::names);
        let ours = self.names_changes().chain(theirs).filter_map(NamesChange::file);
        let change = FileChange::plan(wanted, ours)?;
        self.make_names(NamesChange::File(change), wanted)
    }

    /// The former change of the same kind stays on the list until this one is made.
    fn make_names(&mut self, change: NamesChange, wanted: &NameServers) -> Result<(), NamesNotSet> {
        self.record(
            [Change::Names(change.clone())],
            &Directory::make(&self.directory)?,
        )?;
        change.make(wanted)?;
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        let is_former = |listed: &NamesChange| way_of(listed) == way_of(&change) && *listed != change;
        watch
            .record
            .changes
            .retain(|listed| !listed.names().is_some_and(is_former));
        Ok(watch.record.save(&watch.file)?)
    }
}

fn way_of(change: &NamesChange) -> NamesWay {
    match change {
        NamesChange::Resolvconf { .. } => NamesWay::Resolvconf,
        NamesChange::File(_) => NamesWay::File,
    }
}

/// The sentence on what a dead process has changed and somebody else since.
pub(super) fn left_alone(change: &Change) -> Option<String> {
    let names = change.names().filter(|names| names.is_overtaken())?;
    Some(format!(
        "{} is left as it is: another program has changed it since",
        names.subject()
    ))
}
