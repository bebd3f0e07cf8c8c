//! `gramway relay`: what goes where, around crate `relay`; signals, and the counters for people and programs.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use relay::limits::TELL_AGAIN;
use relay::{Config, Counters, Direction, FewAtATime, News, Profile, Relay};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tunnel::names;
use tunnel_proto::link::Endpoint;

use crate::cli::{RelayArguments, RelayCompat};
use crate::exit::{Problem, sentence};
use crate::log::{self, LogFormat};
use crate::sandbox::{self, OfRelay};
use crate::{output, relay_key, startup, units};

/// Why the main thread wakes.
enum Wake {
    Signal(i32),
    News(News),
}

/// Runs a relay until a signal ends it.
///
/// # Errors
/// What is wrong with the arguments, what is missing or in use, or why a worker ended.
pub(crate) fn run(arguments: &RelayArguments) -> Result<(), Problem> {
    if let Some(path) = &arguments.new_key {
        return relay_key::create(path);
    }
    let config = config(arguments)?;
    log::start(log_format(arguments)?, 0, 0)?;
    startup::raise_file_limit();
    let cannot = |error: io::Error| cannot_start(&config, &error);
    let opened = Relay::open(&config).map_err(cannot)?;
    if !arguments.no_sandbox {
        sandbox::confine_relay(match config.direction {
            Direction::UdpToTcp => OfRelay::NearClients,
            Direction::TcpToUdp => OfRelay::NearTarget,
        });
    }
    let (wake, wakes) = mpsc::channel();
    watch_signals(wake.clone())?;
    let tell_news = move |news| {
        // Nobody listens any more where the relay is stopped.
        let _ = wake.send(Wake::News(news));
    };
    let relay = opened.start(tell_news).map_err(cannot)?;
    if let Some(warning) = relay.warning() {
        log::warning("relay", warning);
    }
    log::info("listening", started(&config, relay.local_addr()));
    // Each worker tells; people are told by the first of them.
    let [mut joined, mut unproved] = [FewAtATime::new(1, TELL_AGAIN / 2); 2];
    while let Ok(wake) = wakes.recv() {
        match wake {
            Wake::Signal(SIGUSR1) => tell(&relay.counters(), arguments.json)?,
            Wake::Signal(_) | Wake::News(News::Ended) => break,
            Wake::News(News::Joined) if joined.take(Instant::now()) => {
                log::warning("joined_packets", joined_text(config.profile));
            }
            Wake::News(News::Unproved) if unproved.take(Instant::now()) => {
                log::warning("unproved_packets", UNPROVED);
            }
            Wake::News(_) => {}
        }
    }
    let counters = relay
        .stop()
        .map_err(|error| Problem::unavailable(format!("the relay ended: {}", sentence(&error))))?;
    tell(&counters, arguments.json)
}

fn config(arguments: &RelayArguments) -> Result<Config, Problem> {
    let (direction, listen, to) = match (
        protocol(arguments.listen.as_deref()),
        protocol(arguments.to.as_deref()),
    ) {
        (Some(("udp", listen)), Some(("tcp", to))) => (Direction::UdpToTcp, listen, to),
        (Some(("tcp", listen)), Some(("udp", to))) => (Direction::TcpToUdp, listen, to),
        _ => {
            return Err(Problem::usage(
                "a relay listens at udp:ADDRESS:PORT and leads to tcp:HOST:PORT, or the other way round",
            ));
        }
    };
    let listen: SocketAddr = listen.parse().map_err(|_| {
        Problem::usage(format!(
            "--listen: \"{listen}\" is not ADDRESS:PORT; IPv6 addresses stand in brackets"
        ))
    })?;
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    Ok(Config {
        direction,
        listen,
        to: resolve(to)?,
        workers: arguments.workers.map_or_else(cores, usize::from),
        idle: Duration::from_secs(arguments.idle.into()),
        profile: match arguments.compat {
            None => Profile::Linux,
            Some(RelayCompat::Phantun) => Profile::Phantun,
        },
        key: arguments.key_file.as_deref().map(relay_key::load).transpose()?,
    })
}

/// As the flag says, or the environment; a relay reads no config file.
fn log_format(arguments: &RelayArguments) -> Result<LogFormat, Problem> {
    const VARIABLE: &str = "GRAMWAY_LOG_FORMAT";
    match (arguments.log_format, std::env::var(VARIABLE)) {
        (Some(format), _) => Ok(format),
        (None, Ok(text)) => text.parse().map_err(|reason| {
            Problem::configuration(format!("environment variable {VARIABLE}: \"{text}\" is {reason}"))
        }),
        (None, Err(_)) => Ok(LogFormat::default()),
    }
}

fn protocol(text: Option<&str>) -> Option<(&str, &str)> {
    text?
        .split_once(':')
        .filter(|(protocol, _)| matches!(*protocol, "udp" | "tcp"))
}

fn resolve(text: &str) -> Result<SocketAddr, Problem> {
    let endpoint = Endpoint::parse(text).map_err(|error| Problem::usage(format!("--to: {error}")))?;
    let unresolved =
        |why: &str| Problem::unavailable(format!("--to: cannot resolve {}: {why}", endpoint.host));
    let addresses = names::addresses(&endpoint.host, endpoint.port).map_err(|why| unresolved(&why))?;
    addresses
        .first()
        .copied()
        .ok_or_else(|| unresolved("it has no address"))
}

