//! Why a store does not do what it was asked for.

/// The store's answer in place of a result; the texts complete a sentence about the store's place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is a user of this name.
    #[error("there is a user {0} already")]
    NameTaken(String),
    /// There is no user of this name.
    #[error("there is no user {0}")]
    NoSuchUser(String),
    /// Not a name.
    #[error(
        "{0:?} is not a name: take 1 to 32 letters, digits, dots, hyphens and underscores, with a letter or digit first, \
         and not \"owner\""
    )]
    BadName(String),
    /// Another program or a fault has written into it.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A newer program has written it.
    #[error("it is of a newer gramway (version {found}, this program knows {known}); update gramway")]
    Newer {
        /// Its version.
        found: u32,
        /// The newest that this program reads.
        known: u32,
    },
    /// This process may not.
    #[error("permission denied")]
    Denied,
    /// It, or its directory, cannot be written.
    #[error("it cannot be written: file or directory is read-only")]
    ReadOnly,
    /// No space is left.
    #[error("the disk is full")]
    Full,
    /// Another process keeps it locked.
    #[error("another process has been writing to it for too long")]
    Busy,
    /// What the database says.
    #[error("{0}")]
    Other(String),
}
