//! What the settings say of traces: where they go, and of which users.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// The word that means all users; no user has such a name.
pub(super) const EVERYBODY: &str = "*";

/// What the settings say.
#[derive(Clone, Debug, Default)]
pub(crate) struct QlogSettings {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) users: TracedUsers,
}

/// Names of the users whose new connections a server traces. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct TracedUsers(Arc<RwLock<Vec<String>>>);

impl TracedUsers {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self(Arc::new(RwLock::new(names)))
    }

    /// From here on those of the other list.
    pub(crate) fn follow(&self, other: &Self) {
        let names = other.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().any(|known| known == name || known == EVERYBODY)
    }

    pub(super) fn is_anybody(&self) -> bool {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !names.is_empty()
    }
}
