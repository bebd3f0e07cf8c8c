//! Where a socket is and of which kind it is: a checked path in the file system, or a Linux abstract name.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::limits::{DATAGRAM_BYTES_MIN, DATAGRAMS_BUFFERED_MIN, PATH_BYTES_MAX, SOCKET_BUFFER_BYTES};

/// How datagrams travel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SocketKind {
    /// SOCK_SEQPACKET: the kernel keeps the bounds of datagrams. Linux only, and the default there.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Seqpacket,
    /// SOCK_STREAM: two bytes of length before each datagram. The default elsewhere.
    Stream,
}

impl Default for SocketKind {
    fn default() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return Self::Seqpacket;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        Self::Stream
    }
}

impl SocketKind {
    /// A new socket of this kind: non-blocking, closed on exec, with our buffer size as far as the system grants it.
    pub(crate) fn socket(self) -> io::Result<OwnedFd> {
        let socket = rustix::net::socket(AddressFamily::UNIX, self.socket_type(), None)?;
        prepare(&socket)?;
        Ok(socket)
    }

    fn socket_type(self) -> SocketType {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Self::Seqpacket => SocketType::SEQPACKET,
            Self::Stream => SocketType::STREAM,
        }
    }
}

/// Makes a socket non-blocking and closed on exec, and asks for our buffer size.
pub(crate) fn prepare(socket: &OwnedFd) -> io::Result<()> {
    fcntl_setfd(socket, FdFlags::CLOEXEC)?;
    fcntl_setfl(socket, fcntl_getfl(socket)? | OFlags::NONBLOCK)?;
    // Refused on some systems beyond a bound; the default does then.
    sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER_BYTES).ok();
    Ok(())
}

/// The datagram size to use where `wanted` bytes were asked for: less where the socket's buffer would not hold
/// [`DATAGRAMS_BUFFERED_MIN`] of them, since the kernel refuses what can never fit.
pub(crate) fn usable_datagram_bytes(socket: &OwnedFd, wanted: u16) -> io::Result<u16> {
    let granted = sockopt::socket_send_buffer_size(socket)? / DATAGRAMS_BUFFERED_MIN;
    // The kernel counts its own overhead against the buffer, up to the size of the data.
    let fitting = u16::try_from(granted / 2).unwrap_or(u16::MAX);
    Ok(wanted.min(fitting).max(DATAGRAM_BYTES_MIN))
}

/// A place to bind or connect to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Address {
    /// In the file system.
    Path(PathBuf),
    /// In the abstract namespace of the network namespace (Linux).
    Abstract(Vec<u8>),
}

impl Address {
    /// What the kernel takes.
    ///
    /// # Errors
    /// The length in bytes, if it is too long.
    pub(crate) fn checked(&self) -> Result<SocketAddrUnix, usize> {
        match self {
            Self::Path(path) => {
                let len = path.as_os_str().as_bytes().len();
                if len > PATH_BYTES_MAX {
                    return Err(len);
                }
                SocketAddrUnix::new(path).map_err(|_| len)
            }
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name).map_err(|_| name.len()),
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            Self::Abstract(name) => Err(name.len()),
        }
    }

    /// For messages, and as the `path` of an error.
    pub(crate) fn display_path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Abstract(name) => PathBuf::from(format!("@{}", String::from_utf8_lossy(name))),
        }
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display_path().display().fmt(formatter)
    }
}
