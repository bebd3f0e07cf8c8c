//! What `gramway peer` tells while it runs: sentences for people, or with `--json` an object a line for programs, whose
//! `event` says which other fields there are.

use serde_json::{Map, Value};

use crate::exit::Problem;
use crate::output;

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reports {
    /// For programs.
    pub(super) is_json: bool,
}

impl Reports {
    /// Tells on standard error, where standard output belongs to pipes.
    pub(super) fn note(self, event: &str, fields: Value, text: &str) {
        match self.is_json {
            true => output::note(&object(event, fields)),
            false => output::note(text),
        }
    }

    /// Tells on standard output.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn data(self, event: &str, fields: Value, text: &str) -> Result<(), Problem> {
        match self.is_json {
            true => output::data(&object(event, fields)),
            false => output::data(text),
        }
    }
}

/// One line.
fn object(event: &str, fields: Value) -> String {
    let mut object = Map::from_iter([("event".to_owned(), event.into())]);
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    output::json(&Value::Object(object))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_with_its_fields() {
        let line = object("mapped", json!({ "address": "192.0.2.1:9" }));
        assert_eq!(line, r#"{"event":"mapped","address":"192.0.2.1:9"}"#);
        assert_eq!(object("announced", Value::Null), r#"{"event":"announced"}"#);
        assert!(!object("problem", json!({ "text": "two\nlines" })).contains('\n'));
    }
}
