//! What `gramway peer listen` tells of where others reach this machine: each change once, as long as it runs.

use std::net::SocketAddr;
use std::time::Instant;

use peer::{CarrierKind, Endpoint, EndpointEvent, MappingProblem, RelayProblem, blocking};
use serde_json::{Value, json};

use super::rendezvous::why_not_registered;
use super::reports::Reports;
use crate::limits::PEER_REGISTRATION_PATIENCE;

/// What is told of one change: the event's name and fields, for programs, and the sentence for people, who are not told
/// everything.
#[derive(Debug, PartialEq)]
struct Told {
    event: &'static str,
    fields: Value,
    text: Option<String>,
}

/// What was there before.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    registration: bool,
    /// It was said that there is no relay.
    no_relay: bool,
    mapping: bool,
    pinhole: bool,
    announcement: bool,
}

/// Tells what changes until the endpoint closes, and that it is not registered where that takes long.
pub(super) fn follow(endpoint: &Endpoint, reports: Reports, has_rendezvous: bool) {
    let mut events = endpoint.events();
    let mut had = Had::default();
    let mut patient_until = has_rendezvous.then(|| Instant::now() + PEER_REGISTRATION_PATIENCE);
    loop {
        let next = events.next_event();
        let event = match patient_until {
            None => blocking::wait(next),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                match blocking::wait_for(left, next) {
                    Some(event) => event,
                    None => {
                        patient_until = None;
                        let seconds = PEER_REGISTRATION_PATIENCE.as_secs();
                        report(reports, not_registered(endpoint, &format!(" within {seconds} s")));
                        continue;
                    }
                }
            }
        };
        let Some(event) = event else { return };
        let told = match event {
            EndpointEvent::Registered { observed } => {
                (patient_until, had.registration) = (None, true);
                Some(registered(observed, endpoint.rendezvous_carrier()))
            }
            EndpointEvent::Unregistered => {
                let is_lost = std::mem::take(&mut had.registration);
                is_lost.then(|| not_registered(endpoint, " any more"))
            }
            EndpointEvent::Relayed => std::mem::take(&mut had.no_relay).then(relayed),
            EndpointEvent::NotRelayed => {
                let problem = endpoint.relay_problem();
                had.no_relay |= problem.is_some();
                problem.map(not_relayed)
            }
            EndpointEvent::Mapped { address } => {
                had.mapping = true;
                Some(mapped(address))
            }
            EndpointEvent::NotMapped => {
                let is_lost = std::mem::take(&mut had.mapping);
                let problem = endpoint.mapping_problem();
                problem.map(|problem| not_mapped(&problem, is_lost))
            }
            EndpointEvent::LetIn { address } => {
                had.pinhole = true;
                Some(let_in(address))
            }
            EndpointEvent::NotLetIn => {
                let is_lost = std::mem::take(&mut had.pinhole);
                let problem = endpoint.pinhole_problem();
                problem.map(|problem| not_let_in(&problem, is_lost))
            }
            EndpointEvent::Announced => {
                had.announcement = true;
                Some(announced())
            }
            EndpointEvent::NotAnnounced => {
                let is_lost = std::mem::take(&mut had.announcement);
                let problem = endpoint.lan_problem();
                problem.map(|problem| not_announced(&problem, is_lost))
            }
            _ => None,
        };
        // What has passed meanwhile is no problem any more: the event that says so follows.
        if let Some(told) = told {
            report(reports, told);
        }
    }
}

fn report(reports: Reports, told: Told) {
    let Told { event, fields, text } = told;
    match text {
        Some(text) => reports.note(event, fields, &text),
        None if reports.is_json => reports.note(event, fields, ""),
        None => {}
    }
}

fn registered(observed: SocketAddr, carrier: Option<CarrierKind>) -> Told {
    let seen = SocketAddr::new(observed.ip().to_canonical(), observed.port());
    let how = match carrier {
        Some(CarrierKind::Tcp) => ", over TCP's shape",
        _ => "",
    };
    Told {
        event: "registered",
        fields: json!({ "address": seen, "carrier": carrier.map(CarrierKind::name) }),
        text: Some(format!(
            "registered at the rendezvous, which sees this machine at {seen}{how}"
        )),
    }
}

fn not_registered(endpoint: &Endpoint, when: &str) -> Told {
    let why = why_not_registered(endpoint);
    let problem = format!("not registered at the server of the link{when}: {why}");
    Told {
        event: "not_registered",
        text: Some(format!("warning: {problem}; it is tried on")),
        fields: json!({ "text": problem }),
    }
}

