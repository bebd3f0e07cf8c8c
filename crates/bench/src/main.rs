//! The benchmarks as a program of their own, for measuring a `gramway` that was built elsewhere.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::{Programs, demo, floor, forward, hidden, l3, rpc};
use clap::{Parser, Subcommand};

/// Benchmarks of gramway.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// The gramway program to measure.
    #[arg(long, global = true, default_value = "gramway")]
    gramway: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// UDP and TCP through the tunnel, beside direct and a plaintext relay.
    Forward {
        /// Write results as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// One run per path instead of the median of five.
        #[arg(long)]
        quick: bool,
        /// Largest UDP payload of the tunnel's packets, at both ends.
        #[arg(long, value_name = "BYTES")]
        max_udp_payload: Option<u16>,
        /// Profile of both ends.
        #[arg(long)]
        profile: Option<String>,
        /// Connections, and shards of both ends.
        #[arg(long, value_name = "N")]
        connections: Option<u8>,
        /// Seconds per run.
        #[arg(long)]
        seconds: Option<u32>,
        /// Only cases whose name contains this; may be given several times.
        #[arg(long, value_name = "PATTERN")]
        only: Vec<String>,
        /// Counters of clean cases too.
        #[arg(long)]
        details: bool,
    },
    /// IP packets through the tunnel, beside direct, wireguard-go and quincy; needs root.
    L3 {
        /// Write results as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// One run per contestant instead of the median of five.
        #[arg(long)]
        quick: bool,
        /// Seconds per run.
        #[arg(long)]
        seconds: Option<u32>,
        /// Only cases whose name contains this; may be given several times.
        #[arg(long, value_name = "PATTERN")]
        only: Vec<String>,
    },
    /// What the parts cost: AEAD, one sealed hop, QUIC in memory.
    Floor {
        /// Write results as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Shorter runs.
        #[arg(long)]
        quick: bool,
    },
    /// Typed calls over Unix sockets, beside other transports and libraries.
    Rpc {
        /// Write results as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// One short round of everything.
        #[arg(long)]
        quick: bool,
        /// Only what contains this in CASE/CONTESTANT; may be given several times.
        #[arg(long, value_name = "PATTERN")]
        only: Vec<String>,
    },
    /// Server, client and load on this machine for ten seconds.
    Demo,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|name| hidden::is_hidden(name)) {
        return Ok(hidden::run(&arguments)?);
    }
    if arguments.first().is_some_and(|name| rpc::is_hidden(name)) {
        return Ok(rpc::run_hidden(&arguments)?);
    }
    let Arguments { gramway, command } = Arguments::parse();
    let mut output = std::io::stdout();
    match command {
        Command::Forward {
            json,
            quick,
            max_udp_payload,
            profile,
            connections,
            seconds,
            only,
            details,
        } => {
            let programs = Programs::of_bench(gramway)?;
            let options = forward::Options {
                programs,
                json,
                quick,
                max_udp_payload,
                profile,
                connections,
                seconds,
                only,
                details,
            };
            forward::run(&options, &mut output)?;
        }
        Command::L3 {
            json,
            quick,
            seconds,
            only,
        } => {
            let programs = Programs::of_bench(gramway)?;
            let options = l3::Options {
                programs,
                json,
                quick,
                seconds,
                only,
            };
            l3::run(&options, &mut output)?;
        }
        Command::Floor { json, quick } => floor::run(&floor::Options { json, quick }, &mut output)?,
        Command::Rpc { json, quick, only } => {
            let options = rpc::Options {
                programs: Programs::of_bench(gramway)?,
                json,
                quick,
                only,
            };
            rpc::run(&options, &mut output)?;
        }
        Command::Demo => {
            let is_terminal = output.is_terminal();
            demo::run(&Programs::of_bench(gramway)?, &mut output, is_terminal)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_rpc_are_read_and_a_wrong_one_is_refused() {
        let line = [
            "bench",
            "rpc",
            "--quick",
            "--only",
            "sequential",
            "--only",
            "unix",
            "--json",
            "a.json",
        ];
        let Command::Rpc { json, quick, only } = Arguments::try_parse_from(line).unwrap().command else {
            panic!("another command");
        };
        assert_eq!((json, quick), (Some(PathBuf::from("a.json")), true));
        assert_eq!(only, ["sequential", "unix"]);
        assert!(Arguments::try_parse_from(["bench", "rpc", "--fast"]).is_err());
    }
}
