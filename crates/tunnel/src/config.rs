//! What the program tells the tunnel: identities, addresses, forwards and limits.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use host::HostChanges;
pub use packet_io::TunFloodLimit;
pub use quic::Profile;
pub use reality::credentials::{SID_BYTES, UserKey};
use tunnel_proto::{
    AllowedTarget, ClientId, Credentials, EngineConfig, Grant, Negotiation, Prefix, Protocol, Target, Token,
    TunRoutes,
};
pub use tunnel_proto::{CarrierChoice, ServerProof};

pub use crate::carrier::OfferedSocket;
use crate::certificates::Certificates;
use crate::examination;
use crate::hook::AuthenticationHook;
use crate::qlog::Tracing;

/// Settings that server and client share.
#[derive(Clone, Debug)]
pub struct CommonConfig {
    /// Shards of the process, and a client's connections (stripes): 1 to [`crate::limits::SHARDS_MAX`]; `None`: one for
    /// each core.
    pub connections: Option<usize>,
    /// Throughput against delay.
    pub profile: Profile,
    /// Upper bound for QUIC packets in bytes of UDP payload, 1,200 to 65,507; `None`: what the interface carries.
    pub max_udp_payload: Option<u16>,
    /// Use UDP segmentation offload where the kernel has it.
    pub gso: bool,
    /// Use UDP receive offload where the kernel has it.
    pub gro: bool,
    /// Receive buffer asked for on every UDP socket, in bytes.
    pub receive_buffer_bytes: usize,
    /// Send buffer asked for on every UDP socket, in bytes.
    pub send_buffer_bytes: usize,
    /// What sessions and queues go by.
    pub engine: EngineConfig,
}

impl Default for CommonConfig {
    fn default() -> Self {
        Self {
            connections: None,
            profile: Profile::default(),
            max_udp_payload: None,
            gso: true,
            gro: true,
            receive_buffer_bytes: crate::limits::SOCKET_RECEIVE_BUFFER_BYTES,
            send_buffer_bytes: crate::limits::SOCKET_SEND_BUFFER_BYTES,
            engine: EngineConfig::default(),
        }
    }
}

impl CommonConfig {
    /// How many shards run.
    pub(crate) fn shards(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.connections
            .unwrap_or_else(cores)
            .clamp(1, crate::limits::SHARDS_MAX)
    }
}

/// What a running server or client can be given anew ([`crate::handle::Controller::change`]).
#[derive(Clone, Debug, Default)]
pub struct LiveSettings {
    /// Server: as in [`ServerConfig`], for what is opened from then on, and for every IP packet.
    pub allowed_targets: Vec<AllowedTarget>,
    /// As in [`CommonConfig`]: idle times and the queues' policy for all sessions, the rest for those that open later.
    pub engine: EngineConfig,
}

/// Where a server listens in TCP's shape (specs/fake-tcp.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpListen {
    /// At the address and port number of its UDP socket.
    LikeUdp,
    /// There.
    At(SocketAddr),
}

impl TcpListen {
    /// The address, where UDP listens at `udp`.
    #[must_use]
    pub fn address(self, udp: SocketAddr) -> SocketAddr {
        match self {
            Self::LikeUdp => udp,
            Self::At(address) => address,
        }
    }
}

