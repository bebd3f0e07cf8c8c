//! What is tried to reach a peer, for whoever wants to know why it takes long or fails.

use std::net::SocketAddr;
use std::time::Duration;

use quic::CloseReason;

use crate::error::Failure;

/// Who named an address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressSource {
    /// The program.
    Program,
    /// A rendezvous (`specs/rendezvous.md`): the peer's own addresses, and how routers show it to the world.
    Rendezvous,
    /// A rendezvous, which relays at this address.
    Relay,
    /// The peer itself, on the local network (`specs/lan.md`).
    Lan,
    /// A check of the peer came from there (RDV-2).
    Check,
}

/// An address of a peer that is being connected, and what has become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The address.
    pub address: SocketAddr,
    /// Who named it first.
    pub source: AddressSource,
    /// When it was begun, after the connection was asked for; `None`: it waits, or never was.
    pub begun_after: Option<Duration>,
    /// What has become of it.
    pub state: AttemptState,
}

impl Attempt {
    /// Why no connection came about there, where that is certain.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let AttemptState::Failed(reason) = &self.state else {
            return None;
        };
        Some(Failure {
            address: self.address,
            reason: reason.clone(),
        })
    }
}

/// What has become of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// Its turn has not come, or another address was faster.
    Waiting,
    /// Nothing has come back yet that would end it.
    Unanswered,
    /// It is the connection.
    Connected,
    /// No connection came about.
    Failed(CloseReason),
}
