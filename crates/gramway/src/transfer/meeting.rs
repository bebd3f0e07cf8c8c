//! The receiver's way to the sender: by a code, or by the sender's peer ID.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use files_proto::code::{Code, ExchangeError};
use peer::blocking::wait_for;
use peer::{ConnectError, Endpoint, Peer, PeerId, Rendezvous, RendezvousProblem, SecretKey};
use tunnel_proto::limits::{GUEST_BYTES_MAX, GUEST_TIME_MAX};

use super::allowance::Allowance;
use super::alone::Alone;
use super::arguments::ReceiveArguments;
use super::interrupt::Interrupt;
use super::proof::{self, Unproved};
use super::server::{self, Server};
use crate::exit::Problem;
use crate::limits::{
    TRANSFER_BUSY_PAUSE, TRANSFER_FIND_PAUSE, TRANSFER_FIND_TIME_MAX, TRANSFER_SILENCE_MAX, TRANSFER_TURN,
};
use crate::peer_command::{bind, key, peer_id, places};
use crate::{output, units};

/// What this machine's key for a code is derived for, before the code.
const KEY_OF_CODE: &str = "the code ";

const LINK_REFUSED: &str =
    "the server of the link does not take its token any more: ask its owner for another link";

/// Whom to receive from.
pub(super) enum Sender {
    /// Whoever shows this code. This machine's key for it is the code's own, so that nobody recognizes this machine by
    /// it, and always the same: the server and the sender let the same peer come again.
    OfCode {
        code: Code,
        /// This machine's key.
        own: SecretKey,
    },
    /// A peer that is known.
    Known {
        /// Its ID.
        id: PeerId,
        /// Where it may be.
        addresses: Vec<SocketAddr>,
    },
}

/// An endpoint, and whom it is to meet.
pub(super) struct Meeting {
    pub(super) sender: Sender,
    endpoint: Endpoint,
    looks_on_lan: bool,
    way: Way,
    /// Who has proved to be the sender of the code. It is met again without asking for the number, whose time may be
    /// over at the server.
    proved: Option<PeerId>,
    /// What the server relays for this end.
    allowance: Arc<Mutex<Allowance>>,
    /// The server of this machine's own link does not take its token any more.
    is_link_refused: bool,
}

/// How the sender of a code is found by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As a guest of the server that the code names.
    Guest,
    /// At the server of this machine's own link, and on the local network.
    Link,
    /// On the local network alone.
    Lan,
}

/// What keeps other commands of this machine from receiving by the same code.
///
/// # Errors
/// The command line is wrong, this machine's key cannot be read, or one of them receives.
pub(super) fn alone(arguments: &ReceiveArguments) -> Result<Option<Alone>, Problem> {
    let Some(text) = &arguments.code else {
        return Ok(None);
    };
    let own = key_of_code(&parsed(text)?, arguments)?;
    Alone::new(own.id()).map(Some)
}

fn parsed(text: &str) -> Result<Code, Problem> {
    text.parse()
        .map_err(|error: files_proto::code::ParseCodeError| Problem::usage(error.to_string()))
}

fn key_of_code(code: &Code, arguments: &ReceiveArguments) -> Result<SecretKey, Problem> {
    let key = key(arguments.common.state.as_deref())?;
    Ok(key.derived(&format!("{KEY_OF_CODE}{code}")))
}

impl Meeting {
    /// Prepares it; the peers meet at `server`, where there is one and no code names another one.
    ///
    /// # Errors
    /// The command line is wrong, or this machine's key cannot be read.
    pub(super) fn new(arguments: &ReceiveArguments, server: Option<Server>) -> Result<Self, Problem> {
        let looks_on_lan = !arguments.common.no_lan;
        let allowance = Allowance::new(arguments.output.is_some(), arguments.list || arguments.dry_run);
        let allowance = Arc::new(Mutex::new(allowance));
        if let Some(text) = &arguments.code {
            let code = parsed(text)?;
            let of_link = server.filter(|server| code.host().is_none_or(|host| server.is_named(host)));
            if code.host().is_none() && of_link.is_none() && !looks_on_lan {
                return Err(Problem::usage(
                    "a code without @HOST is looked for on the local network, which --no-lan forbids, and at the server of \
                     --rendezvous-file",
                ));
            }
            let own = key_of_code(&code, arguments)?;
            let (way, rendezvous) = match (of_link, code.host()) {
                (Some(server), _) => (Way::Link, Some(server.rendezvous)),
                (None, Some(host)) => (Way::Guest, Some(server::of_guest(host, code.number())?)),
                (None, None) => (Way::Lan, None),
            };
            return Ok(Self {
                endpoint: endpoint(own.clone(), looks_on_lan, rendezvous)?,
                sender: Sender::OfCode { code, own },
                looks_on_lan,
                way,
                proved: None,
                allowance,
                is_link_refused: false,
            });
        }
        let named = arguments
            .peer
            .as_deref()
            .expect("the command line has a code or a peer");
        let (id, at) = match named.split_once('@') {
            Some((id, at)) => (id, Some(at)),
            None => (named, None),
        };
        let id = peer_id(id)?;
        let key = key(arguments.common.state.as_deref())?;
        let addresses = places(at.into_iter(), server.is_some() || looks_on_lan)?;
        Ok(Self {
            sender: Sender::Known { id, addresses },
            endpoint: endpoint(key, looks_on_lan, server.map(|server| server.rendezvous))?,
            looks_on_lan,
            way: Way::Lan,
            proved: None,
            allowance,
            is_link_refused: false,
        })
    }

