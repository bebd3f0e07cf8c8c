//! Which network a thread is in, and how it is asked about.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

use crate::sys::options;

/// The number of the calling thread's network namespace, never given to another one while the system runs (inode
/// numbers of namespaces are).
///
/// # Errors
/// Linux before 5.14, or no more descriptors.
pub fn network_cookie() -> io::Result<u64> {
    // Any socket knows it; this one needs no address.
    options::network_cookie(UnixDatagram::unbound()?.as_fd())
}

/// Has the kernel heed what a netlink socket's listings ask for: routes of one table only, for example. Linux 4.20.
///
/// # Errors
/// An older kernel.
pub fn set_strict_listing(netlink: BorrowedFd<'_>) -> io::Result<()> {
    /// `NETLINK_GET_STRICT_CHK` of `linux/netlink.h`, which libc does not have for Linux.
    const STRICT: i32 = 12;
    options::set(netlink, libc::SOL_NETLINK, STRICT, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_has_one_number() {
        assert_eq!(network_cookie().unwrap(), network_cookie().unwrap());
    }
}
