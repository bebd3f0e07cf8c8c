//! How a peer is named: its public key, and the key's text.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};

use crate::error::ParseIdError;
use crate::limits::PEER_ID_CHARACTERS;

/// Base32 of RFC 4648 in lower case, without padding, and strict about unused bits.
static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    specification.encoding().expect("32 symbols are an encoding")
});

/// The Ed25519 public key of a peer (PEER-1).
///
/// ```
/// # use peer_proto as peer;
/// use peer::PeerId;
///
/// let id = PeerId::from([7; 32]);
/// let text = id.to_string();
/// assert_eq!(text.len(), 52);
/// assert_eq!(text.parse(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId([u8; 32]);

impl PeerId {
    /// The key's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for PeerId {
    fn from(key: [u8; 32]) -> Self {
        Self(key)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&BASE32.encode(&self.0))
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PeerId({self})")
    }
}

impl FromStr for PeerId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        if text.len() != PEER_ID_CHARACTERS {
            return Err(ParseIdError::Length(text.chars().count()));
        }
        let key = BASE32
            .decode(text.as_bytes())
            .map_err(|_| ParseIdError::Characters)?;
        Ok(Self(key.try_into().expect("52 characters are 32 bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PEER-1.
    #[test]
    fn a_peer_id_is_read_back_and_damaged_text_is_refused() {
        let id = PeerId::from(std::array::from_fn(|index| index as u8 * 7));
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text[1..].parse::<PeerId>(), Err(ParseIdError::Length(51)));
        assert_eq!(
            text.to_uppercase().parse::<PeerId>(),
            Err(ParseIdError::Characters)
        );
        let zero = PeerId::from([0; 32]).to_string();
        assert_eq!(
            format!("{}b", &zero[..51]).parse::<PeerId>(),
            Err(ParseIdError::Characters)
        );
    }
}
