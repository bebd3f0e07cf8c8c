//! Options of this process's sockets, set by its helper.

use std::io;
use std::os::fd::BorrowedFd;

use packet_io::{Delegate, PrivilegedOption};
use rustix::io::Errno;

use super::call::{Call, SocketOption};
use super::lane::Lane;
use crate::changes::Answer;

/// Hands sockets over a lane of their own.
#[derive(Debug)]
pub(super) struct ByHelper(Lane);

impl ByHelper {
    pub(super) fn new(lane: Lane) -> Self {
        Self(lane)
    }
}

impl Delegate for ByHelper {
    fn set(&self, socket: BorrowedFd<'_>, option: PrivilegedOption) -> io::Result<()> {
        let option = SocketOption::of(option).ok_or(Errno::PERM)?;
        let socket = socket.try_clone_to_owned()?;
        match self.0.call(&Call::SetOption(option), Some(&socket))?.0 {
            Answer::Done => Ok(()),
            Answer::OptionRefused(number) => Err(io::Error::from_raw_os_error(number)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
