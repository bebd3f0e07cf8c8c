//! The command lines of `gramway send`, `receive` and `share`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use files::limits::{PARALLEL_FILES_MAX, STREAMS_MAX};

use crate::limits::{TRANSFER_RATE_MIN, TRANSFER_RECEIVERS_MAX, TRANSFER_SECONDS, TRANSFER_TIMEOUT_S};
use crate::peer_command::RendezvousArguments;

/// What all three take.
#[derive(Args, Debug)]
pub(super) struct CommonArguments {
    /// State directory: this machine's key, and what need not be read again [default: /var/lib/gramway for root, else
    /// ~/.local/state/gramway]
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    #[command(flatten)]
    pub(super) rendezvous: RendezvousArguments,
    /// Neither announce this machine on the local network nor look for others there
    #[arg(long)]
    pub(super) no_lan: bool,
    /// Also transfer extended attributes; both ends have to ask for it
    #[arg(long)]
    pub(super) xattrs: bool,
    /// Print lines of JSON: what happens, and each second how far it is
    #[arg(long)]
    pub(super) json: bool,
    /// Let the program reach all files of its user
    #[arg(long)]
    pub(super) no_sandbox: bool,
}

/// `gramway send`.
#[derive(Args, Debug)]
pub(crate) struct SendArguments {
    /// Files and directories; `-` is standard input
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Send to this peer, by the ID that `gramway peer id` prints there, instead of to whoever has the code
    #[arg(long, value_name = "PEER", conflicts_with = "receivers")]
    pub(super) peer: Option<String>,
    /// How many may receive it, each by a code of its own; the command ends when all have
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(TRANSFER_RECEIVERS_MAX)))]
    pub(super) receivers: u16,
    /// The name of standard input at the other end
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) offer: OfferArguments,
    /// Do not draw the QR code
    #[arg(long)]
    pub(super) no_qr: bool,
    /// Give up when nobody has come after so many seconds; a server keeps a code for 600 at most. With a code, who came
    /// and left is waited for an hour [default: 600 with a code, never with --peer]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(TRANSFER_SECONDS))]
    pub(super) timeout: Option<u32>,
    #[command(flatten)]
    pub(super) common: CommonArguments,
}

/// What is offered of what lies there.
#[derive(Args, Debug)]
pub(super) struct OfferArguments {
    /// Only files whose path matches this pattern, e.g. '*.jpg', or 'photos/2024/**' of the directory photos: paths
    /// begin with the name of what is sent; again for others
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    pub(super) include: Vec<String>,
    /// No files or directories whose path matches this pattern; again for others
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    pub(super) exclude: Vec<String>,
    /// Whether data is compressed: auto, which stops where it does not help, or no
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(super) compress: CompressArgument,
    /// Connections that carry the data beside each other: auto, or so many
    #[arg(long, value_name = "auto|NUMBER", default_value = "auto", value_parser = streams)]
    pub(super) streams: Streams,
    /// What carries the data: auto, which measures what is better, or quic or tcp; also tcp begins by QUIC
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub(super) carrier: CarrierArgument,
    /// Files that are read at once at most, for disks that are slow with several [default: one for each connection]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=i64::from(PARALLEL_FILES_MAX)))]
    pub(super) parallel_files: Option<u16>,
    /// Bytes a second at most, to all receivers together, e.g. 500K, 20M, 1G; they leave by the MiB, the first at once
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(super) limit: Option<u64>,
    /// Where to listen [default: all addresses, at a port that the system chooses]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) listen: Option<SocketAddr>,
}

