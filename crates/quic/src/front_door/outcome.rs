//! What a client knows about whom it met, from its hello to the end of the connection.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use reality::authenticator::ChannelKeys;

/// Whom a client met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody yet.
    Open,
    /// The server of its link.
    Tunnel,
    /// Somebody with a valid certificate for the name: the cover itself.
    Genuine,
    /// Somebody else.
    Invalid,
}

/// Shared by a connection and its TLS.
#[derive(Debug)]
pub(crate) struct Outcome {
    keys: OnceLock<ChannelKeys>,
    verdict: AtomicU8,
}

impl Outcome {
    pub(super) fn new() -> Self {
        Self {
            keys: OnceLock::new(),
            verdict: AtomicU8::new(Verdict::Open as u8),
        }
    }

    /// The hello is composed.
    pub(super) fn set_keys(&self, keys: ChannelKeys) {
        // A second hello would be another connection's.
        let _ = self.keys.set(keys);
    }

    /// The keys of the connection; `None` before its hello.
    pub(crate) fn keys(&self) -> Option<&ChannelKeys> {
        self.keys.get()
    }

    pub(super) fn decide(&self, verdict: Verdict) {
        self.verdict.store(verdict as u8, Ordering::Relaxed);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let verdict = self.verdict.load(Ordering::Relaxed);
        let all = [Verdict::Open, Verdict::Tunnel, Verdict::Genuine, Verdict::Invalid];
        all.into_iter()
            .find(|one| *one as u8 == verdict)
            .unwrap_or(Verdict::Open)
    }
}
