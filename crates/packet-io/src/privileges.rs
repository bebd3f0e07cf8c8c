//! Options of sockets that need a privilege: a firewall mark, another interface, a buffer beyond the system's limit.
//!
//! A process that has given its privileges up names another one that sets them ([`delegate`]): it is handed the socket
//! itself. The kernel is asked directly first, so that nobody is asked for what needs no privilege.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::SockRef;

use crate::interface::InterfaceName;

/// One of those options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivilegedOption {
    /// `SO_MARK`.
    Mark(u32),
    /// `SO_BINDTODEVICE`; `None`: no interface any more.
    Interface(Option<InterfaceName>),
    /// `SO_RCVBUFFORCE`, in bytes.
    ReceiveBuffer(usize),
    /// `SO_SNDBUFFORCE`, in bytes.
    SendBuffer(usize),
}

/// Sets options for this process.
pub trait Delegate: Send + Sync {
    /// Sets one, as [`PrivilegedOption::apply`] does in a process with the privilege.
    ///
    /// # Errors
    /// The kernel's refusal, or the delegate's.
    fn set(&self, socket: BorrowedFd<'_>, option: PrivilegedOption) -> io::Result<()>;
}

static DELEGATE: OnceLock<Box<dyn Delegate>> = OnceLock::new();

/// From now on `delegate` sets what this process may not; the first one of a process stays.
pub fn delegate(delegate: Box<dyn Delegate>) {
    let _ = DELEGATE.set(delegate);
}

impl PrivilegedOption {
    /// Sets it with the privileges of the calling thread alone.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn apply(self, socket: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Self::Mark(mark) => SockRef::from(&socket).set_mark(mark),
            Self::Interface(interface) => {
                SockRef::from(&socket).bind_device(interface.as_ref().map(InterfaceName::as_bytes))
            }
            Self::ReceiveBuffer(bytes) => Ok(sockopt::set_socket_recv_buffer_size_force(socket, bytes)?),
            Self::SendBuffer(bytes) => Ok(sockopt::set_socket_send_buffer_size_force(socket, bytes)?),
        }
    }

    /// Sets it, by the delegate where this process may not.
    pub(crate) fn set(self, socket: impl AsFd) -> io::Result<()> {
        let socket = socket.as_fd();
        match self.apply(socket) {
            Err(error) if is_not_permitted(&error) => match DELEGATE.get() {
                Some(delegate) => delegate.set(socket, self),
                None => Err(error),
            },
            other => other,
        }
    }
}

fn is_not_permitted(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|number| [Errno::PERM, Errno::ACCESS].contains(&number))
}

/// Gives what a socket sends a firewall mark, for one that [`crate::SocketOptions`] do not open.
///
/// # Errors
/// The capability CAP_NET_ADMIN is missing.
pub fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    PrivilegedOption::Mark(mark)
        .set(socket)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot mark packets: {error}")))
}

/// Binds a socket to an interface, for one that [`crate::SocketOptions`] do not open.
///
/// # Errors
/// As of [`crate::UdpSocket::set_interface`].
pub fn bind_to_interface(socket: &impl AsFd, interface: InterfaceName) -> io::Result<()> {
    bind_interface(socket, Some(interface))
}

/// Binds a socket to an interface, or to another one, or to none.
pub(crate) fn bind_interface(socket: &impl AsFd, interface: Option<InterfaceName>) -> io::Result<()> {
    PrivilegedOption::Interface(interface)
        .set(socket)
        .map_err(|error| {
            let kind = match error.raw_os_error() {
                Some(libc::ENODEV) => io::ErrorKind::NotFound,
                _ => error.kind(),
            };
            let name = interface
                .as_ref()
                .map_or("every interface", InterfaceName::as_str);
            io::Error::new(kind, format!("cannot use {name}: {error}"))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::{SocketOptions, UdpSocket};

    /// Sets nothing, and remembers what it was asked for.
    struct Listing(Mutex<Vec<PrivilegedOption>>);

    impl Delegate for &'static Listing {
        fn set(&self, _socket: BorrowedFd<'_>, option: PrivilegedOption) -> io::Result<()> {
            self.0.lock().unwrap().push(option);
            Ok(())
        }
    }

    static LISTING: Listing = Listing(Mutex::new(Vec::new()));

    #[test]
    fn what_a_thread_may_not_set_is_handed_to_the_delegate_and_nothing_else() {
        // Capabilities are the thread's. The delegate is the process's, and sets nothing that other tests need.
        let ask = || {
            let mut sets = capabilities(None).unwrap();
            sets.effective = CapabilitySet::empty();
            set_capabilities(None, sets).unwrap();
            delegate(Box::new(&LISTING));
            let options = SocketOptions {
                receive_buffer_bytes: 1 << 30,
                send_buffer_bytes: 4_096,
                interface: Some("lo".parse().unwrap()),
                mark: Some(7),
                ..SocketOptions::default()
            };
            let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
            assert!(socket.grants().receive.obtained < 1 << 30);
            // The first interface of a socket is free; another one is not.
            socket.set_interface(None).unwrap();
            LISTING.0.lock().unwrap().clone()
        };
        let asked = std::thread::scope(|scope| scope.spawn(ask).join().unwrap());
        for option in [
            PrivilegedOption::ReceiveBuffer(1 << 30),
            PrivilegedOption::Mark(7),
            PrivilegedOption::Interface(None),
        ] {
            assert!(asked.contains(&option), "{asked:?}");
        }
        assert!(!asked.contains(&PrivilegedOption::SendBuffer(4_096)), "{asked:?}");
    }
}
