//! A client's TUN: addresses and routes as the server gives them, the MTU that the paths carry, name servers.
//!
//! The shards share one device ([`SharedHost`]); each asks it by a handle of its own ([`ClientHost`]).

mod start;
mod state;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Instant;

use host::{HostChanges, Network};
use packet_io::Waker;
use tunnel_proto::{Acceptance, Assignment, LocalNetworks};

use super::uplink::UplinkBinding;
use super::ways::Question;
use crate::driver::host_worker::JobWaker;
use crate::driver::resolver::{OwnNameServers, Way};
use crate::driver::tun::device::failure;
use crate::handle::{Failure, Notice};
use crate::snapshot::NamesSnapshot;
use state::Shared;

/// What a client's shards share of the device; it is asked when something changes, and never by packets.
pub(in crate::driver) struct SharedHost {
    shared: Arc<Mutex<Shared>>,
    /// What is taken of the server, by the networks that this machine has at the start.
    acceptance: Acceptance,
}

/// The same as one shard asks it.
#[derive(Clone)]
pub(in crate::driver) struct ClientHost {
    shared: Arc<Mutex<Shared>>,
    shard: usize,
    waker: JobWaker,
}

impl SharedHost {
    /// What the engine takes of the server.
    pub(in crate::driver) fn acceptance(&self) -> Acceptance {
        self.acceptance.clone()
    }

    /// Index of the device.
    pub(in crate::driver) fn index(&self) -> u32 {
        lock(&self.shared).index
    }

    /// Ends the kill switch, where there is one.
    pub(in crate::driver) fn kill_switch(&self) -> Option<HostChanges> {
        let state = lock(&self.shared);
        state.has_default_route.then(|| state.changes.clone())
    }

    /// How packets leave that are not for the device.
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub(in crate::driver) fn way(&self) -> Result<Way, Failure> {
        let network = Network::open().map_err(|error| failure(&error))?;
        Ok(Way::beside(network, self.index()))
    }

    /// The name servers that the device brings, which lie behind the tunnel.
    pub(in crate::driver) fn own_name_servers(&self) -> OwnNameServers {
        lock(&self.shared).names.own()
    }

