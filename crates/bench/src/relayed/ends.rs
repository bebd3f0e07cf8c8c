//! One end of a pair: the trial of `bench peers`, by an endpoint that may have a rendezvous.

use std::net::SocketAddr;
use std::sync::OnceLock;

use peer::{Endpoint, Peer, Rendezvous, SecretKey};
use serde::{Deserialize, Serialize};

use crate::peers::trial::contestant::{Outcome, Transport, failed};
use crate::peers::trial::{self, Bounds, Contact};

/// What a message costs in an endpoint's bound of bytes beside its body.
const MESSAGE_COST_BYTES: usize = 128;

/// The link of this process's run: a trial has no place for it.
static LINK: OnceLock<String> = OnceLock::new();

/// What one end does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Options {
    pub(super) trial: trial::Options,
    /// The server at which the end is registered.
    pub(super) link: Option<String>,
}

/// Runs one end until stdin ends.
///
/// # Errors
/// What it could not do.
pub(super) fn run(options: Options) -> Outcome<()> {
    if let Some(link) = options.link {
        LINK.get_or_init(|| link);
    }
    trial::run::<End>(&options.trial)
}

/// An endpoint, registered where the run has a link.
#[derive(Clone)]
struct End(Endpoint);

impl Transport for End {
    type Connection = Peer;
    type Incoming = Peer;

    async fn bind(address: SocketAddr, bounds: Bounds) -> Outcome<Self> {
        let key = SecretKey::generate().map_err(failed("make a key"))?;
        let bytes = bounds.bytes + bounds.messages * MESSAGE_COST_BYTES;
        let mut builder = Endpoint::builder(key).send_bytes_max(bytes);
        let link = LINK.get();
        if let Some(link) = link {
            let rendezvous = Rendezvous::from_link(link).map_err(failed("read the link"))?;
            builder = builder.rendezvous(rendezvous);
        }
        let endpoint = builder.bind(address).map_err(failed("bind an endpoint"))?;
        if link.is_some() && endpoint.registered().await.is_none() {
            return Err("the endpoint was not registered".to_owned());
        }
        Ok(Self(endpoint))
    }

    fn contact(&self) -> Outcome<Contact> {
        Ok(Contact {
            address: self.0.local_addr(),
            identity: self.0.id().to_string(),
        })
    }

    async fn connect(&self, contact: &Contact) -> Outcome<Peer> {
        let id = contact.identity.parse().map_err(failed("read a peer ID"))?;
        // A relayed peer is known by its ID alone.
        let is_relayed = LINK.get().is_some();
        let known = [contact.address];
        let addresses = if is_relayed { &[][..] } else { &known };
        let peer = self.0.connect(id, addresses).await.map_err(failed("connect"))?;
        match peer.path() {
            Some(path) if path.is_relayed() == is_relayed => Ok(peer),
            path => Err(format!("the pair came about by another path: {path:?}")),
        }
    }

    async fn accept(&self) -> Option<Peer> {
        self.0.accept().await
    }

    async fn establish(incoming: Peer) -> Outcome<Peer> {
        Ok(incoming)
    }
}
