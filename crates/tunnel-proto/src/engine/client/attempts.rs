//! A client's connections: several attempts may go on beside the one that requests go out on.

use std::net::SocketAddr;
use std::time::Instant;

use masque::Code;
use quic::{ClientParameters, CloseReason, ConnectError, ConnectionKey};

use super::Client;
use crate::client::AttemptId;
use crate::engine::{Action, ClientAction, Engine, masque_code};

/// A connection, from its first packet on.
pub(super) struct Attempt {
    id: AttemptId,
    pub(super) connection: ConnectionKey,
    /// The server as requests name it.
    authority: String,
}

impl Client {
    pub(super) fn attempt_of(&self, connection: ConnectionKey) -> Option<AttemptId> {
        let mut attempts = self.attempts.iter();
        let attempt = attempts.find(|attempt| attempt.connection == connection)?;
        Some(attempt.id)
    }

    /// The server as requests on this connection name it.
    pub(super) fn authority(&self, connection: ConnectionKey) -> &str {
        let mut attempts = self.attempts.iter();
        let attempt = attempts.find(|attempt| attempt.connection == connection);
        &attempt.expect("requests go out on an attempt").authority
    }

    /// The connection is over. Which attempt it was, unless that has been told.
    pub(super) fn forget(&mut self, connection: ConnectionKey) -> Option<AttemptId> {
        let attempt = self.attempt_of(connection)?;
        self.attempts.retain(|known| known.id != attempt);
        if self.current == Some(connection) {
            self.current = None;
        }
        self.former.retain(|former| *former != connection);
        Some(attempt)
    }
}

impl Engine<Client> {
    /// Begins to connect; [`ClientAction::Connected`] or [`ClientAction::Lost`] follows.
    ///
    /// # Errors
    /// [`ConnectError`] where the name or the address cannot be used.
    pub fn connect(
        &mut self,
        now: Instant,
        attempt: AttemptId,
        remote: SocketAddr,
        server_name: &str,
        parameters: &ClientParameters,
        udp_payload_ceiling: u16,
    ) -> Result<(), ConnectError> {
        let connection = self
            .endpoint
            .connect(now, remote, server_name, parameters, udp_payload_ceiling)?;
        self.state.role.attempts.push(Attempt {
            id: attempt,
            connection,
            authority: format!("{}:{}", bracketed(server_name), remote.port()),
        });
        Ok(())
    }

    /// Requests go out on this attempt, which is connected, from here on: [`ClientAction::Up`],
    /// [`ClientAction::TokenRefused`] or [`ClientAction::Lost`] follows.
    ///
    /// # Panics
    /// Where there is a connection that has not been told to be lost or to be going away ([`ClientAction::GoingAway`]).
    pub fn choose(&mut self, now: Instant, attempt: AttemptId) {
        let role = &mut self.state.role;
        assert!(
            role.current.is_none() || role.is_going_away,
            "requests go out on one connection"
        );
        let Some(chosen) = role.attempts.iter().find(|known| known.id == attempt) else {
            return;
        };
        let connection = chosen.connection;
        let surplus = role.retire();
        role.current = Some(connection);
        (role.holds_requests, role.is_going_away) = (role.asks_to_keep, false);
        if let Some(surplus) = surplus {
            self.leave(surplus);
        }
        // The server's SETTINGS may have come with the last packet of its handshake.
        let peer = self.state.peer(connection);
        if peer.is_some_and(|peer| peer.takes_connect_udp().is_some()) {
            self.begin_session(now, connection);
        }
    }

    /// Attempts that have not been told to be lost, the connection among them.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.state.role.attempts.len()
    }

    /// Closes an attempt, or the connection; [`ClientAction::Lost`] follows.
    pub fn abandon(&mut self, now: Instant, attempt: AttemptId) {
        let mut attempts = self.state.role.attempts.iter();
        if let Some(known) = attempts.find(|known| known.id == attempt) {
            self.close(now, known.connection);
        }
    }

    /// Closes the present connection; [`ClientAction::Lost`] follows.
    pub fn disconnect(&mut self, now: Instant) {
        if let Some(connection) = self.state.role.current {
            self.close(now, connection);
        }
    }

    /// The server may have forgotten the connection: asks it for a sign of life, to which it answers with a reset then.
    pub fn probe(&mut self) {
        if let Some(connection) = self.state.role.current {
            self.endpoint.local_address_changed(connection);
        }
    }

    /// After [`ClientAction::Up`]: the connection stays, and what waits may go out on it, with the UDP sessions of the
    /// connection before.
    pub fn keep_connection(&mut self, now: Instant) {
        self.state.role.holds_requests = false;
        if let Some(connection) = self.state.role.current {
            self.send_queued_requests(now, connection);
        }
        self.move_sessions(now);
    }

    /// The server is of no use to us, or not at present: another connection is made later.
    pub(super) fn give_up(&mut self, now: Instant, connection: ConnectionKey, reason: &str) {
        self.close(now, connection);
        if let Some(attempt) = self.state.role.forget(connection) {
            let reason = CloseReason::Protocol(reason.to_owned());
            let lost = ClientAction::Lost { attempt, reason };
            self.state.actions.push_back(Action::Role(lost));
        }
    }

    fn close(&mut self, now: Instant, connection: ConnectionKey) {
        let code = masque_code(Code::NoError);
        self.endpoint.close(now, connection, code, b"");
    }
}

/// A host as it stands in an authority: IPv6 addresses in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}
