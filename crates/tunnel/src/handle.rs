//! The program's handle on a running shard: notices out, commands in.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use packet_io::Waker;

use crate::snapshot::Snapshot;

/// What a shard tells the program, in the order in which it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Server: listening.
    Listening {
        /// The address of the outer socket.
        local: SocketAddr,
    },
    /// Client: the server accepted the token and the forwards work.
    Connected {
        /// The server's address.
        server: SocketAddr,
        /// Smoothed round-trip time.
        rtt: Duration,
        /// Largest UDP payload that travels in one datagram at present, in bytes.
        payload_unsplit: usize,
    },
    /// Client: the connection is gone; it is being made again.
    Reconnecting {
        /// What happened, for people.
        reason: String,
    },
    /// Client: the largest payload that needs no split changed (path MTU discovery).
    PayloadUnsplit {
        /// Bytes.
        bytes: usize,
    },
    /// Something that a person should know and can change, e.g. socket buffers.
    Warning {
        /// One sentence.
        text: String,
    },
}

/// Why a shard ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server refused the token (401, 407), or is another server than the link names (pin).
    #[error("{0}")]
    Refused(String),
    /// A local resource could not be had, e.g. an occupied port.
    #[error("{0}")]
    Unavailable(String),
    /// A local permission is missing, e.g. a port below 1024.
    #[error("{0}")]
    Permission(String),
    /// Settings that cannot work, e.g. a malformed certificate.
    #[error("{0}")]
    Configuration(String),
    /// A defect of ours.
    #[error("{0}")]
    Bug(String),
}

pub(crate) enum Command {
    Snapshot(mpsc::SyncSender<Snapshot>),
    Drain(Duration),
    Stop,
}

/// A running shard. Dropping the handle stops it.
pub struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) waker: Waker,
    pub(crate) notices: mpsc::Receiver<Notice>,
    pub(crate) thread: Option<std::thread::JoinHandle<Result<Snapshot, Failure>>>,
}

/// A second handle for other threads, e.g. the admin socket.
#[derive(Clone)]
pub struct Controller {
    commands: mpsc::Sender<Command>,
    waker: Waker,
}

impl Controller {
    /// Asks for all counters; `None` where the shard has ended or does not answer within five seconds.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.send(Command::Snapshot(sender));
        receiver.recv_timeout(Duration::from_secs(5)).ok()
    }

    /// Ends gracefully: nothing new is accepted, what runs may finish within `limit`, then all is closed.
    pub fn drain(&self, limit: Duration) {
        self.send(Command::Drain(limit));
    }

    /// Ends at once, telling the peers.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    fn send(&self, command: Command) {
        // A shard that has ended needs no command.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }
}

impl Handle {
    /// A second handle that other threads may hold.
    #[must_use]
    pub fn controller(&self) -> Controller {
        Controller {
            commands: self.commands.clone(),
            waker: self.waker.clone(),
        }
    }

    /// The next notice; `None` once the shard has ended, or when `limit` passes.
    #[must_use]
    pub fn next_notice(&self, limit: Duration) -> Option<Notice> {
        self.notices.recv_timeout(limit).ok()
    }

    /// Whether the shard's thread has ended, so that [`Handle::join`] would not wait.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread
            .as_ref()
            .is_none_or(std::thread::JoinHandle::is_finished)
    }

    /// Waits for the shard to end: its last counters, or why it failed.
    ///
    /// # Errors
    /// The [`Failure`] that ended it; a panic of the shard's thread is [`Failure::Bug`].
    pub fn join(mut self) -> Result<Snapshot, Failure> {
        let thread = self.thread.take().expect("only join and drop take the thread");
        thread
            .join()
            .unwrap_or_else(|_| Err(Failure::Bug("the shard's thread panicked".to_owned())))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.controller().stop();
            // Its result was not asked for; a panic was already printed.
            let _ = thread.join();
        }
    }
}
