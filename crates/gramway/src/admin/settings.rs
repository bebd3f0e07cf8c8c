//! What the settings say about the admin API over TCP.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the status page and its API are served, and to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminSettings {
    /// `None`: nowhere but at the admin socket.
    pub(crate) listen: Option<SocketAddr>,
    /// The file with the token that is asked for; `None`: off loopback a file in the state directory, else no token.
    pub(crate) token_file: Option<PathBuf>,
}
