//! A socket with its peers: binding, connecting, accepting, closing.

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use packet::CarrierKind;
use packet_io::{Poller, UdpSocket};
use peer_proto::{Parameters, PeerId};
use tokio::runtime;
use tunnel_proto::limits::INVITATION_NUMBERS;

use crate::code::of_program;
use crate::connecting::Connecting;
use crate::driver::{Driver, WAKER, watch};
use crate::error::{BindError, ConnectError, InviteError, InviterError, RelayProblem, RendezvousProblem};
use crate::events::EndpointEvents;
use crate::handle::{Handle, Peer};
use crate::key::SecretKey;
use crate::lan;
use crate::limits::{ACCEPT_QUEUE_MAX, LAN_NUMBERS_MAX, LAN_SEARCH_TIME, UDP_PAYLOAD_MAX};
use crate::mapping::{self, MappingProblem};
use crate::rendezvous::{Meetings, Rendezvous};
use crate::shared::{DriverWaker, Shared, State};
use crate::stats::EndpointStats;
use crate::transmit::{socket_options, udp_payload_to};
use crate::wakers::{Wakers, until, until_changed};

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct Builder {
    key: SecretKey,
    allowed: Option<BTreeSet<PeerId>>,
    message_bytes_max: Option<usize>,
    send_bytes_max: Option<usize>,
    accepted_window_bytes_max: Option<usize>,
    stream_window_bytes: Option<u32>,
    udp_payload_max: Option<u16>,
    idle_timeout: Option<Duration>,
    accept_queue_max: usize,
    rendezvous: Option<Rendezvous>,
    finds_on_lan: bool,
    announces_on_lan: bool,
    numbers_on_lan: Vec<u32>,
    maps_port: bool,
    is_driven_by_runtime: bool,
}

impl Builder {
    /// Lets only these peers connect. Without this call, everybody may.
    #[must_use]
    pub fn allow(mut self, peers: impl IntoIterator<Item = PeerId>) -> Self {
        self.allowed.get_or_insert_default().extend(peers);
        self
    }

