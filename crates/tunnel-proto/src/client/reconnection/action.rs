//! What a stripe's search for its server asks of the driver.

use std::net::SocketAddr;

#[cfg(doc)]
use super::Reconnection;

/// Numbers the attempts of a stripe to connect, and the connections that come of them.
pub type AttemptId = u64;

/// What the driver has to do next for the connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectAction {
    /// Resolve a name, and tell [`Reconnection::handle_resolved`] whatever comes of it.
    Resolve {
        /// Goes back with the answer.
        resolution: u64,
        /// The name.
        host: String,
        /// Goes into the addresses.
        port: u16,
    },
    /// Begin to connect, from a local port of its own unless the present connection goes to this address. Then tell
    /// [`Reconnection::handle_connected`] or [`Reconnection::handle_lost`].
    Connect {
        /// The attempt.
        attempt: AttemptId,
        /// The address.
        address: SocketAddr,
        /// The server as the settings name it.
        server_name: String,
    },
    /// The connection moves to this attempt's carrier, and the attempt ends: [`Reconnection::handle_moved`] is to follow, or
    /// [`Reconnection::handle_lost`] where it cannot.
    Move {
        /// Which attempt; it has been told to be connected.
        attempt: AttemptId,
    },
    /// This attempt is the connection from here on.
    Choose {
        /// Which attempt; it has been told to be connected.
        attempt: AttemptId,
    },
    /// Close an attempt or the connection; of the connection [`Reconnection::handle_lost`] is to follow.
    Disconnect {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// Every address of every server has failed, and a pause follows.
    Unreachable {
        /// Server, and what happened last: a sentence for people.
        reason: String,
        /// Nobody answered anywhere, which is no news where somebody did before.
        is_silence: bool,
    },
}
