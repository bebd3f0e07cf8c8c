//! The events that `--json` prints, by name and fields, as `docs/file-events.md` lists them: a test compares the two,
//! and programs built for tests print no others.

use serde_json::Value;

/// An event: its name, and the fields that it may have besides `event`.
struct Listed {
    name: &'static str,
    fields: &'static [&'static str],
}

/// What an event about one of a sender's transfers has as well.
const OF_RECEIVER: [&str; 2] = ["receiver", "code_number"];

const fn event(name: &'static str, fields: &'static [&'static str]) -> Listed {
    Listed { name, fields }
}

/// All of them.
const EVENTS: [Listed; 17] = [
    event("code", &["code", "command", "needs_link"]),
    event("waiting", &["peer", "text"]),
    event("connected", &["peer"]),
    event("wrong_code", &["text"]),
    event("carrier", &["carrier", "reason"]),
    event("file", &["path", "bytes", "how"]),
    event("renamed", &["from", "to"]),
    event("problem", &["path", "text"]),
    event("note", &["text"]),
    event("damaged", &["path", "bytes", "at"]),
    event("offered", &["path", "bytes", "missing", "would"]),
    event(
        "offered_end",
        &[
            "files",
            "bytes",
            "missing",
            "there",
            "overwritten",
            "renamed",
            "skipped",
            "asked",
        ],
    ),
    event("looked", &["text"]),
    event(
        "progress",
        &[
            "bytes_total",
            "bytes_done",
            "bytes_there",
            "bytes_wire",
            "files_total",
            "files_done",
            "is_complete_list",
            "bytes_per_second",
            "seconds_left",
            "carrier",
            "path",
            "limited_by",
            "in_work",
        ],
    ),
    event("lost", &["text"]),
    event("failed", &["text"]),
    event(
        "end",
        &[
            "stored",
            "skipped",
            "failed",
            "bytes_sent",
            "bytes_there",
            "seconds",
            "carrier_reason",
        ],
    ),
];

/// Whether a line is one of them, with fields that it may have.
pub(super) fn is_listed(line: &Value) -> bool {
    let listed = EVENTS.iter().find(|listed| line["event"] == listed.name);
    listed.is_some_and(|listed| {
        let mut fields = line.as_object().into_iter().flat_map(|line| line.keys());
        fields.all(|field| {
            let field = field.as_str();
            field == "event" || listed.fields.contains(&field) || OF_RECEIVER.contains(&field)
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_documentation_lists_each_event_with_its_fields_and_no_others() {
        let text = include_str!("../../../../docs/file-events.md");
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), EVENTS.len());
        for Listed { name, fields } in EVENTS {
            let row = rows.iter().find(|row| row.starts_with(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("docs/file-events.md does not list {name}"));
            for field in fields {
                assert!(row.contains(&format!("`{field}`")), "{name}: {field}");
            }
        }
        for field in OF_RECEIVER {
            assert!(text.contains(&format!("`{field}`")), "{field}");
        }
    }

    #[test]
    fn what_is_not_listed_is_found() {
        assert!(is_listed(
            &json!({ "event": "lost", "text": "", "receiver": "id" })
        ));
        assert!(!is_listed(&json!({ "event": "lost", "text": "", "why": "" })));
        assert!(!is_listed(&json!({ "event": "found", "text": "" })));
    }
}