    /// Longest message that this end sends or takes, in bytes; 64 MiB unless called. Where this is less than
    /// [`Self::stream_window_bytes`], all of a longer message may have come before this end refuses it, and its sender
    /// be told that it was acknowledged.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = Some(bytes);
        self
    }

    /// Bytes of messages that wait for a peer or are under way to it before [`Peer::send`] waits; 16 MiB unless
    /// called, which is also the most.
    #[must_use]
    pub fn send_bytes_max(mut self, bytes: usize) -> Self {
        self.send_bytes_max = Some(bytes);
        self
    }

    /// What QUIC may keep of streams that nobody has read, and of messages that wait for room, of all peers together
    /// that connected to this end, in bytes; 4 GiB unless called. Each that sends more than 8 KiB on streams, or in
    /// messages that fit no packet, or that gives one up, takes 32 MiB of it, or twice [`Self::stream_window_bytes`],
    /// for as long as it is connected or not all of it is read, and one such peer always may. The connection of one
    /// for which nothing is left is closed ([`crate::EndpointStats::crowded`]). Peers that this end connected to may
    /// send, however many others there are.
    #[must_use]
    pub fn accepted_window_bytes_max(mut self, bytes: usize) -> Self {
        self.accepted_window_bytes_max = Some(bytes);
        self
    }

    /// What may be under way of one stream towards this end, and of all streams of one connection from it, in bytes:
    /// 16 MiB unless called, and 64 MiB at most; less than 16 MiB is raised to that. Set it at both ends where a line
    /// carries more than 500 Mbit/s over 100 ms or more: a stream fills 1 Gbit/s over 200 ms with 64 MiB, and 0.59 of
    /// it otherwise. QUIC then may keep twice as much of each peer, and each that connected to this end takes so much
    /// of [`Self::accepted_window_bytes_max`].
    #[must_use]
    pub fn stream_window_bytes(mut self, bytes: u32) -> Self {
        self.stream_window_bytes = Some(bytes);
        self
    }

    /// Largest UDP payload to send and to take, in bytes; 16,376 unless called, and never more than the interface
    /// towards a peer carries: 1,472 for IPv4 over Ethernet. What a path carries is found by probing.
    #[must_use]
    pub fn udp_payload_max(mut self, bytes: u16) -> Self {
        self.udp_payload_max = Some(bytes);
        self
    }

    /// How long a connection on which nothing comes lives: 30 seconds unless called, which is also the most, and a
    /// second at least. Of what both ends say the less counts. Who sleeps for longer finds its connections ended, and
    /// connects again.
    #[must_use]
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.idle_timeout = Some(time);
        self
    }

    /// How many peers that connected may wait for [`Endpoint::accept`], at most 1,024, which it is unless called;
    /// further ones are closed with [`crate::code::QUEUE_FULL`].
    #[must_use]
    pub fn accept_queue_max(mut self, peers: usize) -> Self {
        self.accept_queue_max = peers.min(ACCEPT_QUEUE_MAX);
        self
    }

    /// Registers the endpoint at a Gramway server, so that peers of other users of it reach this one by its ID alone,
    /// also where both are behind routers; and lets [`Endpoint::connect`] find peers there. Both routers are opened at
    /// the same time; for those that cannot be opened for each other, because they give every destination another port,
    /// the server relays ([`crate::Peer::path`]).
    #[must_use]
    pub fn rendezvous(mut self, rendezvous: Rendezvous) -> Self {
        self.rendezvous = Some(rendezvous);
        self
    }

    /// Lets [`Endpoint::connect`] ask the local network by multicast DNS where the peer is. The question names no peer,
    /// and its answer proves nothing: the peer proves its key in the handshake. Off unless called.
    #[must_use]
    pub fn find_on_lan(mut self) -> Self {
        self.finds_on_lan = true;
        self
    }

    /// Announces the endpoint on the local network while it is open, so that peers there find it by its ID alone. All
    /// machines on that network can see the ID, the port and the addresses of this machine there, and recognize the ID
    /// wherever it is announced. Off unless called.
    #[must_use]
    pub fn announce_on_lan(mut self) -> Self {
        self.announces_on_lan = true;
        self
    }

    /// Announces as well that the endpoint waits for somebody who knows one of these numbers
    /// ([`Endpoint::inviter_on_lan`]); at most [`crate::limits::LAN_NUMBERS_MAX`], of 1,000 to 99,999, and others are
    /// left out. Everybody on that network sees them: both ends have to prove more than the number before anything
    /// secret is said.
    #[must_use]
    pub fn announce_numbers_on_lan(mut self, numbers: impl IntoIterator<Item = u32>) -> Self {
        self.announces_on_lan = true;
        let valid = numbers
            .into_iter()
            .filter(|number| INVITATION_NUMBERS.contains(number));
        self.numbers_on_lan = valid.take(LAN_NUMBERS_MAX).collect();
        self
    }

    /// Asks the router of IPv4 for a port that leads to the endpoint's (PCP, NAT-PMP or UPnP IGD), and that of IPv6 to
    /// let others in to the endpoint's port (PCP or UPnP), while the endpoint is open, so that others reach it there,
    /// whatever the routers let in otherwise. A rendezvous is told. Off unless called.
    #[must_use]
    pub fn map_port(mut self) -> Self {
        self.maps_port = true;
        self
    }

    /// Has a task of the tokio runtime in which the endpoint is bound do the network work, instead of a thread of the
    /// endpoint's own: what comes then goes to the program's tasks without another thread's waking, and many endpoints
    /// share the runtime's threads. In turn, the endpoint waits for the program: a task that sends and then keeps its
    /// thread without awaiting anything may hold up all of the endpoint, acknowledgements included; nothing happens
    /// while a runtime of one thread does not run; and [`crate::blocking`] must not be used on the runtime's threads.
    /// The endpoint ends with the runtime. Off unless called.
    #[must_use]
    pub fn driven_by_runtime(mut self) -> Self {
        self.is_driven_by_runtime = true;
        self
    }

    /// Binds at a port that the system chooses, at all addresses of both families, or of IPv4 where the machine has no
    /// IPv6.
    ///
    /// # Errors
    /// As of [`Self::bind`].
    pub fn bind_anywhere(self) -> Result<Endpoint, BindError> {
        let bound = self.clone().bind((Ipv6Addr::UNSPECIFIED, 0).into());
        bound.or_else(|_| self.bind((Ipv4Addr::UNSPECIFIED, 0).into()))
    }

    /// Binds a socket and starts the endpoint's thread, or its task. Port 0 lets the system choose; `[::]:0` takes IPv4
    /// as well.
    ///
    /// # Errors
    /// [`BindError`].
    ///
    /// # Panics
    /// With [`Self::driven_by_runtime`], in a runtime without I/O (`enable_io`).
    pub fn bind(self, address: SocketAddr) -> Result<Endpoint, BindError> {
        let failed = |error| BindError::Socket { address, error };
        let mut seed = [0; 32];
        aws_lc_rs::rand::fill(&mut seed).map_err(|_| BindError::NoRandomness)?;
        let mut parameters = Parameters::new(self.key.identity(), seed);
        parameters.allowed = self.allowed;
        if let Some(bytes) = self.message_bytes_max {
            parameters.message_bytes_max = bytes;
        }
        if let Some(bytes) = self.send_bytes_max {
            parameters.send_bytes_max = bytes.min(parameters.send_bytes_max);
        }
        if let Some(bytes) = self.accepted_window_bytes_max {
            parameters.accepted_window_bytes_max = bytes;
        }
        if let Some(bytes) = self.stream_window_bytes {
            parameters.stream_window_bytes = bytes;
        }
        parameters.udp_payload_max = self.udp_payload_max.unwrap_or(UDP_PAYLOAD_MAX);
        parameters.udp_payload_to = udp_payload_to;
        if let Some(time) = self.idle_timeout {
            parameters.idle_timeout = time;
        }
        let socket = UdpSocket::bind(address, &socket_options()).map_err(failed)?;
        let poller = Poller::new().map_err(failed)?;
        watch(&socket, &poller).map_err(failed)?;
        let driven_by = match self.is_driven_by_runtime {
            true => Some(runtime::Handle::try_current().map_err(|_| BindError::NoRuntime)?),
            false => None,
        };
        let waker = match driven_by {
            Some(_) => DriverWaker::Task(OnceLock::new()),
            None => DriverWaker::Thread(packet_io::Waker::new(&poller, WAKER).map_err(failed)?),
        };
        let shared = Shared::new(parameters.clone(), &socket, waker).map_err(failed)?;
        let shared = Arc::new(shared);
        if let Some(rendezvous) = self.rendezvous {
            let meetings = Meetings::new(Instant::now(), &rendezvous, &self.key, shared.local)?;
            shared.lock().meetings = Some(meetings);
        }
        let mut state = shared.lock();
        state.accept_queue_max = self.accept_queue_max;
        state.lan.finds = self.finds_on_lan;
        drop(state);
        let begin = || {
            if self.announces_on_lan {
                lan::announce(&shared, self.numbers_on_lan)?;
            }
            if self.maps_port {
                mapping::begin(&shared)?;
            }
            let driver = Driver::new(Arc::clone(&shared), socket, poller, parameters);
            match driven_by {
                Some(runtime) => driver.spawn(&runtime),
                None => thread::Builder::new()
                    .name("peer".to_owned())
                    .spawn(move || driver.run())
                    .map(drop),
            }
        };
        if let Err(error) = begin() {
            // Those that have begun keep the endpoint, and would wait for its end for ever.
            shared.lock().end_companions();
            return Err(failed(error));
        }
        Ok(Endpoint(Arc::new(Owner(shared))))
    }
}

