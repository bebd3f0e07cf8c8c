//! What is tried to reach a peer, in which order, and why it fails; what the network says is told at once.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet_io::ReachProbe;
use peer::limits::LAN_SEARCH_TIME;
use peer::{
    AddressSource, AskedRendezvous, Attempt, AttemptState, CloseReason, ConnectError, Connecting, Failure,
    Peer, RendezvousProblem, blocking,
};
use serde_json::{Value, json};

use super::candidates::{self, Candidate};
use super::reports::Reports;
use super::stats::milliseconds;
use crate::limits::{PEER_ADDRESSES_MAX, PEER_ATTEMPTS_TURN};

/// How a search ends.
pub(super) enum Found {
    /// The peer.
    Peer(Peer),
    /// Its addresses have failed, or the network says that they are out of reach.
    Failed(Option<ConnectError>),
    /// Nothing within the time.
    Silence,
}

impl Found {
    /// Whether the search ended because the rendezvous could not be asked, which it may be later. Nobody who was
    /// reached has refused us, and the server has not either.
    pub(super) fn may_be_met_later(&self) -> bool {
        let Self::Failed(Some(ConnectError::Unreachable(unreached))) = self else {
            return false;
        };
        !has_refusal(&unreached.failures) && may_be_asked_later(&unreached.rendezvous)
    }
}

/// Whether somebody was reached who is another peer, or does not want us.
pub(super) fn has_refusal(failures: &[Failure]) -> bool {
    failures.iter().any(|failure| {
        matches!(
            failure.reason,
            CloseReason::WrongPeer | CloseReason::ApplicationClosed { .. }
        )
    })
}

fn may_be_asked_later(rendezvous: &AskedRendezvous) -> bool {
    match rendezvous {
        AskedRendezvous::NotRegistered(problem) => !matches!(
            problem,
            Some(
                RendezvousProblem::TokenRefused { .. }
                    | RendezvousProblem::Forbidden
                    | RendezvousProblem::NotOffered
            )
        ),
        _ => false,
    }
}

/// What the network was asked of addresses, and says. A search after another one takes it over: it is told once.
#[derive(Default)]
pub(super) struct Network {
    probes: Vec<(SocketAddr, ReachProbe)>,
    obstacles: Vec<Obstacle>,
}

/// A peer is being connected.
pub(super) struct Search<'a> {
    pub(super) connecting: &'a Connecting,
    pub(super) candidates: &'a [Candidate],
    pub(super) reports: Reports,
    /// Until then others may name addresses of it.
    more_until: Option<Instant>,
    network: Network,
    /// When it was begun, after the first one for the same peer.
    begun_after: Duration,
}

/// What the network says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Obstacle {
    address: SocketAddr,
    kind: ErrorKind,
}

impl Obstacle {
    fn name(self) -> &'static str {
        match self.kind {
            ErrorKind::ConnectionRefused => "port_closed",
            ErrorKind::HostUnreachable => "host_unreachable",
            ErrorKind::NetworkUnreachable => "network_unreachable",
            ErrorKind::PermissionDenied => "forbidden_here",
            _ => "unreachable",
        }
    }

    fn text(self) -> String {
        match self.kind {
            ErrorKind::ConnectionRefused => "nobody listens at this port, says the machine there".to_owned(),
            ErrorKind::HostUnreachable => "the machine is out of reach, says the network".to_owned(),
            ErrorKind::NetworkUnreachable => "no route leads there".to_owned(),
            ErrorKind::PermissionDenied => "a firewall of this machine forbids it".to_owned(),
            other => format!("packets do not get there: {other}"),
        }
    }
}

