//! Fields of a message: what a name and a value may hold (RFC 9114 sections 4.2 and 10.3), and the list that they
//! form.

use std::fmt;

use crate::MessageError;

/// Size that RFC 9114 section 4.2.2 adds for each field, in bytes.
const FIELD_OVERHEAD_BYTES: u64 = 32;

/// One field: a lower-case name, with a leading colon for a pseudo-header, and its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    name: String,
    value: Vec<u8>,
}

impl Field {
    /// A field from the peer's bytes.
    ///
    /// # Errors
    /// H3_MESSAGE_ERROR for characters that RFC 9114 does not permit, upper case in names among them.
    pub(crate) fn parse(name: &[u8], value: &[u8]) -> Result<Self, MessageError> {
        let token = name.strip_prefix(b":").unwrap_or(name);
        if token.is_empty() || !token.iter().all(|byte| is_name_byte(*byte)) {
            return Err(MessageError::malformed("character not permitted in a field name"));
        }
        if !value
            .iter()
            .all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..))
        {
            return Err(MessageError::malformed(
                "character not permitted in a field value",
            ));
        }
        let name = String::from_utf8_lossy(name).into_owned();
        Ok(Self {
            name,
            value: value.to_vec(),
        })
    }

    /// The name, lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Size as RFC 9114 section 4.2.2 counts it, in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        size_of_field(self.name.len(), self.value.len())
    }

    /// Whether the value can hold a token: then it is never printed, and never indexed by an intermediary
    /// (RFC 9204 section 7.1.3).
    #[must_use]
    pub fn is_secret(&self) -> bool {
        matches!(
            self.name.as_str(),
            "authorization" | "proxy-authorization" | ":path" | crate::binding::FIELD
        )
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.is_secret() {
            "(secret)".into()
        } else {
            String::from_utf8_lossy(&self.value)
        };
        write!(formatter, "{}: {value}", self.name)
    }
}

/// Bytes that a field counts for in a field section.
pub(crate) const fn size_of_field(name_bytes: usize, value_bytes: usize) -> u64 {
    name_bytes as u64 + value_bytes as u64 + FIELD_OVERHEAD_BYTES
}

/// Token characters of RFC 9110 section 5.6.2 without upper case.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The fields of one field section, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderList {
    fields: Vec<Field>,
}

impl HeaderList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Appends a field of our own.
    ///
    /// # Panics
    /// When name or value hold characters that a field must not have.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let field =
            Field::parse(name.as_bytes(), value.as_ref()).expect("own fields have permitted characters only");
        self.fields.push(field);
    }

    pub(crate) fn push_field(&mut self, field: Field) {
        self.fields.push(field);
    }

    /// The list with one more field; see [`HeaderList::push`].
    ///
    /// # Panics
    /// As [`HeaderList::push`].
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.push(name, value);
        self
    }

    /// All fields in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Field> {
        self.fields.iter()
    }

    /// Every value of `name`, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name == name)
            .map(Field::value)
    }

    /// The value of `name` where exactly one field has that name.
    #[must_use]
    pub fn only(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter().filter(|field| field.name == name);
        let field = fields.next()?;
        fields.next().is_none().then_some(field.value())
    }

    /// Size as RFC 9114 section 4.2.2 counts it, in bytes; compare with the peer's `max_field_section_size`.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.fields.iter().map(Field::size).sum()
    }
}

impl<'a> IntoIterator for &'a HeaderList {
    type Item = &'a Field;
    type IntoIter = std::slice::Iter<'a, Field>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
