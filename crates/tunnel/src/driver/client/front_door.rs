//! What a client does where the genuine site of a cover answers instead of its server: the connection rests as a
//! browser's does, and is closed.

use std::net::SocketAddr;
use std::time::Instant;

use tunnel_proto::AttemptId;

use super::Client;
use crate::driver::Shard;
use crate::driver::start::seed;

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
