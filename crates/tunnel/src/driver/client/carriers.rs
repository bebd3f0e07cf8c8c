//! A connection that is up moves to the other carrier and back, as
//! [`Reconnection`](tunnel_proto::Reconnection) decides.

use std::net::SocketAddr;
use std::time::Instant;

use tunnel_proto::{AttemptId, CarrierNews};

use super::Client;
use crate::driver::Shard;

impl Shard<Client> {
    /// Whether the carrier carries what is wanted.
    pub(super) fn watch_carrier(&mut self, now: Instant) {
        let Some(carried) = self.engine.carried(now).filter(|_| self.role.is_up()) else {
            return;
        };
        match self.role.reconnection.look_at_carrier(now, carried) {
            Some(CarrierNews::Kept) => self.tell_carrier(),
            Some(CarrierNews::Return(server)) => self.return_to(now, server),
            None => {}
        }
        self.carry_out_connect_actions(now);
    }

    /// Nothing is acknowledged over the carrier in use.
    pub(super) fn carrier_is_silent(&mut self, now: Instant) {
        self.role.reconnection.carrier_is_silent(now);
        self.carry_out_connect_actions(now);
    }

    /// ICMP says that nothing listens where the carrier in use leads. Whether the connection waits for the answer over
    /// the other one.
    pub(super) fn carrier_is_refused(&mut self, now: Instant) -> bool {
        let waits = self.role.reconnection.carrier_is_refused(now);
        self.carry_out_connect_actions(now);
        waits
    }

    /// Traffic came over the carrier in use, and has paused: asks the server for a sign of life where another carrier
    /// could be used.
    pub(super) fn carrier_pauses(&mut self, now: Instant) {
        if self.role.reconnection.would_leave_carrier(now) {
            self.engine.probe();
        }
    }

    /// Something was acknowledged over the carrier in use.
    pub(super) fn carrier_answers(&mut self, now: Instant) {
        self.role.reconnection.carrier_answered();
        self.carry_out_connect_actions(now);
    }

    /// The connection stays on its carrier.
    fn tell_carrier(&mut self) {
        let client = &mut self.role;
        let Some((kind, reason)) = client.reconnection.carrier() else {
            return;
        };
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
        if client.reconnection.carrier().is_none() {
            return;
        }
        let is_on_trial = client.reconnection.handle_moved(now, attempt);
        self.engine.path_changed(now);
        if !self.move_to(now, taken.carrier) {
            if let Some(server) = self.role.reconnection.return_to_other_carrier() {
                self.return_to(now, server);
            }
        } else if !is_on_trial {
            self.tell_carrier();
        }
    }

    /// Nothing comes through over the carrier that is on trial.
    pub(super) fn leave_silent_carrier(&mut self, now: Instant) {
        if let Some(server) = self.role.reconnection.leave_silent_carrier(now) {
            self.return_to(now, server);
        }
    }

    /// The connection leaves this machine in another way.
    pub(super) fn forget_carriers(&mut self, now: Instant) {
        self.role.reconnection.forget_carriers();
        self.carry_out_connect_actions(now);
    }

    /// The connection goes back to the carrier that leads to `server`.
    fn return_to(&mut self, now: Instant, server: SocketAddr) {
        let binding = self.role.uplink.clone();
        // Where it cannot be made, silence has the connection made anew.
        if let Ok(carrier) = self.carrier_to(server, binding.as_ref()) {
            self.engine.path_changed(now);
            self.move_to(now, carrier);
        }
    }
}
