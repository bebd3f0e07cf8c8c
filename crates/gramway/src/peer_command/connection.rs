//! A connection of `ping` and `pipe`, and what people are told where there is none.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use peer::{
    CarrierKind, CloseReason, Closed, ConnectError, Connecting, Endpoint, Failure, Peer, PeerId, PeerPath,
    RelayProblem, Rendezvous, SecretKey, blocking, code,
};
use serde_json::{Value, json};

use super::arguments::PeerPlace;
use super::attempts::{Found, Network, Search, has_refusal};
use super::candidates::{self, Candidate};
use super::reports::{RELAY, Reports};
use super::stats::milliseconds;
use super::{Confinement, bind, rendezvous};
use crate::close_code::{DONE, ENDED, is_busy};
use crate::exit::{Code, Problem};
use crate::limits::{PEER_AGAIN_PAUSE, PEER_GOODBYE_MAX};
use crate::sandbox::OfPeer;

/// A peer that was reached.
pub(super) struct Connection {
    endpoint: Endpoint,
    pub(super) peer: Peer,
    candidates: Vec<Candidate>,
    /// What was tried, in its order, for people and for programs.
    pub(super) tried: (Vec<String>, Value),
    /// Other addresses are known from the rendezvous.
    is_met: bool,
    is_on_lan: bool,
    /// When it was begun.
    pub(super) began: Instant,
    /// What the connection took.
    pub(super) took: Duration,
    /// The next one, after this one has ended.
    next: Option<Connecting>,
    /// When the last one was begun.
    tried_at: Instant,
    reports: Reports,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The arguments are wrong, or the peer is not reached.
    pub(super) fn open(
        key: SecretKey,
        place: &PeerPlace,
        confinement: Confinement,
        reports: Reports,
    ) -> Result<Self, Problem> {
        let (id, at) = match place.peer.split_once('@') {
            Some((id, at)) => (id, Some(at)),
            None => (place.peer.as_str(), None),
        };
        let id = peer_id(id)?;
        let rendezvous = rendezvous::of(&place.rendezvous)?;
        let is_met = rendezvous.is_some();
        confinement.enter(OfPeer {
            has_tcp: rendezvous.as_ref().is_some_and(Rendezvous::may_look_like_tcp),
            ..OfPeer::default()
        });
        let places = at.into_iter().chain(place.at.iter().map(String::as_str));
        let candidates = candidates::of_places(places, is_met || !place.no_lan)?;
        let endpoint = endpoint(key, rendezvous, !place.no_lan)?;
        let addresses: Vec<SocketAddr> = candidates.iter().map(|candidate| candidate.address).collect();
        let began = Instant::now();
        let deadline = began + Duration::from_secs(place.timeout.into());
        let (mut network, mut failed) = (Network::default(), None);
        let (found, tried) = loop {
            let begun_after = began.elapsed();
            let connecting = endpoint.begin(id, &addresses).map_err(unusable)?;
            let search = Search::new(&connecting, &candidates, reports, is_met, !place.no_lan);
            let mut search = search.following(network, begun_after);
            let found = search.wait(deadline.saturating_duration_since(Instant::now()));
            let left = deadline.saturating_duration_since(Instant::now());
            let tried = (search.tried(), search.tried_as_json());
            // A search that the deadline cuts short knows less than the one before it.
            if let (Found::Silence, Some(failed)) = (&found, failed.take()) {
                break failed;
            }
            if left <= PEER_AGAIN_PAUSE || !found.may_be_met_later() {
                break (found, tried);
            }
            failed = Some((found, tried));
            network = search.into_network();
            thread::sleep(PEER_AGAIN_PAUSE);
        };
        let took = began.elapsed();
        let is_unregistered = is_met && blocking::wait_for(Duration::ZERO, endpoint.registered()).is_none();
        let unregistered = is_unregistered.then(|| rendezvous::why_not_registered(&endpoint));
        let why = Why {
            tried: &tried.0,
            unregistered: unregistered.as_deref(),
            not_relayed: endpoint.relay_problem(),
            place,
        };
        let problem = match found {
            Found::Peer(peer) => {
                return Ok(Self {
                    began,
                    took,
                    endpoint,
                    peer,
                    candidates,
                    tried,
                    is_met,
                    is_on_lan: !place.no_lan,
                    next: None,
                    tried_at: began,
                    reports,
                });
            }
            Found::Failed(Some(ConnectError::Unreachable(unreached))) => why.not_reached(&unreached.failures),
            Found::Failed(Some(error)) => unusable(error),
            Found::Failed(None) => why.not_reached(&[]),
            Found::Silence => why.silence(),
        };
        if reports.is_json {
            let fields = json!({
                "peer": id.to_string(),
                "after_ms": milliseconds(took),
                "attempts": tried.1,
                "rendezvous_problem": unregistered,
                "relay_problem": why.not_relayed.map(|problem| problem.to_string()),
                "text": problem.to_string(),
            });
            reports.data("not_reached", fields, "")?;
        }
        Err(problem)
    }

