//! What a hook's answer says.
//!
//! Hysteria takes every status but 200 for a no. Here 401, 403 and 404 are a no as well; any other status is no answer,
//! because a panel that is broken for a while should not end its users' clients.

use serde_json::{Map, Value};
use tunnel_proto::link::is_direction_mark;

use crate::limits::HOOK_NAME_CHARACTERS_MAX;

/// Who shows a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A user of this name.
    Granted(String),
    Refused,
}

/// Reads an answer with this HTTP status, and takes its body where that counts.
///
/// # Errors
/// Why it is no answer, for people.
pub(crate) fn read(status: u16, body: impl FnOnce() -> Result<Vec<u8>, String>) -> Result<Verdict, String> {
    match status {
        200 => {}
        401 | 403 | 404 => return Ok(Verdict::Refused),
        other => return Err(format!("it answers with HTTP status {other}")),
    }
    // JSON throughout (RFC 8259), also where nobody looks.
    let said: Option<Map<String, Value>> = serde_json::from_slice(&body()?).ok();
    let is_yes = said.as_ref().and_then(|said| said.get("ok")?.as_bool());
    let id = said.as_ref().and_then(|said| said.get("id")?.as_str());
    match (is_yes, id) {
        (None, _) => Err("its answer is not {\"ok\": true, \"id\": NAME}".to_owned()),
        (Some(false), _) => Ok(Verdict::Refused),
        (Some(true), Some(id)) if is_name(id) => Ok(Verdict::Granted(id.to_owned())),
        (Some(true), _) => Err("its answer has no \"id\" that is a name".to_owned()),
    }
}

/// Whether a hook may call a user so: a short line, which people see as it is.
fn is_name(text: &str) -> bool {
    let characters = text.chars().count();
    (1..=HOOK_NAME_CHARACTERS_MAX).contains(&characters)
        && !text.chars().any(|c| c.is_control() || is_direction_mark(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_body(body: &str) -> Result<Verdict, String> {
        read(200, || Ok(body.as_bytes().to_vec()))
    }

    #[test]
    fn a_yes_has_a_name_and_some_statuses_are_a_no() {
        let alice = Verdict::Granted("alice".to_owned());
        assert_eq!(of_body(r#"{"ok": true, "id": "alice", "more": [1]}"#), Ok(alice));
        assert_eq!(of_body(r#"{"ok": false}"#), Ok(Verdict::Refused));
        for body in [
            "",
            "[]",
            r#"[true, "alice"]"#,
            "{}",
            r#"{"ok": 1}"#,
            r#"{"ok": true}"#,
            r#"{"ok": true, "id": 7}"#,
            r#"{"ok": true, "id": "alice", "more": "\ud800"}"#,
        ] {
            assert!(of_body(body).is_err(), "{body}");
        }
        let not_text = b"{\"ok\": true, \"id\": \"alice\", \"\xa5\": 1}";
        assert!(read(200, || Ok(not_text.to_vec())).is_err());
        let without_body = |status| read(status, || panic!("nobody reads it"));
        for status in [401, 403, 404] {
            assert_eq!(without_body(status), Ok(Verdict::Refused), "{status}");
        }
        for status in [204, 302, 400, 429, 500, 503] {
            assert!(without_body(status).is_err(), "{status}");
        }
    }

    #[test]
    fn a_name_is_a_short_line() {
        assert!(is_name("alice@example.org") && is_name("ÄÖ 1"));
        let long = "x".repeat(HOOK_NAME_CHARACTERS_MAX + 1);
        for text in ["", "a\nb", "\u{1b}[2J", "a\u{202e}b", "a\u{2028}b", &long] {
            assert!(!is_name(text), "{text:?}");
        }
    }
}
