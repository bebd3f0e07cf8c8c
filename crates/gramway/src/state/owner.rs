//! How root uses a state directory that belongs to another user, such as that of a service (`DynamicUser=`): as its
//! owner. The owner controls every name in the directory and could make a link of it, so root's rights are never used
//! there, and no file of root's appears that the service could not read.

use std::fs::{File, Metadata};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::{Gid, Uid, chroot, fchdir};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::StateDirectory;
use crate::exit::{Problem, sentence};

impl StateDirectory {
    /// Root becomes the owner for the rest of this thread and of those that it starts. Anybody else, and the owner's
    /// own directory, stay as they are.
    pub(crate) fn into_owners(self) -> Result<Self, Problem> {
        let Some((directory, metadata)) = self.open_as_root_of_another()? else {
            return Ok(self);
        };
        become_owner(&self, &metadata)?;
        // Directories above it may be root's alone, as those of services are; it stays open as long as the process.
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.into_raw_fd()));
        Ok(Self {
            path,
            shown: self.shown,
        })
    }

    /// The same for commands that open the database: SQLite looks at every directory above it, also at those that the
    /// owner may not pass. So the directory becomes the root directory of this process, which from then on reaches no
    /// other file by name.
    pub(crate) fn into_owners_root(self) -> Result<Self, Problem> {
        let Some((directory, metadata)) = self.open_as_root_of_another()? else {
            return Ok(self);
        };
        fchdir(&directory).and_then(|()| chroot(".")).map_err(|error| {
            Problem::permission(format!(
                "cannot make {} the root directory of this process: {}; it needs CAP_SYS_CHROOT",
                self.shown.display(),
                sentence(&error.into())
            ))
        })?;
        become_owner(&self, &metadata)?;
        Ok(Self {
            path: PathBuf::from("/"),
            shown: self.shown,
        })
    }

    /// Whether root asks for a directory that is another user's.
    pub(crate) fn is_anothers(&self) -> Result<bool, Problem> {
        Ok(self.open_as_root_of_another()?.is_some())
    }

    fn open_as_root_of_another(&self) -> Result<Option<(File, Metadata)>, Problem> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        // `examine` tells what is wrong with it.
        let Ok(directory) = File::open(&self.path) else {
            return Ok(None);
        };
        let metadata = directory
            .metadata()
            .map_err(|error| Problem::file("examine the state directory", &self.shown, &error))?;
        let is_anothers = metadata.is_dir() && metadata.uid() != 0;
        Ok(is_anothers.then_some((directory, metadata)))
    }
}

/// `nogroup`, by the custom of distributions.
const NOBODYS_GROUP: u32 = 65_534;

/// Gives up root's rights for good.
fn become_owner(directory: &StateDirectory, metadata: &Metadata) -> Result<(), Problem> {
    // A directory may have root's group; nothing in it needs a group.
    let group = Some(metadata.gid()).filter(|group| *group != 0);
    let (user, group) = (
        Uid::from_raw(metadata.uid()),
        Gid::from_raw(group.unwrap_or(NOBODYS_GROUP)),
    );
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user))
        .map_err(|error| {
            Problem::permission(format!(
                "cannot become user {}, the owner of {}: {}",
                metadata.uid(),
                directory.shown.display(),
                sentence(&error.into())
            ))
        })
}
