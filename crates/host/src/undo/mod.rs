//! Changes that the kernel does not undo when the process ends: kernel parameters, routes on other interfaces, name
//! servers of the machine.
//!
//! Each is first written to a file, then made. Three can take it back: the process itself when it ends, the guardian
//! child when it was killed, and the next start when both were. A lock on the directory keeps them from each other.

mod change;
mod directory;
mod forwarding;
mod guardian;
mod names;
mod record;
mod trust;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub use record::fuzz;

pub use guardian::{GUARDIAN_SUBCOMMAND, GuardianProgram, guard};

use change::Change;
use directory::Directory;
use forwarding::Forwarding;
use guardian::Guardian;
use record::Record;

use super::default_route::{DefaultRoute, FILTER_HEEDS_MARKS};
use super::error::{Explain, HostError};
use super::holder::{Holder, Process};
use super::nat::Nat;
use super::network::Network;
use super::parameter;
use super::prefix::Prefix;
use super::route::Uplink;
use super::transparent_proxy::{self, TransparentProxy, TransparentSettings};

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// The directory of the files of changes: `/run/gramway` for root, else the state directory.
#[must_use]
pub fn runtime_directory(state: &Path) -> PathBuf {
    if rustix::process::geteuid().is_root() {
        PathBuf::from("/run/gramway")
    } else {
        state.to_owned()
    }
}

/// Changes of this process. Dropping it undoes them.
#[derive(Debug)]
pub struct Undo {
    /// Whose changes they are; `None`: this process's.
    holder: Option<Process>,
    directory: PathBuf,
    program: GuardianProgram,
    watch: Option<Watch>,
}

/// What there is from the first change on.
#[derive(Debug)]
struct Watch {
    file: PathBuf,
    record: Record,
    guardian: Guardian,
}

impl Undo {
    /// Nothing is touched before the first change.
    #[must_use]
    pub fn new(directory: &Path, guardian: GuardianProgram) -> Self {
        Self::held_by(None, directory, guardian)
    }

    /// The same for another process: its end is the end of the changes.
    pub(crate) fn of(holder: Process, directory: &Path, guardian: GuardianProgram) -> Self {
        Self::held_by(Some(holder), directory, guardian)
    }

    fn held_by(holder: Option<Process>, directory: &Path, guardian: GuardianProgram) -> Self {
        Self {
            holder,
            directory: directory.to_owned(),
            program: guardian,
            watch: None,
        }
    }

    /// Lets the kernel forward packets of these protocols. Interfaces that learn their IPv6 routes from routers go on
    /// doing so, which forwarding would end otherwise.
    ///
    /// # Errors
    /// A missing privilege, a file system that cannot be written, a protocol that the kernel does not have.
    pub fn enable_forwarding(&mut self, v4: bool, v6: bool) -> Result<(), HostError> {
        let protocols = [(v4, Forwarding::V4), (v6, Forwarding::V6)];
        for (_, protocol) in protocols.into_iter().filter(|(wanted, _)| *wanted) {
            self.switch_on(protocol)?;
        }
        Ok(())
    }

    fn switch_on(&mut self, protocol: Forwarding) -> Result<(), HostError> {
        let switch = protocol.switch();
        let is_on = parameter::value(switch)? != "0";
        let directory = Directory::make(&self.directory)?;
        let others = directory.others(&self.file());
        if let Some(other) = others.iter().find(|other| other.parameter(switch).is_some()) {
            // Whoever of us ends last puts back what was before the first.
            let shared = |change: &&Change| change.is_parameter_below(protocol.parameters());
            self.record(other.changes.iter().filter(shared).cloned(), &directory)?;
            return if is_on {
                Ok(())
            } else {
                parameter::write(switch, "1")
            };
        }
        if is_on {
            return Ok(());
        }
        let changes = protocol.changes();
        let side_effects = protocol.side_effects();
        self.record(
            side_effects.into_iter().chain(changes.iter().cloned()),
            &directory,
        )?;
        changes.iter().try_for_each(Change::make)
    }

