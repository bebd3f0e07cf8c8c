//! The benchmarks as a program of their own: those of `gramway bench`, beside rivals where there are some, and those that
//! the shipped program goes without. It measures a `gramway` that was built before.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::{
    MatrixOptions, Programs, demo, files, front_door, hidden, paths, peers, relayed, rivals, rpc, scale,
    tcp_shape,
};
use clap::{Parser, Subcommand};

/// Benchmarks of gramway.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// The gramway program to measure [default: the one beside this program]
    #[arg(long, global = true, value_name = "FILE")]
    gramway: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Shared(bench::Command),
    /// Long and lossy paths, compared with direct traffic, Hysteria2 and TUIC (sing-box); needs root
    Paths(paths::Options),
    /// Messages and streams between two programs, compared with iroh and quinn; the case of a long path needs root
    Peers(MatrixOptions),
    /// A pair of peers that a server relays, compared with a direct one and with a UDP forward; needs root
    Relayed(MatrixOptions),
    /// Files from one machine to another, compared with croc, sendme, magic-wormhole, qcp, scp, rsync and cp; needs root
    Files(files::Options),
    /// What a server's front door costs and bears: handshakes, first bytes, a flood; needs root
    FrontDoor(MatrixOptions),
    /// UDP in packets that look like TCP, compared with direct traffic, a plaintext relay and phantun; needs root
    Tcp(MatrixOptions),
    /// Typed calls over Unix sockets, compared with other transports and libraries.
    Rpc {
        /// Write results as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Run one short round of everything.
        #[arg(long)]
        quick: bool,
        /// Run only what contains this in CASE/CONTESTANT; may be repeated.
        #[arg(long, value_name = "PATTERN")]
        only: Vec<String>,
    },
    /// Cost of a datagram among many clients and flows, and memory of idle ones
    Scale(scale::Options),
    /// Run a server and a client on this machine with traffic, for ten seconds.
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
    if arguments.first().is_some_and(|name| front_door::is_hidden(name)) {
        return Ok(front_door::run_hidden(&arguments)?);
    }
    if arguments.first().is_some_and(|name| peers::is_hidden(name)) {
        return Ok(peers::run_hidden(&arguments)?);
    }
    if arguments.first().is_some_and(|name| relayed::is_hidden(name)) {
        return Ok(relayed::run_hidden(&arguments)?);
    }
    let Arguments { gramway, command } = Arguments::parse();
    let programs = Programs::of_bench(gramway)?;
    let mut output = std::io::stdout();
    match command {
        Command::Shared(command) => command.run(&programs, rivals::L3, &mut output)?,
        Command::Tcp(options) => tcp_shape::run(&programs, &options, &mut output)?,
        Command::Paths(options) => paths::run(&programs, &options, &mut output)?,
        Command::Peers(options) => peers::run(&programs, &options, &mut output)?,
        Command::Relayed(options) => relayed::run(&programs, &options, &mut output)?,
        Command::Files(options) => files::run(&programs, &options, &mut output)?,
        Command::FrontDoor(options) => front_door::run(&programs, &options, &mut output)?,
        Command::Rpc { json, quick, only } => {
            let options = rpc::Options {
                programs,
                json,
                quick,
                only,
            };
            rpc::run(&options, &mut output)?;
        }
        Command::Scale(options) => scale::run(&options, &mut output)?,
        Command::Demo => {
            let is_terminal = output.is_terminal();
            demo::run(&programs, &mut output, is_terminal)?;
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
