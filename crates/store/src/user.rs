//! What is known of a user.

use std::fmt;

use crate::error::StoreError;
use crate::limits::NAME_CHARACTERS_MAX;
use crate::usage::Quota;

/// Names a user for good: a random number. A removed user's name may be given again, its ID never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(pub [u8; 16]);

/// A user, with nothing by which somebody could come as that user.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// Who it is.
    pub id: UserId,
    /// What people call it.
    pub name: String,
    /// SHA-256 of the token's text.
    pub token_digest: [u8; 32],
    /// The token's key at the front door (specs/qr1.md, QR1-2): short name and pre-shared key. Secret, because it tells
    /// clients of the server from strangers; the token does not follow from it.
    pub front_door_key: [u8; 40],
    /// Since when there is this user, in seconds of Unix time.
    pub created: u64,
    /// From when on it may do nothing more, in seconds of Unix time; `None`: never.
    pub expires: Option<u64>,
    /// How much it may use; `None`: as much as it likes.
    pub quota: Option<Quota>,
    /// How fast it may be in each direction; `None`: as fast as it can.
    pub bits_per_second: Option<u64>,
    /// What it may ask for.
    pub rights: Rights,
    /// The networks that it may reach, one word each, as its server reads them; empty: all that the server lets it.
    pub reach: Vec<String>,
    /// The ports of the server at which it may listen, one word each, as its server reads them; empty: none.
    pub listen: Vec<String>,
    /// It may do nothing for the time being.
    pub is_disabled: bool,
}

/// Shows no secret.
impl fmt::Debug for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a user may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// UDP sessions.
    pub udp: bool,
    /// TCP connections.
    pub tcp: bool,
    /// IP packets; only together with `udp` and `tcp`, which they could carry.
    pub ip: bool,
}

impl User {
    /// Whether this can be a user's name: one word of a command line, and not the owner's, who is in no store.
    ///
    /// # Errors
    /// [`StoreError::BadName`].
    pub fn check_name(name: &str) -> Result<(), StoreError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_name = name.len() <= NAME_CHARACTERS_MAX
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.bytes().all(is_plain)
            && name != "owner";
        if is_name {
            Ok(())
        } else {
            Err(StoreError::BadName(name.to_owned()))
        }
    }
}
