//! The command line: commands and what they take besides settings. The flags of settings, and their help, come from the
//! table in `config`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use crate::config::{self, Flags};
use crate::exit::Problem;
use crate::helper::HelperArguments;
use crate::log::LogFormat;
use crate::output;
use crate::peer_command::PeerArguments;
use crate::profiles::Profile;
use crate::transfer::{ReceiveArguments, SendArguments, ShareArguments};

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
    /// Manage users of this server: each has a link of its own, with an end, a quota and rights
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
    /// Show the profiles of a client, each of which `gramway connect NAME` uses
    Profile(ProfileArguments),
    /// Send a command to the running servers and clients
    Ctl(CtlArguments),
    /// Open the network again after a client that was killed, or that had --kill-switch; needs root
    Release(ReleaseArguments),
    /// Carry UDP in packets that look like TCP, for networks that block or slow UDP; needs CAP_NET_RAW
    #[command(after_help = RELAY_HELP)]
    Relay(RelayArguments),
    /// Reach another machine that has gramway, by its public key: measure the path, or pipe data, encrypted
    #[command(after_help = PEER_HELP)]
    Peer(PeerArguments),
    /// Send files and directories to whoever has the code that it prints, or to a peer
    #[command(after_help = SEND_HELP)]
    Send(SendArguments),
    /// Receive what `gramway send` or `gramway share` offers
    #[command(after_help = SEND_HELP)]
    Receive(ReceiveArguments),
    /// Let named peers read a directory
    Share(ShareArguments),
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
    /// Start the program of a server again for an upgrade; gramway starts it
    #[command(name = crate::upgrade::SUBCOMMAND, hide = true)]
    Launcher(crate::upgrade::LauncherArguments),
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
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Places {
    /// State directory [default: /var/lib/gramway for root, else ~/.local/state/gramway]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Config file [default: DIR/config.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Of a client that was named a profile.
    #[arg(skip)]
    pub(crate) profile: Option<Profile>,
}

/// `gramway up`.
#[derive(Args, Debug)]
pub(crate) struct UpArguments {
    /// Log who connects, leaves, is turned away and gets which addresses; twice (-vv) also from where
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Take over the sockets of a running server, which offers them at the standard input; `gramway ctl upgrade` does
    /// so
    #[arg(long, hide = true)]
    pub(crate) takeover: bool,
    #[command(flatten)]
    pub(crate) flags: Flags<config::Up>,
    #[command(flatten)]
    pub(crate) places: Places,
}

/// `gramway connect`.
#[derive(Args, Debug)]
pub(crate) struct ConnectArguments {
    /// The server's link, or the name of a profile (profiles/NAME.toml and NAME.link in the state directory). A link is
    /// a secret and visible in the process list: prefer a profile, --link-file or GRAMWAY_LINK
    #[arg(value_name = "LINK|PROFILE")]
    pub(crate) link: Option<String>,
    /// Twice (-vv): log addresses in JSON and the journal too
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
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
A running server follows within a second, and other users do not notice. A user who may do nothing any more is disconnected, and \
its client shows the reason. The owner, whose link `gramway link` prints, is not one of these users.";

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
        /// Only this network, of those that the server lets everybody reach; again for another
        #[arg(long, value_name = "CIDR[:PORT]")]
        reach: Vec<String>,
        /// Let it listen at these ports of the server (-R of its client): PORT or FIRST-LAST on loopback, ADDR:PORTS,
        /// :PORTS on all addresses; again for others
        #[arg(long, value_name = "[ADDR:]PORTS")]
        listen: Vec<String>,
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
    /// Change a user's end, quota or rate; its link stays
    Renew {
        /// Who
        name: String,
        #[command(flatten)]
        terms: UserTerms,
    },
    /// Keep a user out until it is enabled
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
    /// Copy all users and their use to a new file, while the server runs too; it holds keys
    Backup {
        /// The file, which must not exist yet; `-` writes to standard output
        file: PathBuf,
    },
    /// Put a copy of `backup` in the place of all users and their use; a running server follows
    Restore {
        /// The copy
        file: PathBuf,
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
    /// Bits a second of payload in each direction, of all its connections together: 20M, 1G, none
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
}

const CHECK_HELP: &str = "\
Without --cover, it prints all errors of the config file and of variables GRAMWAY_…; the exit code is 78 if there is one.";

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
    /// PEM file with authorities to trust besides those that browsers trust
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

/// `gramway profile`.
#[derive(Args, Debug)]
pub(crate) struct ProfileArguments {
    #[command(subcommand)]
    pub(crate) action: ProfileAction,
    /// State directory of the client
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state: Option<PathBuf>,
}

/// What to do with profiles.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileAction {
    /// Print their names
    List,
}

/// `gramway ctl`.
#[derive(Args, Debug)]
pub(crate) struct CtlArguments {
    #[command(subcommand)]
    pub(crate) action: CtlAction,
    /// State directory of the servers and clients
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state: Option<PathBuf>,
}

/// The command that is sent.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlAction {
    /// Read config file and environment again, as SIGHUP does; errors change nothing, and the exit code is 78 then
    Reload,
    /// Have the program that lies where the server was started from, such as a newer version, take over the server's
    /// sockets; the former process ends when its clients have left for the new one
    Upgrade {
        /// End the former process after so many seconds, whoever is still there [default: drain_timeout_s of the
        /// settings]
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<u32>,
        /// Give the new process up, and leave everything as it is, when it is not ready after so many seconds
        /// [default: 20]
        #[arg(long, value_name = "SECONDS")]
        start_timeout: Option<u32>,
    },
    /// Have the server refuse new connections and end when its clients have left: they connect to another server of
    /// their link first, if it names one
    Drain {
        /// End after so many seconds, whoever is still there [default: drain_timeout_s of the settings]
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<u32>,
    },
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
    /// How the log is written to standard error: auto, human, json, journald [default: GRAMWAY_LOG_FORMAT, or auto:
    /// human on a terminal, journald where standard error leads to the journal, else json]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Keep all privileges, files and system calls
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}

/// Programs that `gramway relay` can talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RelayCompat {
    Phantun,
}

const PEER_HELP: &str = "\
Both machines print their ID once; then one listens and the other connects, directly and without a server:
  here   gramway peer listen --once --allow ID-OF-THE-OTHER --listen 0.0.0.0:4000 < /dev/null > copy
  there  gramway peer pipe ID-OF-THIS@HOST:4000 < file
A pipe goes both ways: what `listen` reads from its standard input is the answer, and `pipe` waits for its end.
Both prove their keys, and nobody between them reads anything.";

const SEND_HELP: &str = "\
On one network, or with the link of a Gramway server that both reach:
  here   gramway send photos                  prints: gramway receive 4711-maple-otter
  there  gramway receive 4711-maple-otter --to DIR
The code is valid once, for ten minutes; one wrong guess uses it up, and whoever relays learns nothing. The link is that of \
--rendezvous-file or of GRAMWAY_LINK; the receiver needs none. What was interrupted goes on where it ended when the same is sent again.";

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