/// The endpoint's thread ends when nobody has the endpoint or one of its peers.
pub(crate) struct Owner(pub(crate) Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, Ordering::SeqCst);
        self.0.wake_thread();
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Owner").field(&self.0.id).finish()
    }
}

/// A UDP socket, and the peers that are reached through it. A clone is the same endpoint; it ends with its last clone
/// and its last [`Peer`].
#[derive(Clone)]
pub struct Endpoint(Arc<Owner>);

impl Endpoint {
    /// Settings for the holder of this key.
    #[must_use]
    pub fn builder(key: SecretKey) -> Builder {
        Builder {
            key,
            allowed: None,
            message_bytes_max: None,
            send_bytes_max: None,
            accepted_window_bytes_max: None,
            stream_window_bytes: None,
            udp_payload_max: None,
            idle_timeout: None,
            accept_queue_max: ACCEPT_QUEUE_MAX,
            rendezvous: None,
            finds_on_lan: false,
            announces_on_lan: false,
            numbers_on_lan: Vec::new(),
            maps_port: false,
            is_driven_by_runtime: false,
        }
    }

    /// An endpoint with default settings.
    ///
    /// # Errors
    /// As of [`Builder::bind`].
    pub fn bind(key: SecretKey, address: SocketAddr) -> Result<Self, BindError> {
        Self::builder(key).bind(address)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Our own peer ID.
    #[must_use]
    pub fn id(&self) -> PeerId {
        self.shared().id
    }

    /// Where the socket is bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local
    }

