//! A server's settings, and whom it lets in: policy and bounds are asked before the client's first packet is read.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep_until};

use crate::address::{Address, SocketKind, prepare, usable_datagram_bytes};
use crate::claim::{self, BindOptions, Claim};
use crate::endpoint::UdsEndpoint;
use crate::error::BindError;
use crate::farewell;
use crate::hub::Hub;
use crate::limits::{
    ACCEPT_PAUSE, ACCEPTS_PER_TURN, BACKLOG_DEFAULT, DATAGRAM_BYTES_DEFAULT, DATAGRAM_BYTES_MAX,
    DATAGRAM_BYTES_MIN, MODE_DEFAULT, PEERS_MAX_DEFAULT,
};
use crate::link;
use crate::peer::PeerCred;
use crate::socket::UdsSocket;
use crate::transport::{endpoint_config, server_config};

/// Decides whether a process may connect.
type Policy = Box<dyn Fn(&PeerCred) -> bool + Send + Sync>;

/// Why a client is refused; the client gets the message.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Refusal {
    #[error("it serves at most {peers_max} clients at once")]
    Full { peers_max: usize },
    #[error("its policy does not allow {cred}")]
    Policy { cred: PeerCred },
}

/// The settings of a server that is not bound yet.
///
/// ```
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), irpc_uds::BindError> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// let own_uid = rustix::process::geteuid().as_raw();
/// let endpoint = irpc_uds::UdsListener::new(directory.path().join("service"))
///     .mode(0o666)
///     .allow(move |peer| peer.uid == own_uid || peer.uid == 0)
///     .peers_max(64)
///     .spin(Duration::from_micros(50))
///     .bind()?;
/// # drop(endpoint);
/// # Ok(())
/// # }
/// ```
pub struct UdsListener {
    address: Address,
    options: BindOptions,
    policy: Option<Policy>,
    peers_max: usize,
    datagram_bytes: u16,
    spin: Duration,
}

impl fmt::Debug for UdsListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("UdsListener");
        shown
            .field("address", &self.address)
            .field("options", &self.options);
        shown
            .field("has_policy", &self.policy.is_some())
            .field("peers_max", &self.peers_max);
        shown
            .field("datagram_bytes", &self.datagram_bytes)
            .field("spin", &self.spin)
            .finish()
    }
}

impl UdsListener {
    /// Will listen at `path`, at most [`crate::PATH_BYTES_MAX`] bytes long; a lock file `path.lock` will be beside it.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::at(Address::from(path.as_ref()))
    }

    /// Will listen in the abstract namespace (Linux): no file, gone with the process, and reachable by every process in
    /// the same network namespace, so that it binds only with a policy.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn abstract_name(name: impl AsRef<[u8]>) -> Self {
        Self::at(Address::Abstract(name.as_ref().to_vec()))
    }

    fn at(address: Address) -> Self {
        Self {
            address,
            options: BindOptions {
                kind: SocketKind::default(),
                mode: MODE_DEFAULT,
                owner: (None, None),
                backlog: BACKLOG_DEFAULT,
            },
            policy: None,
            peers_max: PEERS_MAX_DEFAULT,
            datagram_bytes: DATAGRAM_BYTES_DEFAULT,
            spin: Duration::ZERO,
        }
    }

    /// Permission bits of the socket file; whoever may write it may connect. 0600 unless set.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.options.mode = mode;
        self
    }

    /// Owner and group of the socket file; each stays that of the process where `None`. Giving a file away takes
    /// privileges.
    #[must_use]
    pub fn owner(mut self, uid: Option<u32>, gid: Option<u32>) -> Self {
        self.options.owner = (uid, gid);
        self
    }

    /// Lets in whom `policy` accepts, in addition to what the file's mode demands. It is called on the endpoint's task
    /// for every client, before anything is read from it, and must not block. A refused client is told so.
    #[must_use]
    pub fn allow(mut self, policy: impl Fn(&PeerCred) -> bool + Send + Sync + 'static) -> Self {
        self.policy = Some(Box::new(policy));
        self
    }

    /// How many clients may wait to be let in, [`crate::BACKLOG_DEFAULT`] unless set; the system has a bound, too.
    #[must_use]
    pub fn backlog(mut self, clients: u32) -> Self {
        self.options.backlog = clients;
        self
    }

    /// How many clients may be connected at once, [`crate::PEERS_MAX_DEFAULT`] unless set. Further ones are refused.
    #[must_use]
    pub fn peers_max(mut self, clients: usize) -> Self {
        self.peers_max = clients;
        self
    }

    /// Largest datagram in either direction, in bytes: brought between [`crate::DATAGRAM_BYTES_MIN`] and
    /// [`crate::DATAGRAM_BYTES_MAX`], and below what the system's socket buffers take. The smaller one of both sides
    /// counts. The endpoint holds 32 of them to receive into.
    #[must_use]
    pub fn datagram_bytes(mut self, bytes: u16) -> Self {
        self.datagram_bytes = bytes.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX);
        self
    }

    /// Looks for datagrams for at most this long before it sleeps, up to [`crate::SPIN_MAX`]; zero, the default, is
    /// off. Shortens calls where waking up is slow, and keeps a processor busy while calls come in close succession.
    #[must_use]
    pub fn spin(mut self, bound: Duration) -> Self {
        self.spin = bound;
        self
    }

    /// The kind of socket; clients need the same one.
    #[must_use]
    pub fn kind(mut self, kind: SocketKind) -> Self {
        self.options.kind = kind;
        self
    }

    /// Binds, listens and serves from now on.
    ///
    /// # Errors
    /// See [`BindError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub fn bind(self) -> Result<UdsEndpoint, BindError> {
        let path = self.address.display_path();
        let failed = |step| {
            let path = path.clone();
            move |source: io::Error| BindError::Io { path, step, source }
        };
        let (socket, claim) = match &self.address {
            Address::Path(path) => {
                let (socket, claim) = claim::bind(path, self.options)?;
                (socket, Some(claim))
            }
            Address::Abstract(_) => (self.bind_abstract()?, None),
        };
        let datagram_bytes =
            usable_datagram_bytes(&socket, self.datagram_bytes).map_err(failed("read its buffer size"))?;
        let acceptor = Acceptor {
            io: link::watch(socket, Interest::READABLE).map_err(failed("watch it"))?,
            kind: self.options.kind,
            policy: self.policy,
            peers_max: self.peers_max,
            accepted: 0,
            timer: None,
            _claim: claim,
        };
        let hub = Hub::new(Handle::current(), self.spin);
        let socket = UdsSocket::new(Some(acceptor), datagram_bytes);
        let endpoint = noq::Endpoint::new_with_abstract_socket(
            endpoint_config(datagram_bytes),
            Some(server_config(datagram_bytes, self.peers_max)),
            Box::new(socket),
            hub,
        );
        Ok(UdsEndpoint::new(
            endpoint.map_err(failed("start its endpoint"))?,
            path,
        ))
    }

    fn bind_abstract(&self) -> Result<OwnedFd, BindError> {
        let path = self.address.display_path();
        if self.policy.is_none() {
            return Err(BindError::NoPolicy {
                name: path.to_string_lossy().trim_start_matches('@').to_owned(),
            });
        }
        let failed = |step| {
            let path = path.clone();
            move |source: io::Error| BindError::Io { path, step, source }
        };
        let address = self.address.checked().map_err(|bytes| BindError::PathTooLong {
            path: path.clone(),
            bytes,
        })?;
        let socket = self.options.kind.socket().map_err(failed("make a socket"))?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                return Err(BindError::InUse {
                    path,
                    owner: "unknown".to_owned(),
                });
            }
            done => done.map_err(|error| failed("bind it")(error.into()))?,
        }
        let backlog = i32::try_from(self.options.backlog).unwrap_or(i32::MAX);
        rustix::net::listen(&socket, backlog).map_err(|error| failed("listen")(error.into()))?;
        Ok(socket)
    }
}