    /// Lets packets to `server` go by the uplink whatever other routes say, which a strict reverse-path filter needs.
    /// It replaces the exception that was made for this server before. The same one again costs one question to the
    /// kernel, and leaves the list of changes alone.
    ///
    /// # Errors
    /// A missing privilege, a file system that cannot be written, an uplink that is gone.
    pub fn set_exception_route(&mut self, server: IpAddr, uplink: &Uplink) -> Result<(), HostError> {
        let server = server.to_canonical();
        let change = Change::Route {
            destination: server,
            index: uplink.index,
            gateway: uplink.gateway,
            source: uplink.source,
        };
        // Listed already, it is the only exception for this server, but the kernel drops a route with its interface.
        if !self.lists(&change) {
            self.take_back_exception(server)?;
            self.record([change.clone()], &Directory::make(&self.directory)?)?;
        }
        change.make()
    }

    /// Leads everything of this machine into the interface `tun`: until [`DefaultRoute::set`] says more, nothing is
    /// reachable.
    ///
    /// # Errors
    /// A missing privilege, a kernel without rules of routing, a file system that cannot be written.
    pub fn start_default_route(&mut self, tun: u32) -> Result<DefaultRoute, HostError> {
        let mut route = DefaultRoute::new(tun);
        let directory = Directory::make(&self.directory)?;
        self.set_shared_parameter(FILTER_HEEDS_MARKS, "1", &directory)?;
        let number = route.table();
        self.record([Change::Table { number }], &directory)?;
        route.prepare(&mut Network::open()?)?;
        let rules: Vec<_> = route.rules().iter().copied().map(Change::Rule).collect();
        self.record(rules.iter().cloned(), &directory)?;
        rules.iter().try_for_each(Change::make)?;
        Ok(route)
    }

    /// Sets a parameter that others of our processes may have set, too: whoever ends last puts it back.
    fn set_shared_parameter(
        &mut self,
        name: &str,
        after: &str,
        directory: &Directory,
    ) -> Result<(), HostError> {
        let others = directory.others(&self.file());
        let listed = others.iter().find_map(|other| other.parameter(name)).cloned();
        let present = parameter::value(name)?;
        if present == after && listed.is_none() {
            return Ok(());
        }
        let change = listed.unwrap_or_else(|| Change::Parameter {
            name: name.to_owned(),
            before: present,
            after: after.to_owned(),
        });
        self.record([change.clone()], directory)?;
        change.make()
    }

    /// Starts [`Nat`], whose connections the guardian keeps for a minute after a crash, until another server
    /// translates: what the kernel answers to the other ends meanwhile would end them.
    ///
    /// # Errors
    /// As of [`Nat::start`], or a file system that cannot be written.
    pub fn start_nat(&mut self, tun: u32, pools: &[Prefix]) -> Result<Nat, HostError> {
        let nat = Nat::start(tun, pools)?;
        // Who holds the connections of a dead one lets go when this is listed.
        self.record([Change::Nat], &Directory::make(&self.directory)?)?;
        Ok(nat)
    }

    /// Leads packets of a router's network to a local listener.
    ///
    /// # Errors
    /// An interface that is not there, a missing privilege, a kernel without what it takes, a file system that cannot
    /// be written.
    pub fn start_transparent_proxy(
        &mut self,
        settings: &TransparentSettings,
    ) -> Result<TransparentProxy, HostError> {
        let mut network = Network::open()?;
        for interface in &settings.interfaces {
            network.index_of(interface)?;
        }
        let directory = Directory::make(&self.directory)?;
        let number = transparent_proxy::TABLE;
        let rules = transparent_proxy::rules().map(Change::Rule);
        let changes = [Change::Table { number }]
            .into_iter()
            .chain(rules.iter().cloned());
        self.record(changes, &directory)?;
        transparent_proxy::fill(&mut network)?;
        let [v4, v6] = rules;
        v4.make()?;
        // Where the kernel has no IPv6, there is none to lead.
        let _ = v6.make();
        // Packets are led to the listener only when there is a way for them.
        TransparentProxy::start(settings)
    }

