//! What a call came to: an answer that is right, or an error that says what was tried.

use std::fmt::Display;

use crate::Error;

/// Says what was tried when a library's own error came up.
pub(crate) fn failed<E: Display>(what: &'static str) -> impl FnOnce(E) -> Error {
    // The alternate form of irpc's errors names their causes, too.
    move |error| Error::Setup(format!("cannot {what}: {error:#}"))
}

/// Fails unless an answer is `right`.
pub(super) fn check(right: bool) -> Result<(), Error> {
    if right {
        Ok(())
    } else {
        Err(Error::Setup("an answer is wrong or missing".to_owned()))
    }
}
