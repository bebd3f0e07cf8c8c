//! The command line: commands, flags and their help. Values stay texts here; `config` gives them their meaning, so that
//! a value is judged the same from a flag, a variable or a file.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::exit::Problem;
use crate::output;

const SETTINGS_HELP: &str = "Settings: flag over environment (GRAMWAY_ and the key in capitals) over config file over default. \
The file of a first run, DIR/config.toml, lists every key.";

/// UDP and TCP through QUIC datagrams, from one command.
#[derive(Debug, Parser)]
#[command(name = "gramway", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 done, 64 usage, 69 unavailable, 70 defect, 77 permission, 78 configuration.";

/// A command with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server; the first run makes keys, a token and a config file, and shows the link
    #[command(after_help = SETTINGS_HELP)]
    Up(UpArguments),
    /// Connect to a server and forward UDP and TCP through it
    #[command(after_help = SETTINGS_HELP)]
    Connect(ConnectArguments),
    /// Show server, client and real traffic on this machine, for about ten seconds
    Demo,
    /// Print the server's link on standard output
    Link(LinkArguments),
    /// Show the counters of the running servers and clients
    Status(StatusArguments),
    /// Measure UDP and TCP through the tunnel, and what its parts cost
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Undo what a killed process left in the host's network; started by gramway itself
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

/// Flags of every command that carries traffic.
#[derive(Args, Debug)]
pub(crate) struct CommonArguments {
    /// State directory [default: /var/lib/gramway for root, else ~/.local/state/gramway]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Config file [default: DIR/config.toml where it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Threads that carry traffic, and a client's connections to its server, 1 to 16 [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<String>,
    /// Upper bound for QUIC packets in bytes of UDP payload, 1200 to 65507
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_udp_payload: Option<String>,
    /// throughput, latency, or fixed:RATE in bits per second (fixed:500M) [default: throughput]
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// Do without UDP segmentation offload
    #[arg(long)]
    pub(crate) no_gso: bool,
    /// Do without UDP receive offload
    #[arg(long)]
    pub(crate) no_gro: bool,
    /// Do without super-packets on the TUN device
    #[arg(long)]
    pub(crate) no_tun_offloads: bool,
}

/// `gramway up`.
#[derive(Args, Debug)]
pub(crate) struct UpArguments {
    /// Address and port to listen on; without it every address, port 443: `[::]:443`
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<String>,
    /// Host that the link names instead of the listening address; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) public: Vec<String>,
    /// Open targets that are closed otherwise, such as loopback and the server's own addresses; may be repeated
    #[arg(long, value_name = "CIDR[:PORT]")]
    pub(crate) allow_target: Vec<String>,
    /// Carry IP packets of clients through a TUN device; needs root or CAP_NET_ADMIN
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = crate::tun::AUTOMATIC)]
    pub(crate) tun: Option<String>,
    /// Where clients' addresses come from; the first one is the server's own. May be repeated
    /// [default: 10.86.0.0/24 and a private IPv6 network]
    #[arg(long, value_name = "CIDR")]
    pub(crate) pool: Vec<String>,
    /// Let clients reach what this machine reaches, by its address
    #[arg(long)]
    pub(crate) nat: bool,
    /// What clients are told to be reachable besides the pools; may be repeated [default: everything with --nat]
    #[arg(long, value_name = "CIDR")]
    pub(crate) advertise: Vec<String>,
    /// Let clients reach each other
    #[arg(long)]
    pub(crate) client_to_client: bool,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
}

/// `gramway connect`.
#[derive(Args, Debug)]
pub(crate) struct ConnectArguments {
    /// The server's link; it is a secret, so a file or GRAMWAY_LINK is better where others see the process list
    #[arg(value_name = "LINK")]
    pub(crate) link: Option<String>,
    /// File that holds the link, - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) link_file: Option<PathBuf>,
    /// Forward `udp:LISTEN=TARGET` or `tcp:LISTEN=TARGET`; may be repeated. LISTEN is `PORT` (on 127.0.0.1),
    /// `ADDR:PORT` or `[V6]:PORT`; TARGET is `HOST:PORT` or `[V6]:PORT`, resolved at the server
    #[arg(short = 'L', long = "forward", value_name = "FORWARD")]
    pub(crate) forward: Vec<String>,
    /// Repair what the path loses of UDP forwards, and of IP packets that are marked urgent (DSCP EF, CS4, CS5, AF4x), at most
    /// so much later than without loss, 1ms to 500ms; costs at most half as many bytes again, and nothing without loss
    #[arg(long, value_name = "LATENCY")]
    pub(crate) repair: Option<String>,
    /// Carry IP packets through a TUN device with an address that the server leases; needs root or CAP_NET_ADMIN
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = crate::tun::AUTOMATIC)]
    pub(crate) tun: Option<String>,
    /// Route this through the TUN, instead of what the server advertises; may be repeated
    #[arg(long, value_name = "CIDR", conflicts_with = "no_routes")]
    pub(crate) route: Vec<String>,
    /// Route nothing through the TUN but what --default-route says
    #[arg(long)]
    pub(crate) no_routes: bool,
    /// Route everything through the TUN that has no better route
    #[arg(long)]
    pub(crate) default_route: bool,
    /// Name server to ask while the TUN is there; may be repeated
    #[arg(long, value_name = "ADDR")]
    pub(crate) dns: Vec<String>,
    #[command(flatten)]
    pub(crate) common: CommonArguments,
}

/// `gramway link`.
#[derive(Args, Debug)]
pub(crate) struct LinkArguments {
    /// State directory of the server
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Config file of the server
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print a QR code too
    #[arg(long, conflicts_with = "masque")]
    pub(crate) qr: bool,
    /// Print what foreign MASQUE clients need instead: URI template (RFC 9298) and certificate
    #[arg(long)]
    pub(crate) masque: bool,
    /// Host to name instead of those the server announced; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) public: Vec<String>,
}

/// `gramway status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArguments {
    /// Print JSON: {"processes": [...]}
    #[arg(long)]
    pub(crate) json: bool,
    /// State directory of the server or client
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// Reads the command line; `None` where it asked for help or the version, which have then been printed.
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

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
        assert_eq!(arguments.forward, ["udp:1=a:1", "tcp:1=a:1"]);
    }
}
