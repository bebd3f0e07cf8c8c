//! The IP session of a client's shard: when it is asked for, and what becomes of it.

use std::time::Instant;

use tunnel_proto::{Assignment, ProxyError};

use super::Client;
use crate::driver::Shard;
use crate::handle::{Failure, Notice};
use crate::limits;

impl Shard<Client> {
    /// The server told addresses and routes.
    pub(in crate::driver) fn assigned(&mut self, now: Instant, assignment: Assignment) {
        let Some(host) = self.role.ip.clone() else { return };
        let packet_max = self.engine.packet_max_at_most();
        let notices = host.assigned(now, &assignment, packet_max);
        notices.into_iter().for_each(|notice| self.io.notify(notice));
        self.watch_tun(!assignment.addresses.is_empty());
        // A route of the tunnel may lead to the server itself.
        self.follow_uplink(now);
    }

    /// The session is over. Where the connection has not ended with it, it is asked for again.
    pub(in crate::driver) fn ip_lost(&mut self, now: Instant) {
        self.role.ip_due = Some(now + limits::IP_RETRY);
        if let Some(host) = self.role.ip.clone() {
            host.lost();
            self.watch_tun(false);
        }
    }

    /// The server refused the session: for now, or for good.
    pub(in crate::driver) fn ip_refused(&mut self, now: Instant, status: u16, error: Option<ProxyError>) {
        let client = &mut self.role;
        let text = match (status, error) {
            (503, Some(ProxyError::ConnectionLimitReached)) => {
                "the server has no address left for the TUN (its owner can give it a larger --pool); retrying"
                    .to_owned()
            }
            (503, _) => "the server takes no new TUN at present; retrying".to_owned(),
            (404 | 501, _) => {
                "the server does not carry IP packets: its owner can start it with `gramway up --tun`"
                    .to_owned()
            }
            _ => format!("the server refused the TUN (HTTP status {status})"),
        };
        if status == 503 {
            client.ip_due = Some(now + limits::IP_RETRY);
        } else if client.carries_only_ip {
            self.failure.get_or_insert(Failure::Unavailable(text));
            return;
        }
        match &client.ip {
            // Told once, however often the server says it.
            Some(host) => host.warn(text),
            None => self.io.notify(Notice::Warning { text }),
        }
    }

    /// What a client with a TUN does every now and then.
    pub(in crate::driver) fn client_ip_turn(&mut self, now: Instant) {
        let Some(host) = self.role.ip.clone() else { return };
        if let Some(local) = host.local_since(&mut self.role.local_seen) {
            self.engine.set_local(&local);
        }
        let is_due = self.role.ip_due.is_some_and(|due| due <= now);
        if is_due && host.may_ask() {
            self.role.ip_due = None;
            self.engine.ask_for_ip(now);
        }
        self.resume_attempts(now);
        let version = host.routes_version();
        let is_due = std::mem::take(&mut self.role.follows_uplink);
        if std::mem::replace(&mut self.role.routes_seen, version) != version || is_due {
            self.follow_uplink(now);
        }
        let packet_max = self.engine.packet_max_at_most();
        match host.follow(now, packet_max) {
            Ok(notice) => notice.into_iter().for_each(|notice| self.io.notify(notice)),
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}