impl<'a> Search<'a> {
    /// A search that has begun. A rendezvous, where one is asked, `names_more` addresses at any time, the local network
    /// for a few seconds.
    pub(super) fn new(
        connecting: &'a Connecting,
        candidates: &'a [Candidate],
        reports: Reports,
        is_met: bool,
        is_on_lan: bool,
    ) -> Self {
        let now = Instant::now();
        Self {
            connecting,
            candidates,
            reports,
            more_until: match (is_met, is_on_lan) {
                (true, _) => None,
                (false, true) => Some(now + LAN_SEARCH_TIME),
                (false, false) => Some(now),
            },
            network: Network::default(),
            begun_after: Duration::ZERO,
        }
    }

    /// The same, so long after the first search, with what the network has said until then.
    pub(super) fn following(mut self, network: Network, begun_after: Duration) -> Self {
        (self.network, self.begun_after) = (network, begun_after);
        self
    }

    /// What the network says, for the next search.
    pub(super) fn into_network(self) -> Network {
        self.network
    }

    /// Waits until it has ended, at most so long.
    pub(super) fn wait(&mut self, limit: Duration) -> Found {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match blocking::wait_for(left.min(PEER_ATTEMPTS_TURN), self.connecting.connected()) {
                Some(Ok(peer)) => return Found::Peer(peer),
                Some(Err(error)) => return Found::Failed(Some(error)),
                None => {}
            }
            let attempts = self.connecting.attempts();
            self.ask_network(&attempts);
            if self.is_hopeless(&attempts, Instant::now()) {
                return Found::Failed(None);
            }
            if left.is_zero() {
                return Found::Silence;
            }
        }
    }

    /// Takes what the network says of the addresses, and tells it. What a rendezvous names may be behind a router that
    /// opens with the peer's packets only: of that it says nothing.
    fn ask_network(&mut self, attempts: &[Attempt]) {
        for attempt in attempts {
            let is_asked = self
                .network
                .probes
                .iter()
                .any(|(address, _)| *address == attempt.address);
            let is_told_of = matches!(attempt.source, AddressSource::Program | AddressSource::Lan);
            if is_told_of
                && !is_asked
                && self.network.probes.len() < 2 * PEER_ADDRESSES_MAX
                && let Ok(probe) = ReachProbe::begin(attempt.address)
            {
                self.network.probes.push((attempt.address, probe));
            }
        }
        let mut news = Vec::new();
        for (address, probe) in &mut self.network.probes {
            let is_known = self
                .network
                .obstacles
                .iter()
                .any(|known| known.address == *address);
            if let Some(kind) = probe.poll().filter(|_| !is_known) {
                news.push(Obstacle {
                    address: *address,
                    kind,
                });
            }
        }
        for obstacle in news {
            let shown = candidates::shown(self.candidates, obstacle.address, None);
            let text = format!("note: {shown}: {}", obstacle.text());
            let fields = json!({ "address": obstacle.address, "reason": obstacle.name() });
            self.reports.note("unreachable", fields, &text);
            self.network.obstacles.push(obstacle);
        }
    }

    /// Whether no address is left that the network does not refuse.
    fn is_hopeless(&self, attempts: &[Attempt], now: Instant) -> bool {
        let is_over = |attempt: &Attempt| {
            matches!(attempt.state, AttemptState::Failed(_)) || self.obstacle(attempt.address).is_some()
        };
        let no_more_come = self.more_until.is_some_and(|until| until <= now);
        no_more_come && !attempts.is_empty() && attempts.iter().all(is_over)
    }

    fn obstacle(&self, address: SocketAddr) -> Option<Obstacle> {
        let mut known = self.network.obstacles.iter();
        known.find(|known| known.address == address).copied()
    }

    /// Each address in its turn, with what has become of it, for people.
    pub(super) fn tried(&self) -> Vec<String> {
        let attempts = self.connecting.attempts();
        let told = |attempt: &Attempt| {
            let shown = shown(self.candidates, attempt);
            let obstacle = self.obstacle(attempt.address);
            format!("{shown}: {}", outcome(attempt, obstacle).1)
        };
        attempts.iter().map(told).collect()
    }

    /// The same for programs.
    pub(super) fn tried_as_json(&self) -> Value {
        let attempts = self.connecting.attempts();
        let told = |attempt: &Attempt| {
            let (name, text) = outcome(attempt, self.obstacle(attempt.address));
            json!({
                // The rendezvous' name for the peer is no address.
                "address": (attempt.source != AddressSource::Relay).then_some(attempt.address),
                "source": source_name(attempt.source),
                "begun_after_ms": attempt.begun_after.map(|after| milliseconds(self.begun_after + after)),
                "outcome": name,
                "text": text,
            })
        };
        attempts.iter().map(told).collect()
    }
}

