//! The program's handle on the running shards: notices out, commands in.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::{HostChanges, HostError};
use packet::CarrierKind;
use packet_io::Waker;
use tunnel_proto::{ClientIdentity, Prefix, UserId};

use crate::carrier::OfferedSocket;
use crate::config::LiveSettings;
use crate::limits;
use crate::notices::NoticeReceiver;
use crate::snapshot::Snapshot;

/// What the shards tell the program, in the order in which it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Server: listening.
    Listening {
        /// The address of the outer socket.
        local: SocketAddr,
        /// Where it listens in TCP's shape besides.
        tcp: Option<SocketAddr>,
    },
    /// Client: the server accepted the token and the forwards work.
    Connected {
        /// The server's address.
        server: SocketAddr,
        /// What carries datagrams there.
        carrier: CarrierKind,
        /// Smoothed round-trip time.
        rtt: Duration,
    },
    /// Client: the server listens for it.
    RemoteListening {
        /// Where the server listens.
        listen: SocketAddr,
        /// Where connections lead.
        target: String,
    },
    /// Client: a stripe that was lost, or came late, is up while others are.
    Stripes {
        /// Stripes that are up.
        up: usize,
        /// Stripes that are wanted.
        of: usize,
    },
    /// Client: a stripe is gone while others live; its flows go on over them, and it is being made again.
    StripeLost {
        /// Stripes that are up.
        up: usize,
        /// Stripes that are wanted.
        of: usize,
        /// What happened, for people.
        reason: String,
    },
    /// Client: no connection is left; they are being made again.
    Reconnecting {
        /// What happened, for people.
        reason: String,
    },
    /// Client: no server can be reached, for the first time since a stripe was up, or for another reason than before.
    Unreachable {
        /// Server and what happened, for people.
        reason: String,
    },
    /// Client: the connections go on over another carrier.
    Carrier {
        /// Which.
        carrier: CarrierKind,
        /// Why, for people.
        reason: &'static str,
    },
    /// Client: path MTU discovery has settled on all stripes that are up.
    Path {
        /// The least of all stripes, in bytes of UDP payload.
        mtu: u16,
        /// Stripes that are up.
        up: usize,
        /// Stripes that are wanted.
        of: usize,
    },
    /// The TUN device is set up, or something about it changed.
    Tun {
        /// Name of the interface.
        name: String,
        /// Its addresses.
        addresses: Vec<IpAddr>,
        /// What is routed into it.
        routes: Vec<Prefix>,
        /// Client: bytes of the longest packet that it takes. A server's is that of its best client.
        mtu: Option<u32>,
    },
    /// Client: the machine asks other name servers.
    Names {
        /// Which.
        servers: Vec<IpAddr>,
        /// The server offers them.
        is_offered: bool,
        /// Who was given them, for people.
        set_by: Vec<String>,
        /// Those that were asked before.
        former: Vec<IpAddr>,
        /// Somebody else had changed them meanwhile.
        is_again: bool,
    },
    /// Server: somebody came, went, or was turned away.
    Visitor(Visitor),
    /// Server: its cover, which did not answer, does so again.
    CoverBack {
        /// Its name or address.
        host: String,
    },
    /// So many notices were not sent, because many like them came within [`limits::TOLD_WINDOW`], or because the
    /// program did not read them in time.
    HeldBack {
        /// Of what they would have told.
        what: Repeated,
        /// How many.
        count: u64,
    },
    /// Something that a person should know and can change, e.g. socket buffers.
    Warning {
        /// One sentence.
        text: String,
    },
}

/// What can happen so often that not each time is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// Server: a client is turned away.
    TurnedAway,
    /// Server: a client gets no address.
    Exhausted,
    /// Server: its own addresses are not known, and so no targets are permitted.
    OwnAddresses,
    /// Client: a local connection fails.
    Trouble,
    /// Client: the server refuses a target.
    Refused,
    /// Anything: the program does not keep up.
    Any,
}

impl Repeated {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 6] = [
        Self::TurnedAway,
        Self::Exhausted,
        Self::OwnAddresses,
        Self::Trouble,
        Self::Refused,
        Self::Any,
    ];
}

