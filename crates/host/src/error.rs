//! Errors of the host as one sentence: the failed operation, its object, and the system's reason.

use std::fmt;
use std::io;

/// A change or question that the host refused, here or in another process. Its text is a whole sentence.
#[derive(Debug)]
pub struct HostError {
    text: String,
    cause: io::Error,
}

impl HostError {
    /// `what` completes "cannot …".
    pub(super) fn new(what: impl fmt::Display, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        let reason = cause.to_string();
        let reason = reason
            .split_once(" (os error")
            .map_or(reason.as_str(), |(text, _)| text);
        let text = format!("cannot {what}: {reason}");
        Self { text, cause }
    }

    /// One that has its sentence already.
    pub(super) fn sentence(text: String, kind: io::ErrorKind) -> Self {
        let cause = kind.into();
        Self { text, cause }
    }

    /// The kind of the system's reason.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }

    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(
            self.cause.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        )
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Gives a system error its sentence; `what` completes "cannot …".
pub(super) trait Explain<T> {
    fn explain(self, what: impl FnOnce() -> String) -> Result<T, HostError>;
}

impl<T, E: Into<io::Error>> Explain<T> for Result<T, E> {
    fn explain(self, what: impl FnOnce() -> String) -> Result<T, HostError> {
        self.map_err(|error| HostError::new(what(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_sentence_without_numbers() {
        let error = HostError::new("set the MTU", io::Error::from_raw_os_error(1));
        assert_eq!(error.to_string(), "cannot set the MTU: Operation not permitted");
        assert!(error.is_permission());
    }
}
