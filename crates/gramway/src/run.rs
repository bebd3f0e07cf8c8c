//! Runs a started server or client to its end: prints notices as lines, handles signals, prints the last counters as a
//! summary.
//!
//! The first SIGTERM or SIGINT drains, a second one stops at once. Both give exit code 0.

use std::net::{IpAddr, SocketAddr};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tunnel::carrier::CarrierKind;
use tunnel::config::Forward;
use tunnel::handle::{Controller, Handle, Notice, Visitor};
use tunnel::snapshot::Snapshot;
use tunnel_proto::{Account, UserId};

use crate::exit::{Problem, sentence};
use crate::limits::{DRAIN_LIMIT, FORWARDS_NAMED_MAX, STOP_LIMIT};
use crate::proxies::Proxies;
use crate::users::Register;
use crate::{forward, output, recent, service_manager, units};

/// Longest wait for a notice. Any value works: every notice and the end interrupt the wait.
const NOTICE_WAIT: Duration = Duration::from_secs(3_600);

/// Pause between checks whether a shard that sends no more notices has ended.
const END_POLL: Duration = Duration::from_millis(5);

/// Runs until the shard ends, then prints the summary. A client that is not connected within `first_connection` of now
/// is ended, unless it `is_stopping`.
///
/// # Errors
/// Why it ended: a failure of the shard, or the limit with what went wrong last.
pub(crate) fn until_end(
    handle: Handle,
    entrances: &Entrances<'_>,
    detail: Detail,
    first_connection: Option<Duration>,
    is_stopping: &AtomicBool,
) -> Result<(), Problem> {
    let mut due = first_connection.map(|limit| Instant::now() + limit);
    let mut reason = "no answer".to_owned();
    while !handle.has_ended() {
        let wait = due.map_or(NOTICE_WAIT, |due| due.saturating_duration_since(Instant::now()));
        let notice = handle.next_notice(wait);
        if is_stopping.load(Ordering::Relaxed) {
            due = None;
        }
        match notice {
            Some(notice) => {
                match &notice {
                    Notice::Connected { .. } => due = None,
                    Notice::Unreachable { reason: latest } | Notice::Reconnecting { reason: latest } => {
                        reason.clone_from(latest);
                    }
                    _ => {}
                }
                tell(&notice, entrances, detail);
            }
            None if due.is_some_and(|due| due <= Instant::now()) => {
                return Err(Problem::unavailable(format!("no connection in time: {reason}")));
            }
            None => thread::sleep(END_POLL),
        }
    }
    while let Some(notice) = handle.next_notice(Duration::ZERO) {
        tell(&notice, entrances, detail);
    }
    let snapshot = handle.join()?;
    output::event(&summary(&snapshot));
    Ok(())
}

/// Where a client's local programs enter, and whom a server knows by name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entrances<'a> {
    pub(crate) forwards: &'a [Forward],
    pub(crate) proxies: Proxies,
    pub(crate) users: Option<&'a Register>,
}

impl Entrances<'_> {
    /// What people call a user.
    fn name(&self, user: UserId) -> String {
        self.users
            .map_or_else(|| user.to_string(), |users| users.name(user))
    }
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Detail {
    /// What the owner should know.
    Normal,
    /// Also who comes, goes and is turned away.
    Visitors,
    /// Also their addresses.
    Addresses,
}

impl Detail {
    /// So many `-v`.
    pub(crate) fn of_flags(count: u8) -> Self {
        match count {
            0 => Self::Normal,
            1 => Self::Visitors,
            _ => Self::Addresses,
        }
    }
}

/// Prints a notice, where this detail is wanted, and remembers it.
pub(crate) fn tell(notice: &Notice, entrances: &Entrances<'_>, detail: Detail) {
    service_manager::follow(notice);
    let is_wanted = detail >= Detail::Visitors || !matches!(notice, Notice::Visitor(_));
    if is_wanted {
        output::event(&line(notice, entrances, detail));
    } else {
        recent::record(&line(notice, entrances, detail));
    }
}

