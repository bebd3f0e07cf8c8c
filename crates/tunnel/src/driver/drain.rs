//! When a shard that drains ends: when what it waits for is over, on all shards, or at a time.
//!
//! A process that another one has taken over may have taken over a third one, which is still there. What is received
//! for that one comes through this process, which stays until then, without connections of its own after its time.

use std::time::Instant;

use super::Shard;
use super::role::Role;
use crate::handle::DrainUntil;

/// A drain under way.
#[derive(Clone, Copy)]
pub(super) struct Drain {
    /// When connections are closed that are still there; `None`: that is over.
    pub(super) due: Option<Instant>,
    until: DrainUntil,
}

impl Drain {
    pub(super) fn new(due: Instant, until: DrainUntil) -> Self {
        Self {
            due: Some(due),
            until,
        }
    }
}

impl<R: Role> Shard<R> {
    /// Whether the shard drains and is to end.
    pub(super) fn is_drained(&mut self, now: Instant) -> bool {
        let Some(drain) = &mut self.drain else {
            return false;
        };
        let until = drain.until;
        let is_due = drain.due.take_if(|due| *due <= now).is_some();
        let is_needed = until == DrainUntil::ClientsGone && self.hands_back();
        if is_due && is_needed {
            self.close_connections(now);
        }
        let is_over = self.drain.is_some_and(|drain| drain.due.is_none());
        // After its time a shard waits for no other one.
        !is_needed && (is_over || self.has_drained(until) && self.neighbours.all_may_end())
    }

    /// Whether another process gets its packets through this shard.
    fn hands_back(&self) -> bool {
        let predecessor = self.delivery.predecessor.as_ref();
        predecessor.is_some_and(|predecessor| predecessor.lives(self.neighbours.own()))
    }

    fn has_drained(&self, until: DrainUntil) -> bool {
        match until {
            DrainUntil::TcpFinished => self.io.tcp.open == 0 && self.engine.closing() == 0,
            DrainUntil::ClientsGone => self.engine.connections() == 0,
        }
    }
}