fn relayed() -> Told {
    Told {
        event: "relayed",
        fields: Value::Null,
        text: Some("the server of the link relays for this machine now".to_owned()),
    }
}

fn not_relayed(problem: RelayProblem) -> Told {
    Told {
        event: "not_relayed",
        fields: json!({ "reason": problem.name(), "text": problem.to_string() }),
        text: Some(format!(
            "warning: the server of the link relays nothing for this machine: {problem}; peers that no direct path \
             leads here do not reach it; it is asked again"
        )),
    }
}

fn mapped(address: SocketAddr) -> Told {
    Told {
        event: "mapped",
        fields: json!({ "address": address }),
        text: Some(format!("the router leads {address} to this machine")),
    }
}

fn not_mapped(problem: &MappingProblem, is_lost: bool) -> Told {
    let text = match is_lost {
        true => format!(
            "warning: the router leads no port to this machine any more: {problem}; it is asked again"
        ),
        false => format!("note: the router leads no port to this machine: {problem}"),
    };
    Told {
        event: "not_mapped",
        fields: why_not(problem),
        text: Some(text),
    }
}

fn let_in(address: SocketAddr) -> Told {
    Told {
        event: "let_in",
        fields: json!({ "address": address }),
        text: Some(format!("the router's firewall lets others in at {address}")),
    }
}

/// People whom IPv6 leads nowhere are told nothing.
fn not_let_in(problem: &MappingProblem, is_lost: bool) -> Told {
    let text = match is_lost {
        true => Some(format!(
            "warning: the router's firewall lets nobody in by IPv6 any more: {problem}; it is asked again"
        )),
        false if matches!(problem, MappingProblem::NoRouter(_)) => None,
        false => Some(format!(
            "note: the router's firewall was not opened for IPv6: {problem}"
        )),
    };
    Told {
        event: "not_let_in",
        fields: why_not(problem),
        text,
    }
}

fn announced() -> Told {
    let text = "announced on the local network, where this peer ID is enough to connect";
    Told {
        event: "announced",
        fields: Value::Null,
        text: Some(text.to_owned()),
    }
}

fn not_announced(problem: &str, is_lost: bool) -> Told {
    let text = match is_lost {
        true => format!("warning: not announced on the local network any more: {problem}; it is tried again"),
        false => format!("note: not announced on the local network: {problem}"),
    };
    Told {
        event: "not_announced",
        fields: json!({ "text": problem }),
        text: Some(text),
    }
}

fn why_not(problem: &MappingProblem) -> Value {
    json!({ "reason": problem.name(), "text": problem.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_and_is_lost_is_told_otherwise_than_what_never_was() {
        let router = "192.0.2.1".parse().unwrap();
        let problem = MappingProblem::NoAnswer { router };
        let tells: [fn(&MappingProblem, bool) -> Told; 2] = [not_mapped, not_let_in];
        for told in tells {
            let [never, lost] = [false, true].map(|is_lost| told(&problem, is_lost));
            assert_eq!((never.event, &never.fields), (lost.event, &lost.fields));
            assert_eq!(lost.fields["reason"], "no_answer");
            let [never, lost] = [never, lost].map(|told| told.text.unwrap());
            assert!(
                never.starts_with("note: ") && lost.starts_with("warning: "),
                "{lost}"
            );
            assert!(
                lost.contains("any more") && lost.ends_with("it is asked again"),
                "{lost}"
            );
        }
        let nowhere = MappingProblem::NoRouter("no route".to_owned());
        assert_eq!(not_let_in(&nowhere, false).text, None);
        assert!(not_let_in(&nowhere, true).text.is_some());
    }

    /// Programs look for these names.
    #[test]
    fn every_event_of_these_commands_is_in_the_list_of_events() {
        let list = include_str!("../../../../docs/peer-events.md");
        let sources = [
            include_str!("connection.rs"),
            include_str!("console.rs"),
            include_str!("listen.rs"),
            include_str!("attempts.rs"),
            include_str!("news.rs"),
            include_str!("ping.rs"),
        ];
        let mut names = Vec::new();
        for source in sources {
            let source = source.split("#[cfg(test)]").next().unwrap();
            for before in [".note(", ".data(", "event: "] {
                let after = source.split(before).skip(1);
                names.extend(
                    after.filter_map(|after| after.trim_start().strip_prefix('"')?.split('"').next()),
                );
            }
        }
        assert!(names.len() >= 18, "{names:?}");
        for name in names {
            assert!(
                list.contains(&format!("`{name}`")),
                "{name} is missing in docs/peer-events.md"
            );
        }
    }
}
