//! What only a client's engine does: connections that it makes, the requests that it sends on them, the IP session that
//! it asks for.

mod attempts;
pub(super) mod ip;
pub(super) mod moved_session;
mod requests;
mod role;
mod succession;
pub(super) mod token_check;

use std::time::Instant;

use masque::HeldBack;
use masque::ip::ClientId;
use quic::ConnectionKey;

use super::ip::bucket::Bucket;
use super::{Engine, RequestId};
use crate::client::Acceptance;
use crate::config::{EngineConfig, TunRoutes};
use crate::limits;
use crate::rendezvous::guest_token;
use crate::secret::Token;
use attempts::Attempt;

/// What a client's engine keeps besides.
pub struct Client {
    /// What we show.
    bearer: String,
    /// All connections that have not been told to be lost; one of them may be `current`.
    attempts: Vec<Attempt>,
    /// The connection that requests go out on.
    current: Option<ConnectionKey>,
    /// The server takes no new requests on it.
    is_going_away: bool,
    /// Connections before it that go on for what is open there, the oldest first.
    former: Vec<ConnectionKey>,
    /// Requests wait after the token check until the driver says that the connection stays.
    asks_to_keep: bool,
    /// Nothing but the token check goes out on the current connection.
    holds_requests: bool,
    /// The name and run that it asks for an IP session with; `None` where it wants none.
    ip: Option<(ClientId, u32)>,
    /// What it takes of what the server assigns, advertises and sends.
    acceptance: Acceptance,
    /// When the server said last that the path holds it back.
    server_held_back: Option<(Instant, HeldBack)>,
    /// How often news of addresses and routes may be told.
    news: Bucket,
    /// When withheld news is told.
    news_due: Option<Instant>,
    /// The IP session that takes packets.
    ip_session: Option<RequestId>,
}

impl Client {
    pub(in crate::engine) fn current(&self) -> Option<ConnectionKey> {
        self.current
    }
}

impl Engine<Client> {
    /// A client's engine that shows `token`.
    #[must_use]
    pub fn client(endpoint: quic::Endpoint, token: &Token, config: EngineConfig) -> Self {
        Self::showing(endpoint, token.reveal(), config)
    }

    /// The engine of a guest who was invited by this number (`specs/rendezvous.md`, RDV-15).
    #[must_use]
    pub fn guest(endpoint: quic::Endpoint, number: u32, config: EngineConfig) -> Self {
        Self::showing(endpoint, guest_token(number), config)
    }

    fn showing(endpoint: quic::Endpoint, bearer: String, config: EngineConfig) -> Self {
        let client = Client {
            bearer,
            attempts: Vec::new(),
            current: None,
            is_going_away: false,
            former: Vec::new(),
            asks_to_keep: false,
            holds_requests: false,
            ip: None,
            acceptance: Acceptance::new(TunRoutes::Advertised, false),
            server_held_back: None,
            news: Bucket::new(limits::ASSIGNMENTS_BURST, limits::ASSIGNMENT_INTERVAL),
            news_due: None,
            ip_session: None,
        };
        Self::new(endpoint, client, config)
    }
}
