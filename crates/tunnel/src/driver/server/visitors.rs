//! Who comes to a server and goes, for the program to tell.

use std::net::SocketAddr;
use std::time::Instant;

use super::Server;
use crate::driver::Shard;
use crate::handle::{Notice, Repeated, Visitor};

impl Shard<Server> {
    pub(super) fn tell_visitor(&self, visitor: Visitor) {
        self.io.notify(Notice::Visitor(visitor));
    }

    /// Tells who was turned away. Strangers cannot crowd out what else there is to tell: few are told at a time.
    pub(super) fn tell_turned_away(&self, now: Instant, remote: SocketAddr) {
        let notice = || Notice::Visitor(Visitor::TurnedAway { remote });
        self.io.notices.send_few(now, Repeated::TurnedAway, notice);
    }
}
