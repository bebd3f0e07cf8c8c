//! The log of a server, a client or a relay: what happened, as records on standard error or in the system's journal.
//!
//! People read sentences; they see the addresses of what they run themselves. Programs get JSON, or fields in the
//! journal (`format.rs`): there no record above the debug level has an address (`addresses.rs`), and with `-vv` a
//! record at the debug level follows that has them. A command that keeps no log prints the sentences alone.
//!
//! Records of other crates are left out: those of quinn-proto come once a packet. Nothing on the packet path logs:
//! shards send notices, and the main thread makes records of them.

mod addresses;
mod format;
mod human;
mod json_lines;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::{Level, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

use crate::exit::{Problem, sentence};
use crate::recent;
pub(crate) use format::LogFormat;
use format::Output;
use human::HumanFormat;
use json_lines::JsonLines;

/// What every record is about, for filters of journal and JSON.
const TARGET: &str = "gramway";

static LOG: OnceLock<Log> = OnceLock::new();

/// The log of this process.
#[derive(Debug)]
struct Log {
    output: Output,
    /// So many `-v` of the command line.
    flags: u8,
    /// The same of the settings.
    verbose: AtomicU8,
    /// Hosts that the settings name.
    hosts: Mutex<Vec<String>>,
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// What the owner should know.
    Normal,
    /// Also who comes, goes and is turned away.
    Visitors,
    /// Also addresses.
    Addresses,
}

impl Detail {
    /// So many `-v`.
    pub(crate) fn of_flags(count: u8) -> Self {
        match count {
            0 => Self::Normal,
            1 => Self::Visitors,
            _ => Self::Addresses,
        }
    }
}

/// What a record says.
#[derive(Debug)]
pub(crate) struct Record {
    level: Level,
    /// What happened, for programs; the same word for the same kind of event.
    event: &'static str,
    /// The sentence.
    text: String,
    /// The sentence with addresses that are left out even for people, unless they ask for them.
    in_full: Option<String>,
    fields: Fields,
}

/// What a record has for programs besides its sentence.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// Whose connection.
    pub(crate) user: Option<String>,
    /// UDP, or TCP's shape.
    pub(crate) carrier: Option<&'static str>,
    pub(crate) round_trip_ms: Option<f64>,
    /// Bytes.
    pub(crate) mtu: Option<u64>,
    /// Connections that are up.
    pub(crate) up: Option<u64>,
    /// Connections that are wanted.
    pub(crate) of: Option<u64>,
    /// Records of this kind that were held back.
    pub(crate) held_back: Option<u64>,
    /// The other end; at the debug level alone.
    pub(crate) peer: Option<SocketAddr>,
}

impl Record {
    fn new(level: Level, event: &'static str, text: impl Into<String>) -> Self {
        Self {
            level,
            event,
            text: text.into(),
            in_full: None,
            fields: Fields::default(),
        }
    }

    pub(crate) fn info(event: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::INFO, event, text)
    }

    pub(crate) fn warning(event: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::WARN, event, text)
    }

    /// The sentence for those who want addresses.
    pub(crate) fn in_full(self, text: String) -> Self {
        Self {
            in_full: Some(text),
            ..self
        }
    }

    pub(crate) fn with(self, fields: Fields) -> Self {
        Self { fields, ..self }
    }

    /// The sentence, for people who want this detail.
    pub(crate) fn for_people(&self, detail: Detail) -> String {
        human::with_level(self.level, self.sentence(detail))
    }

    fn sentence(&self, detail: Detail) -> &str {
        match &self.in_full {
            Some(text) if detail >= Detail::Addresses => text,
            _ => &self.text,
        }
    }
}

/// Begins the log of this process, once. `flags` counts `-v` of the command line, `verbose` is what the settings say.
///
/// # Errors
/// The journal is asked for, and cannot be reached.
pub(crate) fn start(format: LogFormat, flags: u8, verbose: u8) -> Result<(), Problem> {
    let mut failure = None;
    for output in format.outputs() {
        match subscriber(*output) {
            Ok(subscriber) => {
                let log = Log {
                    output: *output,
                    flags,
                    verbose: AtomicU8::new(verbose),
                    hosts: Mutex::default(),
                };
                if LOG.set(log).is_ok() {
                    // Nobody else sets one.
                    let _ = tracing::subscriber::set_global_default(subscriber);
                }
                return Ok(());
            }
            Err(error) => failure = Some(error),
        }
    }
    let error = failure.expect("the first output failed");
    Err(Problem::unavailable(format!(
        "cannot reach the system's journal: {}; choose another log_format",
        sentence(&error)
    )))
}

