//! How a client knows its server, and what it does where the genuine site of a cover answers instead: the connection
//! rests as a browser's does, and is closed.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use quic::{ClientParameters, FrontDoorClient, TrustedRoots};
use reality::credentials::{ServerPublicKey, UserKey};
use tunnel_proto::limits::{REDIRECTED_REST_MAX, REDIRECTED_REST_MIN};
use tunnel_proto::{AttemptId, Token};

use super::Client;
use crate::config::ServerProof;
use crate::driver::Shard;
use crate::driver::start::seed;
use crate::handle::Failure;

/// What a client knows its server by.
#[derive(Clone)]
pub(in crate::driver) enum Knows {
    Pin([u8; 32]),
    Cover(FrontDoor),
}

/// A server behind a cover.
#[derive(Clone)]
pub(in crate::driver) struct FrontDoor {
    server: ServerPublicKey,
    user: UserKey,
    /// The name to ask for.
    name: String,
    roots: TrustedRoots,
}

impl Knows {
    pub(super) fn new(proof: &ServerProof, token: &Token) -> Result<Self, Failure> {
        match proof {
            ServerProof::Pin(pin) => Ok(Self::Pin(*pin)),
            ServerProof::Cover {
                key,
                name,
                authorities,
            } => Ok(Self::Cover(FrontDoor {
                server: ServerPublicKey(*key),
                user: token.user_key(),
                name: name.clone(),
                roots: TrustedRoots::web_pki_and(authorities)
                    .map_err(|error| Failure::Configuration(error.to_string()))?,
            })),
        }
    }

    pub(super) fn is_cover(&self) -> bool {
        matches!(self, Self::Cover(_))
    }

    /// The name to ask for, where the settings name the server so.
    pub(super) fn name<'a>(&'a self, server: &'a str) -> &'a str {
        match self {
            Self::Pin(_) => server,
            Self::Cover(front_door) => &front_door.name,
        }
    }

    /// For a connection that begins now.
    pub(super) fn parameters(&self) -> ClientParameters {
        match self {
            Self::Pin(pin) => ClientParameters::Pin(*pin),
            Self::Cover(front_door) => ClientParameters::FrontDoor(FrontDoorClient {
                server: front_door.server,
                user: front_door.user.clone(),
                unix_seconds: unix_seconds(),
                roots: front_door.roots.clone(),
            }),
        }
    }
}

/// The clock, in seconds of Unix time; zero before 1970.
fn unix_seconds() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u32::try_from(since.unwrap_or_default().as_secs()).unwrap_or(u32::MAX)
}

/// Connections to the genuine site that rest (QR1-19).
#[derive(Default)]
pub(super) struct Resting(Vec<RestingConnection>);

struct RestingConnection {
    attempt: AttemptId,
    address: SocketAddr,
    /// When it is closed.
    due: Instant,
}

impl Resting {
    /// `draw` is random. Each race adds as many as it has attempts, and ends those of the one before.
    fn add(&mut self, now: Instant, attempt: AttemptId, address: SocketAddr, draw: u64) {
        let span = REDIRECTED_REST_MAX - REDIRECTED_REST_MIN;
        let rest = REDIRECTED_REST_MIN + Duration::from_millis(draw % (span.as_millis() as u64 + 1));
        self.0.push(RestingConnection {
            attempt,
            address,
            due: now + rest,
        });
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().map(|connection| connection.due).min()
    }

    /// Takes one out of which this holds.
    fn take(&mut self, is_wanted: impl Fn(&RestingConnection) -> bool) -> Option<AttemptId> {
        let place = self.0.iter().position(is_wanted)?;
        Some(self.0.remove(place).attempt)
    }

    pub(super) fn forget(&mut self, attempt: AttemptId) {
        self.0.retain(|connection| connection.attempt != attempt);
    }
}

impl Shard<Client> {
    /// The genuine site answered an attempt.
    pub(in crate::driver) fn redirected(&mut self, now: Instant, attempt: AttemptId) {
        if let Some(address) = self.role.reconnection.address_of(attempt) {
            // Without random numbers all rest equally long.
            let draw = seed().unwrap_or(0);
            self.role.resting.add(now, attempt, address, draw);
        }
        self.role.reconnection.handle_redirected(now, attempt);
        self.carry_out_connect_actions(now);
    }

    /// Closes connections to the genuine site that have rested.
    pub(super) fn close_rested(&mut self, now: Instant) {
        while let Some(attempt) = self.role.resting.take(|connection| connection.due <= now) {
            self.abandon(now, attempt);
        }
    }

    /// Closes the one to this address: without connection IDs there is one connection to each.
    pub(super) fn close_resting_at(&mut self, now: Instant, address: SocketAddr) {
        while let Some(attempt) = self.role.resting.take(|connection| connection.address == address) {
            self.abandon(now, attempt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QR1-19.
    #[test]
    fn a_connection_to_the_genuine_site_rests_from_5_to_30_seconds_as_it_happens() {
        let (now, address) = (Instant::now(), "192.0.2.1:443".parse().unwrap());
        let rest = |draw| {
            let mut resting = Resting::default();
            resting.add(now, 7, address, draw);
            let due = resting.poll_timeout().unwrap();
            let until = |time: Instant| move |connection: &RestingConnection| connection.due <= time;
            assert_eq!(resting.take(until(due - Duration::from_nanos(1))), None);
            assert_eq!(resting.take(until(due)), Some(7));
            assert_eq!(resting.poll_timeout(), None);
            due - now
        };
        assert_eq!(rest(0), Duration::from_secs(5));
        assert_eq!(rest(25_000), Duration::from_secs(30));
        assert_eq!(rest(25_001), Duration::from_secs(5));
        assert_eq!(rest(u64::MAX).as_secs() / 30, 0);
    }
}