    /// Connects to the peer with this ID at whichever of at most 8 addresses answers first; with a rendezvous, and with
    /// [`Builder::find_on_lan`], also at those that are found there, and then none need be given. Whoever answers with
    /// another key is no peer.
    ///
    /// A peer that does not let us connect says so after the handshake: this succeeds, and the connection closes with
    /// [`crate::code::REFUSED`] ([`Peer::closed`]).
    ///
    /// # Errors
    /// [`ConnectError`]; after 30 seconds where nobody answers, 10 seconds where no address is known (3 seconds without
    /// a rendezvous).
    ///
    /// # Cancellation
    /// The attempt is given up; [`Self::begin`] has one that lives on.
    pub async fn connect(&self, id: PeerId, addresses: &[SocketAddr]) -> Result<Peer, ConnectError> {
        self.begin(id, addresses)?.connected().await
    }

    /// Begins to connect, for programs that want to know what is tried: [`Connecting::attempts`].
    ///
    /// # Errors
    /// The addresses cannot be used, or the endpoint is closed.
    pub fn begin(&self, id: PeerId, addresses: &[SocketAddr]) -> Result<Connecting, ConnectError> {
        let (handle, asks) = self.shared().change(|state, now| {
            if state.is_closed {
                return Err(ConnectError::EndpointClosed);
            }
            let (key, asks) = state.connect(now, id, addresses)?;
            let face = state.new_face();
            let lane = Arc::clone(&face.lane);
            state.faces.insert(key, face);
            let handle = Handle {
                lane,
                owner: Arc::clone(&self.0),
                key,
                id,
            };
            Ok((handle, asks))
        })?;
        if asks {
            lan::begin_search(self.shared());
        }
        Ok(Connecting::new(handle))
    }

