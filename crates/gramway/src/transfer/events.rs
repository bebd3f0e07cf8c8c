//! The events that `--json` prints, by name and fields, as `docs/file-events.md` lists them: a test compares the two.
//! There is no event without a name here, and programs built for tests print no fields that are not listed.

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventName {
    Code,
    Waiting,
    Connected,
    WrongCode,
    Carrier,
    File,
    Renamed,
    Problem,
    Note,
    Damaged,
    Offered,
    OfferedEnd,
    Looked,
    Progress,
    Lost,
    Unconfirmed,
    Failed,
    End,
}

/// What an event about one of a sender's transfers has as well.
const OF_RECEIVER: [&str; 2] = ["receiver", "code_number"];

impl EventName {
    /// Its name, as programs read it.
    pub(super) fn text(self) -> &'static str {
        self.listed().0
    }

    /// Whether this is a field that it may have.
    pub(super) fn has(self, field: &str) -> bool {
        self.listed().1.contains(&field) || OF_RECEIVER.contains(&field)
    }

    /// Its name, and the fields that it may have besides `event`.
    fn listed(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Code => ("code", &["code", "command", "needs_link"]),
            Self::Waiting => ("waiting", &["peer", "text"]),
            Self::Connected => ("connected", &["peer"]),
            Self::WrongCode => ("wrong_code", &["text"]),
            Self::Carrier => ("carrier", &["carrier", "reason"]),
            Self::File => ("file", &["path", "bytes", "how"]),
            Self::Renamed => ("renamed", &["from", "to"]),
            Self::Problem => ("problem", &["path", "text"]),
            Self::Note => ("note", &["text"]),
            Self::Damaged => ("damaged", &["path", "bytes", "at"]),
            Self::Offered => ("offered", &["path", "bytes", "missing", "would"]),
            Self::OfferedEnd => (
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
            Self::Looked => ("looked", &["text"]),
            Self::Progress => (
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
            Self::Lost => ("lost", &["text"]),
            Self::Unconfirmed => ("unconfirmed", &["text"]),
            Self::Failed => ("failed", &["text"]),
            Self::End => (
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of them: as many as there are.
    const ALL: [EventName; EventName::End as usize + 1] = [
        EventName::Code,
        EventName::Waiting,
        EventName::Connected,
        EventName::WrongCode,
        EventName::Carrier,
        EventName::File,
        EventName::Renamed,
        EventName::Problem,
        EventName::Note,
        EventName::Damaged,
        EventName::Offered,
        EventName::OfferedEnd,
        EventName::Looked,
        EventName::Progress,
        EventName::Lost,
        EventName::Unconfirmed,
        EventName::Failed,
        EventName::End,
    ];

    #[test]
    fn the_documentation_lists_each_event_with_its_fields_and_no_others() {
        let text = include_str!("../../../../docs/file-events.md");
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), ALL.len());
        for (number, event) in ALL.into_iter().enumerate() {
            assert_eq!(event as usize, number);
            let (name, fields) = event.listed();
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
    fn a_field_that_is_not_listed_is_found() {
        assert!(EventName::Lost.has("text") && EventName::Lost.has("receiver"));
        assert!(!EventName::Lost.has("why"));
    }
}