fn subscriber(output: Output) -> std::io::Result<Box<dyn Subscriber + Send + Sync>> {
    let only_ours = Targets::new().with_target(TARGET, Level::DEBUG);
    let to_stderr = || {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            // A closed standard error never ends the program.
            .log_internal_errors(false)
    };
    Ok(match output {
        Output::Human => {
            let layer = to_stderr().event_format(HumanFormat::of_stderr());
            Box::new(Registry::default().with(layer.with_filter(only_ours)))
        }
        Output::Json => {
            let layer = to_stderr()
                .with_writer(|| JsonLines(std::io::stderr()))
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false);
            Box::new(Registry::default().with(layer.with_filter(only_ours)))
        }
        Output::Journald => {
            let layer = tracing_journald::layer()?
                .with_syslog_identifier(TARGET.to_owned())
                .with_field_prefix(Some("GRAMWAY".to_owned()))
                // As syslog(3) and `journalctl -p` understand these levels.
                .with_priority_mappings(PriorityMappings {
                    error: Priority::Error,
                    warn: Priority::Warning,
                    info: Priority::Informational,
                    debug: Priority::Debug,
                    trace: Priority::Debug,
                });
            Box::new(Registry::default().with(layer.with_filter(only_ours)))
        }
    })
}

/// The settings say how much is told from here on.
pub(crate) fn set_verbose(verbose: u8) {
    if let Some(log) = LOG.get() {
        log.verbose.store(verbose, Ordering::Relaxed);
    }
}

/// How much is told.
pub(crate) fn detail() -> Detail {
    LOG.get().map_or(Detail::Normal, |log| {
        Detail::of_flags(log.flags.max(log.verbose.load(Ordering::Relaxed)))
    })
}

/// These names are as good as addresses.
pub(crate) fn conceal(hosts: impl IntoIterator<Item = String>) {
    if let Some(log) = LOG.get() {
        log.hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(hosts);
    }
}

/// Whether people read the log, or there is none.
pub(crate) fn is_for_people() -> bool {
    LOG.get().is_none_or(|log| log.output == Output::Human)
}

/// Something that has happened, and that is as it should be.
pub(crate) fn info(event: &'static str, text: impl Into<String>) {
    remember_and_write(&Record::info(event, text));
}

/// Something that a person should know and can change.
pub(crate) fn warning(event: &'static str, text: impl Into<String>) {
    remember_and_write(&Record::warning(event, text));
}

/// A sentence that says itself whether it is a warning.
pub(crate) fn line(event: &'static str, text: &str) {
    match text.strip_prefix("warning: ") {
        Some(text) => warning(event, text),
        None => info(event, text),
    }
}

/// Why the program ends.
pub(crate) fn error(event: &'static str, text: impl Into<String>) {
    write(&Record::new(Level::ERROR, event, text));
}

/// Writes a record, and remembers it for those who look later.
pub(crate) fn remember_and_write(record: &Record) {
    remember(record);
    write(record);
}

/// Remembers a record for those who look later.
pub(crate) fn remember(record: &Record) {
    recent::record(&record.for_people(detail()));
}

fn write(record: &Record) {
    let Some(log) = LOG.get() else {
        return human::print(record.level, &record.text);
    };
    let detail = detail();
    if log.output == Output::Human {
        return emit(record.level, record, record.sentence(detail), None);
    }
    let hosts = log.hosts.lock().unwrap_or_else(PoisonError::into_inner);
    let shown = addresses::without_addresses(&record.text, &hosts);
    drop(hosts);
    emit(record.level, record, &shown, None);
    let sentence = record.sentence(Detail::Addresses);
    if detail >= Detail::Addresses && sentence != shown {
        emit(Level::DEBUG, record, sentence, record.fields.peer);
    }
}

/// Gives a record to the subscriber: its level is part of the place in the code.
fn emit(level: Level, record: &Record, sentence: &str, peer: Option<SocketAddr>) {
    let Fields {
        user,
        carrier,
        round_trip_ms,
        mtu,
        up,
        of,
        held_back,
        peer: _,
    } = &record.fields;
    let peer = peer.map(|peer| peer.to_string());
    macro_rules! at {
        ($level:ident) => {
            tracing::$level!(
                target: TARGET,
                event = record.event,
                user = user.as_deref(),
                carrier = *carrier,
                round_trip_ms = *round_trip_ms,
                mtu = *mtu,
                up = *up,
                of = *of,
                held_back = *held_back,
                peer = peer.as_deref(),
                "{sentence}"
            )
        };
    }
    match level {
        Level::ERROR => at!(error),
        Level::WARN => at!(warn),
        Level::INFO => at!(info),
        _ => at!(debug),
    }
}
