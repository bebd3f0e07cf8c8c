//! Who comes to a server and goes, for the program to tell.

use std::net::SocketAddr;
use std::time::Instant;

use tunnel_proto::limits::{REFUSALS_TOLD_AT_A_TIME, REFUSED_HOLD};

use super::Server;
use crate::driver::Shard;
use crate::handle::{Notice, Visitor};

/// Since when refusals are counted, and how many were told.
pub(super) type RecentRefusals = Option<(Instant, usize)>;

impl Shard<Server> {
    pub(super) fn tell_visitor(&self, visitor: Visitor) {
        self.io.notify(Notice::Visitor(visitor));
    }

    /// Tells who was turned away. Strangers cannot crowd out what else there is to tell: few are told at a time.
    pub(super) fn tell_turned_away(&mut self, now: Instant, remote: SocketAddr) {
        let recent = self
            .role
            .turned_away_told
            .filter(|(since, _)| now.saturating_duration_since(*since) < REFUSED_HOLD);
        let (since, count) = recent.unwrap_or((now, 0));
        if count < REFUSALS_TOLD_AT_A_TIME {
            self.role.turned_away_told = Some((since, count + 1));
            self.tell_visitor(Visitor::TurnedAway { remote });
        }
    }
}
