//! A server and a client of the program under test, on loopback, with state directories of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::port::free_address;
use testbed::process::Process;
use testbed::usage::{self, Usage};
use testbed::wait::holds_within;

use crate::counters::Counters;
use crate::{Error, Programs, limits};

/// The largest payload has to stay the same for so long before path MTU discovery counts as finished.
const PAYLOAD_STABLE: Duration = Duration::from_millis(600);

/// And is taken as it is after this.
const PAYLOAD_WAIT_MAX: Duration = Duration::from_secs(6);

/// Flags of a tunnel that is measured.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct TunnelOptions {
    /// --max-udp-payload of both ends
    #[arg(long, value_name = "BYTES")]
    pub max_udp_payload: Option<u16>,
    /// --profile of both ends
    #[arg(long)]
    pub profile: Option<String>,
    /// --connections of both ends
    #[arg(long, value_name = "N")]
    pub connections: Option<u8>,
}

impl TunnelOptions {
    /// As the program takes them.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |flag: &str, value: Option<String>| {
            arguments.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        };
        add(
            "--max-udp-payload",
            self.max_udp_payload.map(|bytes| bytes.to_string()),
        );
        add("--profile", self.profile.clone());
        add("--connections", self.connections.map(|count| count.to_string()));
        arguments
    }
}

/// A connected tunnel that forwards one UDP and TCP port.
#[derive(Debug)]
pub(crate) struct Tunnel {
    programs: Programs,
    /// Where traffic enters, for each target.
    entrances: Vec<SocketAddr>,
    client: Process,
    server: Process,
    states: [PathBuf; 2],
    _directory: Directory,
}

/// Counters and usage of one end at one moment, or between two.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct End {
    /// Its counters.
    pub(crate) counters: Counters,
    /// Its CPU time and peak memory.
    #[serde(flatten)]
    pub(crate) usage: Usage,
}

impl End {
    /// What happened since `before`; the peak is the later one.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let cpu_seconds = (self.usage.cpu_seconds - before.usage.cpu_seconds).max(0.0);
        let usage = Usage {
            cpu_seconds,
            ..self.usage
        };
        Self {
            counters: self.counters.since(&before.counters),
            usage,
        }
    }
}

impl Tunnel {
    /// Starts both ends and waits until the client is connected. Traffic, UDP and TCP, has an entrance for each of
    /// `targets`, of which there is at least one.
    ///
    /// # Errors
    /// When an end does not start, with its own reason.
    pub(crate) fn start(
        programs: &Programs,
        options: &TunnelOptions,
        targets: &[SocketAddr],
    ) -> Result<Self, Error> {
        let directory = Directory::create()?;
        let states = ["server", "client"].map(|name| directory.join(name));
        let listen = free_address()?;
        let mut entrances = Vec::new();

        let mut up = vec!["--allow-target".to_owned(), "127.0.0.0/8".to_owned()];
        up.extend(options.arguments());
        let (server, link) = serve(programs, &Place::Host, &states[0], listen, &up)?;
        let link_file = directory.write("link", &link)?;

        let mut connect = programs.gramway();
        connect
            .arg("connect")
            .arg("--link-file")
            .arg(&link_file)
            .arg("--state")
            .arg(&states[1]);
        for target in targets {
            let entrance = free_address()?;
            for protocol in ["udp", "tcp"] {
                connect.args(["-L", &format!("{protocol}:{entrance}={target}")]);
            }
            entrances.push(entrance);
        }
        connect.args(options.arguments());
        let mut client = Process::start(connect, "gramway connect")?;
        client.wait_for_starts("connected", 1, limits::READY_TIMEOUT)?;
        let programs = programs.clone();
        Ok(Self {
            programs,
            entrances,
            client,
            server,
            states,
            _directory: directory,
        })
    }

    /// Where traffic for the first target enters.
    pub(crate) fn entrance(&self) -> SocketAddr {
        self.entrances[0]
    }

    /// Where traffic enters, for each target.
    pub(crate) fn entrances(&self) -> &[SocketAddr] {
        &self.entrances
    }