fn visitor_line(visitor: &Visitor, entrances: &Entrances<'_>, detail: Detail) -> String {
    let from = |remote: &SocketAddr| match detail {
        Detail::Addresses => format!(" from {remote}"),
        _ => String::new(),
    };
    let list = |addresses: &[IpAddr]| {
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        texts.join(" and ")
    };
    match visitor {
        Visitor::Came { user, remote } => format!("{} connected{}", entrances.name(*user), from(remote)),
        Visitor::Left { user, remote, reason } => {
            format!("{}{} left: {reason}", entrances.name(*user), from(remote))
        }
        Visitor::TurnedAway { remote } => {
            format!(
                "turned away a client{}: its token is not valid here",
                from(remote)
            )
        }
        Visitor::Leased { client, addresses } => {
            format!(
                "client {client} of {} has {}",
                entrances.name(client.user()),
                list(addresses)
            )
        }
        Visitor::Returned { client, addresses } => {
            format!(
                "client {client} of {} left {}",
                entrances.name(client.user()),
                list(addresses)
            )
        }
    }
}

/// Lets SIGTERM and SIGINT end the shard. What is returned says whether one has come.
pub(crate) fn end_on_signals(controller: Controller) -> Result<Arc<AtomicBool>, Problem> {
    let cannot =
        |error: std::io::Error| Problem::bug(format!("cannot watch for signals: {}", sentence(&error)));
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(cannot)?;
    let is_stopping = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_stopping);
    let watch = move || {
        let mut received = signals.forever();
        if received.next().is_some() {
            told.store(true, Ordering::Relaxed);
            service_manager::stopping();
            output::event(&format!(
                "stopping: TCP connections have {} to finish; a second signal stops at once",
                units::span(DRAIN_LIMIT.as_secs_f64())
            ));
            controller.drain(DRAIN_LIMIT);
        }
        if received.next().is_some() {
            controller.stop();
            // The shard ends the process by its end; this is for one that does not.
            thread::sleep(STOP_LIMIT);
            process::exit(0);
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .map_err(cannot)?;
    Ok(is_stopping)
}

/// One notice as one line.
fn line(notice: &Notice, entrances: &Entrances<'_>, detail: Detail) -> String {
    match notice {
        Notice::Listening { local, tcp: None } => format!("listening on {local}"),
        Notice::Listening {
            local,
            tcp: Some(tcp),
        } => {
            format!("listening on {local}, and on {tcp} in packets that look like TCP")
        }
        Notice::Connected { server, carrier, rtt } => {
            let mut parts = vec![format!("round trip {}", units::milliseconds(*rtt))];
            let Entrances {
                forwards, proxies, ..
            } = entrances;
            if forwards.len() > FORWARDS_NAMED_MAX {
                parts.push(format!("{} forwards", forwards.len()));
            } else {
                parts.extend(forwards.iter().map(forward::describe));
            }
            parts.extend(proxies.describe());
            let shape = match carrier {
                CarrierKind::Udp => "",
                CarrierKind::Tcp => " in packets that look like TCP",
            };
            format!("connected to {server}{shape}, {}", parts.join(", "))
        }
        Notice::Stripes { up, of } => format!("connection restored: {up} of {of}"),
        Notice::StripeLost { up, of, reason } => format!(
            "{} of {of} connections lost: {reason}; what they carried moves to the others",
            of - up
        ),
        Notice::Reconnecting { reason } => format!("connecting again: {reason}"),
        Notice::Unreachable { reason } => reason.clone(),
        Notice::Carrier { carrier, reason } => match carrier {
            CarrierKind::Udp => format!("going on over UDP: {reason}"),
            CarrierKind::Tcp => format!("going on in packets that look like TCP: {reason}"),
        },
        Notice::Path { mtu, of: 1, .. } => format!("path MTU {mtu}"),
        Notice::Path { mtu, up, of } if up == of => format!("path MTU {mtu}, {of} connections"),
        Notice::Path { mtu, up, of } => format!("path MTU {mtu}, {up} of {of} connections"),
        Notice::Tun {
            name,
            addresses,
            routes,
            mtu,
        } => {
            let list = |texts: Vec<String>| match texts.as_slice() {
                [] => "none".to_owned(),
                _ => texts.join(", "),
            };
            let mtu = mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
            format!(
                "TUN {name}: addresses {}, routes {}{mtu}",
                list(addresses.iter().map(ToString::to_string).collect()),
                list(routes.iter().map(ToString::to_string).collect()),
            )
        }
        Notice::Names {
            servers,
            is_offered,
            set_by,
            former,
            is_again,
        } => {
            let by_server = if *is_offered { " of the server" } else { "" };
            names_line(servers, by_server, set_by, former, *is_again)
        }
        Notice::Visitor(visitor) => visitor_line(visitor, entrances, detail),
        Notice::CoverBack { host } => format!("the cover {host} answers again"),
        Notice::Warning { text } => format!("warning: {text}"),
    }
}

fn names_line(
    servers: &[IpAddr],
    by_server: &str,
    set_by: &[String],
    former: &[IpAddr],
    is_again: bool,
) -> String {
    let list = |servers: &[IpAddr]| {
        let texts: Vec<_> = servers.iter().map(ToString::to_string).collect();
        texts.join(", ")
    };
    let reason = if is_again {
        ", because another program had set others"
    } else {
        ""
    };
    let former = if former.is_empty() {
        String::new()
    } else {
        format!("; {} is asked no more", list(former))
    };
    format!(
        "name servers {}{by_server}, set in {}{reason}{former}",
        list(servers),
        set_by.join(" and ")
    )
}

fn summary(snapshot: &Snapshot) -> String {
    let what = match snapshot.tun {
        Some(_) => "UDP datagrams and IP packets",
        None => "UDP datagrams",
    };
    format!(
        "ended after {}: {} {what} into the tunnel{}, {} out of it{}; UDP {} in, {} out; {} TCP connections, {} in, {} out; \
         {} reconnects",
        units::span(snapshot.uptime_seconds),
        units::count(snapshot.ingress.account.sent),
        drops(&snapshot.ingress.account),
        units::count(snapshot.egress.account.sent),
        drops(&snapshot.egress.account),
        units::bytes(snapshot.inner_io.bytes_received),
        units::bytes(snapshot.inner_io.bytes_sent),
        units::count(snapshot.tcp.total),
        units::bytes(snapshot.tcp.bytes_in),
        units::bytes(snapshot.tcp.bytes_out),
        units::count(snapshot.reconnects),
    )
}

fn drops(account: &Account) -> String {
    let drops = account.drops();
    if drops.is_empty() {
        return String::new();
    }
    let reasons: Vec<_> = drops
        .iter()
        .map(|(reason, number)| format!("{reason} {}", units::count(*number)))
        .collect();
    format!(" (dropped: {})", reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use tunnel::snapshot::TunSnapshot;
    use tunnel_proto::{ClientIdentity, DropReason};

    use super::*;

    #[test]
    fn the_connected_line_names_server_round_trip_and_forwards_or_their_number() {
        let notice = Notice::Connected {
            server: "192.0.2.1:443".parse().unwrap(),
            carrier: CarrierKind::Udp,
            rtt: Duration::from_micros(340),
        };
        let forwards = ["udp:53=10.0.0.1:53", "tcp:80=web:80"].map(str::to_owned);
        let forwards = forward::parse_all(&forwards).unwrap();
        let said = |forwards, proxies| {
            let entrances = Entrances {
                forwards,
                proxies,
                users: None,
            };
            line(&notice, &entrances, Detail::Normal)
        };
        assert_eq!(
            said(&forwards, Proxies::default()),
            "connected to 192.0.2.1:443, round trip 0.34 ms, udp 127.0.0.1:53 -> 10.0.0.1:53, \
             tcp 127.0.0.1:80 -> web:80"
        );
        let socks = Proxies {
            socks: Some("127.0.0.1:1080".parse().unwrap()),
            ..Proxies::default()
        };
        assert_eq!(
            said(&[], socks),
            "connected to 192.0.2.1:443, round trip 0.34 ms, SOCKS5 proxy on 127.0.0.1:1080"
        );
        let range = forward::parse("udp:8000-8255=10.0.0.1:8000-8255").unwrap();
        assert_eq!(
            said(&range, Proxies::default()),
            "connected to 192.0.2.1:443, round trip 0.34 ms, 256 forwards"
        );
    }

    #[test]
    fn connections_that_come_and_go_are_one_short_line_each() {
        let line = |notice| line(&notice, &Entrances::default(), Detail::Normal);
        assert_eq!(
            line(Notice::Stripes { up: 2, of: 3 }),
            "connection restored: 2 of 3"
        );
        let path = |up, of| line(Notice::Path { mtu: 1_452, up, of });
        assert_eq!(path(1, 1), "path MTU 1452");
        assert_eq!(path(2, 2), "path MTU 1452, 2 connections");
        assert_eq!(path(1, 2), "path MTU 1452, 1 of 2 connections");
        let lost = Notice::StripeLost {
            up: 1,
            of: 2,
            reason: "the server no longer knows it".to_owned(),
        };
        assert_eq!(
            line(lost),
            "1 of 2 connections lost: the server no longer knows it; what they carried moves to the others"
        );
    }

    #[test]
    fn the_summary_names_drops_only_where_there_are_some() {
        let mut snapshot = Snapshot {
            uptime_seconds: 61.0,
            ..Snapshot::default()
        };
        snapshot.ingress.account.sent = 1_000;
        snapshot.inner_io.bytes_received = 1_200_000;
        snapshot.egress.account.drop(DropReason::QueueFull, 7);
        assert_eq!(
            summary(&snapshot),
            "ended after 1 min 1 s: 1,000 UDP datagrams into the tunnel, 0 out of it (dropped: queue_full 7); \
             UDP 1.2 MB in, 0 B out; 0 TCP connections, 0 B in, 0 B out; 0 reconnects"
        );
        snapshot.tun = Some(TunSnapshot::default());
        assert!(summary(&snapshot).contains("1,000 UDP datagrams and IP packets into the tunnel"));
    }

    #[test]
    fn visitors_have_names_and_only_the_highest_detail_has_their_addresses() {
        let remote = "192.0.2.1:4433".parse().unwrap();
        let user = UserId::OWNER;
        let left = Visitor::Left {
            user,
            remote,
            reason: "no answer".to_owned(),
        };
        let leased = Visitor::Leased {
            client: ClientIdentity::Named(user, [0x3f; 16]),
            addresses: vec!["10.86.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
        };
        for (visitor, quiet, loud) in [
            (
                Visitor::Came { user, remote },
                "owner connected",
                "owner connected from 192.0.2.1:4433",
            ),
            (
                left,
                "owner left: no answer",
                "owner from 192.0.2.1:4433 left: no answer",
            ),
            (
                Visitor::TurnedAway { remote },
                "turned away a client: its token is not valid here",
                "turned away a client from 192.0.2.1:4433: its token is not valid here",
            ),
            (
                leased,
                "client 3f3f3f3f of owner has 10.86.0.2 and fd00::2",
                "client 3f3f3f3f of owner has 10.86.0.2 and fd00::2",
            ),
        ] {
            let line = |flags| visitor_line(&visitor, &Entrances::default(), Detail::of_flags(flags));
            assert_eq!(line(1), quiet);
            assert_eq!(line(2), loud);
        }
    }
}