/// Who came to a server, and went.
#[derive(Clone, Debug, PartialEq)]
pub enum Visitor {
    /// A connection of this user.
    Came {
        /// Its name.
        user: UserId,
        /// Where it comes from.
        remote: SocketAddr,
    },
    /// A connection of this user is gone.
    Left {
        /// Its name.
        user: UserId,
        /// Where it came from at first.
        remote: SocketAddr,
        /// Why, for people.
        reason: String,
    },
    /// Somebody showed a token that is not valid. Not each of many is told.
    TurnedAway {
        /// Who.
        remote: SocketAddr,
    },
    /// A client has addresses.
    Leased {
        /// Its name, and whose it is.
        client: ClientIdentity,
        /// What it got.
        addresses: Vec<IpAddr>,
    },
    /// The last IP session of a client is over.
    Returned {
        /// Its name, and whose it is.
        client: ClientIdentity,
        /// What it had.
        addresses: Vec<IpAddr>,
    },
}

/// Why a shard ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server refused the token (401, 407), or the first one to answer is another than the link names (pin).
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

/// What a drain waits for, within its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainUntil {
    /// All TCP connections have finished.
    TcpFinished,
    /// A server's clients have left: they are told to, and go on with another server or with its successor first.
    ClientsGone,
}

pub(crate) enum Command {
    Snapshot(mpsc::SyncSender<Snapshot>),
    Change(Arc<LiveSettings>),
    Drain {
        limit: Duration,
        until: DrainUntil,
    },
    /// Server: offer the socket to another process.
    Offer(mpsc::SyncSender<io::Result<OfferedSocket>>),
    /// What was offered was taken over.
    HandOver,
    /// It was not.
    Withdraw,
    /// Server: the sockets that another process offered are this one's.
    TakeOver,
    Stop,
}

/// The way to one shard.
pub(crate) struct Line {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) waker: Waker,
}

/// A running server or client. Dropping the handle stops it.
pub struct Handle {
    pub(crate) controller: Controller,
    pub(crate) notices: NoticeReceiver,
    pub(crate) threads: Vec<JoinHandle<Result<Snapshot, Failure>>>,
    /// Of a client with a default route.
    pub(crate) kill_switch: Option<KillSwitch>,
}

/// The kill switch of a client with a default route. Where the last handle to it is dropped without [`Self::end`], the
/// client has failed.
#[derive(Clone, Debug)]
pub struct KillSwitch {
    pub(crate) changes: HostChanges,
}

impl KillSwitch {
    /// The client has ended, `as_asked` or because it failed. Whether the kill switch stays, which
    /// [`HostChanges::end_kill_switch`] decides.
    ///
    /// # Errors
    /// It should go and does not.
    pub fn end(&self, as_asked: bool) -> Result<bool, HostError> {
        self.changes.end_kill_switch(as_asked)
    }
}

/// A second handle for other threads, e.g. the admin socket; by default of nothing.
#[derive(Clone, Default)]
pub struct Controller {
    shards: Arc<Mutex<Arc<[Line]>>>,
}

impl Controller {
    pub(crate) fn new(shards: Vec<Line>) -> Self {
        Self {
            shards: Arc::new(Mutex::new(shards.into())),
        }
    }

    /// From here on this controller, with all that were cloned from it, is of the shards of `other`: those of a client
    /// that was started in the place of one that has ended.
    pub fn follow(&self, other: &Self) {
        let lines = other.lines();
        *self.shards.lock().unwrap_or_else(PoisonError::into_inner) = lines;
    }

    fn lines(&self) -> Arc<[Line]> {
        Arc::clone(&self.shards.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for all counters; `None` where all shards have ended or one does not answer within
    /// [`limits::ANSWER_TIME_MAX`].
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let deadline = Instant::now() + limits::ANSWER_TIME_MAX;
        let ask = |line: &Line| {
            let (sender, receiver) = mpsc::sync_channel(1);
            line.send(Command::Snapshot(sender)).then_some(receiver)
        };
        let asked: Vec<_> = self.lines().iter().filter_map(ask).collect();
        let mut parts = Vec::with_capacity(asked.len());
        for receiver in asked {
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(part) => parts.push(part),
                // It has ended meanwhile.
                Err(mpsc::RecvTimeoutError::Disconnected) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => return None,
            }
        }
        Snapshot::merge(parts)
    }

