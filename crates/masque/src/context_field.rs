//! Fields of requests and responses that name a context ID.

use crate::HeaderList;
use crate::limits::STRUCTURED_INTEGER_MAX;

/// Request and response field that offers and accepts the split context (specs/split.md, SPLIT-1).
pub const SPLIT_FIELD: &str = "gramway-split";

/// The context ID in [`SPLIT_FIELD`]: non-zero and even, as clients allocate them (SPLIT-1, RFC 9298 section 4).
/// Whatever else stands there counts as absent.
#[must_use]
pub fn split_context(list: &HeaderList) -> Option<u64> {
    context_field(list, SPLIT_FIELD)
}

/// A context ID that a client may allocate, in the field `name`.
pub(crate) fn context_field(list: &HeaderList, name: &str) -> Option<u64> {
    let text = std::str::from_utf8(list.only(name)?).ok()?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse()
        .ok()
        .filter(|id| *id != 0 && id % 2 == 0 && *id <= STRUCTURED_INTEGER_MAX)
}
