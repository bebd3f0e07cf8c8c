//! Privileges that come with the program's file: everybody who may run the file would have them. They are given up
//! before anything else happens; those of the user, and those that a service manager grants (ambient ones), are kept.

use rustix::thread::{CapabilitySet, capabilities, capability_is_in_ambient_set, set_capabilities};

use crate::exit::{Problem, sentence};

/// Gives up the capabilities that the program's file adds to those of its user.
///
/// # Errors
/// The file is set-user-ID or set-group-ID: then the user is another, too.
pub(crate) fn give_up_those_of_the_file() -> Result<(), Problem> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    if getuid() != geteuid() || getgid() != getegid() {
        return Err(Problem::permission(
            "gramway does not run set-user-ID or set-group-ID; run: chmod ug-s on its file",
        ));
    }
    // Root has all of them without the file.
    if geteuid().is_root() {
        return Ok(());
    }
    let cannot = |error: rustix::io::Errno| {
        Problem::bug(format!(
            "cannot give up the capabilities of the program's file: {}",
            sentence(&error.into())
        ))
    };
    let mut sets = capabilities(None).map_err(cannot)?;
    let granted: CapabilitySet = sets
        .permitted
        .iter()
        .filter(|&one| capability_is_in_ambient_set(one).unwrap_or(false))
        .collect();
    if granted == sets.permitted {
        return Ok(());
    }
    sets.permitted = granted;
    sets.effective &= granted;
    sets.inheritable &= granted;
    set_capabilities(None, sets).map_err(cannot)
}
