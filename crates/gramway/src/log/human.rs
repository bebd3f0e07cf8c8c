//! Lines for people: the sentence alone. In a log that is off a terminal it has its time in UTC, except in the system's
//! journal, which adds the time itself.

use std::fmt::{self, Debug};
use std::io::{self, IsTerminal};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::format::leads_to_journal;
use crate::{output, units};

/// How lines for people look on this standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct HumanFormat {
    has_time: bool,
}

impl HumanFormat {
    pub(super) fn of_stderr() -> Self {
        Self {
            has_time: !io::stderr().is_terminal() && !leads_to_journal(),
        }
    }

    /// The line without its end.
    fn line(self, level: Level, sentence: &str) -> String {
        let time = if self.has_time {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            units::timestamp(since_1970) + " "
        } else {
            String::new()
        };
        format!("{time}{}", output::shown_lines(&with_level(level, sentence)))
    }
}

/// The sentence as people read it: warnings are called so, errors name the program.
pub(super) fn with_level(level: Level, sentence: &str) -> String {
    match level {
        Level::ERROR => format!("gramway: {sentence}"),
        Level::WARN => format!("warning: {sentence}"),
        _ => sentence.to_owned(),
    }
}

/// Prints a line of a command that keeps no log. It has no time, wherever it is read.
pub(super) fn print(level: Level, sentence: &str) {
    output::note(&with_level(level, sentence));
}

impl<S, N> FormatEvent<S, N> for HumanFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut sentence = Sentence::default();
        event.record(&mut sentence);
        writeln!(writer, "{}", self.line(*event.metadata().level(), &sentence.0))
    }
}

/// The message of a record.
#[derive(Default)]
struct Sentence(String);

impl Visit for Sentence {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
