//! A database that cannot be read. It stays in its place until nothing but this process serves, because a process that
//! still fails leaves the disk as it was; then it gets another name.

use super::super::{FILE, set_aside};
use super::inode;
use crate::exit::Problem;
use crate::state::StateDirectory;

pub(super) struct Damaged {
    what: String,
    /// Of its file.
    inode: Option<u64>,
}

impl Damaged {
    pub(super) fn found(directory: &StateDirectory, what: String) -> Self {
        let inode = inode(directory);
        Self { what, inode }
    }

    /// Gives it another name, unless another file is in its place by now. What to tell.
    pub(super) fn set_aside(self, directory: &StateDirectory, now: u64) -> Result<Option<String>, Problem> {
        if inode(directory) != self.inode {
            return Ok(None);
        }
        let name = set_aside(directory, now)?;
        Ok(Some(format!(
            "{} is damaged ({}) and is kept as {name}: its users are refused until they are added again, or a copy is \
             put back by: gramway user restore FILE",
            directory.file(FILE).display(),
            self.what
        )))
    }
}