    /// Waits until the endpoint is registered at its rendezvous, and tells the address that it is seen at; `None`
    /// without a rendezvous, or where the endpoint is closed.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn registered(&self) -> Option<SocketAddr> {
        until(
            &**self.shared(),
            |state| Some(&mut state.registration),
            |state| match state.meetings.as_ref().filter(|_| !state.is_closed) {
                Some(meetings) => meetings
                    .observed()
                    .map_or(Poll::Pending, |at| Poll::Ready(Some(at))),
                None => Poll::Ready(None),
            },
        )
        .await
    }

    /// Asks the rendezvous for the number by which somebody without a link may register one endpoint there, within ten
    /// minutes ([`crate::Rendezvous::as_guest`]). A guest has a small budget, and is nobody until it proves a key.
    ///
    /// # Errors
    /// [`InviteError`].
    ///
    /// # Cancellation
    /// The number that the rendezvous gives is lost, and counts among those that it gives.
    pub async fn invite(&self) -> Result<u32, InviteError> {
        let asked = self.shared().change(|state, now| {
            let meetings = state.meetings.as_mut();
            let meetings = meetings.ok_or(InviteError::NotRegistered)?;
            meetings.invite(now)
        })?;
        poll_fn(|context| asked.poll(context)).await
    }

    /// Asks the rendezvous whose a number is that somebody was told, for a user of it: the peer that asked for the
    /// number ([`Self::invite`]), or `None` where nobody did, or it is over. A rendezvous of an older version does not
    /// answer. It may name anybody: both peers have to prove more than the number.
    ///
    /// # Errors
    /// [`InviterError`].
    ///
    /// # Cancellation
    /// The answer is lost; until it comes, the question counts among those that may be open
    /// ([`crate::limits::FINDS_MAX`]).
    pub async fn inviter_of(&self, number: u32) -> Result<Option<PeerId>, InviterError> {
        let asked = self.shared().change(|state, now| {
            let meetings = state.meetings.as_mut();
            let meetings = meetings.ok_or(InviterError::NotRegistered)?;
            meetings.find(now, number)
        })?;
        poll_fn(|context| asked.poll(context)).await
    }

    /// Waits until the rendezvous tells a guest ([`crate::Rendezvous::as_guest`]) which peer asked for its number;
    /// `None` without a rendezvous, or where the endpoint is closed. Who is no guest, or is one of an older server,
    /// waits in vain. The server may name anybody: both peers have to prove more than the number.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn inviter(&self) -> Option<PeerId> {
        until(
            &**self.shared(),
            |state| state.meetings.as_mut().map(|meetings| &mut meetings.guests),
            |state| match state.meetings.as_ref().filter(|_| !state.is_closed) {
                Some(meetings) => meetings.inviter(),
                None => Poll::Ready(None),
            },
        )
        .await
    }

    /// Asks the local network for three seconds which peer waits there for somebody who knows this number
    /// ([`Builder::announce_numbers_on_lan`]). Anybody on that network may answer: both peers have to prove more than
    /// the number. [`Self::connect`] then knows where the peer is, with [`Builder::find_on_lan`].
    ///
    /// # Cancellation
    /// The network is asked on, and another call finds what came.
    pub async fn inviter_on_lan(&self, number: u32) -> Option<PeerId> {
        let end = Instant::now() + LAN_SEARCH_TIME;
        let asks = self.shared().change(|state, now| {
            let is_begun = !state.is_closed && state.lan.searches.begin_number(now, number, end);
            is_begun && state.lan.searches.take_start()
        });
        if asks {
            lan::begin_search(self.shared());
        }
        until(
            &**self.shared(),
            |state| Some(&mut state.lan.waiting),
            |state| {
                let now = Instant::now();
                let found = state.lan.searches.inviter(now, number);
                match found.is_some() || state.is_closed || !state.lan.searches.seeks(now, number) {
                    true => Poll::Ready(found),
                    false => Poll::Pending,
                }
            },
        )
        .await
    }

    /// What changes about the endpoint from its beginning on; each call gives a reader of its own.
    #[must_use]
    pub fn events(&self) -> EndpointEvents {
        EndpointEvents::new(&self.0)
    }

    /// Over what the endpoint reaches its rendezvous at present, and relayed peers with it; `None` while it does not.
    #[must_use]
    pub fn rendezvous_carrier(&self) -> Option<CarrierKind> {
        let state = self.shared().lock();
        state.meetings.as_ref().and_then(Meetings::carrier)
    }

    /// Why the endpoint is not registered at its rendezvous at present, as far as something went wrong.
    #[must_use]
    pub fn rendezvous_problem(&self) -> Option<RendezvousProblem> {
        let state = self.shared().lock();
        state.meetings.as_ref().and_then(Meetings::problem).cloned()
    }

    /// Why the rendezvous where the endpoint is registered relays nothing for it at present, where it has said so.
    #[must_use]
    pub fn relay_problem(&self) -> Option<RelayProblem> {
        let state = self.shared().lock();
        state.meetings.as_ref().and_then(Meetings::relayed)?.err()
    }

    /// Waits until the endpoint is announced on the local network; whether it is. It is not without
    /// [`Builder::announce_on_lan`], nor once it is closed.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn announced(&self) -> bool {
        until(
            &**self.shared(),
            |state| Some(&mut state.lan.announcement.waiting),
            |state| state.lan.announcement.kept(),
        )
        .await
        .is_some()
    }

    /// Why the endpoint is not announced on the local network at present, as far as something went wrong.
    #[must_use]
    pub fn lan_problem(&self) -> Option<String> {
        let state = self.shared().lock();
        state.lan.announcement.problem().cloned()
    }

    /// Waits until the router has mapped a port to the endpoint's: the address at which others reach it. `None` without
    /// [`Builder::map_port`], or once the endpoint is closed. Routers that map no ports are common:
    /// [`Self::mapping_problem`].
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn mapped(&self) -> Option<SocketAddr> {
        self.until_mapping(|state| state.mapping.kept()).await
    }

    /// Waits until the router has been asked for a port, and tells where others reach us by it at present, or why not;
    /// it is asked again later. `None` without [`Builder::map_port`], or once the endpoint is closed.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn asked_for_mapping(&self) -> Option<Result<SocketAddr, MappingProblem>> {
        self.until_mapping(|state| state.mapping.told()).await
    }

    async fn until_mapping<T>(&self, look: impl FnMut(&mut State) -> Poll<T>) -> T {
        until(&**self.shared(), |state| Some(&mut state.mapping.waiting), look).await
    }

    /// Why the router maps no port at present, as far as it was asked.
    #[must_use]
    pub fn mapping_problem(&self) -> Option<MappingProblem> {
        self.shared().lock().mapping.problem().cloned()
    }

    /// Waits until the firewall of the router of IPv6 lets others in to the endpoint's port: the address at which they
    /// reach it. `None` without [`Builder::map_port`], where the socket is one of IPv4, or once the endpoint is closed.
    /// Many routers let nobody in whom nobody asked: [`Self::pinhole_problem`].
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn pinhole(&self) -> Option<SocketAddr> {
        self.until_pinhole(|state| state.pinhole.kept()).await
    }

    /// Waits until the router of IPv6 has been asked to let others in, and tells where they reach us by it at present,
    /// or why not; it is asked again later. `None` as of [`Self::pinhole`].
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn asked_for_pinhole(&self) -> Option<Result<SocketAddr, MappingProblem>> {
        self.until_pinhole(|state| state.pinhole.told()).await
    }

    async fn until_pinhole<T>(&self, look: impl FnMut(&mut State) -> Poll<T>) -> T {
        until(&**self.shared(), |state| Some(&mut state.pinhole.waiting), look).await
    }

    /// Why the router of IPv6 was not told to let others in, as far as it was asked.
    #[must_use]
    pub fn pinhole_problem(&self) -> Option<MappingProblem> {
        self.shared().lock().pinhole.problem().cloned()
    }

    /// Where the local network last said that a peer is, to [`Self::connect`].
    #[must_use]
    pub fn found_on_lan(&self, id: PeerId) -> Vec<SocketAddr> {
        self.shared().lock().lan.searches.answer(id).to_vec()
    }

    /// The next peer that connected to us; `None` once the endpoint is closed.
    ///
    /// # Cancellation
    /// Dropped while it waits, it has taken no peer.
    pub async fn accept(&self) -> Option<Peer> {
        until_changed(&**self.shared(), acceptors, |state, _| {
            if let Some(key) = state.incoming.pop_front() {
                state.peers.accept(key);
                let face = state.faces.get(&key);
                let handle = face.and_then(|face| {
                    Some(Handle {
                        owner: Arc::clone(&self.0),
                        key,
                        id: face.id?,
                        lane: Arc::clone(&face.lane),
                    })
                });
                return Poll::Ready(handle.map(|handle| Peer(Arc::new(handle))));
            }
            match state.is_closed {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// How many connections there are, and what was turned away, by reason.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats::of(&self.shared().lock())
    }

    /// Closes all connections with a code of at most [`crate::code::PROGRAM_MAX`] (a greater one is sent as that) and a
    /// reason for the peers' logs. Connections that come or are begun later are refused. A program that ends waits for
    /// [`Self::ended`] after that.
    pub fn close(&self, code: u64, reason: &str) {
        let code = of_program(code);
        self.shared().change(|state, now| {
            for key in state.incoming.drain(..) {
                state.faces.remove(&key);
                state.peers.close(now, key, code, reason.as_bytes());
            }
            state.close(now, code, reason.as_bytes());
        });
        self.shared().wake_thread();
    }

    /// Waits, after [`Self::close`], until all peers have answered that, for [`crate::limits::CLOSE_TIME_MAX`] at most,
    /// and until what was asked of routers and the local network is taken back, for
    /// [`crate::limits::TAKE_BACK_TIME_MAX`]. A program that ends earlier leaves peers waiting for it that what said so
    /// has not reached.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub async fn ended(&self) {
        until(&**self.shared(), acceptors, |state| match state.has_ended {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// Who waits for peers that connect, or for the endpoint's end.
fn acceptors(state: &mut State) -> Option<&mut Wakers> {
    Some(&mut state.acceptors)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("id", &self.id())
            .field("local_addr", &self.local_addr())
            .finish()
    }
}
