//! The request field `gramway-binding`, by which the first request on a connection proves that its client made the
//! hello that the server recognised (specs/qr1.md, QR1-17): 32 bytes in base64url without padding.

use data_encoding::BASE64URL_NOPAD;
use subtle::ConstantTimeEq;

use crate::HeaderList;

/// The field's name.
pub(crate) const FIELD: &str = "gramway-binding";

/// What binds a request to its connection.
#[derive(Clone)]
pub struct Binding(pub [u8; 32]);

impl Binding {
    /// Adds the field to a request.
    pub fn push_to(&self, list: &mut HeaderList) {
        list.push(FIELD, BASE64URL_NOPAD.encode(&self.0));
    }

    /// Whether a request has this binding, and no other; in constant time for texts of the right length.
    #[must_use]
    pub fn is_shown_by(&self, list: &HeaderList) -> bool {
        let own = BASE64URL_NOPAD.encode(&self.0);
        list.only(FIELD)
            .is_some_and(|shown| shown.ct_eq(own.as_bytes()).into())
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Binding")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shows_its_binding_once_and_whole() {
        let binding = Binding([7; 32]);
        let mut list = HeaderList::new();
        assert!(!binding.is_shown_by(&list));
        binding.push_to(&mut list);
        assert!(binding.is_shown_by(&list));
        assert!(!Binding([8; 32]).is_shown_by(&list));
        let short = HeaderList::new().with(FIELD, &BASE64URL_NOPAD.encode(&[7; 32])[1..]);
        assert!(!binding.is_shown_by(&short));
        binding.push_to(&mut list);
        assert!(!binding.is_shown_by(&list), "two of them");
        let shown = format!("{list:?} {binding:?}");
        assert!(!shown.contains("Bwc"), "{shown}");
    }
}
