//! A client's connection to the server from this shard, its stripe, which is made again whenever it is lost.

use std::time::{Duration, Instant};

use quic::CloseReason;
use tunnel_proto::limits::{CARRIER_WATCH_INTERVAL, PATH_WATCH_INTERVAL};
use tunnel_proto::{AttemptId, ServerShard, Welcome};

use super::attempts::PORT_CLOSED;
use super::{Client, ClientMessage};
use crate::driver::Shard;
use crate::handle::{Failure, Notice};
use crate::limits;

impl Shard<Client> {
    pub(in crate::driver) fn client_turn(&mut self, now: Instant) {
        self.judge_move(now);
        self.close_rested(now);
        self.role.reconnection.handle_timeout(now);
        self.carry_out_connect_actions(now);
        if self.role.ip.is_some() && self.role.next_ip_turn <= now {
            self.role.next_ip_turn = now + limits::MTU_INTERVAL;
            self.client_ip_turn(now);
        }
        if self.role.next_path_watch <= now {
            self.role.next_path_watch = now + PATH_WATCH_INTERVAL;
            self.watch_path(now);
        }
        if self.role.next_carrier_watch <= now {
            self.role.next_carrier_watch = now + CARRIER_WATCH_INTERVAL;
            self.watch_carrier(now);
        }
        if self.role.next_tick <= now {
            self.role.next_tick = now + limits::TICK;
            self.tick(now);
        }
    }

    pub(in crate::driver) fn tunnel_is_up(
        &mut self,
        now: Instant,
        rtt: Duration,
        shard: Option<ServerShard>,
    ) {
        let client = &mut self.role;
        let welcome = client
            .stripes
            .lock()
            .welcome(client.index, &mut client.reconnection, shard, rtt);
        let Welcome::Stays { arrival, is_again } = welcome else {
            // The server is to know before the next attempt begins.
            self.engine.disconnect(now);
            self.flush_outer(now);
            return;
        };
        if let (Some(host), Some(server)) = (&client.ip, client.server_address()) {
            host.met_server(server.ip());
        }
        client.server_shard = shard;
        (client.mtu_seen, client.mtu_settled) = (0, 0);
        client.next_tick = now + limits::TICK;
        client.ip_due = Some(now);
        client.next_ip_turn = now;
        let is_first_stripe = client.index == 0;
        client.reconnects += u64::from(arrival.is_tunnel_again);
        if let Some(text) = self
            .io
            .outer
            .carrier()
            .and_then(|carrier| carrier.warning())
            .filter(|_| is_first_stripe && !is_again)
        {
            self.io.notify(Notice::Warning { text });
        }
        if let Some(news) = arrival.news {
            self.io.notify(news.into());
        }
        self.engine.keep_connection(now);
        self.ask_for_ports(now);
    }

    /// Another connection is to take the place of the present one, at this server's successor or at another server.
    pub(in crate::driver) fn server_goes_away(&mut self, now: Instant) {
        if self.drain.is_none() {
            self.role.reconnection.handle_going_away(now);
            self.carry_out_connect_actions(now);
        }
    }

    /// The sibling that takes this shard's local traffic: only while its own stripe is down and a sibling's is up.
    pub(in crate::driver) fn stand_in(&self, now: Instant) -> Option<usize> {
        if !self.role.reconnection.wants_stand_in(now) {
            return None;
        }
        self.role.stripes.lock().stand_in(self.role.index)
    }

    pub(in crate::driver) fn token_refused(&mut self, status: u16) {
        self.failure = Some(Failure::Refused(format!(
            "the server refused the token (HTTP status {status}): ask its owner for a new link"
        )));
    }

    pub(in crate::driver) fn tunnel_lost(&mut self, now: Instant, attempt: AttemptId, reason: &CloseReason) {
        let is_stranger = matches!(
            reason,
            CloseReason::WrongPin | CloseReason::WrongServer | CloseReason::Untrusted(_)
        );
        if is_stranger && !self.outlives_stranger(attempt) {
            self.failure = Some(Failure::Refused(reason.to_string()));
            return;
        }
        if self.stopping {
            return;
        }
        self.io.outer.close_beside(attempt, &self.io.poller);
        let client = &mut self.role;
        client.resting.forget(attempt);
        if client.reconnection.is_connection(attempt) {
            client.ip_due = None;
            client.remote_ports.stripe_is_down(client.index);
            if let Some(host) = &client.ip {
                host.lost();
            }
        }
        let news = client
            .stripes
            .lock()
            .part(client.index, &mut client.reconnection, now, attempt, reason);
        if let Some(news) = news {
            client.server_shard = None;
            self.io.notify(news.into());
            self.neighbours.tell_all(|| ClientMessage::Probe);
        }
        self.carry_out_connect_actions(now);
    }

    /// Somebody with another key answers where the server was, or is said to be. A client that has been with its server
    /// goes on without that address, and says so: to end would send its traffic past the tunnel.
    fn outlives_stranger(&mut self, attempt: AttemptId) -> bool {
        let mut stripes = self.role.stripes.lock();
        let has_met_server = stripes.has_been_up();
        let server = self.role.reconnection.address_of(attempt);
        let server = server.filter(|_| has_met_server);
        let news = server.and_then(|server| stripes.stranger(server));
        drop(stripes);
        news.into_iter().for_each(|news| self.io.notify(news.into()));
        has_met_server
    }

    /// Path MTU that has settled at another value, and local connections that waited too long for the tunnel.
    fn tick(&mut self, now: Instant) {
        if let Some(mtu) = self.engine.path_mtu().filter(|_| self.role.is_up()) {
            let client = &mut self.role;
            let is_settled = std::mem::replace(&mut client.mtu_seen, mtu) == mtu;
            if is_settled && std::mem::replace(&mut client.mtu_settled, mtu) != mtu {
                let news = client.stripes.lock().path_settled(client.index, mtu);
                news.into_iter().for_each(|news| self.io.notify(news.into()));
            }
        }
        self.close_overdue(now);
        self.end_late_reaching(now);
        self.ask_for_ports(now);
    }

    /// ICMP says that nothing listens on the server's port: because the server has ended, or because a firewall rejects
    /// the carrier in use, and then the other one may reach it.
    pub(in crate::driver) fn server_port_is_closed(&mut self, now: Instant) {
        let silent = self
            .io
            .outer
            .heard
            .is_none_or(|heard| now.duration_since(heard) > limits::REFUSED_SILENCE);
        if silent && self.role.is_up() && self.role.reconnection.is_carrier_on_trial() {
            return self.leave_silent_carrier(now);
        }
        if silent && self.role.is_up() && self.carrier_is_refused(now) {
            return;
        }
        if silent || !self.role.is_up() {
            // What goes on beside it over the same carrier meets the same.
            self.role.reconnection.handle_answered();
            self.carry_out_connect_actions(now);
            self.role.set_reason(PORT_CLOSED);
            self.engine.disconnect(now);
        }
    }
}