    /// Connects again after the connection has ended; whether the peer was reached by `until`. What has begun by then
    /// goes on at the next call.
    ///
    /// # Errors
    /// It cannot be tried.
    pub(super) fn again(&mut self, until: Instant) -> Result<bool, Problem> {
        loop {
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(false);
            }
            let pause = (self.tried_at + PEER_AGAIN_PAUSE).saturating_duration_since(now);
            let Some(next) = &self.next else {
                if !pause.is_zero() {
                    thread::sleep(pause.min(left));
                    continue;
                }
                let candidates = self.candidates.iter();
                let addresses: Vec<SocketAddr> = candidates.map(|candidate| candidate.address).collect();
                let begun = self.endpoint.begin(self.peer.id(), &addresses);
                (self.next, self.tried_at) = (Some(begun.map_err(unusable)?), now);
                continue;
            };
            match blocking::wait_for(left, next.connected()) {
                None => return Ok(false),
                Some(Ok(peer)) => {
                    self.took = self.tried_at.elapsed();
                    let search =
                        Search::new(next, &self.candidates, self.reports, self.is_met, self.is_on_lan);
                    self.tried = (search.tried(), search.tried_as_json());
                    (self.peer, self.next) = (peer, None);
                    return Ok(true);
                }
                Some(Err(ConnectError::Unreachable(_))) => self.next = None,
                Some(Err(error)) => return Err(unusable(error)),
            }
        }
    }

    /// Where the peer is at present, for people.
    pub(super) fn address(&self, path: PeerPath) -> String {
        let address = match path {
            PeerPath::Direct(address) => address,
            PeerPath::Relayed(_) => return RELAY.to_owned(),
        };
        let place = (address.ip().to_canonical(), address.port());
        let is_there = |found: &SocketAddr| (found.ip(), found.port()) == place;
        let otherwise = match self.endpoint.found_on_lan(self.peer.id()).iter().any(is_there) {
            true => Some("on the local network"),
            false => self.is_met.then_some("of the rendezvous"),
        };
        candidates::shown(&self.candidates, address, otherwise)
    }

    /// Over what the rendezvous relays.
    pub(super) fn carrier(&self) -> Option<CarrierKind> {
        self.endpoint.rendezvous_carrier()
    }

    /// By which way packets go, for people.
    pub(super) fn how(&self, path: PeerPath) -> &'static str {
        match (path, self.endpoint.rendezvous_carrier()) {
            (PeerPath::Direct(_), _) => "directly",
            (PeerPath::Relayed(_), Some(CarrierKind::Tcp)) => "relayed, over TCP's shape",
            (PeerPath::Relayed(_), _) => "relayed, over UDP",
        }
    }

    /// What ended the connection, for people.
    pub(super) fn ended(&self, reason: &CloseReason) -> Problem {
        ended(self.endpoint.id(), reason)
    }

    /// Takes leave of the peer, so that it does not wait for us.
    pub(super) fn close(self) {
        self.endpoint.close(DONE, "");
        let _ = blocking::wait_for(PEER_GOODBYE_MAX, self.endpoint.ended());
    }
}

/// A peer ID of the command line.
pub(crate) fn peer_id(text: &str) -> Result<PeerId, Problem> {
    let id = text.parse::<PeerId>();
    id.map_err(|error| Problem::usage(format!("\"{text}\": {error}")))
}

/// An endpoint that connects.
fn endpoint(key: SecretKey, rendezvous: Option<Rendezvous>, finds_on_lan: bool) -> Result<Endpoint, Problem> {
    let mut builder = Endpoint::builder(key);
    if let Some(rendezvous) = rendezvous {
        builder = builder.rendezvous(rendezvous);
    }
    if finds_on_lan {
        builder = builder.find_on_lan();
    }
    bind(builder, None)
}

/// What there is to say where no peer was reached.
struct Why<'a> {
    /// Each address with what has become of it.
    tried: &'a [String],
    /// Why the server of the link could not be asked.
    unregistered: Option<&'a str>,
    /// Why that server does not relay.
    not_relayed: Option<RelayProblem>,
    place: &'a PeerPlace,
}