    /// This machine's ID.
    pub(super) fn own(&self) -> PeerId {
        self.endpoint.id()
    }

    /// What the server relays for this end, of which its user is to know, at the beginning of a connection.
    pub(super) fn allowance(&self) -> Arc<Mutex<Allowance>> {
        let mut allowance = self.allowance.lock().unwrap_or_else(PoisonError::into_inner);
        allowance.begin(self.way == Way::Guest);
        Arc::clone(&self.allowance)
    }

    /// Connects to the sender, which has proved who it is then; tries on until the time is over.
    ///
    /// # Errors
    /// It is not there, or not the one.
    pub(super) fn meet(
        &mut self,
        limit: Duration,
        interrupt: &Interrupt,
        tell: &dyn Fn(&str),
    ) -> Result<Peer, Problem> {
        let patience = Patience::new(limit, interrupt, tell);
        let (id, addresses) = match &self.sender {
            Sender::OfCode { code, .. } => {
                let code = code.clone();
                (self.inviter(&code, &patience)?, Vec::new())
            }
            Sender::Known { id, addresses } => (*id, addresses.clone()),
        };
        loop {
            let peer = self.connect(id, &addresses, &patience)?;
            let Sender::OfCode { code, .. } = &self.sender else {
                return Ok(peer);
            };
            let (what, pause) = match proof::as_guest(&peer, self.endpoint.id(), code, interrupt) {
                Ok(()) => {
                    self.proved = Some(id);
                    return Ok(peer);
                }
                Err(Unproved::Busy) => (
                    "the sender has too much to do at present".to_owned(),
                    TRANSFER_BUSY_PAUSE,
                ),
                Err(Unproved::Lost(why)) => (lost(&why), TRANSFER_TURN),
                Err(unproved) => return Err(of_code(&unproved)),
            };
            if patience.is_over() {
                return Err(Problem::unavailable(format!("{what}; try again")));
            }
            patience.look(|| what);
            interrupt.pause(pause);
        }
    }

    /// Who waits for whoever has the code.
    fn inviter(&mut self, code: &Code, patience: &Patience<'_>) -> Result<PeerId, Problem> {
        let problem = self.endpoint.rendezvous_problem();
        let is_refused =
            self.way == Way::Link && matches!(problem, Some(RendezvousProblem::TokenRefused { .. }));
        // A link that was taken away meanwhile is left first.
        if let Some(proved) = self.proved.filter(|_| !is_refused) {
            return Ok(proved);
        }
        let found = self.find_inviter(code, patience);
        found.map_err(|problem| match self.is_link_refused {
            true => Problem::new(problem.code(), format!("{problem}. Besides, {LINK_REFUSED}")),
            false => problem,
        })
    }

