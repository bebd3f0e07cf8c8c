//! Secrets that never show themselves: the user's token and what is derived from it.

use std::fmt;

use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use reality::credentials::UserKey;
use subtle::ConstantTimeEq;

/// Bytes of a token.
const TOKEN_BYTES: usize = 32;

/// A user's token: 32 random bytes, base64url without padding as text. Equality is constant-time; `Debug` shows nothing.
#[derive(Clone)]
pub struct Token([u8; TOKEN_BYTES]);

/// The text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is 43 characters of base64url (A-Z a-z 0-9 - _)")]
pub struct NotAToken;

impl Token {
    /// Takes 32 random bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; TOKEN_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads the text form; white space around it is not accepted.
    ///
    /// # Errors
    /// [`NotAToken`] for every other text; the message does not repeat it.
    pub fn parse(text: &str) -> Result<Self, NotAToken> {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| NotAToken)?;
        Ok(Self(bytes.try_into().map_err(|_| NotAToken)?))
    }

    /// The text form, for links, files and header fields only.
    #[must_use]
    pub fn reveal(&self) -> String {
        BASE64URL_NOPAD.encode(&self.0)
    }

    /// The secret path segment of this token's URI template: HMAC-SHA-256 of a fixed label under the token,
    /// base64url. Whoever learns the URL does not learn the token.
    #[must_use]
    pub fn path_segment(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        BASE64URL_NOPAD.encode(hmac::sign(&key, b"gramway masque path v1").as_ref())
    }

    /// What stands for this token in a client's hello (specs/qr1.md, QR1-2).
    #[must_use]
    pub fn user_key(&self) -> UserKey {
        UserKey::derive(&self.0)
    }

    /// Whether `text` is this token, in constant time for texts of the right length.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.reveal().as_bytes().ct_eq(text.as_bytes()).into()
    }

    /// Whether `segment` is this token's path segment, in constant time for texts of the right length.
    #[must_use]
    pub fn matches_path_segment(&self, segment: &str) -> bool {
        self.path_segment().as_bytes().ct_eq(segment.as_bytes()).into()
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text_form_and_shows_itself_nowhere_else() {
        let token = Token::from_bytes([7; 32]);
        let text = token.reveal();
        assert_eq!(Token::parse(&text).unwrap(), token);
        assert!(token.matches(&text));
        assert!(!token.matches(&text[1..]));
        assert!(!format!("{token:?}").contains(&text[..8]));
        assert_eq!(Token::parse("short").unwrap_err(), NotAToken);
        assert_eq!(Token::parse(&format!(" {text}")).unwrap_err(), NotAToken);
    }

    #[test]
    fn the_path_segment_depends_on_the_token_and_is_not_the_token() {
        let (one, other) = (Token::from_bytes([1; 32]), Token::from_bytes([2; 32]));
        assert_ne!(one.path_segment(), other.path_segment());
        assert_ne!(one.path_segment(), one.reveal());
        assert!(one.matches_path_segment(&one.path_segment()));
        assert!(!one.matches_path_segment(&other.path_segment()));
    }
}
