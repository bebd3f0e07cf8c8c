//! The receiver's way to the sender: by a code, or by the sender's peer ID.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use files_proto::code::{Code, ExchangeError};
use peer::blocking::wait_for;
use peer::{Builder, ConnectError, Endpoint, Peer, PeerId, SecretKey};

use super::proof::{self, Unproved};
use super::server::{self, Server};
use super::{arguments::ReceiveArguments, bind};
use crate::exit::Problem;
use crate::limits::{TRANSFER_KEY_AGE_MAX, TRANSFER_SILENCE_MAX, TRANSFER_TURN};
use crate::peer_command::{key, peer_id, places};
use crate::state::StateDirectory;

/// The directory of keys for codes, in the state directory.
const KEYS: &str = "receiving";

/// Whom to receive from.
pub(super) enum Sender {
    /// Whoever shows this code. The key is the code's own, so that nobody recognizes this machine by it, and is kept
    /// until everything has come: the server and the sender let the same peer come again.
    OfCode {
        /// The code.
        code: Code,
        /// Where its key is kept.
        key_file: PathBuf,
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
}

impl Meeting {
    /// Prepares it; without a code the peers meet at `server`, where there is one.
    ///
    /// # Errors
    /// The command line is wrong, or this machine's key cannot be read.
    pub(super) fn new(
        arguments: &ReceiveArguments,
        state: &StateDirectory,
        server: Option<Server>,
    ) -> Result<Self, Problem> {
        let looks_on_lan = !arguments.common.no_lan;
        let with_lan = |builder: Builder| match looks_on_lan {
            true => builder.find_on_lan(),
            false => builder,
        };
        if let Some(text) = &arguments.code {
            let code: Code = text
                .parse()
                .map_err(|error: files_proto::code::ParseCodeError| Problem::usage(error.to_string()))?;
            if code.host().is_none() && !looks_on_lan {
                return Err(Problem::usage(
                    "a code without @HOST is looked for on the local network, which --no-lan forbids",
                ));
            }
            let key_file = key_file(state, &code)?;
            let key = SecretKey::load_or_create(&key_file);
            let key = key.map_err(|error| Problem::configuration(error.to_string()))?;
            let mut builder = with_lan(Endpoint::builder(key));
            if let Some(host) = code.host() {
                builder = builder.rendezvous(server::of_guest(host, code.number())?);
            }
            return Ok(Self {
                sender: Sender::OfCode { code, key_file },
                endpoint: bind(builder, None)?,
                looks_on_lan,
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
        let mut builder = with_lan(Endpoint::builder(key(arguments.common.state.as_deref())?));
        let addresses = places(at.into_iter(), server.is_some() || looks_on_lan)?;
        if let Some(server) = server {
            builder = builder.rendezvous(server.rendezvous);
        }
        Ok(Self {
            sender: Sender::Known { id, addresses },
            endpoint: bind(builder, None)?,
            looks_on_lan,
        })
    }

    /// This machine's ID.
    pub(super) fn own(&self) -> PeerId {
        self.endpoint.id()
    }

    /// Connects to the sender, which has proved who it is then; tries on until the time is over.
    ///
    /// # Errors
    /// It is not there, or not the one.
    pub(super) fn meet(
        &self,
        limit: Duration,
        is_over: &dyn Fn() -> bool,
        tell: &dyn Fn(&str),
    ) -> Result<Peer, Problem> {
        let patience = Patience::new(limit, tell);
        let (id, addresses) = match &self.sender {
            Sender::OfCode { code, .. } => (self.inviter(code, &patience, is_over)?, &[][..]),
            Sender::Known { id, addresses } => (*id, &addresses[..]),
        };
        let peer = self.connect(id, addresses, &patience, is_over)?;
        let Sender::OfCode { code, .. } = &self.sender else {
            return Ok(peer);
        };
        match proof::as_guest(&peer, self.endpoint.id(), code) {
            Ok(()) => Ok(peer),
            Err(Unproved::Exchange(error @ ExchangeError::WrongCode)) => {
                Err(Problem::permission(error.to_string()))
            }
            Err(Unproved::Exchange(error)) => Err(Problem::unavailable(error.to_string())),
            Err(Unproved::Silent | Unproved::NoCode) => Err(Problem::permission(
                "the sender does not take this code any more: it was used, or tried wrongly; ask the sender for a new one",
            )),
            Err(Unproved::NoRandomness) => Err(Problem::bug("the system gives no random bytes")),
        }
    }

    /// Who waits for whoever has the code.
    fn inviter(
        &self,
        code: &Code,
        patience: &Patience<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<PeerId, Problem> {
        let number = code.number();
        while !patience.is_over() && !is_over() {
            let inviter = match code.host() {
                Some(_) => wait_for(TRANSFER_TURN, self.endpoint.inviter()).flatten(),
                None => wait_for(patience.left(), self.endpoint.inviter_on_lan(number)).flatten(),
            };
            if let Some(inviter) = inviter {
                return Ok(inviter);
            }
            let problem = self.endpoint.rendezvous_problem().unwrap_or_default();
            if problem.contains("(401)") {
                return Err(Problem::permission(format!(
                    "the server knows no code with the number {number}: it is mistyped, older than ten minutes, or its \
                     sender has ended; ask the sender for a new one"
                )));
            }
            if problem.contains("(HTTP status 403)") {
                return Err(Problem::permission(format!(
                    "the code with the number {number} is used up: another machine came by it; ask the sender for a new one"
                )));
            }
            patience.look(|| match code.host() {
                Some(host) => format!("the code's server {host} does not answer yet (UDP)"),
                None => "nobody on this network waits with this code yet".to_owned(),
            });
        }
        let seconds = patience.limit.as_secs();
        Err(Problem::unavailable(match code.host() {
            Some(host) => format!(
                "the code's server {host} was not reached within {seconds} s: {}",
                server::problem(&self.endpoint)
            ),
            None => "nobody on this network waits with this code; is the sender on it, and does `gramway send` still run \
                     there? Across networks, codes have @HOST behind them"
                .to_owned(),
        }))
    }

    fn connect(
        &self,
        id: PeerId,
        addresses: &[SocketAddr],
        patience: &Patience<'_>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Peer, Problem> {
        let mut last = None;
        while !patience.is_over() && !is_over() {
            let mut attempt = pin!(self.endpoint.connect(id, addresses));
            let outcome = loop {
                let outcome = wait_for(TRANSFER_TURN, attempt.as_mut());
                if outcome.is_some() || patience.is_over() || is_over() {
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
            std::thread::sleep(TRANSFER_TURN);
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
        Err(Problem::unavailable(format!(
            "the sender was not reached within {} s{last}; {how}",
            patience.limit.as_secs()
        )))
    }

    /// Everything has come: the code's key is of no use any more.
    pub(super) fn forget(&self) {
        if let Sender::OfCode { key_file, .. } = &self.sender {
            // The next command removes it, too.
            let _ = fs::remove_file(key_file);
        }
    }

    /// Takes leave.
    pub(super) fn close(&self) {
        super::close(&self.endpoint);
    }
}

/// How long the sender is tried, and what its user is told meanwhile.
struct Patience<'a> {
    limit: Duration,
    begun: Instant,
    has_told: Cell<bool>,
    tell: &'a dyn Fn(&str),
}

impl<'a> Patience<'a> {
    fn new(limit: Duration, tell: &'a dyn Fn(&str)) -> Self {
        Self {
            limit,
            begun: Instant::now(),
            has_told: Cell::new(false),
            tell,
        }
    }

    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.begun.elapsed())
    }

    fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Tells once what is waited for, where that takes long.
    fn look(&self, what: impl FnOnce() -> String) {
        if self.begun.elapsed() >= TRANSFER_SILENCE_MAX && !self.is_over() && !self.has_told.replace(true) {
            let seconds = self.left().as_secs_f64().ceil();
            (self.tell)(&format!("{}; trying for another {seconds} s", what()));
        }
    }
}

/// Where the key for a code is; old ones are removed.
fn key_file(state: &StateDirectory, code: &Code) -> Result<PathBuf, Problem> {
    let directory = state.path().join(KEYS);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|error| Problem::file("create", &directory, &error))?;
    sweep(&directory);
    let digest = digest(&SHA256, code.to_string().as_bytes());
    let mut name = String::new();
    for byte in &digest.as_ref()[..8] {
        write!(name, "{byte:02x}").expect("writing to a String does not fail");
    }
    Ok(directory.join(name + ".key"))
}

/// Removes keys of codes that nobody comes with any more.
fn sweep(directory: &std::path::Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified
            .ok()
            .and_then(|modified| SystemTime::now().duration_since(modified).ok());
        if age.is_some_and(|age| age > TRANSFER_KEY_AGE_MAX) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
