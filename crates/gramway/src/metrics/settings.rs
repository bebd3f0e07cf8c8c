//! What the settings say about metrics.

use std::net::SocketAddr;

/// Where the counters are served, and how many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetricsSettings {
    /// `None`: nowhere.
    pub(crate) listen: Option<SocketAddr>,
    /// Also what each user does.
    pub(crate) per_user: bool,
}
