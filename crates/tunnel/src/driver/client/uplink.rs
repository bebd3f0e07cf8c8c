//! A client's carriers, kept on the uplink where a route through the tunnel would lead them into it.

use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Instant;

use host::Uplink;
use packet::CarrierKind;
use packet_io::InterfaceName;
use tunnel_proto::PathNews;

use super::{Client, ClientSource};
use crate::carrier::Carrier;
use crate::driver::sources::SourceId;
use crate::driver::{Shard, outer};

/// How a shard's outer socket leaves this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) struct UplinkBinding {
    pub(super) uplink: Uplink,
    /// The socket is bound to the uplink's interface.
    pub(super) is_bound: bool,
}

impl UplinkBinding {
    /// The interface that the socket is to be bound to, where it is.
    pub(in crate::driver) fn interface(&self) -> Option<InterfaceName> {
        self.uplink.name.parse().ok().filter(|_| self.is_bound)
    }
}

impl Shard<Client> {
    /// After a move to another local address, or only to another port, at which nothing was heard in time: the server
    /// may have forgotten the connection, so that attempts begin beside it.
    pub(super) fn judge_move(&mut self, now: Instant) {
        let client = &mut self.role;
        if client.moved.handle_timeout(now, self.io.outer.heard) {
            if client.reconnection.is_carrier_on_trial() {
                return self.leave_silent_carrier(now);
            }
            if client.knows.is_cover() {
                // Without connection IDs no attempt can be made at the same address beside it.
                client.set_reason("no answer");
                self.engine.disconnect(now);
                return;
            }
            client.reconnection.handle_silence(now);
            self.carry_out_connect_actions(now);
        }
    }

    /// A path that has died in silence is left for a new local port, which a router on the way takes for another flow.
    pub(super) fn watch_path(&mut self, now: Instant) {
        let client = &mut self.role;
        let Some(server) = client.server_address().filter(|_| client.is_up()) else {
            return;
        };
        let Some(activity) = self.engine.path_activity() else {
            return;
        };
        if client.reconnection.is_in_doubt() {
            if client.path_watch.has_answered(activity) {
                client.reconnection.handle_answered();
                self.carry_out_connect_actions(now);
            }
            return;
        }
        match client.path_watch.look(now, activity) {
            Some(PathNews::Dead) => {
                let binding = client.uplink.clone();
                if let Ok(carrier) = self.carrier_to(server, binding.as_ref()) {
                    self.move_to(now, carrier);
                }
            }
            Some(PathNews::Answered) => self.carrier_answers(now),
            Some(PathNews::Silent) => self.carrier_is_silent(now),
            Some(PathNews::Paused) => self.carrier_pauses(now),
            None => {}
        }
    }

    /// The connection goes on over another carrier; whether it could be put in place.
    pub(super) fn move_to(&mut self, now: Instant, carrier: Box<dyn Carrier>) -> bool {
        if self.use_carrier(carrier).is_err() {
            return false;
        }
        self.engine.local_address_changed();
        self.more_to_send = self.flush_outer(now);
        let round_trip = self.engine.round_trip();
        self.role.path_watch.forget();
        let carrier = self.role.reconnection.carrier();
        let kind = carrier.map_or(CarrierKind::Udp, |(kind, _)| kind);
        let has_way_back = self.role.reconnection.is_carrier_on_trial();
        self.role.moved.begin(now, kind, round_trip, has_way_back);
        true
    }

    /// News of links, addresses and routes.
    pub(in crate::driver) fn uplink_news(&mut self, now: Instant, id: SourceId) {
        let Some(ClientSource::Monitor(monitor)) = self.sources.get_mut(id) else {
            return;
        };
        let changes = monitor.drain();
        if changes.any() {
            let client = &self.role;
            match &client.ip {
                Some(host) => {
                    host.network_changed(changes.made_by_us);
                    self.follow_uplink(now);
                }
                None => self.follow_routes(now),
            }
        }
    }