    fn lists(&self, change: &Change) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.record.changes.contains(change))
    }

    /// Removes the exception that was made for this server, if one was.
    fn take_back_exception(&mut self, server: IpAddr) -> Result<(), HostError> {
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        let is_former =
            |change: &Change| matches!(change, Change::Route { destination, .. } if *destination == server);
        if !watch.record.changes.iter().any(is_former) {
            return Ok(());
        }
        let directory = Directory::lock(&self.directory)?;
        let changes = std::mem::take(&mut watch.record.changes);
        let (former, kept) = changes.into_iter().partition(is_former);
        watch.record.changes = former;
        let taken = watch.record.take_back(&directory.others(&watch.file));
        watch.record.changes.extend(kept);
        watch.record.save(&watch.file)?;
        taken
    }

    /// The file of changes; none before the first.
    fn file(&self) -> PathBuf {
        self.watch
            .as_ref()
            .map(|watch| watch.file.clone())
            .unwrap_or_default()
    }

    /// Records changes before they are made, and makes sure that the guardian runs.
    fn record(
        &mut self,
        changes: impl IntoIterator<Item = Change>,
        _directory: &Directory,
    ) -> Result<(), HostError> {
        if let Some(watch) = &mut self.watch {
            watch.record.add(changes);
            watch.record.save(&watch.file)?;
            watch.guardian.tell_of_changes();
            return Ok(());
        }
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let file = self
            .directory
            .join(format!("undo-{}-{number}.json", std::process::id()));
        let holder = match self.holder {
            Some(process) => Holder::of(process),
            None => Holder::this(),
        };
        let holder = holder.explain(|| "read about this process in /proc".to_owned())?;
        let mut record = Record::new(holder);
        record.add(changes);
        record.save(&file)?;
        match self.program.start(&file) {
            Ok(guardian) => {
                self.watch = Some(Watch {
                    file,
                    record,
                    guardian,
                });
                Ok(())
            }
            Err(error) => {
                record.changes.clear();
                record.save(&file)?;
                Err(error)
            }
        }
    }

    /// Takes every change back and sends the guardian home. More changes may follow.
    ///
    /// # Errors
    /// What could not be undone; it stays on the list, for the guardian and the next start.
    pub fn undo(&mut self) -> Result<(), HostError> {
        let Some(mut watch) = self.watch.take() else {
            return Ok(());
        };
        let directory = Directory::lock(&self.directory)?;
        let others = directory.others(&watch.file);
        let undone = watch.record.take_back(&others);
        watch.record.save(&watch.file)?;
        drop(directory);
        if undone.is_ok() {
            watch.guardian.dismiss();
        }
        undone
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // What fails stays on the list.
        let _ = self.undo();
    }
}

/// Undoes what dead processes left behind in this network, for the start of the next one. Each sentence says
/// what was done, or what could not be.
#[must_use]
pub fn recover(directory: &Path) -> Vec<String> {
    // Without the directory nothing was left; without the right to look into it nothing can be done.
    if !directory.is_dir() {
        return Vec::new();
    }
    let locked = match Directory::lock(directory) {
        Ok(locked) => locked,
        Err(error) => return vec![error.to_string()],
    };
    let mut told = Vec::new();
    for file in locked.files() {
        match recover_file(&locked, &file) {
            Ok(done) => told.extend(done),
            Err(error) => told.push(error.to_string()),
        }
    }
    told
}

fn recover_file(directory: &Directory, file: &Path) -> Result<Vec<String>, HostError> {
    let mut record = Record::load(file)?;
    if !record.holder.is_of_this_boot() {
        record.changes.clear();
        record.save(file)?;
        return Ok(Vec::new());
    }
    if record.holder.is_alive() || !record.holder.is_of_this_network() {
        return Ok(Vec::new());
    }
    let subjects: Vec<_> = record.changes.iter().filter_map(Change::left_behind).collect();
    let mut told: Vec<String> = record.changes.iter().filter_map(names::left_alone).collect();
    let undone = record.take_back(&directory.others(file));
    record.save(file)?;
    undone?;
    if !subjects.is_empty() {
        told.push(format!(
            "undid the changes that process {} left behind: {}",
            record.holder.process.id,
            subjects.join(", ")
        ));
    }
    Ok(told)
}
