//! Runs a started server or client to its end: logs notices, handles signals, logs the last counters as a summary.
//!
//! The first SIGTERM or SIGINT drains, a second one stops at once. Both give exit code 0. SIGHUP reloads the
//! configuration, and is as SIGTERM when the terminal is closed.

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tunnel::carrier::CarrierKind;
use tunnel::config::{Forward, RemoteForward};
use tunnel::handle::{Controller, DrainUntil, Handle, Notice, Repeated, Visitor};
use tunnel::limits::TOLD_WINDOW;
use tunnel::snapshot::Snapshot;
use tunnel_proto::{Account, UserId};

use crate::exit::{Problem, last_word, sentence};
use crate::limits::{DRAIN_LIMIT, FORWARDS_NAMED_MAX, STOP_LIMIT};
use crate::log::{Detail, Fields, Record};
use crate::proxies::Proxies;
use crate::reload::{Asker, Reloader};
use crate::tproxy::TransparentProxy;
use crate::users::Register;
use crate::{forward, log, remote_forward, service_manager, units};

/// Longest wait for a notice. Any value works: every notice and the end interrupt the wait.
const NOTICE_WAIT: Duration = Duration::from_secs(3_600);

/// Pause between checks whether a shard that sends no more notices has ended.
const END_POLL: Duration = Duration::from_millis(5);

/// How long a client waits for a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// By when there has to be a first one.
    pub(crate) first_due: Option<Instant>,
    /// How long there may be none, where there is another server.
    pub(crate) without: Option<Duration>,
}

/// How a client or server ended that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was asked to.
    Done,
    /// It was given up, because it had no connection for too long; whether it ever had one.
    Lost { was_connected: bool },
}

/// Runs until the shard ends, then prints the summary; or until a client has lost the `patience` and is not stopping.
///
/// # Errors
/// Why it ended: a failure of the shard, or no first connection with what went wrong last.
pub(crate) fn until_end(
    handle: Handle,
    entrances: &Entrances<'_>,
    patience: &mut Patience,
    is_stopping: &AtomicBool,
) -> Result<Ended, Problem> {
    let mut reason = "no answer".to_owned();
    let due_from_now = |without: Option<Duration>| without.map(|limit| Instant::now() + limit);
    let mut next_due = due_from_now(patience.without);
    let mut was_connected = false;
    while !handle.has_ended() {
        let due = [patience.first_due, next_due].into_iter().flatten().min();
        let wait = due.map_or(NOTICE_WAIT, |due| due.saturating_duration_since(Instant::now()));
        let notice = handle.next_notice(wait);
        if is_stopping.load(Ordering::Relaxed) {
            (patience.first_due, next_due) = (None, None);
        }
        let is_over = |due: Option<Instant>| due.is_some_and(|due| due <= Instant::now());
        match notice {
            Some(notice) => {
                match &notice {
                    Notice::Connected { .. } => {
                        (patience.first_due, next_due) = (None, None);
                        was_connected = true;
                    }
                    Notice::Unreachable { reason: latest } => reason.clone_from(latest),
                    Notice::Reconnecting { reason: latest } => {
                        reason.clone_from(latest);
                        next_due = next_due.or(due_from_now(patience.without));
                    }
                    _ => {}
                }
                tell(&notice, entrances);
            }
            None if is_over(patience.first_due) => {
                let reason = last_word(&reason);
                return Err(Problem::unavailable(format!("no connection in time: {reason}")));
            }
            None if is_over(next_due) => return Ok(Ended::Lost { was_connected }),
            None => thread::sleep(END_POLL),
        }
    }
    while let Some(notice) = handle.next_notice(Duration::ZERO) {
        tell(&notice, entrances);
    }
    let snapshot = handle.join()?;
    log::info("ended", summary(&snapshot));
    Ok(Ended::Done)
}

