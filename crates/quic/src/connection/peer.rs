//! Who is at the other end, as far as TLS tells.

use std::sync::Arc;

use reality::authenticator::ChannelKeys;

use crate::error::CloseReason;
use crate::front_door::{Outcome, Verdict};
use crate::tls::Refusal;

pub(crate) enum Peer {
    /// A client, recognised by its hello where there are keys.
    Client(Option<ChannelKeys>),
    /// A server, and why it was refused.
    Server(Refusal),
    /// Whoever stands behind a front door.
    FrontDoor(Arc<Outcome>),
}

impl Peer {
    /// Why the handshake ended, where it was for whom we met.
    pub(super) fn refusal(&self) -> Option<CloseReason> {
        match self {
            Self::Server(refusal) => refusal.get().cloned(),
            Self::FrontDoor(outcome) => {
                (outcome.verdict() == Verdict::Invalid).then_some(CloseReason::WrongServer)
            }
            Self::Client(_) => None,
        }
    }

    /// Whether it is the site that the front door shows, and not our server.
    pub(crate) fn is_genuine_site(&self) -> bool {
        matches!(self, Self::FrontDoor(outcome) if outcome.verdict() != Verdict::Tunnel)
    }

    /// What both ends of a connection through a front door have.
    pub(crate) fn channel_keys(&self) -> Option<&ChannelKeys> {
        match self {
            Self::Client(keys) => keys.as_ref(),
            Self::FrontDoor(outcome) => outcome.keys(),
            Self::Server(_) => None,
        }
    }
}
