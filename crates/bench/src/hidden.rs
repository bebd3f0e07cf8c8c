//! The load processes: `_generate`, `_sink`, `_relay`, `_relay_tcp`, `_emulate` and `_sweep`, each with its options as
//! one JSON argument.
//!
//! Protocol on stdout: one line when it is ready, with the bound address where there is one (JSON), then, at the end,
//! one line with the report. The emulator also answers each line on stdin with a report. All but the generator end when their stdin does, so that none outlives a benchmark that
//! died.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::emulator::{Emulator, EmulatorControl, EmulatorOptions};
use crate::error::During;
use crate::generator::{self, GeneratorOptions, LiveSent};
use crate::relay::{Relay, RelayOptions};
use crate::sink::{LiveReceived, Sink, SinkOptions};
use crate::{Error, sweeper, tcp_relay};

/// Subcommand of the generator.
pub(crate) const GENERATE: &str = "_generate";
/// Subcommand of the sink.
pub(crate) const SINK: &str = "_sink";
/// Subcommand of the relay hop.
pub(crate) const RELAY: &str = "_relay";
/// Subcommand of the TCP half of a relay hop.
pub(crate) const RELAY_TCP: &str = "_relay_tcp";
/// Subcommand of the link emulator.
pub(crate) const EMULATE: &str = "_emulate";
/// Subcommand of the process that removes namespaces; its option is the process ID of the benchmark.
pub(crate) const SWEEP: &str = "_sweep";

/// Whether `name` is one of the hidden subcommands.
#[must_use]
pub fn is_hidden(name: &str) -> bool {
    [GENERATE, SINK, RELAY, RELAY_TCP, EMULATE, SWEEP].contains(&name)
}

/// Runs a hidden subcommand; `arguments` are its name and its options as JSON.
///
/// # Errors
/// When the name or the options are unknown, or the load can't run.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    let [name, options] = arguments else {
        return Err(Error::Usage(
            "hidden load commands take their options as one JSON argument".to_owned(),
        ));
    };
    match name.as_str() {
        GENERATE => {
            let options: GeneratorOptions = parse(options)?;
            say(&options.destination)?;
            say(&generator::generate(
                &options,
                &stop_at_end_of_input(),
                &LiveSent::default(),
                None,
            )?)
        }
        SINK => {
            let sink = Sink::bind(&parse::<SinkOptions>(options)?)?;
            say(&sink.address())?;
            say(&sink.run(&stop_at_end_of_input(), &LiveReceived::default())?)
        }
        RELAY => {
            let options: RelayOptions = parse(options)?;
            let relay = Relay::bind(&options)?;
            tcp_relay::start(relay.address(), options.target)?;
            say(&relay.address())?;
            relay.run(&stop_at_end_of_input())?;
            say(&testbed::usage::usage(std::process::id()))
        }
        RELAY_TCP => {
            let options: RelayOptions = parse(options)?;
            tcp_relay::start(options.listen, options.target)?;
            say(&options.listen)?;
            until_end_of_input();
            say(&())
        }
        EMULATE => {
            let emulator = Emulator::open(&parse::<EmulatorOptions>(options)?)?;
            say(&())?;
            say(&emulator.run(&control_by_input(), say)?)
        }
        SWEEP => {
            let benchmark = parse(options)?;
            say(&())?;
            until_end_of_input();
            sweeper::sweep(benchmark);
            say(&())
        }
        _ => Err(Error::Usage(format!("unknown load command {name}"))),
    }
}

/// Reads the options of the hidden command of one benchmark, `arguments` being its name and its options as JSON.
///
/// # Errors
/// When there are fewer or more arguments, or the options are unknown.
#[cfg(feature = "rivals")] // the benchmarks that only bench's own program has read theirs by it
pub(crate) fn options<T: DeserializeOwned>(arguments: &[String]) -> Result<T, Error> {
    let [_, options] = arguments else {
        let name = arguments.first().map_or("a hidden command", String::as_str);
        return Err(Error::Usage(format!(
            "{name} takes its options as one JSON argument"
        )));
    };
    parse(options)
}

/// Reads the options of a hidden command.
pub(crate) fn parse<T: DeserializeOwned>(options: &str) -> Result<T, Error> {
    serde_json::from_str(options).map_err(|source| Error::Json {
        from: "the load's options".to_owned(),
        source,
    })
}

/// Reports to the benchmark, one line of JSON.
pub(crate) fn say(report: &impl Serialize) -> Result<(), Error> {
    let from = || "the load's report".to_owned();
    let line = serde_json::to_string(report).map_err(|source| Error::Json { from: from(), source })?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .during(|| "write the load's report".to_owned())
}

/// A flag that is set when stdin ends.
pub(crate) fn stop_at_end_of_input() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        until_end_of_input();
        flag.store(true, Ordering::Relaxed);
    });
    stop
}

/// An empty line on stdin asks for a report, its end for the end.
fn control_by_input() -> Arc<EmulatorControl> {
    let control = Arc::new(EmulatorControl::default());
    let shared = Arc::clone(&control);
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            shared.reports_wanted.fetch_add(1, Ordering::Relaxed);
        }
        shared.stop.store(true, Ordering::Relaxed);
    });
    control
}

fn until_end_of_input() {
    let mut input = std::io::stdin().lock();
    let mut byte = [0];
    while let Ok(1..) = input.read(&mut byte) {}
}