    pub(in crate::driver) fn of_shard(&self, shard: usize, waker: Waker) -> ClientHost {
        ClientHost {
            shared: Arc::clone(&self.shared),
            shard,
            waker: JobWaker::new(waker),
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Each call leaves it whole; a shard that panicked ends the process anyway.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientHost {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// Name and MTU of the device, and the name servers that it brings.
    pub(in crate::driver) fn device(&self) -> (String, u32, Option<NamesSnapshot>) {
        let state = self.lock();
        (state.name.clone(), state.mtu, state.names.snapshot())
    }

    /// Changes whenever the device's routes do.
    pub(super) fn routes_version(&self) -> u64 {
        self.lock().routes_version
    }

    /// Whether a route of the device leads to the server.
    pub(super) fn leads_into_tun(&self, server: IpAddr) -> bool {
        self.lock().plan.leads_into_tun(server)
    }

    /// Whether the shard's socket has to keep to the uplink for that: rules do not do it, because the routes are in the
    /// main table.
    pub(super) fn must_bind(&self, server: IpAddr) -> bool {
        self.lock().must_bind(server)
    }

    /// The server was met at this address, which stays outside the tunnel from now on. An address that only a name
    /// server told does not: on a hostile network it could be anybody's.
    pub(super) fn met_server(&self, address: IpAddr) {
        let state = &mut *self.lock();
        let is_first = !std::mem::replace(&mut state.was_through, true);
        let is_new = state.exceptions.meet(address);
        state.exceptions_changed(is_new, is_first);
        state.hand_over(Some(&self.waker));
    }

    /// How the shard's packets to the server leave at present, with the exception route that they need, once the host's
    /// thread has found out; `None` where they cannot.
    pub(super) fn poll_way(&self, server: IpAddr) -> Poll<Option<UplinkBinding>> {
        let state = &mut *self.lock();
        let is_bound = state.must_bind(server);
        let question = Question {
            server,
            leads_into_tun: is_bound,
        };
        let polled = state.ways.poll(self.shard, question, &state.worker, &self.waker);
        polled.map(|answer| {
            answer.warning.into_iter().for_each(|text| state.plan.warn(text));
            answer.uplink.map(|uplink| UplinkBinding { uplink, is_bound })
        })
    }

    /// The network has changed: the way may be another one, and other networks near or local. With `has_lost_ours`,
    /// somebody else has perhaps removed rules or routes that this program made.
    pub(super) fn network_changed(&self, has_lost_ours: bool) {
        let state = &mut *self.lock();
        state.ways.forget(self.shard);
        // Every shard hears the same; one is enough for what they share.
        if self.shard == 0 {
            state.are_exceptions_due |= has_lost_ours && state.has_default_route;
            state.follow_network();
            state.hand_over(Some(&self.waker));
        }
    }

    /// What this machine reaches past the tunnel, where that has changed since `seen`.
    pub(super) fn local_since(&self, seen: &mut u64) -> Option<LocalNetworks> {
        let state = self.lock();
        let has_changed = std::mem::replace(seen, state.local_version) != state.local_version;
        has_changed.then(|| state.local.clone())
    }

    /// The stripe got addresses and routes: the device follows. What to tell.
    pub(super) fn assigned(
        &self,
        now: Instant,
        assignment: &Assignment,
        packet_max: Option<usize>,
    ) -> Vec<Notice> {
        let mut state = self.lock();
        state
            .plan
            .handle_assigned(now, self.shard, assignment, packet_max);
        state.is_layer3_due = true;
        let Shared { names, plan, .. } = &mut *state;
        names.offer(now, &assignment.name_servers, plan.addresses());
        state.hand_over(Some(&self.waker));
        let warnings = std::iter::from_fn(|| state.plan.poll_warning());
        warnings.map(|text| Notice::Warning { text }).collect()
    }

    /// Whether the host's thread has done something for the shard since this was last asked.
    pub(super) fn take_done(&self) -> bool {
        self.waker.take_done()
    }

    /// Has this told once, however often it is said.
    pub(super) fn warn(&self, text: String) {
        self.lock().plan.warn(text);
    }

    /// Whether the stripe may ask for a session.
    pub(super) fn may_ask(&self) -> bool {
        self.lock().plan.may_ask(self.shard)
    }

    /// The stripe's session is over, or did not come about.
    pub(in crate::driver) fn lost(&self) {
        self.lock().plan.handle_lost(self.shard);
    }

    /// The stripe's longest packet: the device's MTU is the shortest of all. What has changed and settled is told, and
    /// what the host's thread has to tell.
    ///
    /// # Errors
    /// The host refuses the addresses.
    pub(super) fn follow(&self, now: Instant, packet_max: Option<usize>) -> Result<Option<Notice>, Failure> {
        let mut state = self.lock();
        state.is_mtu_due |= state.plan.set_packet_max(self.shard, packet_max);
        state.take_reports(now).map_err(|error| failure(&error))?;
        state.retry_refused(now);
        state.hand_over(Some(&self.waker));
        let Shared {
            names,
            name_worker,
            worker,
            ..
        } = &mut *state;
        let told = names.follow(now, name_worker).or_else(|| worker.poll_notice());
        let told = told.or_else(|| {
            let text = state.plan.poll_warning()?;
            Some(Notice::Warning { text })
        });
        if told.is_some() || !state.is_set_up || !state.plan.take_settled(now) {
            return Ok(told);
        }
        let notice = state.notice();
        if state.announced.as_ref() == Some(&notice) {
            return Ok(None);
        }
        state.announced = Some(notice.clone());
        Ok(Some(notice))
    }
}