/// What the listener asks for.
pub(crate) enum Attention {
    /// A client was let in.
    Client(OwnedFd, PeerCred),
    /// There may be more clients, after others had their turn.
    Later,
    /// The time of [`Acceptor::look_again_by`] has come.
    Due,
    /// Nothing now; it wakes when there is.
    None,
}

/// The listening socket, its policy, and its claim on the path.
pub(crate) struct Acceptor {
    io: AsyncFd<OwnedFd>,
    kind: SocketKind,
    policy: Option<Policy>,
    peers_max: usize,
    /// Clients met in this turn.
    accepted: usize,
    timer: Option<Pin<Box<Sleep>>>,
    _claim: Option<Claim>,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Acceptor")
            .field("io", &self.io)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Acceptor {
    pub(crate) fn kind(&self) -> SocketKind {
        self.kind
    }

    /// Asks for [`Attention::Due`] at `when` at the latest.
    pub(crate) fn look_again_by(&mut self, when: Instant) {
        match &mut self.timer {
            Some(timer) if timer.deadline().into_std() <= when => {}
            Some(timer) => timer.as_mut().reset(when.into()),
            None => self.timer = Some(Box::pin(sleep_until(when.into()))),
        }
    }

    /// Lets in the next client while there are `clients` already.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>, clients: usize) -> Attention {
        while let Poll::Ready(Ok(mut readiness)) = self.io.poll_read_ready(context) {
            if self.accepted >= ACCEPTS_PER_TURN {
                self.accepted = 0;
                return Attention::Later;
            }
            match rustix::net::accept(&self.io) {
                Ok(socket) => {
                    self.accepted += 1;
                    match self.judge(&socket, clients) {
                        Ok(Ok(cred)) => return Attention::Client(socket, cred),
                        Ok(Err(refusal)) => {
                            link::say(&socket, self.kind, &farewell::notice(&refusal.to_string()));
                        }
                        Err(error) => tracing::warn!("could not look at a client: {error}"),
                    }
                }
                Err(Errno::WOULDBLOCK) => readiness.clear_ready(),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // Out of descriptors or memory: whoever waits keeps waiting.
                    tracing::warn!("could not accept a client, trying again in {ACCEPT_PAUSE:?}: {error}");
                    self.look_again_by(Instant::now() + ACCEPT_PAUSE);
                    break;
                }
            }
        }
        self.accepted = 0;
        let due = self
            .timer
            .as_mut()
            .is_some_and(|timer| timer.as_mut().poll(context).is_ready());
        if due {
            self.timer = None;
            return Attention::Due;
        }
        Attention::None
    }

    /// Whether a client is accepted, or the reason that it gets.
    fn judge(&self, socket: &OwnedFd, clients: usize) -> io::Result<Result<PeerCred, Refusal>> {
        prepare(socket)?;
        let cred = PeerCred::of(socket)?;
        if clients >= self.peers_max {
            return Ok(Err(Refusal::Full {
                peers_max: self.peers_max,
            }));
        }
        if self.policy.as_ref().is_some_and(|policy| !policy(&cred)) {
            return Ok(Err(Refusal::Policy { cred }));
        }
        Ok(Ok(cred))
    }
}