/// SIGTERM and SIGINT end the relay, SIGUSR1 prints its counters.
fn watch_signals(wake: mpsc::Sender<Wake>) -> Result<(), Problem> {
    let cannot = |error: io::Error| Problem::bug(format!("cannot watch for signals: {}", sentence(&error)));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1]).map_err(cannot)?;
    let watch = move || {
        for signal in signals.forever() {
            if wake.send(Wake::Signal(signal)).is_err() {
                break;
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .map_err(cannot)?;
    Ok(())
}

fn cannot_start(config: &Config, error: &io::Error) -> Problem {
    let text = sentence(error);
    match error.kind() {
        io::ErrorKind::PermissionDenied => Problem::permission(format!(
            "gramway relay needs the capability CAP_NET_RAW for packets that look like TCP ({text}); run it as root, \
             or as a service with AmbientCapabilities=CAP_NET_RAW"
        )),
        io::ErrorKind::AddrInUse => Problem::unavailable(format!(
            "cannot listen at {}: the address is in use; stop what uses it, or take another port",
            config.listen
        )),
        _ => Problem::unavailable(format!(
            "cannot relay from {} to {}: {text}",
            config.listen, config.to
        )),
    }
}

fn started(config: &Config, listen: SocketAddr) -> String {
    let (from, to) = match config.direction {
        Direction::UdpToTcp => ("UDP", "in packets that look like TCP"),
        Direction::TcpToUdp => ("packets that look like TCP", "by UDP"),
    };
    let workers = match config.workers {
        1 => "one worker".to_owned(),
        count => format!("{count} workers"),
    };
    format!("relaying {from} at {listen} to {} {to}, {workers}", config.to)
}

const UNPROVED: &str = "packets came that nothing proves, and are dropped: they are forged, or the other relay has another key \
     or none, or was started again; after a restart this end opens new connections once the old ones are silent for 20 s";

fn joined_text(profile: Profile) -> &'static str {
    match profile {
        Profile::Linux => {
            "something on the way joins packets, and nobody knows where a datagram in them ends: some were lost; the other \
             relay is asked to put lengths before datagrams from here on"
        }
        Profile::Phantun => {
            "something on the way joins packets, and nobody knows where a datagram in them ends: they are lost, because a \
             phantun does not put lengths before datagrams; turn off receive offloads (LRO) on the way"
        }
    }
}

fn tell(counters: &Counters, as_json: bool) -> Result<(), Problem> {
    if as_json {
        return output::data(&as_object(counters).to_string());
    }
    let count = units::count;
    let text = format!(
        "UDP: {} in, {} out; TCP shape: {} in, {} out; dropped: {} here, {} by the kernel; {} flows, {} in all, {} reconnected",
        count(counters.udp_received),
        count(counters.udp_sent),
        count(counters.tcp_received),
        count(counters.tcp_sent),
        count(counters.dropped()),
        count(counters.kernel_drops),
        count(counters.flows_open),
        count(counters.flows),
        count(counters.reconnects),
    );
    log::info("counters", text);
    Ok(())
}

fn as_object(counters: &Counters) -> serde_json::Value {
    json!({
        "udp": { "received": counters.udp_received, "sent": counters.udp_sent },
        "tcp": { "received": counters.tcp_received, "sent": counters.tcp_sent },
        "waiting": counters.waiting,
        "dropped": {
            "too_large": counters.too_large,
            "socket_full": counters.socket_full,
            "no_connection": counters.no_connection,
            "no_flow": counters.no_flow,
            "other": counters.other,
            "kernel": counters.kernel_drops,
        },
        "flows": { "open": counters.flows_open, "all": counters.flows, "expired": counters.expired },
        "joined_packets": counters.joined,
        "unproved_packets": counters.unproved,
        "reconnects": counters.reconnects,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(listen: &str, to: &str) -> Result<Config, String> {
        let arguments = RelayArguments {
            listen: Some(listen.to_owned()),
            to: Some(to.to_owned()),
            key_file: None,
            new_key: None,
            compat: None,
            workers: Some(3),
            idle: 7,
            json: false,
            log_format: None,
            no_sandbox: false,
        };
        config(&arguments).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_relay_leads_from_one_protocol_to_the_other() {
        let relay = parsed("udp:127.0.0.1:51820", "tcp:192.0.2.1:443").unwrap();
        assert_eq!(relay.direction, Direction::UdpToTcp);
        assert_eq!(
            (relay.listen.port(), relay.to),
            (51_820, "192.0.2.1:443".parse().unwrap())
        );
        assert_eq!((relay.workers, relay.idle), (3, Duration::from_secs(7)));
        let relay = parsed("tcp:[::]:443", "udp:[2001:db8::1]:51820").unwrap();
        assert_eq!(relay.direction, Direction::TcpToUdp);
        for (listen, to) in [
            ("udp:127.0.0.1:1", "udp:192.0.2.1:1"),
            ("tcp:127.0.0.1:1", "tcp:192.0.2.1:1"),
            ("127.0.0.1:1", "tcp:192.0.2.1:1"),
            ("udp:127.0.0.1:1", "icmp:192.0.2.1:1"),
        ] {
            assert!(
                parsed(listen, to).unwrap_err().contains("the other way round"),
                "{listen} {to}"
            );
        }
        assert!(
            parsed("udp:51820", "tcp:192.0.2.1:1")
                .unwrap_err()
                .contains("not ADDRESS:PORT")
        );
        assert!(
            parsed("udp:[::1]:1", "tcp:192.0.2.1")
                .unwrap_err()
                .contains("has no port")
        );
    }
}
