//! The command line: commands and what they take besides settings. The flags of settings, and their help, come from the
//! table in `config`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use crate::config::{self, Flags};
use crate::exit::Problem;
use crate::helper::HelperArguments;
use crate::output;

const SETTINGS_HELP: &str = "A flag overrides the environment (GRAMWAY_ and the key in capitals), which overrides the config file. \
The first run of a server writes DIR/config.toml, which lists every key.";

/// Tunnel for UDP, TCP and IP networks over QUIC (MASQUE).
#[derive(Debug, Parser)]
#[command(name = "gramway", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 done, 64 usage, 69 unavailable, 70 internal error, 77 permission, 78 configuration.";

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server; the first run creates keys, a token and a config file, and prints the link
    #[command(after_help = SETTINGS_HELP)]
    Up(UpArguments),
    /// Connect to a server; forward UDP and TCP ports, or carry IP packets
    #[command(after_help = SETTINGS_HELP)]
    Connect(ConnectArguments),
    /// Run a server and a client on this machine with real traffic, for about ten seconds
    Demo,
    /// Print the server's link on standard output
    Link(LinkArguments),
    /// Give others links of their own to this server, with an end and a quota, and take them back
    #[command(after_help = USER_HELP)]
    User(UserArguments),
    /// Check the config file and the environment, or a web site that is to be a server's cover
    #[command(after_help = CHECK_HELP)]
    Check(CheckArguments),
    /// Print the settings that count, or the schema of the config file
    #[command(after_help = CONFIG_HELP)]
    Config(ConfigArguments),
    /// Show the counters of the running servers and clients
    Status(StatusArguments),
    /// Watch the running servers and clients on the whole terminal: rates, users, drops, events
    Top(TopArguments),
    /// Give the network back that a killed client, or one with --kill-switch, keeps closed; needs root
    Release(ReleaseArguments),
    /// Carry UDP in packets that look like TCP, where a network is unkind to UDP; needs CAP_NET_RAW
    #[command(after_help = RELAY_HELP)]
    Relay(RelayArguments),
    /// Run a server or clients as services of systemd, with no more rights than their settings need
    #[command(after_help = SERVICE_HELP)]
    Service(ServiceArguments),
    /// Measure UDP, TCP and IP packets through the tunnel, and the cost of its parts
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print completions for a shell, e.g. for /usr/share/bash-completion/completions/gramway
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages, one for each command, e.g. into /usr/local/share/man/man1
    Man {
        /// A directory that exists
        directory: PathBuf,
    },
    /// Change the host's network for a confined process; gramway starts it
    #[command(name = host::HELPER_SUBCOMMAND, hide = true)]
    Helper(HelperArguments),
    /// Undo changes to the host's network after a crash or kill; gramway starts it
    #[command(name = host::GUARDIAN_SUBCOMMAND, hide = true)]
    Guardian {
        /// The list of changes
        file: PathBuf,
    },
}

/// `gramway bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    #[command(flatten)]
    Benchmark(bench::Command),
    /// The load processes of the benchmarks themselves
    #[command(external_subcommand)]
    Load(Vec<String>),
}

/// Where settings and state are.
#[derive(Args, Debug, Default)]
pub(crate) struct Places {
    /// State directory [default: /var/lib/gramway for root, else ~/.local/state/gramway]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Config file [default: DIR/config.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `gramway up`.
#[derive(Args, Debug)]
pub(crate) struct UpArguments {
    /// Tell who connects, leaves, is turned away and gets which addresses; twice (-vv) also from where
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(flatten)]
    pub(crate) flags: Flags<config::Up>,
    #[command(flatten)]
    pub(crate) places: Places,
}

/// `gramway connect`.
#[derive(Args, Debug)]
pub(crate) struct ConnectArguments {
    /// The server's link. It is a secret and visible in the process list: prefer --link-file or GRAMWAY_LINK
    #[arg(value_name = "LINK")]
    pub(crate) link: Option<String>,
    #[command(flatten)]
    pub(crate) flags: Flags<config::Connect>,
    #[command(flatten)]
    pub(crate) places: Places,
}

/// `gramway link`.
#[derive(Args, Debug)]
pub(crate) struct LinkArguments {
    #[command(flatten)]
    pub(crate) places: Places,
    /// Also print a QR code
    #[arg(long, conflicts_with = "masque")]
    pub(crate) qr: bool,
    /// Print URI templates (RFC 9298, RFC 9484) and certificate for other MASQUE clients, instead of the link
    #[arg(long)]
    pub(crate) masque: bool,
    #[command(flatten)]
    pub(crate) flags: Flags<config::Link>,
}

const USER_HELP: &str = "\
A running server follows within a second and disturbs nobody else. A user who may do nothing (any more) is disconnected with the \
reason. The owner, whose link `gramway link` prints, is none of them.";