/// `gramway receive`.
#[derive(Args, Debug)]
pub(crate) struct ReceiveArguments {
    /// The code that `gramway send` has printed
    #[arg(
        value_name = "CODE",
        required_unless_present = "peer",
        conflicts_with = "peer"
    )]
    pub(super) code: Option<String>,
    /// Receive from this peer, which sends to or shares with this machine: its ID, by `gramway peer id` there; where
    /// several `send --peer` and `share` run there, one is named by its port, and --no-lan
    #[arg(long, value_name = "PEER[@HOST:PORT]")]
    pub(super) peer: Option<String>,
    /// Directory to put everything into, made where there is none
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with = "output")]
    pub(super) to: PathBuf,
    /// Write what is received to standard output (`-`): one file, or what `send -` reads
    #[arg(short, long, value_name = "-", value_parser = ["-"])]
    pub(super) output: Option<String>,
    /// What to do with a file that is there and is another one: ask, skip, rename, overwrite, newer
    #[arg(long, value_name = "WHAT", default_value = "ask")]
    pub(super) on_conflict: ConflictArgument,
    /// Only files whose path, as --list shows it, matches this pattern, e.g. '*.jpg' or 'photos/2024/**'; again for
    /// others
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    pub(super) only: Vec<String>,
    /// Say what is offered, and receive nothing: the same code receives it afterwards on this machine
    #[arg(long, conflicts_with_all = ["output", "dry_run"])]
    pub(super) list: bool,
    /// Say what would be received, and receive nothing: the same code receives it afterwards on this machine
    #[arg(long, conflicts_with = "output")]
    pub(super) dry_run: bool,
    /// Compare contents also where size and time are the same, and of files that are gone on with
    #[arg(long)]
    pub(super) checksum: bool,
    /// Also make symbolic links that lead out of the directory
    #[arg(long)]
    pub(super) all_links: bool,
    /// Files that come at once at most, for disks that are slow with several [default: as many as are sent]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=i64::from(PARALLEL_FILES_MAX)))]
    pub(super) parallel_files: Option<u16>,
    /// Give up when the sender has not answered after so many seconds, at first or after the connection broke
    #[arg(long, value_name = "SECONDS", default_value_t = TRANSFER_TIMEOUT_S, value_parser = clap::value_parser!(u32).range(TRANSFER_SECONDS))]
    pub(super) timeout: u32,
    #[command(flatten)]
    pub(super) common: CommonArguments,
}

/// `gramway share`.
#[derive(Args, Debug)]
pub(crate) struct ShareArguments {
    /// The directory; nothing is ever written to it
    pub(super) directory: PathBuf,
    /// Who may read it, by the ID that `gramway peer id` prints there; again for others
    #[arg(long = "to", value_name = "PEER", required = true)]
    pub(super) peers: Vec<String>,
    #[command(flatten)]
    pub(super) offer: OfferArguments,
    #[command(flatten)]
    pub(super) common: CommonArguments,
}

/// How many connections carry data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Streams(pub(super) Option<usize>);

/// Whether data is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CompressArgument {
    Auto,
    No,
}

/// What carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CarrierArgument {
    Auto,
    Quic,
    Tcp,
}

/// What to do where a file is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ConflictArgument {
    Ask,
    Skip,
    Rename,
    Overwrite,
    Newer,
}

fn streams(text: &str) -> Result<Streams, String> {
    if text == "auto" {
        return Ok(Streams(None));
    }
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=STREAMS_MAX).contains(number));
    number
        .map(|number| Streams(Some(number)))
        .ok_or_else(|| format!("expected auto, or a number of 1 to {STREAMS_MAX}"))
}

fn pattern(text: &str) -> Result<String, String> {
    files::check_patterns(&[text.to_owned()]).map(|()| text.to_owned())
}

/// Bytes a second: a number, and K, M or G for thousands, millions and thousands of millions.
fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((place, 'k' | 'K')) => (&text[..place], 1_000),
        Some((place, 'm' | 'M')) => (&text[..place], 1_000_000),
        Some((place, 'g' | 'G')) => (&text[..place], 1_000_000_000),
        _ => (text, 1),
    };
    let number = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    number
        .filter(|rate| *rate >= TRANSFER_RATE_MIN)
        .ok_or_else(|| "expected bytes a second, 1K at least, e.g. 500K, 20M, 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_streams_are_read_and_what_is_none_is_told() {
        for (text, expected) in [
            ("500K", 500_000),
            ("20M", 20_000_000),
            ("1g", 1_000_000_000),
            ("4096", 4_096),
        ] {
            assert_eq!(rate(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "M",
            "0",
            "999",
            "1.5M",
            "-1M",
            "99999999999999999999",
            "99999999999G",
            "20Mbit",
            "µ",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(streams("auto"), Ok(Streams(None)));
        assert_eq!(streams("4"), Ok(Streams(Some(4))));
        for text in ["0", "65", "-1", "many"] {
            assert!(streams(text).is_err(), "{text}");
        }
    }
}