impl Why<'_> {
    /// Nobody has answered within the time.
    fn silence(&self) -> Problem {
        let seconds = self.place.timeout;
        if self.tried.is_empty() {
            return self.nobody(&format!(" within {seconds} s"));
        }
        Problem::unavailable(format!(
            "nobody answered within {seconds} s; tried in this order: {}; does `gramway peer listen` run there, and does \
             UDP pass the firewalls?",
            self.tried_and_registration()
        ))
    }

    /// No address of the peer became known.
    fn nobody(&self, when: &str) -> Problem {
        let PeerPlace {
            rendezvous, no_lan, ..
        } = self.place;
        if let Some(registration) = self.registration() {
            let on_lan = if *no_lan { "" } else { " on this network" };
            return Problem::unavailable(format!("nobody was met{on_lan}{when}, and {registration}"));
        }
        let how = match (rendezvous.rendezvous_file.is_some(), no_lan) {
            (true, true) => "with a link of the same server",
            (true, false) => "with a link of the same server or on this network",
            (false, _) => "on this network; elsewhere, give PEER@HOST:PORT or --rendezvous-file FILE",
        };
        Problem::unavailable(format!(
            "nobody was met{when}; does `gramway peer listen` run there, {how}?"
        ))
    }

    /// Every address has failed.
    fn not_reached(&self, failures: &[Failure]) -> Problem {
        if self.tried.is_empty() {
            return self.nobody("");
        }
        let code = match has_refusal(failures) {
            true => Code::Permission,
            false => Code::Unavailable,
        };
        Problem::new(
            code,
            format!(
                "the peer was not reached; tried in this order: {}",
                self.tried_and_registration()
            ),
        )
    }

    fn tried_and_registration(&self) -> String {
        let tried = self.tried.iter().cloned();
        let told: Vec<String> = tried.chain(self.registration()).chain(self.relay()).collect();
        told.join("; ")
    }

    /// That the server does not relay, where it does not.
    fn relay(&self) -> Option<String> {
        let why = self.not_relayed?;
        Some(format!(
            "the server of the link relays nothing for this machine: {why}"
        ))
    }

    /// That the server could not name addresses, where it could not.
    fn registration(&self) -> Option<String> {
        let why = self.unregistered?;
        Some(format!(
            "this machine is not registered at the server of the link: {why}"
        ))
    }
}

/// The connection could not even be tried.
fn unusable(error: ConnectError) -> Problem {
    match error {
        ConnectError::Addresses(error) => Problem::usage(error.to_string()),
        other => Problem::unavailable(other.to_string()),
    }
}

/// What ended a connection of ours, for people.
fn ended(own: PeerId, reason: &CloseReason) -> Problem {
    match reason {
        CloseReason::ApplicationClosed { code, .. } if *code == code::REFUSED => Problem::permission(
            format!("the peer refuses this machine; let it in there by: gramway peer listen --allow {own}"),
        ),
        CloseReason::ApplicationClosed { code, .. } if is_busy(*code) => {
            Problem::unavailable("the peer has too many connections; try again later")
        }
        CloseReason::ApplicationClosed { code, .. } if *code == ENDED => {
            Problem::unavailable("the peer has ended")
        }
        other => Problem::unavailable(Closed(other.clone()).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_command::arguments::RendezvousArguments;

    fn failure(reason: CloseReason) -> Failure {
        Failure {
            address: "192.0.2.1:9".parse().unwrap(),
            reason,
        }
    }

    fn why<'a>(tried: &'a [String], unregistered: Option<&'a str>, place: &'a PeerPlace) -> Why<'a> {
        Why {
            tried,
            unregistered,
            not_relayed: None,
            place,
        }
    }

    #[test]
    fn each_address_is_told_with_its_end_and_a_wrong_key_is_no_silence() {
        let tried = ["192.0.2.1:9 (given): what became of it".to_owned()];
        let place = PeerPlace {
            peer: String::new(),
            at: Vec::new(),
            no_lan: false,
            rendezvous: RendezvousArguments {
                rendezvous_file: None,
                rendezvous_roots: None,
                rendezvous_carrier: None,
            },
            timeout: 1,
        };
        let told = |reason| why(&tried, None, &place).not_reached(&[failure(reason)]);
        let problem = told(CloseReason::WrongPeer);
        assert_eq!(problem.code() as u8, 77);
        assert!(problem.to_string().contains(&tried[0]), "{problem}");
        assert_eq!(told(CloseReason::TimedOut).code() as u8, 69);
        let silence = why(&tried, None, &place).silence();
        assert!(silence.to_string().contains(&tried[0]), "{silence}");
        let unknown = why(&[], None, &place).not_reached(&[]);
        assert!(unknown.to_string().contains("on this network"), "{unknown}");
        let lost = Some("it does not answer");
        for problem in [
            why(&tried, lost, &place).silence(),
            why(&tried, lost, &place).not_reached(&[]),
            why(&[], lost, &place).silence(),
        ] {
            let text = problem.to_string();
            let part = "this machine is not registered at the server of the link: it does not answer";
            assert!(text.contains(part), "{text}");
            assert_eq!(problem.code() as u8, 69);
        }
    }

    #[test]
    fn a_refusal_names_the_cure() {
        let own = SecretKey::from_bytes([1; 32]).id();
        let reason = CloseReason::ApplicationClosed {
            code: code::REFUSED,
            reason: String::new(),
        };
        let problem = ended(own, &reason);
        assert_eq!(problem.code() as u8, 77);
        assert!(
            problem.to_string().ends_with(&format!("--allow {own}")),
            "{problem}"
        );
    }
}
