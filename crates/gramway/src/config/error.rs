//! Why a setting cannot be used; each message completes "KEY: …".

use std::str::FromStr;

use tunnel_proto::link::EndpointError;
use tunnel_proto::{NotATarget, Prefix};

use crate::forward::{ForwardError, PartError};
use crate::limits::REPAIR_MILLISECONDS;

/// Why a key's value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingError {
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("it takes a file, not the link itself, which is given as LINK or in GRAMWAY_LINK")]
    LinkForFile,
    /// The file gives it a value of another type.
    #[error("it takes {0}")]
    Type(&'static str),
    #[error("its elements are texts in double quotes")]
    Elements,
    #[error("the number is too large")]
    TooLarge,
    #[error("{number} is outside {first} to {last} {unit}")]
    Range {
        number: i64,
        first: i64,
        last: i64,
        unit: &'static str,
    },
    #[error("{0}ms is outside {first}ms to {last}ms", first = REPAIR_MILLISECONDS.start(), last = REPAIR_MILLISECONDS.end())]
    RepairRange(u64),
    /// `what` says what the text is not.
    #[error("\"{text}\" is {what}")]
    Text { text: String, what: &'static str },
    #[error("\"{text}\" cannot be used: {error}")]
    Prefix {
        text: String,
        error: <Prefix as FromStr>::Err,
    },
    #[error(transparent)]
    Target(#[from] NotATarget),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error(transparent)]
    Listener(#[from] PartError),
}

impl SettingError {
    /// `what` completes "TEXT is …".
    pub(super) fn text(text: &str, what: &'static str) -> Self {
        Self::Text {
            text: text.to_owned(),
            what,
        }
    }
}
