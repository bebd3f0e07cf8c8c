//! A connection that is up moves to the other carrier and back, as its
//! [`CarrierWatch`](tunnel_proto::CarrierWatch) advises.

use std::time::Instant;

use packet::CarrierKind;
use tunnel_proto::{AttemptId, CarrierAdvice};

use super::Client;
use crate::driver::Shard;

impl Shard<Client> {
    /// Whether the carrier carries what is wanted.
    pub(super) fn watch_carrier(&mut self, now: Instant) {
        let client = &mut self.role;
        let Some((kind, _)) = client.reconnection.carrier().filter(|_| client.is_up()) else {
            return;
        };
        if client.reconnection.is_in_doubt() {
            return;
        }
        let Some(carried) = self.engine.carried(now) else {
            return;
        };
        match client.carrier_watch.look(now, kind, carried) {
            Some(CarrierAdvice::TryOther) => self.try_other_carrier(now, kind),
            Some(CarrierAdvice::Keep) => self.tell_carrier(kind),
            Some(CarrierAdvice::Return) => self.return_to_other_carrier(now),
            None => {}
        }
    }

    /// Nothing is acknowledged over the carrier in use: the other one is asked before the connection is given up.
    pub(super) fn carrier_is_silent(&mut self, now: Instant) {
        let client = &mut self.role;
        if let Some((kind, _)) = client.reconnection.carrier()
            && client.carrier_watch.is_silent(now, kind)
        {
            self.try_other_carrier(now, kind);
        }
    }

    /// ICMP says that nothing listens where the carrier in use leads. Whether the connection waits for the answer over
    /// the other one.
    pub(super) fn carrier_is_refused(&mut self, now: Instant) -> bool {
        self.carrier_is_silent(now);
        self.role.carrier_watch.refused()
    }

    /// Traffic came over the carrier in use, and has paused: asks the server for a sign of life where another carrier
    /// could be used.
    pub(super) fn carrier_pauses(&mut self, now: Instant) {
        let client = &self.role;
        let carrier = client.reconnection.carrier();
        let leaves = carrier.is_some_and(|(kind, _)| client.carrier_watch.would_leave(now, kind));
        if leaves && client.reconnection.has_other_carrier() {
            self.engine.probe();
        }
    }

    /// Something was acknowledged over the carrier in use: an attempt out of silence ends.
    pub(super) fn carrier_answers(&mut self, now: Instant) {
        if self.role.carrier_watch.answered() {
            self.role.reconnection.forget_other_carrier();
            self.carry_out_connect_actions(now);
        }
    }

    fn try_other_carrier(&mut self, now: Instant, kind: CarrierKind) {
        if !self.role.reconnection.try_other_carrier(now) {
            self.role.carrier_watch.not_moved(now, kind.other());
        }
        self.carry_out_connect_actions(now);
    }

    /// The connection stays on this carrier.
    fn tell_carrier(&mut self, kind: CarrierKind) {
        let client = &mut self.role;
        let reason = client.reconnection.keep_carrier();
        let news = client.stripes.lock().moved(kind, reason);
        news.into_iter().for_each(|news| self.io.notify(news.into()));
    }

    /// The server answers over the other carrier, which the connection takes from here on.
    pub(super) fn move_to_other_carrier(&mut self, now: Instant, attempt: AttemptId) {
        // The server hears the end of the attempt over it before anything else.
        self.engine.abandon(now, attempt);
        self.flush_outer(now);
        let Some(taken) = self.io.outer.beside.take(attempt, &self.io.poller) else {
            return self.role.reconnection.handle_lost(now, attempt, None);
        };
        let client = &mut self.role;
        // One that began before the way was known has none.
        if taken.uplink.is_some() {
            client.uplink = taken.uplink;
        }
        let Some((kind, _)) = client.reconnection.carrier() else {
            return;
        };
        let is_on_trial = client.carrier_watch.moved(now, kind);
        client.reconnection.handle_moved(attempt, is_on_trial);
        self.engine.path_changed(now);
        if !self.move_to(now, taken.carrier) {
            self.return_to_other_carrier(now);
        } else if !is_on_trial {
            self.tell_carrier(kind.other());
        }
    }

    /// Nothing comes through over the carrier that is on trial.
    pub(super) fn leave_silent_carrier(&mut self, now: Instant) {
        let client = &mut self.role;
        if let Some((kind, _)) = client.reconnection.carrier() {
            client.carrier_watch.fell_silent(now, kind);
        }
        self.return_to_other_carrier(now);
    }

    /// The connection leaves this machine in another way.
    pub(super) fn forget_carriers(&mut self, now: Instant) {
        self.role.reconnection.forget_other_carrier();
        self.role.carrier_watch.network_changed();
        self.carry_out_connect_actions(now);
    }

    fn return_to_other_carrier(&mut self, now: Instant) {
        let client = &mut self.role;
        let Some(server) = client.reconnection.return_to_other_carrier() else {
            return;
        };
        let binding = client.uplink.clone();
        // Where it cannot be made, silence has the connection made anew.
        if let Ok(carrier) = self.carrier_to(server, binding.as_ref()) {
            self.engine.path_changed(now);
            self.move_to(now, carrier);
        }
    }
}