/// Where a client's local programs enter, and whom a server knows by name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entrances<'a> {
    pub(crate) forwards: &'a [Forward],
    pub(crate) remote_forwards: &'a [RemoteForward],
    pub(crate) proxies: Proxies,
    pub(crate) tproxy: Option<&'a TransparentProxy>,
    pub(crate) users: Option<&'a Register>,
}

impl Entrances<'_> {
    /// What people call a user.
    fn name(&self, user: UserId) -> String {
        self.users
            .map_or_else(|| user.to_string(), |users| users.name(user))
    }
}

/// Logs a notice, where this detail is wanted, and remembers it.
pub(crate) fn tell(notice: &Notice, entrances: &Entrances<'_>) {
    service_manager::follow(notice);
    let record = record(notice, entrances);
    if log::detail() >= Detail::Visitors || !matches!(notice, Notice::Visitor(_)) {
        log::remember_and_write(&record);
    } else {
        log::remember(&record);
    }
}

/// One notice as one record.
fn record(notice: &Notice, entrances: &Entrances<'_>) -> Record {
    let up_of = |up: usize, of: usize| Fields {
        up: Some(up as u64),
        of: Some(of as u64),
        ..Fields::default()
    };
    let event = event_name(notice);
    if let Notice::Warning { text } = notice {
        return Record::warning(event, text);
    }
    let record = Record::info(event, line(notice, entrances, Detail::Normal));
    match notice {
        Notice::Listening { local, .. } => record.with(Fields {
            peer: Some(*local),
            ..Fields::default()
        }),
        Notice::Connected { server, carrier, rtt } => record.with(Fields {
            carrier: Some(carrier.name()),
            round_trip_ms: Some(rtt.as_secs_f64() * 1_000.0),
            peer: Some(*server),
            ..Fields::default()
        }),
        Notice::Stripes { up, of } | Notice::StripeLost { up, of, .. } => record.with(up_of(*up, *of)),
        Notice::Path { mtu, up, of } => record.with(Fields {
            mtu: Some(u64::from(*mtu)),
            ..up_of(*up, *of)
        }),
        Notice::Carrier { carrier, .. } => record.with(Fields {
            carrier: Some(carrier.name()),
            ..Fields::default()
        }),
        Notice::Tun { mtu, .. } => record.with(Fields {
            mtu: mtu.map(u64::from),
            ..Fields::default()
        }),
        Notice::HeldBack { count, .. } => record.with(Fields {
            held_back: Some(*count),
            ..Fields::default()
        }),
        Notice::Visitor(visitor) => {
            let (user, peer) = match visitor {
                Visitor::Came { user, remote } | Visitor::Left { user, remote, .. } => {
                    (Some(*user), Some(*remote))
                }
                Visitor::TurnedAway { remote } => (None, Some(*remote)),
                Visitor::Leased { client, .. } | Visitor::Returned { client, .. } => {
                    (Some(client.user()), None)
                }
            };
            let fields = Fields {
                user: user.map(|user| entrances.name(user)),
                peer,
                ..Fields::default()
            };
            let in_full = visitor_line(visitor, entrances, Detail::Addresses);
            record.with(fields).in_full(in_full)
        }
        _ => record,
    }
}

