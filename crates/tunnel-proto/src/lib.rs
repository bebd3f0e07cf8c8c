//! The tunnel without sockets, for both roles: requests, sessions, leases, queues, and the account of every datagram.
//!
//! Nothing here does I/O, reads a clock or draws randomness of its own: time, bytes and seeds are parameters. So the
//! same state machines run in the `tunnel` crate's threads and, in virtual time, over `sim`.

mod access;
mod budget;
mod client;
mod config;
mod drops;
mod engine;
mod idleness;
pub mod limits;
pub mod link;
mod own_addresses;
pub mod rendezvous;
mod secret;
mod snapshot;
mod target_rules;
mod translated;

pub use access::{
    Answer, AuthorizationId, Authorizer, Credentials, Decision, Exclusion, Grant, Line, LineRates,
    ListenRange, ListenRights, NotAListenRange, Reach, Rights, SoleOwner, User, UserId, UserLimit,
    UserLimits, UserSnapshot,
};
pub use budget::Budget;
pub use client::{
    Acceptance, AddressMove, Arrival, AttemptId, Carried, CarrierChoice, CarrierNews, ConnectAction, Http,
    KnownServer, LocalNetworks, Negotiation, NotOpened, PathActivity, PathNews, PathWatch, Progress,
    Reconnection, Resting, ServerProof, Socks, SocksAddress, SocksDatagram, SocksOrHttp, StripeNews, Stripes,
    TunPlan, Welcome,
};
pub use config::{EngineConfig, Oversize, Protocol, QueuePolicy, TunRoutes};
pub use drops::{Account, DropReason, Ledger};
pub use engine::{
    Action, Assignment, Body, CONNECTION_CAME, Client, ClientAction, ClientId, ClientIdentity, Deliver,
    Elsewhere, End, Ending, Engine, IpService, Judged, Lease, LeaseSnapshot, Leases, ListenPath, NoContext,
    NoLease, NoService, Owner, Prefix, ProxyError, RequestId, Role, Runs, Server, ServerAction, ServerShard,
    Service, ServiceProvider, ServiceRequest, ServiceStream, StoredLease, Target, own_address,
};
pub use idleness::Idleness;
pub use own_addresses::OwnAddresses;
pub use secret::{NotAToken, Token};
pub use snapshot::{
    AuthorizationCounters, Direction, PathSnapshot, PeerSnapshot, RendezvousCounters, TimeSamples,
};
pub use target_rules::{AllowedTarget, NotATarget, Prohibited, TargetRules};
pub use translated::nat64_prefix;

/// Readers of bytes from outside, for fuzzing; not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::rendezvous::fuzz_message as rendezvous_message;
    pub use crate::rendezvous::fuzz_path as rendezvous_path;
}
