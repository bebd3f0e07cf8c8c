//! A listener that can be stopped, so that another process that has it, too, accepts alone.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// Accepts until it is stopped.
#[derive(Debug)]
pub(crate) struct HttpListener {
    listener: TcpListener,
    /// Readable once it is stopped.
    stopped: Arc<OwnedFd>,
}

/// The same listener for another process, and the way to stop it here.
#[derive(Debug)]
pub(crate) struct ListenerHandle {
    listener: TcpListener,
    stopped: Arc<OwnedFd>,
}

impl HttpListener {
    /// Listens at `address`; where one of the `open` listeners is there already, by that.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn open(address: SocketAddr, open: &[OwnedFd]) -> io::Result<Self> {
        let mut listeners = open
            .iter()
            .filter_map(|open| Some(TcpListener::from(open.try_clone().ok()?)));
        let is_wanted = |own: SocketAddr| {
            own.ip() == address.ip() && (address.port() == 0 || own.port() == address.port())
        };
        let taken = listeners.find(|listener| listener.local_addr().is_ok_and(is_wanted));
        let listener = taken.map_or_else(|| TcpListener::bind(address), Ok)?;
        // Where two processes have it, the other one may be quicker.
        listener.set_nonblocking(true)?;
        let stopped = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            listener,
            stopped: Arc::new(stopped),
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn handle(&self) -> io::Result<ListenerHandle> {
        Ok(ListenerHandle {
            listener: self.listener.try_clone()?,
            stopped: Arc::clone(&self.stopped),
        })
    }

    /// The next connection; once it is stopped, it waits for ever.
    pub(crate) fn accept(&self) -> io::Result<TcpStream> {
        loop {
            let mut watched = [
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&*self.stopped, PollFlags::IN),
            ];
            match poll(&mut watched, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            while watched[1].revents().contains(PollFlags::IN) {
                thread::park();
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl ListenerHandle {
    /// Nothing is accepted here from now on.
    pub(crate) fn stop(&self) {
        // An event counter takes the first number that it is given.
        let _ = rustix::io::write(&*self.stopped, &1_u64.to_ne_bytes());
    }
}

impl AsFd for ListenerHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_stop_only_the_other_owner_of_a_listener_accepts() {
        let first = HttpListener::open("127.0.0.1:0".parse().unwrap(), &[]).unwrap();
        let address = first.local_addr().unwrap();
        let handle = first.handle().unwrap();
        let other: OwnedFd = handle.as_fd().try_clone_to_owned().unwrap();
        assert!(HttpListener::open(address, &[]).is_err());
        let second = HttpListener::open(address, &[other]).unwrap();
        handle.stop();
        let accepted = thread::spawn(move || first.accept());
        for _ in 0..16 {
            let client = TcpStream::connect(address).unwrap();
            let stream = second.accept().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
        }
        assert!(!accepted.is_finished());
    }
}