    /// Has all shards go by these settings; no connection and no datagram is lost.
    pub fn change(&self, settings: LiveSettings) {
        let settings = Arc::new(settings);
        for line in &*self.lines() {
            line.send(Command::Change(Arc::clone(&settings)));
        }
    }

    /// Ends gracefully: nothing new is accepted, what runs may finish within `limit`, or what `until` says before it,
    /// then all is closed.
    pub fn drain(&self, limit: Duration, until: DrainUntil) {
        for line in &*self.lines() {
            line.send(Command::Drain { limit, until });
        }
    }

    /// Offers the sockets of a server to a process that is to take them over, in the order of the shards. This one
    /// goes on reading them until [`Controller::hand_over`]; [`Controller::withdraw_offer`] takes the offer back.
    ///
    /// # Errors
    /// `Unsupported` where it is no server, or one whose sockets cannot be taken over; `TimedOut` where a shard does
    /// not answer; the kernel's refusal. Nothing is offered then.
    pub fn offer_sockets(&self) -> io::Result<Vec<OfferedSocket>> {
        let deadline = Instant::now() + limits::ANSWER_TIME_MAX;
        let mut asked = Vec::new();
        for line in &*self.lines() {
            let (sender, receiver) = mpsc::sync_channel(1);
            line.send(Command::Offer(sender));
            asked.push(receiver);
        }
        let answers = asked.into_iter().map(|receiver| {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = receiver.recv_timeout(left);
            answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        });
        let offered: io::Result<Vec<_>> = answers.collect();
        offered.inspect_err(|_| self.withdraw_offer())
    }

    /// The other process serves: this one reads no more but what it hands back.
    pub fn hand_over(&self) {
        for line in &*self.lines() {
            line.send(Command::HandOver);
        }
    }

    /// Has a server read the sockets that it was started with ([`crate::config::ServerConfig::takeover`]).
    pub fn take_over(&self) {
        for line in &*self.lines() {
            line.send(Command::TakeOver);
        }
    }

    /// The other process does not serve: all is as before.
    pub fn withdraw_offer(&self) {
        for line in &*self.lines() {
            line.send(Command::Withdraw);
        }
    }

    /// Ends at once, telling the peers.
    pub fn stop(&self) {
        for line in &*self.lines() {
            line.send(Command::Stop);
        }
    }
}

impl Line {
    /// Whether the shard can still take it.
    fn send(&self, command: Command) -> bool {
        let is_sent = self.commands.send(command).is_ok();
        if is_sent {
            self.waker.wake();
        }
        is_sent
    }
}

impl Handle {
    /// A second handle that other threads may hold.
    #[must_use]
    pub fn controller(&self) -> Controller {
        self.controller.clone()
    }

    /// The kill switch of a client with a default route. It is for whoever waits for the end.
    #[must_use]
    pub fn kill_switch(&self) -> Option<KillSwitch> {
        self.kill_switch.clone()
    }

    /// The next notice; `None` once all shards have ended, or when `limit` passes.
    #[must_use]
    pub fn next_notice(&self, limit: Duration) -> Option<Notice> {
        self.notices.next(limit)
    }

    /// Whether all threads have ended, so that [`Handle::join`] would not wait.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all shards to end: their last counters, or why one failed.
    ///
    /// # Errors
    /// The first [`Failure`] that ended a shard, and so all of them; a panic of a shard's thread is [`Failure::Bug`].
    pub fn join(mut self) -> Result<Snapshot, Failure> {
        let mut parts = Vec::with_capacity(self.threads.len());
        let mut failure = None;
        for thread in self.threads.drain(..) {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(Failure::Bug("a shard's thread panicked".to_owned())));
            match ended {
                Ok(part) => parts.push(part),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(Snapshot::merge(parts).unwrap_or_default()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.controller.stop();
        for thread in self.threads.drain(..) {
            // Its result was not asked for; a panic was already printed.
            let _ = thread.join();
        }
    }
}
