//! How a client knows its server, and what it does where the genuine site of a cover answers instead: the connection
//! rests as a browser's does, and is closed.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use quic::{ClientParameters, FrontDoorClient, TrustedRoots};
use reality::credentials::{ServerPublicKey, UserKey};
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
    WebPki(TrustedRoots),
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
        let roots = |authorities: &[Vec<u8>]| {
            TrustedRoots::web_pki_and(authorities).map_err(|error| Failure::Configuration(error.to_string()))
        };
        match proof {
            ServerProof::Pin(pin) => Ok(Self::Pin(*pin)),
            ServerProof::WebPki { authorities } => Ok(Self::WebPki(roots(authorities)?)),
            ServerProof::Cover {
                key,
                name,
                authorities,
            } => Ok(Self::Cover(FrontDoor {
                server: ServerPublicKey(*key),
                user: token.user_key(),
                name: name.clone(),
                roots: roots(authorities)?,
            })),
        }
    }

    pub(super) fn is_cover(&self) -> bool {
        matches!(self, Self::Cover(_))
    }

    /// The name to ask for, where the settings name the server so.
    pub(super) fn name<'a>(&'a self, server: &'a str) -> &'a str {
        match self {
            Self::Pin(_) | Self::WebPki(_) => server,
            Self::Cover(front_door) => &front_door.name,
        }
    }

    /// For a connection that begins now.
    pub(super) fn parameters(&self) -> ClientParameters {
        match self {
            Self::Pin(pin) => ClientParameters::Pin(*pin),
            Self::WebPki(roots) => ClientParameters::WebPki {
                roots: roots.clone(),
                unix_seconds: unix_seconds(),
            },
            Self::Cover(front_door) => ClientParameters::FrontDoor(FrontDoorClient {
                server: front_door.server,
                user: front_door.user.clone(),
                unix_seconds: u32::try_from(unix_seconds()).unwrap_or(u32::MAX),
                roots: front_door.roots.clone(),
            }),
        }
    }
}

/// The clock, in seconds of Unix time; zero before 1970.
fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
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
        while let Some(attempt) = self.role.resting.poll_rested(now) {
            self.abandon(now, attempt);
        }
    }

    /// Closes the one to this address.
    pub(super) fn close_resting_at(&mut self, now: Instant, address: SocketAddr) {
        while let Some(attempt) = self.role.resting.take_at(address) {
            self.abandon(now, attempt);
        }
    }
}
