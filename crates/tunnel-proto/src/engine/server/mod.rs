//! What only a server's engine does: it judges requests, and serves IP sessions.

mod authorization;
mod front_door;
pub(super) mod ip;
pub(super) mod ip_service;
pub(super) mod lease;
mod questions;
mod requests;
mod role;
mod services;
mod tcp;
mod wrong_tokens;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use masque::ServerShard;

use super::{Engine, RequestId, ServiceProvider};
use crate::access::Authorizer;
use crate::config::EngineConfig;
use crate::engine::request::Holder;
use crate::idleness::Idleness;
use crate::rendezvous::Relay;
use authorization::Access;
use front_door::FrontDoor;
use ip_service::IpService;
use lease::ClientIdentity;
pub(crate) use wrong_tokens::WrongTokens;

/// What a server's engine keeps besides.
pub struct Server {
    /// Who may use it.
    access: Access,
    wrong_tokens: WrongTokens,
    /// Whom it expects; `None`: everybody.
    front_door: Option<FrontDoor>,
    /// Requests refused before a valid token, by status.
    refused: BTreeMap<String, u64>,
    /// Which shard of how many this is.
    shard: ServerShard,
    /// Services by `:protocol`.
    services: BTreeMap<String, Box<dyn ServiceProvider>>,
    /// What it relays between peers by; `None` where it relays nothing.
    pub(super) relay: Option<Relay>,
    /// What it offers to IP sessions; `None` where it offers nothing.
    ip_service: Option<IpService>,
    /// The IP sessions of each client's address, the newest last.
    ip_by_address: HashMap<IpAddr, Vec<RequestId>>,
    /// The IP sessions of each client, those that wait for a lease, too.
    ip_by_client: HashMap<ClientIdentity, Vec<RequestId>>,
    /// Numbers clients without a name.
    nameless: u64,
    /// TCP connections, those that the driver opens included.
    tcp: Idleness<Holder, RequestId>,
}

impl Engine<Server> {
    /// A server's engine that lets in whom `authorizer` knows.
    #[must_use]
    pub fn server(endpoint: quic::Endpoint, authorizer: Box<dyn Authorizer>, config: EngineConfig) -> Self {
        let server = Server {
            access: Access::new(authorizer),
            wrong_tokens: WrongTokens::new(1),
            front_door: None,
            refused: BTreeMap::new(),
            shard: ServerShard { index: 0, count: 1 },
            services: BTreeMap::new(),
            relay: None,
            ip_service: None,
            ip_by_address: HashMap::new(),
            ip_by_client: HashMap::new(),
            nameless: 0,
            tcp: Idleness::default(),
        };
        Self::new(endpoint, server, config)
    }

    /// Requests refused before a valid token, by status.
    #[must_use]
    pub fn refused_requests(&self) -> BTreeMap<String, u64> {
        self.state.role.refused.clone()
    }
}