/// Everything a server needs; it holds secrets, so it has no `Debug`.
#[derive(Clone)]
pub struct ServerConfig {
    /// Address of the outer UDP socket.
    pub listen: SocketAddr,
    /// Where it listens in TCP's shape besides; `None`: nowhere.
    pub tcp: Option<TcpListen>,
    /// What it shows; whoever has a clone may replace it while the server runs.
    pub certificates: Certificates,
    /// Tokens of the owner.
    pub tokens: Vec<Token>,
    /// Who may use the server besides; `None`: nobody.
    pub users: Option<Arc<dyn KnownUsers>>,
    /// Who decides on everybody else; `None`: nobody comes in.
    pub hook: Option<Arc<dyn AuthenticationHook>>,
    /// Key of stateless resets (RFC 9000 section 10.3), kept over restarts.
    pub reset_key: [u8; 64],
    /// Key of address validation tokens (RFC 9000 section 8.1), kept over restarts.
    pub token_key: [u8; 64],
    /// Targets that are refused by default and allowed here.
    pub allowed_targets: Vec<AllowedTarget>,
    /// Host names and addresses by which clients reach the server. They lead to it, also where a NAT before it has
    /// them, and so are closed like its own addresses.
    pub public: Vec<String>,
    /// What the server looks like to strangers; `None`: what it is.
    pub cover: Option<Cover>,
    /// Peers of its users find each other here (specs/rendezvous.md), and are relayed.
    pub has_rendezvous: bool,
    /// The TUN device for clients' IP packets; `None`: none.
    pub tun: Option<ServerTun>,
    /// The process whose sockets it takes over; `None`: it opens its own.
    pub takeover: Option<Takeover>,
    /// Has connections traced; `None`: none.
    pub qlog: Option<Tracing>,
    /// Shared settings.
    pub common: CommonConfig,
}

/// Sockets that another process has offered ([`crate::handle::Controller::offer_sockets`]), by shard: as many as the
/// server has then. They are bound, whatever [`ServerConfig::listen`] says, and are not read before
/// [`crate::handle::Controller::take_over`].
#[derive(Clone, Debug)]
pub struct Takeover {
    /// What was offered.
    pub sockets: Arc<[OfferedSocket]>,
    /// The generation of that process, as [`quic::Generation`] numbers them.
    pub predecessor: u8,
}

/// Users of a server besides its owner. Shards ask while packets wait: nothing here may block.
pub trait KnownUsers: Send + Sync {
    /// What these credentials stand for; `None` where they are nobody's. The same [`tunnel_proto::User`] each time.
    fn grant(&self, credentials: &Credentials<'_>) -> Option<Grant>;

    /// The key at the front door under a short name (specs/qr1.md, QR1-2).
    fn key(&self, sid: &[u8; SID_BYTES]) -> Option<UserKey>;
}

/// The web site that a server looks like to everybody without its link (specs/qr1.md); it holds secrets, so it has no
/// `Debug`.
#[derive(Clone)]
pub struct Cover {
    /// Host name or address of the web site.
    pub host: String,
    /// Its port, for UDP and TCP.
    pub port: u16,
    /// The name that clients ask for.
    pub name: String,
    /// TCP connections go on to it as well.
    pub tcp: bool,
    /// How far a client's clock may be off, at most 600 s.
    pub window: Duration,
    /// X25519 private keys, the present one first, at most two.
    pub keys: Vec<[u8; 32]>,
    /// The file that keeps what was accepted over restarts.
    pub replays_file: PathBuf,
    /// The present key is new: nobody has been accepted by it.
    pub is_first_run: bool,
    /// What a watcher sees of its handshakes, and is to see of the server's (QR1-27, QR1-29).
    pub profile: examination::Profile,
    /// Where the profile was measured just now; `None` where the cover does not answer and it is of an earlier start.
    pub met: Option<SocketAddr>,
    /// Keeps the profile of a later look for the next start.
    pub keep_profile: KeepProfile,
}

/// Keeps a cover's profile; what went wrong is for people. It may block.
pub type KeepProfile = Arc<dyn Fn(&examination::Profile) -> Result<(), String> + Send + Sync>;

/// A server's TUN device, and what clients reach through it.
#[derive(Clone, Debug)]
pub struct ServerTun {
    /// Name of the interface; `None`: the first free `gramwayN`.
    pub name: Option<String>,
    /// Where clients' addresses come from; the first address of each is the server's own.
    pub pools: Vec<Prefix>,
    /// Give packets of clients that leave by other interfaces this machine's address.
    pub nat: bool,
    /// Let clients reach each other.
    pub client_to_client: bool,
    /// What clients reach besides the pools; `None`: everything with `nat`, else nothing.
    pub routes: Option<Vec<Prefix>>,
    /// The name servers that clients are offered.
    pub dns: OfferedDns,
    /// Exchange super-packets with the kernel where it has them.
    pub offloads: bool,
    /// Keeps a flood of super-packets from filling the device, for this device alone; `None`: nothing does.
    pub flood_limit: Option<TunFloodLimit>,
    /// The file that keeps leases over restarts.
    pub leases_file: PathBuf,
    /// Makes the device, and what changes in the host's network around it. What dead processes have left is undone by
    /// now ([`host::recover`]).
    pub changes: HostChanges,
}

/// The name servers that a server offers its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfferedDns {
    /// One of its own, which asks those of its machine.
    Own,
    /// These.
    These(Vec<IpAddr>),
    /// None.
    None,
}