    /// The client and the server at present.
    ///
    /// # Errors
    /// When an end has died or does not answer.
    pub(crate) fn ends(&mut self) -> Result<[End; 2], Error> {
        let client = end(
            &self.programs,
            "gramway connect",
            &mut self.client,
            &self.states[1],
        )?;
        let server = end(&self.programs, "gramway up", &mut self.server, &self.states[0])?;
        Ok([client, server])
    }

    /// CPU and memory of client and server at present.
    pub(crate) fn usage(&self) -> [Usage; 2] {
        [self.client.usage(), self.server.usage()]
    }

    /// Starts the memory peaks of both ends again.
    pub(crate) fn reset_peaks(&self) {
        usage::reset_peak(self.client.id());
        usage::reset_peak(self.server.id());
    }

    /// The largest payload that needs no split, once path MTU discovery has settled.
    ///
    /// # Errors
    /// When the client does not answer or is not connected.
    pub(crate) fn payload_unsplit(&mut self) -> Result<usize, Error> {
        let start = Instant::now();
        let (mut largest, mut since) = (0, start);
        loop {
            let now = self.ends()?[0].counters.payload_unsplit().unwrap_or(0);
            if now != largest {
                (largest, since) = (now, Instant::now());
            }
            if (largest > 0 && since.elapsed() > PAYLOAD_STABLE) || start.elapsed() > PAYLOAD_WAIT_MAX {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let reason = || "it does not say which payload it carries unsplit".to_owned();
        let program = || "gramway connect".to_owned();
        (largest > 0).then_some(largest).ok_or_else(|| Error::Child {
            program: program(),
            reason: reason(),
        })
    }
}

/// Starts `gramway up` with `arguments` besides where it listens, and waits until it does; gives its link.
///
/// # Errors
/// When it does not come up, with its own words.
pub(crate) fn serve(
    programs: &Programs,
    place: &Place,
    state: &Path,
    listen: SocketAddr,
    arguments: &[String],
) -> Result<(Process, String), Error> {
    let mut up = programs.gramway();
    up.arg("up").arg("--state").arg(state);
    up.args(["--listen", &listen.to_string()]).args(arguments);
    let mut server = Process::start(place.wrap(&up), "gramway up")?;
    let mut found = None;
    holds_within(limits::READY_TIMEOUT, || {
        found = link(programs, state);
        found.is_some() || !server.is_running()
    });
    match found {
        Some(link) => Ok((server, link)),
        None => Err(Error::NotReady {
            program: "gramway up".to_owned(),
            reason: server.last_words(),
        }),
    }
}

/// The server's link, or `None` as long as it is not running: it answers `status` only when its socket is bound.
fn link(programs: &Programs, state: &Path) -> Option<String> {
    status(programs, state)?;
    let output = programs
        .gramway()
        .args(["link", "--state"])
        .arg(state)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then_some(text)
}

/// The answer of `gramway status --json`, or `None` where nobody answers.
pub(crate) fn status(programs: &Programs, state: &Path) -> Option<Value> {
    let mut command = programs.gramway();
    let output = command
        .args(["status", "--json", "--state"])
        .arg(state)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let readable = output.status.success() && output.stdout.len() as u64 <= limits::STATUS_BYTES_MAX;
    readable
        .then(|| serde_json::from_slice(&output.stdout).ok())
        .flatten()
}

fn end(programs: &Programs, program: &str, process: &mut Process, state: &Path) -> Result<End, Error> {
    let failed = |reason: &str| Error::Child {
        program: program.to_owned(),
        reason: reason.to_owned(),
    };
    if !process.is_running() {
        return Err(failed("it ended while it was measured"));
    }
    let usage = process.usage();
    let status =
        status(programs, state).ok_or_else(|| failed("it does not answer `gramway status --json`"))?;
    let counters = Counters::of_process(&status, process.id());
    Ok(End {
        counters: counters.ok_or_else(|| failed("`gramway status --json` does not list it"))?,
        usage,
    })
}
