//! A connection that is up moves to the other carrier and back, as its
//! [`CarrierWatch`](tunnel_proto::CarrierWatch) advises.

use std::time::Instant;

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
        // Without connection IDs, as behind a cover, a connection keeps its carrier.
        if client.reconnection.is_in_doubt() || client.knows.is_cover() {
            return;
        }
        let Some(carried) = self.engine.carried(now) else {
            return;
        };
        match client.carrier_watch.look(now, kind, carried) {
            Some(CarrierAdvice::TryOther) => {
                if !client.reconnection.try_other_carrier(now) {
                    client.carrier_watch.not_moved(now, kind.other());
                }
                self.carry_out_connect_actions(now);
            }
            Some(CarrierAdvice::Keep) => {
                let reason = client.reconnection.keep_carrier();
                let news = client.stripes.lock().moved(kind, reason);
                news.into_iter().for_each(|news| self.io.notify(news.into()));
            }
            Some(CarrierAdvice::Return) => self.return_to_other_carrier(now),
            None => {}
        }
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
        client.uplink = taken.uplink;
        client.reconnection.handle_moved(attempt);
        client.carrier_watch.moved();
        self.engine.path_changed(now);
        if !self.move_to(now, taken.carrier) {
            self.return_to_other_carrier(now);
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