/// An address with where it is known from.
fn shown(candidates: &[Candidate], attempt: &Attempt) -> String {
    let otherwise = match attempt.source {
        AddressSource::Relay => return "the relay of the rendezvous".to_owned(),
        AddressSource::Rendezvous => Some("of the rendezvous"),
        AddressSource::Lan => Some("on the local network"),
        AddressSource::Check => Some("where its checks come from"),
        _ => None,
    };
    candidates::shown(candidates, attempt.address, otherwise)
}

fn source_name(source: AddressSource) -> &'static str {
    match source {
        AddressSource::Program => "given",
        AddressSource::Rendezvous => "rendezvous",
        AddressSource::Relay => "relay",
        AddressSource::Lan => "local_network",
        AddressSource::Check => "check",
        _ => "other",
    }
}

/// What has become of an address: a name that stays, and words.
fn outcome(attempt: &Attempt, obstacle: Option<Obstacle>) -> (&'static str, String) {
    match (&attempt.state, obstacle) {
        (AttemptState::Connected, _) => ("connected", "connected".to_owned()),
        (AttemptState::Failed(reason), None) => match reason {
            CloseReason::WrongPeer => ("wrong_peer", reason.to_string()),
            CloseReason::TimedOut => ("no_answer", reason.to_string()),
            _ => ("failed", reason.to_string()),
        },
        (_, Some(obstacle)) => (obstacle.name(), obstacle.text()),
        (AttemptState::Unanswered, None) => ("no_answer", "no answer".to_owned()),
        (AttemptState::Waiting, None) => ("not_tried", "not tried".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_again_unless_it_has_said_no() {
        let later = |problem| may_be_asked_later(&AskedRendezvous::NotRegistered(problem));
        assert!(later(None) && later(Some(RendezvousProblem::NoRoom)));
        assert!(later(Some(RendezvousProblem::Unreachable("lost".to_owned()))));
        for refusal in [
            RendezvousProblem::TokenRefused { status: 407 },
            RendezvousProblem::Forbidden,
            RendezvousProblem::NotOffered,
        ] {
            assert!(!later(Some(refusal.clone())), "{refusal}");
        }
        assert!(!may_be_asked_later(&AskedRendezvous::Registered));
    }

    #[test]
    fn each_address_has_a_name_and_words_for_what_has_become_of_it() {
        let address: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let told = |state, kind: Option<ErrorKind>| {
            let attempt = Attempt {
                address,
                source: AddressSource::Lan,
                begun_after: None,
                state,
            };
            outcome(&attempt, kind.map(|kind| Obstacle { address, kind })).0
        };
        let refused = Some(ErrorKind::ConnectionRefused);
        assert_eq!(told(AttemptState::Unanswered, None), "no_answer");
        assert_eq!(told(AttemptState::Unanswered, refused), "port_closed");
        assert_eq!(told(AttemptState::Waiting, None), "not_tried");
        assert_eq!(told(AttemptState::Connected, refused), "connected");
        let wrong = AttemptState::Failed(CloseReason::WrongPeer);
        assert_eq!(told(wrong, None), "wrong_peer");
        let attempt = Attempt {
            address: "[100::7]:1".parse().unwrap(),
            source: AddressSource::Relay,
            begun_after: None,
            state: AttemptState::Waiting,
        };
        assert_eq!(shown(&[], &attempt), "the relay of the rendezvous");
    }
}
