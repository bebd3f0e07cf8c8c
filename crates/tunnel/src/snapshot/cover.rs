//! What a server's cover counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use reality::door::DoorCounters;
use reality::examination::verdict::Profile;
use serde::{Serialize, Serializer};

use super::Gauge;

/// The web site that a server looks like to everybody without its link.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoverSnapshot {
    /// Host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The name that clients ask for.
    pub name: String,
    /// Where it is, the address in use first.
    pub addresses: Vec<SocketAddr>,
    /// Why it cannot be found, where it cannot.
    pub trouble: Option<String>,
    /// For how long it has not answered; `None` where it does.
    pub silent_seconds: Option<f64>,
    /// Why it cannot be imitated any more, so that the server looks as it did before.
    pub unfit: Option<String>,
    /// Bytes of its connection IDs, where the server's have another number until it starts again.
    pub id_bytes_after_restart: Option<u8>,
    /// Looks at it since the start.
    pub looks: CoverLooks,
    /// What handshakes of the server have in common with its own.
    pub profile: CoverProfile,
    /// TCP connections that go on to it, where they do.
    pub tcp: Option<CoverTcpCounters>,
    /// Strangers' addresses whose datagrams go to it.
    pub flows: Gauge,
    /// What became of datagrams and hellos; zeros are left out where it is shown.
    #[serde(serialize_with = "by_name")]
    pub relay: DoorCounters,
    /// Datagrams of strangers for which there was no way to it.
    pub unsent: u64,
    /// Hellos that are remembered, so that none is accepted twice.
    pub remembered: u64,
}

impl CoverSnapshot {
    /// With what another shard counts.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.flows += other.flows;
        self.relay += other.relay;
        self.unsent += other.unsent;
        self
    }
}

/// Only what happened at all.
fn by_name<S: Serializer>(counters: &DoorCounters, serializer: S) -> Result<S::Ok, S::Error> {
    let happened = counters.all().filter(|(_, count)| *count > 0);
    happened.collect::<BTreeMap<_, _>>().serialize(serializer)
}

/// Looks at a cover while the server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoverLooks {
    /// All.
    pub total: u64,
    /// Those at which it did not answer.
    pub unanswered: u64,
}

/// What a watcher sees of the cover's handshakes, and of the server's, too (specs/qr1.md, QR1-27 and QR1-29).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CoverProfile {
    /// Cipher suite (RFC 8446 appendix B.4).
    pub suite: u16,
    /// Key-exchange group (RFC 8446 section 4.2.7).
    pub group: u16,
    /// Bytes of connection IDs.
    pub id_bytes: u8,
    /// Bytes of the Certificate message.
    pub certificate_bytes: usize,
    /// `supported_versions` before `key_share` in the ServerHello.
    pub is_version_first: bool,
    /// How long a hello waits for its answer.
    pub answer_delay_ms: f64,
}

impl From<&Profile> for CoverProfile {
    fn from(profile: &Profile) -> Self {
        Self {
            suite: profile.suite,
            group: profile.group,
            id_bytes: profile.id_bytes,
            certificate_bytes: profile.certificate_bytes,
            is_version_first: profile.is_version_first,
            answer_delay_ms: profile.answer_delay.as_micros() as f64 / 1_000.0,
        }
    }
}

/// TCP connections of strangers that go on to the cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoverTcpCounters {
    /// Open at present.
    pub open: u64,
    /// Since the start.
    pub total: u64,
    /// The cover was not reached.
    pub failed: u64,
    /// Ended by a reset of either side, or because nothing moved.
    pub reset: u64,
    /// Reset at once: beyond what one network, or all, may have open.
    pub over_limit: u64,
    /// Bytes from strangers.
    pub bytes_to_cover: u64,
    /// Bytes of the cover.
    pub bytes_from_cover: u64,
}