/// `gramway user`.
#[derive(Args, Debug)]
pub(crate) struct UserArguments {
    #[command(subcommand)]
    pub(crate) action: UserAction,
    /// State directory of the server [default: /var/lib/gramway for root, else ~/.local/state/gramway]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state: Option<PathBuf>,
}

/// What to do with a user.
#[derive(Debug, Subcommand)]
pub(crate) enum UserAction {
    /// Add a user and print its link, which is shown this once
    Add {
        /// Up to 32 letters, digits, dots, hyphens, underscores
        name: String,
        #[command(flatten)]
        terms: UserTerms,
        /// Without UDP, and without IP packets, which could carry it
        #[arg(long)]
        no_udp: bool,
        /// Without TCP, and without IP packets, which could carry it
        #[arg(long)]
        no_tcp: bool,
        /// Without IP packets (TUN)
        #[arg(long)]
        no_ip: bool,
        /// Also print a QR code
        #[arg(long)]
        qr: bool,
    },
    /// Show all users and what they have used
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a user another end or quota; its link stays
    Renew {
        /// Who
        name: String,
        #[command(flatten)]
        terms: UserTerms,
    },
    /// Let a user do nothing until it is enabled
    Disable {
        /// Who
        name: String,
    },
    /// Let a disabled user in again
    Enable {
        /// Who
        name: String,
    },
    /// Remove a user and what is known of it
    Remove {
        /// Who
        name: String,
    },
    /// Give a user a new link and print it; the former one is of no use from then on
    Link {
        /// Who
        name: String,
        /// Also print a QR code
        #[arg(long)]
        qr: bool,
    },
}

/// How long and how much.
#[derive(Args, Debug)]
pub(crate) struct UserTerms {
    /// When it ends: 30s, 90m, 12h, 30d, 4w, a date like 2027-01-31 (its beginning, UTC), never
    #[arg(long, value_name = "WHEN")]
    pub(crate) expires: Option<String>,
    /// Bytes in both directions in a day, week or month (UTC) or in all: 100G/month, 500M/day, 2T, none
    #[arg(long, value_name = "AMOUNT[/PERIOD]")]
    pub(crate) quota: Option<String>,
}

const CHECK_HELP: &str = "\
Without --cover, all errors of the config file and of variables GRAMWAY_… are told, and the exit code is 78 if there is one.";

/// `gramway check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) places: Places,
    /// The web site, by HTTP/3; port 443 unless given
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["state", "config"])]
    pub(crate) cover: Option<String>,
    /// The name that it has a certificate for; needed where the cover is an address [default: HOST]
    #[arg(long, value_name = "NAME", requires = "cover")]
    pub(crate) cover_name: Option<String>,
    /// PEM file with certificates that are trusted beside those that browsers trust
    #[arg(long, value_name = "FILE", requires = "cover")]
    pub(crate) cover_roots: Option<PathBuf>,
    /// Print what was found at the web site as JSON
    #[arg(long, requires = "cover")]
    pub(crate) json: bool,
}

const CONFIG_HELP: &str = "\
With --effective, `up` or `connect` and flags show what that command line would use, e.g. gramway config --effective up --tun; without, \
file and environment count alone. The output is a config file; links and keys are in files of their own and not in it.";

/// `gramway config`.
#[derive(Args, Debug)]
#[group(id = "shown", required = true, multiple = false, args = ["effective", "schema"])]
pub(crate) struct ConfigArguments {
    /// Every setting as TOML, with where its value comes from: default, FILE:LINE, environment, flag
    #[arg(long)]
    pub(crate) effective: bool,
    /// JSON Schema of the config file
    #[arg(long)]
    pub(crate) schema: bool,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(subcommand)]
    pub(crate) role: Option<ConfigRole>,
}

/// Whose settings are shown.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigRole {
    /// A server's
    Up {
        #[command(flatten)]
        flags: Flags<config::Up>,
    },
    /// A client's
    Connect {
        #[command(flatten)]
        flags: Flags<config::Connect>,
    },
}