/// What programs know a notice by; README promises that these words stay.
fn event_name(notice: &Notice) -> &'static str {
    match notice {
        Notice::Listening { .. } => "listening",
        Notice::Connected { .. } => "connected",
        Notice::RemoteListening { .. } => "remote_listening",
        Notice::Stripes { .. } => "connection_restored",
        Notice::StripeLost { .. } => "connection_lost",
        Notice::Reconnecting { .. } => "reconnecting",
        Notice::Unreachable { .. } => "unreachable",
        Notice::Carrier { .. } => "carrier",
        Notice::Path { .. } => "path",
        Notice::Tun { .. } => "tun",
        Notice::Names { .. } => "name_servers",
        Notice::Visitor(Visitor::Came { .. }) => "user_connected",
        Notice::Visitor(Visitor::Left { .. }) => "user_left",
        Notice::Visitor(Visitor::TurnedAway { .. }) => "turned_away",
        Notice::Visitor(Visitor::Leased { .. }) => "lease",
        Notice::Visitor(Visitor::Returned { .. }) => "lease_returned",
        Notice::CoverBack { .. } => "cover",
        Notice::HeldBack { .. } => "held_back",
        Notice::Warning { .. } => "warning",
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

/// Lets SIGTERM and SIGINT end the shard, and SIGHUP reload the configuration. What is returned says whether the end
/// was asked for.
pub(crate) fn follow_signals(
    controller: Controller,
    reloader: Arc<Reloader>,
) -> Result<Arc<AtomicBool>, Problem> {
    let cannot = |error: io::Error| Problem::bug(format!("cannot watch for signals: {}", sentence(&error)));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(cannot)?;
    let is_stopping = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_stopping);
    let watch = move || {
        // Whoever closes the terminal in which this runs ends it: the system sends the same signal then.
        let has_terminal = || io::stdin().is_terminal() || io::stderr().is_terminal();
        let had_terminal = has_terminal();
        let mut received = signals.forever().filter(|signal| {
            let is_reload = *signal == SIGHUP && (has_terminal() || !had_terminal);
            if is_reload {
                // It tells its outcome itself.
                let _ = reloader.reload(Asker::Signal);
            }
            !is_reload
        });
        if received.next().is_some() {
            told.store(true, Ordering::Relaxed);
            service_manager::stopping();
            log::info(
                "stopping",
                format!(
                    "stopping: TCP connections have {} to finish; a second signal stops at once",
                    units::span(DRAIN_LIMIT.as_secs_f64())
                ),
            );
            controller.drain(DRAIN_LIMIT, DrainUntil::TcpFinished);
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
                forwards,
                remote_forwards,
                proxies,
                tproxy,
                ..
            } = entrances;
            if forwards.len() > FORWARDS_NAMED_MAX {
                parts.push(format!("{} forwards", forwards.len()));
            } else {
                parts.extend(forwards.iter().map(forward::describe));
            }
            if remote_forwards.len() > FORWARDS_NAMED_MAX {
                parts.push(format!("{} ports of the server", remote_forwards.len()));
            } else {
                parts.extend(remote_forwards.iter().map(remote_forward::describe));
            }
            parts.extend(proxies.describe());
            parts.extend(tproxy.and_then(TransparentProxy::describe));
            let shape = match carrier {
                CarrierKind::Udp => "",
                CarrierKind::Tcp => " in packets that look like TCP",
            };
            format!("connected to {server}{shape}, {}", parts.join(", "))
        }
        Notice::RemoteListening { listen, target } => {
            format!("the server listens on {listen}; connections lead to {target}")
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
        Notice::HeldBack { what, count } => held_back_line(*what, *count),
        Notice::Warning { text } => text.clone(),
    }
}

/// What was not told one by one.
fn held_back_line(what: Repeated, count: u64) -> String {
    let (one, many, what) = match what {
        Repeated::TurnedAway => ("client was", "clients were", "turned away"),
        Repeated::Exhausted => ("client", "clients", "got no address"),
        Repeated::OwnAddresses => ("attempt", "attempts", "to find the server's own addresses failed"),
        Repeated::Trouble => ("local connection", "local connections", "failed"),
        Repeated::Refused => ("target was", "targets were", "refused by the server"),
        Repeated::Any => ("message was", "messages were", "left out"),
    };
    let subject = if count == 1 { one } else { many };
    format!(
        "{} more {subject} {what} in the last {}",
        units::count(count),
        units::span(TOLD_WINDOW.as_secs_f64())
    )
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
                ..Entrances::default()
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

    #[test]
    fn what_was_held_back_is_one_line_with_its_number() {
        assert_eq!(
            held_back_line(Repeated::TurnedAway, 1_234),
            "1,234 more clients were turned away in the last 10 s"
        );
        assert_eq!(
            held_back_line(Repeated::Exhausted, 1),
            "1 more client got no address in the last 10 s"
        );
    }
}