    /// Without a TUN of ours the routes decide: where they lead to the server from another local address, the
    /// connection moves there.
    fn follow_routes(&mut self, now: Instant) {
        let client = &self.role;
        let Some(server) = client.server_address().filter(|_| client.is_up()) else {
            return;
        };
        // Where nothing leads there, the next news may be better.
        let Ok(carrier) = self.carrier_to(server, None) else {
            return;
        };
        let present = self.io.outer.carrier().and_then(|carrier| carrier.local_addr());
        let ip = |local: Option<SocketAddr>| local.map(|local| local.ip());
        if ip(carrier.local_addr()) != ip(present) {
            self.forget_carriers(now);
            self.move_to(now, carrier);
        }
    }

    /// Puts the carrier where packets to the server leave at present. The connection migrates (RFC 9000 section
    /// 9); where nothing is heard on the new path soon, another one is made. A race begins anew.
    pub(super) fn follow_uplink(&mut self, now: Instant) {
        let Some(host) = self.role.ip.clone() else { return };
        self.bind_to_uplink();
        let client = &mut self.role;
        let used = client.server_address();
        let raced = self.io.outer.beside.oldest();
        let followed = used.or(raced.map(|raced| raced.remote));
        let Some(server) = followed else { return };
        if !client.waiting_attempts.is_empty() {
            client.follows_uplink = true;
            return;
        }
        let binding = match host.poll_way(server.ip()) {
            Poll::Pending => {
                client.follows_uplink = true;
                return;
            }
            // Where nothing leads to the server, the old way is as good as any until something does.
            Poll::Ready(None) => return,
            Poll::Ready(Some(binding)) => binding,
        };
        if used.is_some() {
            return self.follow(now, server, binding);
        }
        let before = raced.and_then(|raced| raced.uplink.as_ref());
        if before.is_some_and(|before| before.uplink != binding.uplink) {
            client.reconnection.handle_network_changed(now);
            self.carry_out_connect_actions(now);
        }
    }

    fn follow(&mut self, now: Instant, server: SocketAddr, binding: UplinkBinding) {
        let client = &mut self.role;
        let before = client.uplink.as_ref();
        if before == Some(&binding) {
            return;
        }
        if before.is_some_and(|before| before.uplink == binding.uplink) {
            // Only who decides on the interface is another.
            if let Some(carrier) = self.io.outer.carrier() {
                carrier.set_interface(binding.interface());
            }
            client.uplink = Some(binding);
            return;
        }
        // Where it fails, the next news finds the old way in place and tries again.
        let Ok(carrier) = self.carrier_to(server, Some(&binding)) else {
            return;
        };
        if self.move_to(now, carrier) {
            self.role.uplink = Some(binding);
            self.forget_carriers(now);
        }
    }

    /// Where routes of the TUN lead to the server, packets keep to the uplink as it is known, before those routes are
    /// made.
    fn bind_to_uplink(&mut self) {
        let client = &mut self.role;
        let host = client.ip.clone();
        let into_tun = |server: SocketAddr| host.as_ref().is_some_and(|host| host.must_bind(server.ip()));
        for beside in self.io.outer.beside.iter_mut() {
            if into_tun(beside.remote)
                && let Some(uplink) = &mut beside.uplink
            {
                uplink.is_bound = true;
                beside.carrier.set_interface(uplink.interface());
            }
        }
        let is_led_there = client.server_address().is_some_and(into_tun);
        let Some(known) = client
            .uplink
            .as_mut()
            .filter(|known| is_led_there && !known.is_bound)
        else {
            return;
        };
        known.is_bound = true;
        if let Some(carrier) = self.io.outer.carrier() {
            carrier.set_interface(known.interface());
        }
    }

    /// A new carrier towards the server.
    pub(in crate::driver) fn carrier_to(
        &self,
        server: SocketAddr,
        binding: Option<&UplinkBinding>,
    ) -> io::Result<Box<dyn Carrier>> {
        let options = packet_io::SocketOptions {
            interface: binding.and_then(UplinkBinding::interface),
            mark: self.role.mark(),
            ..outer::options(&self.io.common)
        };
        let local = self.role.bind_address();
        self.role.carriers.connect(local, server, &options)
    }
}
