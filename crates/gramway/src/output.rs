//! Output of commands: data goes to stdout, messages for people to stderr. A closed stderr never ends the program.
//!
//! What another process, a server or a user has written is shown as text: characters that would control the terminal or
//! reorder the line are escaped.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::Value;
use tunnel_proto::link::is_direction_mark;

use crate::exit::{Problem, sentence};

/// Prints lines for people, which may quote foreign texts.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell that nobody listens.
    let _ = writeln!(io::stderr().lock(), "{}", shown_lines(text));
}

/// Prints data, with its final line break. A closed reader (`| head`) is not an error.
pub(crate) fn data(text: &str) -> Result<(), Problem> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end_matches('\n')).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Problem::unavailable(format!(
            "cannot write to standard output: {}",
            sentence(&error)
        ))),
        _ => Ok(()),
    }
}

/// A foreign text as one line: its control characters, line breaks included, and direction marks are escaped.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, |c| c.escape_default().collect())
}

/// Lines of ours that may quote a foreign text: the same, but line breaks stay.
pub(crate) fn shown_lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |c| c != '\n' && is_unsafe(c),
        |c| c.escape_default().collect(),
    )
}

/// A foreign JSON value whose texts, and names of fields, are to be shown to people.
pub(crate) fn shown_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shown(&text).into_owned()),
        Value::Array(values) => values.into_iter().map(shown_value).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let shown = fields.map(|(name, value)| (shown(&name).into_owned(), shown_value(value)));
            Value::Object(shown.collect())
        }
        other => other,
    }
}

/// JSON as data: the same value in other words, which a terminal takes for text as well.
pub(crate) fn json(value: &Value) -> String {
    // Outside of its texts there is none.
    escaped(&value.to_string(), is_unsafe, in_json).into_owned()
}

/// The same for lines of JSON that others wrote.
pub(crate) fn json_lines(lines: &str) -> Cow<'_, str> {
    escaped(lines, |c| c != '\n' && is_unsafe(c), in_json)
}

/// A character as texts in JSON name it (RFC 8259 section 7).
fn in_json(c: char) -> String {
    let mut units = [0; 2];
    c.encode_utf16(&mut units)
        .iter()
        .fold(String::new(), |mut text, unit| {
            write!(text, "\\u{unit:04x}").expect("writing to a String does not fail");
            text
        })
}

fn is_unsafe(c: char) -> bool {
    c.is_control() || is_direction_mark(c)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .fold(String::with_capacity(2 * text.len()), |mut all, c| {
            if is_escaped(c) {
                all.push_str(&escape(c));
            } else {
                all.push(c);
            }
            all
        })
        .into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Clears the screen, sets the title, C1's control sequence introducer, and what reorders a line.
    const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;title\u{7}\r\nb\u{9b}31m\u{202e}c\u{7f}";

    fn is_harmless(text: &str) -> bool {
        !text.chars().any(is_unsafe)
    }

    #[test]
    fn a_foreign_text_is_shown_as_text() {
        assert_eq!(
            shown(HOSTILE),
            r"a\u{1b}[2J\u{1b}]0;title\u{7}\r\nb\u{9b}31m\u{202e}c\u{7f}"
        );
        assert!(matches!(
            shown("Grüße, 世界 \\ {}"),
            Cow::Borrowed("Grüße, 世界 \\ {}")
        ));
        assert_eq!(shown_lines("one\ntwo\r\u{1b}"), "one\ntwo\\r\\u{1b}");
    }

    #[test]
    fn each_text_of_a_foreign_value_is_shown_as_text() {
        let value = json!({ "events": [{ "text": HOSTILE }], HOSTILE: 1, "pid": 7, "none": null });
        let shown = shown_value(value);
        assert!(is_harmless(shown["events"][0]["text"].as_str().unwrap()));
        assert!(shown.as_object().unwrap().keys().all(|name| is_harmless(name)));
        assert_eq!((&shown["pid"], &shown["none"]), (&json!(7), &Value::Null));
    }

    #[test]
    fn json_is_the_same_value_without_a_control_character() {
        let value = json!({ HOSTILE: [HOSTILE, "\u{1f600}"] });
        let text = json(&value);
        assert!(is_harmless(&text), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