/// `gramway status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArguments {
    /// Print JSON: {"processes": [...], "kill_switch": {...}}
    #[arg(long)]
    pub(crate) json: bool,
    /// State directory of the server or client
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// `gramway top`.
#[derive(Args, Debug)]
pub(crate) struct TopArguments {
    /// State directory of the server or client
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

const RELAY_HELP: &str = "\
A relay on each side of that network carries the UDP of any program, e.g. WireGuard:
  near the clients  gramway relay --listen udp:127.0.0.1:51820 --to tcp:relay.example:443
  near the target   gramway relay --listen tcp:0.0.0.0:443 --to udp:127.0.0.1:51820
It encrypts nothing, and nobody is asked who they are, unless both have a --key-file. What is lost stays lost: there is no TCP behind these packets, so they do \
not pass proxies, and an expert can tell. A datagram may have 12 bytes less than by UDP. Nothing of the firewall is changed. \
SIGUSR1 prints the counters.";

/// `gramway relay`.
#[derive(Args, Debug)]
pub(crate) struct RelayArguments {
    /// Where to listen: udp:ADDRESS:PORT near the clients, tcp:ADDRESS:PORT near the target
    #[arg(
        long,
        value_name = "PROTOCOL:ADDRESS:PORT",
        required_unless_present = "new_key"
    )]
    pub(crate) listen: Option<String>,
    /// Where to carry everything: tcp:HOST:PORT of the other relay, or udp:HOST:PORT of the target
    #[arg(long, value_name = "PROTOCOL:HOST:PORT", required_unless_present = "new_key")]
    pub(crate) to: Option<String>,
    /// Let in, and talk to, only a relay with the same key, and encrypt datagrams: forged packets neither end a
    /// connection nor carry anything. A datagram may have 16 bytes less
    #[arg(long, value_name = "FILE", conflicts_with = "compat")]
    pub(crate) key_file: Option<PathBuf>,
    /// Write a new key to a file that is not there, for --key-file of both relays, and end
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) new_key: Option<PathBuf>,
    /// Talk to another program instead of a relay: phantun (0.8)
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) compat: Option<RelayCompat>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    /// Seconds without a datagram after which a flow is forgotten
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) idle: u32,
    /// Print the counters as JSON on standard output, at the end and on SIGUSR1
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep all privileges, files and system calls
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}

/// Programs that `gramway relay` can talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RelayCompat {
    Phantun,
}

const SERVICE_HELP: &str = "\
gramway service install                               a server: unit gramway.service
gramway service install up -- --tun --nat             the same with a TUN device
gramway service install connect -- --socks 1080       clients: unit gramway-connect@NAME.service, link in /etc/gramway/NAME.link
What is installed again replaces what was. `remove` stops and disables the unit and removes it; state, links and settings stay.";

/// `gramway service`.
#[derive(Args, Debug)]
pub(crate) struct ServiceArguments {
    #[command(subcommand)]
    pub(crate) action: ServiceAction,
}

/// What to do with the unit of a service.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceAction {
    /// Write the unit and have systemd read it; nothing is started
    Install {
        /// What the service runs
        #[arg(default_value = "up")]
        role: ServiceRole,
        /// Write the unit here, and leave systemd alone [default: /etc/systemd/system]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Arguments of the command
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Stop and disable the service, and remove its unit
    Remove {
        /// What the service runs
        #[arg(default_value = "up")]
        role: ServiceRole,
        /// Remove the unit from here, and leave systemd alone [default: /etc/systemd/system]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Print the unit that would be written
    Print {
        /// What the service runs
        #[arg(default_value = "up")]
        role: ServiceRole,
        /// Arguments of the command
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

/// Commands that can be services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServiceRole {
    Up,
    Connect,
}

/// `gramway release`.
#[derive(Args, Debug)]
pub(crate) struct ReleaseArguments {
    /// State directory of the client that was killed
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// All commands and flags.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// Reads the command line; `None` if it asks for help or the version, which are then printed.
pub(crate) fn parse() -> Result<Option<Command>, Problem> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli.command)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            output::data(&error.render().to_string())?;
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Problem::usage(format!(
                "the command is missing\n\n{}",
                error.render().to_string().trim_end()
            )))
        }
        Err(error) => {
            let text = error.render().to_string();
            Err(Problem::usage(
                text.strip_prefix("error: ").unwrap_or(&text).trim_end(),
            ))
        }
    }
}

/// Reads the command line of a service.
pub(crate) fn read_line(role: ServiceRole, arguments: &[String]) -> Result<Command, Problem> {
    let name = match role {
        ServiceRole::Up => "up",
        ServiceRole::Connect => "connect",
    };
    let own = ["gramway", name].into_iter();
    let read = Cli::try_parse_from(own.chain(arguments.iter().map(String::as_str)));
    read.map(|cli| cli.command).map_err(|error| {
        let text = error.render().to_string();
        Problem::usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn forwards_and_the_link_may_come_in_any_order() {
        let line = [
            "gramway",
            "connect",
            "-L",
            "udp:1=a:1",
            "gramway://x",
            "-L",
            "tcp:1=a:1",
        ];
        let Command::Connect(arguments) = Cli::try_parse_from(line).unwrap().command else {
            panic!("connect")
        };
        assert_eq!(arguments.link.as_deref(), Some("gramway://x"));
        assert_eq!(arguments.flags.value("forward"), Some("tcp:1=a:1".as_ref()));
    }
}
