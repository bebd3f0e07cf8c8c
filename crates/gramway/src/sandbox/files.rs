//! Files, by Landlock: what is not named here cannot be opened, made, renamed or run, whoever owns it.
//!
//! Rules are for directories rather than files where others replace the files, as they do `/etc/resolv.conf`.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};

use super::Needs;

/// Of Linux 6.10; of an older kernel's what it has.
const RIGHTS: ABI = ABI::V5;

/// Settings of the system, what it tells of processes and of the network, and whoever keeps its name servers.
const READ: [&str; 5] = [
    "/etc",
    "/proc",
    "/sys/fs/cgroup",
    "/run/systemd",
    "/run/resolvconf",
];

/// Random numbers, and nothing at all.
const DEVICES: [&str; 2] = ["/dev/urandom", "/dev/null"];

/// The driver of TUN devices, and parameters of the network.
const NETWORK: [&str; 2] = ["/dev/net", "/proc/sys/net"];

/// What TUN devices drop.
const COUNTERS: [&str; 1] = ["/sys/devices/virtual/net"];

/// The guardian and the programs that keep name servers, with what they run and load themselves.
const PROGRAMS: [&str; 9] = [
    "/proc/self/exe",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/nix/store",
    "/run/current-system",
    "/gnu/store",
];

/// Where the modules of the system's resolver are.
const LIBRARIES: [&str; 6] = [
    "/usr",
    "/lib",
    "/lib64",
    "/nix/store",
    "/run/current-system",
    "/gnu/store",
];

/// What those programs write.
const NAMES: [&str; 2] = ["/etc", "/run"];

/// Paths, and what may be done below them.
pub(super) type Rules = Vec<(Vec<PathBuf>, BitFlags<AccessFs>)>;

/// What the tunnel needs. `made` is the outermost directory that was made for the state, to be removed again where
/// nothing came into it.
pub(super) fn of_tunnel(needs: &Needs, made: Option<&PathBuf>) -> Rules {
    let mut rules = of_all();
    rules.push((name_server_files(), reading()));
    rules.push((needs.reads.clone(), reading()));
    rules.push((vec![needs.state.path().to_owned()], reading() | writing()));
    if let Some(traces) = needs.traces {
        rules.push((vec![traces.to_owned()], reading() | writing()));
    }
    if let Some(config) = needs.config {
        // The file alone: what lies beside it is not ours, so one that is put in its place can be read in `/etc` or
        // the state directory alone.
        rules.push((vec![config.to_owned()], AccessFs::ReadFile.into()));
    }
    if let Some(parent) = made.and_then(|made| made.parent()) {
        rules.push((vec![or_here(parent)], AccessFs::RemoveDir.into()));
    }
    if needs.has_tun {
        rules.push((paths(&COUNTERS), reading()));
    }
    rules
}

/// What its helper needs, and whatever that runs: the lists of changes, parameters of the network, and files of name
/// servers.
pub(super) fn of_helper(lists: &Path, sets_names: bool) -> Rules {
    let mut rules = of_all();
    let names = if sets_names {
        reading() | writing()
    } else {
        reading()
    };
    rules.extend([
        (name_server_files(), names),
        (vec![lists.to_owned()], reading() | writing()),
        (
            paths(&NETWORK),
            reading() | AccessFs::WriteFile | AccessFs::IoctlDev,
        ),
        (paths(&PROGRAMS), reading() | AccessFs::Execute),
    ]);
    if sets_names {
        rules.push((paths(&NAMES), reading() | writing()));
    }
    rules
}

/// What whoever starts a server of any version needs: it reads and runs everything, and writes where the server does.
pub(super) fn of_launcher(writes: &[PathBuf]) -> Rules {
    vec![
        (paths(&["/"]), reading() | AccessFs::Execute),
        (paths(&DEVICES), reading() | AccessFs::WriteFile),
        (writes.to_vec(), reading() | writing()),
    ]
}

/// What a relay needs: nothing is written.
pub(super) fn of_relay() -> Rules {
    of_all()
}

/// What `gramway peer` needs: nothing is written. The system's resolver loads its modules when a name is asked for.
pub(super) fn of_peer() -> Rules {
    let mut rules = of_all();
    rules.push((name_server_files(), reading()));
    rules.push((paths(&LIBRARIES), reading()));
    rules
}

/// What a transfer of files needs. Links in what is read lead to their targets, as the command line names them.
pub(super) fn of_transfer(reads: Vec<PathBuf>, writes: Vec<PathBuf>) -> Rules {
    let mut rules = of_all();
    rules.extend([
        (name_server_files(), reading()),
        (paths(&LIBRARIES), reading()),
        (reads, reading()),
        (writes, reading() | writing()),
    ]);
    rules
}

fn of_all() -> Rules {
    vec![
        (paths(&READ), reading()),
        (paths(&DEVICES), reading() | AccessFs::WriteFile),
    ]
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_write(RIGHTS) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// Confines the calling thread and all that it starts. Whether everything holds that is asked for.
pub(super) fn confine(rules: Rules) -> Result<bool, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .create()?;
    for (paths, access) in rules {
        ruleset = ruleset.add_rules(path_beneath_rules(paths, access))?;
    }
    let status = ruleset.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

fn paths(texts: &[&str]) -> Vec<PathBuf> {
    texts.iter().map(PathBuf::from).collect()
}

/// Where `/etc/resolv.conf` leads to, if it is a link.
fn name_server_files() -> Vec<PathBuf> {
    let target = std::fs::canonicalize("/etc/resolv.conf").ok();
    let directory = target.as_deref().and_then(Path::parent);
    directory.map(Path::to_path_buf).into_iter().collect()
}

fn or_here(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        path.to_owned()
    }
}