    fn find_inviter(&mut self, code: &Code, patience: &Patience<'_>) -> Result<PeerId, Problem> {
        let number = code.number();
        // The server of the link has said whose the number is, if anybody's.
        let mut was_told = false;
        while !patience.is_over() {
            let inviter = match self.way {
                Way::Guest => wait_for(TRANSFER_TURN, self.endpoint.inviter()).flatten(),
                Way::Link => self.found_by_link(number, &mut was_told, patience),
                Way::Lan => patience.wait_for(self.endpoint.inviter_on_lan(number)).flatten(),
            };
            if let Some(inviter) = inviter {
                return Ok(inviter);
            }
            match (self.way, self.endpoint.rendezvous_problem()) {
                (Way::Link, Some(RendezvousProblem::TokenRefused { .. })) => {
                    self.leave_link()?;
                    continue;
                }
                (Way::Guest, Some(RendezvousProblem::TokenRefused { .. })) => {
                    return Err(Problem::permission(format!(
                        "the server knows no code with the number {number}: it is mistyped, older than ten minutes (an hour \
                         once it was used), or its sender has ended; ask the sender for a new one"
                    )));
                }
                (Way::Guest | Way::Link, Some(RendezvousProblem::Forbidden)) => {
                    return Err(Problem::permission(format!(
                        "the code with the number {number} is used up, by a wrong guess or by another machine; ask the sender \
                         for a new one"
                    )));
                }
                _ => {}
            }
            patience.look(|| match (self.way, code.host()) {
                (Way::Guest, Some(host)) => format!("the code's server {host} does not answer yet (UDP)"),
                (Way::Link, _) if !was_told => "the server of the link does not answer yet".to_owned(),
                (Way::Link, _) => "nobody waits with this code yet at the server of the link".to_owned(),
                _ => "nobody on this network waits with this code yet".to_owned(),
            });
        }
        let seconds = patience.limit.as_secs();
        Err(Problem::unavailable(match (self.way, code.host()) {
            (Way::Guest, Some(host)) => format!(
                "the code's server {host} was not reached within {seconds} s: {}. Where it has a cover, it answers its users \
                 alone: give your link by --rendezvous-file FILE",
                server::problem(&self.endpoint)
            ),
            (Way::Link, _) if !was_told || self.endpoint.rendezvous_problem().is_some() => format!(
                "the server of the link was not reached within {seconds} s: {}",
                server::problem(&self.endpoint)
            ),
            (Way::Link, _) => format!(
                "nobody waits with this code at the server of the link{}: it is mistyped, older than ten minutes (an hour \
                 once it was used), its sender has ended, or has the link of another server",
                if self.looks_on_lan { ", nor on this network" } else { "" }
            ),
            _ => "nobody on this network waits with this code; is the sender on it, and does `gramway send` still run \
                  there? Across networks, codes have @HOST behind them, or the sender's command says --rendezvous-file: then \
                  give your link for the same server"
                .to_owned(),
        }))
    }

    /// The server of the link refuses it: the sender is found without it, or not at all.
    fn leave_link(&mut self) -> Result<(), Problem> {
        let Sender::OfCode { code, own } = &self.sender else {
            return Ok(());
        };
        self.way = match code.host() {
            Some(host) => {
                let server = server::of_guest(host, code.number())?;
                self.endpoint = endpoint(own.clone(), self.looks_on_lan, Some(server))?;
                Way::Guest
            }
            None if self.looks_on_lan => Way::Lan,
            None => return Err(Problem::permission(LINK_REFUSED)),
        };
        self.is_link_refused = true;
        Ok(())
    }

    /// Asks the server of the link whose the number is, and the local network where it does not know. `was_told` once
    /// the server has answered.
    fn found_by_link(&self, number: u32, was_told: &mut bool, patience: &Patience<'_>) -> Option<PeerId> {
        let asked = async {
            self.endpoint.registered().await?;
            // Where the registration is lost meanwhile, it is asked again.
            self.endpoint.inviter_of(number).await.ok()
        };
        let told = patience.wait_at_most(TRANSFER_FIND_TIME_MAX, asked).flatten();
        *was_told |= told.is_some();
        let found = told.flatten();
        if found.is_some() || !self.looks_on_lan {
            if found.is_none() {
                patience.interrupt.pause(TRANSFER_FIND_PAUSE);
            }
            return found;
        }
        patience.wait_for(self.endpoint.inviter_on_lan(number)).flatten()
    }

    fn connect(
        &self,
        id: PeerId,
        addresses: &[SocketAddr],
        patience: &Patience<'_>,
    ) -> Result<Peer, Problem> {
        let mut last = None;
        while !patience.is_over() {
            let mut attempt = pin!(self.endpoint.connect(id, addresses));
            let outcome = loop {
                let outcome = wait_for(TRANSFER_TURN, attempt.as_mut());
                if outcome.is_some() || patience.is_over() {
                    break outcome;
                }
                patience.look(|| "the sender does not answer yet".to_owned());
            };
            match outcome {
                Some(Ok(peer)) => return Ok(peer),
                Some(Err(error @ ConnectError::Addresses(_))) => {
                    return Err(Problem::usage(error.to_string()));
                }
                Some(Err(error)) => last = Some(error.to_string()),
                None => {}
            }
            patience.look(|| "the sender does not answer yet".to_owned());
            // A sender that has not begun is tried again, and never in a hurry.
            patience.interrupt.pause(TRANSFER_TURN);
        }
        let how = match (&self.sender, self.looks_on_lan) {
            (Sender::OfCode { .. }, _) => "does `gramway send` still run there?",
            (Sender::Known { .. }, true) => {
                "does `gramway send --peer` or `gramway share` run there, with this machine's ID (`gramway peer id`), and \
                 on this network or with a link of the same server?"
            }
            (Sender::Known { .. }, false) => {
                "does `gramway send --peer` or `gramway share` run there, with this machine's ID (`gramway peer id`)?"
            }
        };
        let last = last.map_or_else(String::new, |last| format!(": {last}"));
        let server = match (self.way, self.endpoint.rendezvous_problem()) {
            (Way::Guest, Some(why)) => format!(" {}", of_guest(&why)),
            _ => String::new(),
        };
        Err(Problem::unavailable(format!(
            "the sender was not reached within {} s{last}; {how}{server}",
            patience.limit.as_secs()
        )))
    }

