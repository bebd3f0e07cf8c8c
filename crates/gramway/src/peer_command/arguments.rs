//! The command line of `gramway peer`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use peer::RendezvousCarrier;

use crate::limits::{PEER_PINGS, PEER_PINGS_MAX, PEER_TIMEOUT_S};

/// `gramway peer`.
#[derive(Args, Debug)]
pub(crate) struct PeerArguments {
    #[command(subcommand)]
    pub(super) action: PeerAction,
    /// State directory with this machine's key [default: /var/lib/gramway for root, else ~/.local/state/gramway]
    #[arg(long, value_name = "DIR", global = true)]
    pub(super) state: Option<PathBuf>,
    /// Keep all privileges, files and system calls
    #[arg(long, global = true)]
    pub(super) no_sandbox: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum PeerAction {
    /// Print this machine's peer ID, by which others name it; the first time also makes its key
    Id,
    /// Wait for peers: answer their pings, and copy their pipes to standard output and standard input to them
    Listen(ListenArguments),
    /// Measure round trips to a peer, and show the path to it; a connection that ends is made again
    Ping(PingArguments),
    /// Copy standard input to a peer, and its answer to standard output
    Pipe(PipeArguments),
}

/// Where peers find each other without addresses.
#[derive(Args, Debug)]
pub(crate) struct RendezvousArguments {
    /// Meet the peer at the Gramway server of the link in this file, which opens the routers between both
    #[arg(long, value_name = "FILE")]
    pub(crate) rendezvous_file: Option<PathBuf>,
    /// Trust the authorities in this PEM file, too, where that server has an ordinary certificate or a cover
    #[arg(long, value_name = "FILE", requires = "rendezvous_file")]
    pub(crate) rendezvous_roots: Option<PathBuf>,
    /// Over what to reach that server: packets that look like TCP need the capability CAP_NET_RAW [default: auto]
    #[arg(long, value_name = "CARRIER", requires = "rendezvous_file")]
    pub(crate) rendezvous_carrier: Option<Carrier>,
}

/// Over what the rendezvous is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    /// UDP, or packets that look like TCP where UDP does not come through
    Auto,
    /// UDP alone
    Udp,
    /// Packets that look like TCP alone
    Tcp,
}

impl From<Carrier> for RendezvousCarrier {
    fn from(carrier: Carrier) -> Self {
        match carrier {
            Carrier::Auto => Self::Auto,
            Carrier::Udp => Self::Udp,
            Carrier::Tcp => Self::Tcp,
        }
    }
}

/// `gramway peer listen`.
#[derive(Args, Debug)]
#[group(id = "admitted", required = true, multiple = true, args = ["allow", "allow_file", "any"])]
pub(super) struct ListenArguments {
    /// Where to listen [default: all addresses, at a port that the system chooses]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) listen: Option<SocketAddr>,
    /// Let this peer connect; again for another
    #[arg(long, value_name = "PEER")]
    pub(super) allow: Vec<String>,
    /// Let the peers in this file connect: an ID a line, and comments after #
    #[arg(long, value_name = "FILE")]
    pub(super) allow_file: Option<PathBuf>,
    /// Let everybody connect
    #[arg(long, conflicts_with_all = ["allow", "allow_file"])]
    pub(super) any: bool,
    /// End after the first pipe
    #[arg(long)]
    pub(super) once: bool,
    /// Do not announce this machine on the local network, where everybody sees its peer ID
    #[arg(long)]
    pub(super) no_lan: bool,
    /// Do not ask routers for a port that leads to this machine, and to let others in by IPv6
    #[arg(long)]
    pub(super) no_port_mapping: bool,
    /// Tell what happens as JSON on standard error, an object a line
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) rendezvous: RendezvousArguments,
}

/// Who is to be reached, and where.
#[derive(Args, Debug)]
pub(super) struct PeerPlace {
    /// The peer's ID, as `gramway peer id` prints it there, and where it listens
    #[arg(value_name = "PEER[@HOST:PORT]")]
    pub(super) peer: String,
    /// Where it listens, too; again for other places, all of which are tried
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) at: Vec<String>,
    /// Do not look for the peer on the local network
    #[arg(long)]
    pub(super) no_lan: bool,
    #[command(flatten)]
    pub(super) rendezvous: RendezvousArguments,
    /// Give up when nobody has answered after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = PEER_TIMEOUT_S, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub(super) timeout: u32,
}

/// `gramway peer ping`.
#[derive(Args, Debug)]
pub(super) struct PingArguments {
    #[command(flatten)]
    pub(super) place: PeerPlace,
    /// How many
    #[arg(short, long, value_name = "NUMBER", default_value_t = PEER_PINGS, value_parser = clap::value_parser!(u32).range(1..=i64::from(PEER_PINGS_MAX)))]
    pub(super) count: u32,
    /// Milliseconds between two
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub(super) interval: u32,
    /// Print JSON, an object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// `gramway peer pipe`.
#[derive(Args, Debug)]
pub(super) struct PipeArguments {
    #[command(flatten)]
    pub(super) place: PeerPlace,
}