/// A client's TUN device.
#[derive(Clone, Debug)]
pub struct ClientTun {
    /// Name of the interface; `None`: the first free `gramwayN`.
    pub name: Option<String>,
    /// The name by which the server knows this client again, kept for good (specs/ip-session.md, SESSION-2).
    pub client: ClientId,
    /// The routes.
    pub routes: TunRoutes,
    /// Everything goes through the tunnel, or nowhere.
    pub default_route: bool,
    /// `default_route` leaves networks near this machine outside the tunnel.
    pub allow_lan: bool,
    /// `default_route` leaves these networks outside the tunnel, besides the server's own addresses.
    pub exclude: Vec<Prefix>,
    /// The kill switch of `default_route` stays when the client ends.
    pub kill_switch: bool,
    /// Name servers to ask while the tunnel is there.
    pub dns: Vec<IpAddr>,
    /// With a default route and without `dns`, ask those that the server offers.
    pub takes_offered_dns: bool,
    /// Exchange super-packets with the kernel where it has them.
    pub offloads: bool,
    /// Keeps a flood of super-packets from filling the device, for this device alone; `None`: nothing does.
    pub flood_limit: Option<TunFloodLimit>,
    /// Makes the device, and what changes in the host's network around it. What dead processes have left is undone by
    /// now ([`host::recover`]).
    pub changes: HostChanges,
}

/// One `-L`: what the client listens on, and where the server sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// UDP or TCP.
    pub protocol: Protocol,
    /// Local address of the listener.
    pub listen: SocketAddr,
    /// Host name or address of the target, resolved at the server; IPv6 without brackets.
    pub host: String,
    /// Port of the target.
    pub port: u16,
}

/// One `-R`: where the server listens, and where the client leads what comes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteForward {
    /// Address of the listener at the server.
    pub listen: SocketAddr,
    /// Where its connections lead, as this machine resolves and reaches it.
    pub target: Target,
}

/// Begins the negotiation of a connection.
pub type Negotiator = Arc<dyn Fn() -> Box<dyn Negotiation> + Send + Sync>;

/// A TCP listener of a client whose connections name their targets themselves.
#[derive(Clone)]
pub struct Proxy {
    /// Local address of the listener.
    pub listen: SocketAddr,
    /// What is spoken with each connection.
    pub negotiator: Negotiator,
}

/// Everything a client needs; it holds secrets, so it has no `Debug`.
#[derive(Clone)]
pub struct ClientConfig {
    /// Servers in order of preference: host name or address, and port.
    pub servers: Vec<(String, u16)>,
    /// Over what it reaches them.
    pub carriers: CarrierChoice,
    /// What the server is known by.
    pub proof: ServerProof,
    /// The user's token.
    pub token: Token,
    /// What is forwarded.
    pub forwards: Vec<Forward>,
    /// Ports of the server that lead here.
    pub remote_forwards: Vec<RemoteForward>,
    /// What local programs ask for targets.
    pub proxies: Vec<Proxy>,
    /// The port on the loopback addresses to which a router's nftables leads packets for other machines
    /// ([`host::TransparentSettings`]); `None`: none.
    pub transparent_port: Option<u16>,
    /// The TUN device; `None`: none.
    pub tun: Option<ClientTun>,
    /// Has connections traced; `None`: none.
    pub qlog: Option<Tracing>,
    /// Local address of the outer socket; `None`: chosen by the kernel.
    pub bind: Option<IpAddr>,
    /// Shared settings.
    pub common: CommonConfig,
}