    /// Takes leave.
    pub(super) fn close(&self) {
        super::close(&self.endpoint);
    }
}

/// An endpoint that meets others on the local network, where it looks there, and at this server.
fn endpoint(key: SecretKey, looks_on_lan: bool, rendezvous: Option<Rendezvous>) -> Result<Endpoint, Problem> {
    let mut builder = Endpoint::builder(key);
    if looks_on_lan {
        builder = builder.find_on_lan();
    }
    if let Some(rendezvous) = rendezvous {
        builder = builder.rendezvous(rendezvous);
    }
    bind(builder, None)
}

/// What a guest is told whom the code's server has let go, after it had found the sender there.
fn of_guest(why: &RendezvousProblem) -> String {
    format!(
        "Besides, the code's server has let this machine go: {}. A guest has {} of it for what it relays, and {}; where one \
         is used up, have it sent again, by a new code: only the rest comes",
        output::shown(&why.to_string()),
        units::bytes(GUEST_BYTES_MAX),
        units::span(GUEST_TIME_MAX.as_secs_f64()),
    )
}

/// What somebody without proof is told of its code.
fn of_code(unproved: &Unproved) -> Problem {
    match unproved {
        Unproved::Exchange(error @ ExchangeError::WrongCode) => Problem::permission(error.to_string()),
        Unproved::Exchange(error) => Problem::unavailable(error.to_string()),
        Unproved::NoCode | Unproved::Expired | Unproved::TriedTooOften => Problem::permission(
            "the sender does not take this code any more: it was used, or tried wrongly, or is older than ten minutes; ask \
             the sender for a new one",
        ),
        Unproved::Ended => Problem::unavailable("the sender has ended; have it send again, with a new code"),
        Unproved::Silent | Unproved::Busy | Unproved::Interrupted => Problem::unavailable(
            "the sender has not answered in time; the code may still be valid: try again",
        ),
        Unproved::Lost(why) => Problem::unavailable(format!("{}; try again", lost(why))),
        Unproved::NoRandomness => Problem::bug("the system gives no random bytes"),
    }
}

fn lost(why: &str) -> String {
    format!("the connection to the sender was lost ({})", output::shown(why))
}

/// How long the sender is tried, and what its user is told meanwhile.
struct Patience<'a> {
    limit: Duration,
    begun: Instant,
    has_told: Cell<bool>,
    interrupt: &'a Interrupt,
    tell: &'a dyn Fn(&str),
}

impl<'a> Patience<'a> {
    fn new(limit: Duration, interrupt: &'a Interrupt, tell: &'a dyn Fn(&str)) -> Self {
        Self {
            limit,
            begun: Instant::now(),
            has_told: Cell::new(false),
            interrupt,
            tell,
        }
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    /// Also where the user wants an end.
    fn is_over(&self) -> bool {
        self.left().is_zero() || self.interrupt.is_over()
    }

    fn wait_for<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.interrupt.wait_for(self.left(), future)
    }

    fn wait_at_most<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.interrupt.wait_for(limit.min(self.left()), future)
    }

    /// Tells once what is waited for, where that takes long.
    fn look(&self, what: impl FnOnce() -> String) {
        if self.begun.elapsed() >= TRANSFER_SILENCE_MAX && !self.is_over() && !self.has_told.replace(true) {
            let seconds = self.left().as_secs_f64().ceil();
            (self.tell)(&format!("{}; trying for another {seconds} s", what()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TRANSFER_INVITATION_S;

    #[test]
    fn a_guest_whose_code_is_not_taken_any_more_is_told_of_each_reason_that_there_may_be() {
        let told = of_code(&Unproved::NoCode).to_string();
        for part in ["used", "tried wrongly", "ten minutes"] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(TRANSFER_INVITATION_S, 10 * 60);
    }

    #[test]
    fn a_guest_whom_its_server_lets_go_is_told_why_and_what_it_may_have() {
        let why = "the server closed it: the user's bytes are used up\u{1b}[2J".to_owned();
        let told = of_guest(&RendezvousProblem::Unreachable(why));
        for part in [r"bytes are used up\u{1b}[2J", "1.1 GB", "1 h", "by a new code"] {
            assert!(told.contains(part), "{told}");
        }
    }
}
