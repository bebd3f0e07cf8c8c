//! Which network a thread is in.

use std::io;
use std::os::fd::AsFd;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_has_one_number() {
        assert_eq!(network_cookie().unwrap(), network_cookie().unwrap());
    }
}
