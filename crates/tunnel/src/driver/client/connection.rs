//! A client's connection to the server from this shard, its stripe, which is made again whenever it is lost.

use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::{Duration, Instant};

use quic::{CloseReason, ConnectError};
use tunnel_proto::limits::PATH_WATCH_INTERVAL;
use tunnel_proto::{ConnectAction, Deliver, ServerShard, Welcome};

use super::uplink::UplinkBinding;
use super::{Client, ClientMessage};
use crate::driver::Shard;
use crate::driver::resolver::Answer;
use crate::handle::{Failure, Notice};
use crate::limits;

/// Why an address cannot be tried.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    /// The kernel refuses the socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// QUIC refuses the name or the address.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Shard<Client> {
    pub(in crate::driver) fn client_turn(&mut self, now: Instant) {
        if let Some(heard) = self.io.outer.heard {
            self.role.reconnection.handle_heard(heard);
        }
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
        if self.role.next_tick <= now {
            self.role.next_tick = now + limits::TICK;
            self.tick(now);
        }
    }

    pub(in crate::driver) fn server_resolved(&mut self, now: Instant, answer: &Answer) {
        let reconnection = &mut self.role.reconnection;
        let addresses = answer.found.as_deref().unwrap_or_default();
        reconnection.handle_resolved(now, answer.purpose, addresses);
        self.carry_out_connect_actions(now);
    }

    /// Does what [`Reconnection`] decided.
    fn carry_out_connect_actions(&mut self, now: Instant) {
        while let Some(action) = self.role.reconnection.poll_action() {
            match action {
                ConnectAction::Resolve {
                    resolution,
                    host,
                    port,
                } => self.io.resolver.ask(resolution, &host, port),
                ConnectAction::Connect { address, server_name } => self.attempt(now, address, server_name),
                ConnectAction::Disconnect => match self.role.waiting_attempt.take() {
                    // There is nothing to disconnect.
                    Some(_) => self.role.reconnection.handle_lost(now, None),
                    None => self.engine.disconnect(now),
                },
                ConnectAction::Unreachable { reason } => {
                    let news = self.role.stripes.lock().unreachable(reason);
                    news.into_iter().for_each(|news| self.io.notify(news.into()));
                }
            }
        }
    }

    /// Begins an attempt, or lets it wait for the way that it takes.
    fn attempt(&mut self, now: Instant, address: SocketAddr, server_name: String) {
        let client = &mut self.role;
        let binding = match client.ip.as_ref().map(|host| host.poll_way(address.ip())) {
            Some(Poll::Pending) => {
                client.waiting_attempt = Some((address, server_name));
                return;
            }
            // Through the tunnel it would wait for itself.
            Some(Poll::Ready(None)) if client.leads_into_tun(address.ip()) => {
                let reason = "nothing but the tunnel leads to it".to_owned();
                client.reconnection.handle_attempt_failed(now, reason);
                return;
            }
            Some(Poll::Ready(binding)) => binding,
            None => None,
        };
        if let Err(error) = self.begin_attempt(now, address, &server_name, binding) {
            let reason = error.to_string();
            self.role.reconnection.handle_attempt_failed(now, reason);
        }
    }

    /// Begins the attempt that waits for its way, where that is known.
    pub(super) fn resume_attempt(&mut self, now: Instant) {
        if let Some((address, server_name)) = self.role.waiting_attempt.take() {
            self.attempt(now, address, server_name);
            self.carry_out_connect_actions(now);
        }
    }

    fn begin_attempt(
        &mut self,
        now: Instant,
        address: SocketAddr,
        server_name: &str,
        binding: Option<UplinkBinding>,
    ) -> Result<(), AttemptError> {
        let carrier = self.carrier_to(address, binding.as_ref())?;
        // The carrier itself is asked where it knows: a route to the server may lead into the TUN.
        let mtu = carrier.path_mtu();
        let client = &mut self.role;
        client.uplink = binding;
        client.moved.forget();
        client.path_watch.forget();
        self.use_carrier(carrier)?;
        let ceiling = match mtu {
            Some(mtu) => self.delivery.udp_payload_max(address, mtu),
            None => self.delivery.udp_payload_ceiling(address),
        };
        let pin = self.role.pin;
        self.engine.connect(now, address, server_name, pin, ceiling)?;
        Ok(())
    }

    pub(in crate::driver) fn tunnel_is_up(
        &mut self,
        now: Instant,
        rtt: Duration,
        shard: Option<ServerShard>,
    ) {
        let payload_unsplit = self.engine.payload_unsplit().unwrap_or(0);
        let client = &mut self.role;
        let welcome = client.stripes.lock().welcome(
            client.index,
            &mut client.reconnection,
            shard,
            rtt,
            payload_unsplit,
        );
        let Welcome::Stays { arrival, is_again } = welcome else {
            // The server is to know before the next attempt begins.
            self.engine.disconnect(now);
            self.flush_outer(now);
            return;
        };
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

    pub(in crate::driver) fn tunnel_lost(&mut self, now: Instant, reason: &CloseReason) {
        if *reason == CloseReason::WrongPin && !self.outlives_stranger() {
            self.failure = Some(Failure::Refused(reason.to_string()));
            return;
        }
        if self.stopping {
            return;
        }
        let client = &mut self.role;
        client.ip_due = None;
        if let Some(host) = &client.ip {
            host.lost();
        }
        let news = client
            .stripes
            .lock()
            .part(client.index, &mut client.reconnection, now, reason);
        if let Some(news) = news {
            client.server_shard = None;
            self.io.notify(news.into());
            self.neighbours.tell_all(|| ClientMessage::Probe);
        }
        self.carry_out_connect_actions(now);
    }

    /// Somebody with another key answers where the server was, or is said to be. A client that has been with its server
    /// goes on without that address, and says so: to end would send its traffic past the tunnel.
    fn outlives_stranger(&mut self) -> bool {
        let mut stripes = self.role.stripes.lock();
        let has_met_server = stripes.has_been_up();
        let server = self.role.server_address().filter(|_| has_met_server);
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
    }

    /// ICMP says that nothing listens on the server's port.
    pub(in crate::driver) fn server_port_is_closed(&mut self, now: Instant) {
        let silent = self
            .io
            .outer
            .heard
            .is_none_or(|heard| now.duration_since(heard) > limits::REFUSED_SILENCE);
        if silent || !self.role.is_up() {
            self.role.set_reason("nothing listens on its port");
            self.engine.disconnect(now);
        }
    }
}
