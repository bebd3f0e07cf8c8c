//! What a client's shards share of the device, and what the host's thread is to do about it.

use std::net::IpAddr;
use std::time::Instant;

use host::{HostChanges, HostError, Network};
use tunnel_proto::{LocalNetworks, Prefix, TunPlan};

use crate::driver::client::exceptions::Exceptions;
use crate::driver::client::local_networks;
use crate::driver::client::names::Names;
use crate::driver::client::ways::Ways;
use crate::driver::host_worker::{HostWorker, JobWaker};
use crate::driver::tun::retry::Retry;
use crate::driver::tun::setup::{Layer3, PresentRoutes, TunSetup, Wanted};
use crate::handle::Notice;

/// The device, what it has, and what it is to have.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) setup: TunSetup,
    /// Addresses and routes are to be handed to the host's thread.
    pub(super) is_layer3_due: bool,
    pub(super) is_mtu_due: bool,
    /// What stays outside the tunnel is to be handed over, or its rules are to be made again.
    pub(super) are_exceptions_due: bool,
    /// It has a kill switch.
    pub(super) has_default_route: bool,
    /// What the host refused is tried again.
    pub(super) retry: Retry,
    pub(super) exceptions: Exceptions,
    pub(super) changes: HostChanges,
    /// What the kill switch lets out, and whether the tunnel was up, is to be handed over.
    pub(super) is_kill_switch_due: bool,
    /// The server was met.
    pub(super) was_through: bool,
    /// The device has had addresses and routes.
    pub(super) is_set_up: bool,
    pub(super) ways: Ways,
    pub(super) plan: TunPlan,
    /// Asks for the networks of this machine.
    pub(super) network: Network,
    /// What this machine reaches past the tunnel, and how often that has changed.
    pub(super) local: LocalNetworks,
    pub(super) local_version: u64,
    /// The routes that the device has.
    pub(super) routes: Vec<Prefix>,
    /// The MTU that the device has.
    pub(super) mtu: u32,
    pub(super) announced: Option<Notice>,
    /// Counts changes of the routes.
    pub(super) routes_version: u64,
    pub(super) names: Names,
    /// Sets the device up, finds uplinks, and makes exception routes.
    pub(super) worker: HostWorker,
    /// Sets the name servers, which may take seconds.
    pub(super) name_worker: HostWorker,
}

impl Drop for Shared {
    /// Nothing is set any more while the host's changes are undone, and nobody waits for what would vanish at once.
    fn drop(&mut self) {
        self.worker.cancel();
        self.name_worker.cancel();
        // What fails stays on the list.
        let _ = self.changes.undo();
    }
}

impl Shared {
    /// Hands to the host's thread what is due; where it takes no more jobs, the next call does.
    pub(super) fn hand_over(&mut self, waker: Option<&JobWaker>) {
        let mtu = self.plan.mtu();
        self.is_mtu_due &= mtu.is_some();
        if self.is_layer3_due || self.is_mtu_due || self.are_exceptions_due {
            let layer3 = self.is_layer3_due.then(|| Layer3 {
                addresses: self.plan.addresses().to_vec(),
                routes: self.plan.routes(),
            });
            let exceptions = self.are_exceptions_due.then(|| self.exceptions.list());
            let exceptions = exceptions.map(|list| list.into_iter().map(|one| one.prefix).collect());
            let wanted = Wanted {
                mtu,
                layer3,
                exceptions,
            };
            if self.setup.apply(wanted, &self.worker, waker) {
                (self.is_layer3_due, self.is_mtu_due) = (false, false);
                self.are_exceptions_due = false;
            }
        }
        self.update_kill_switch();
    }

    fn update_kill_switch(&mut self) {
        if !(self.is_kill_switch_due && self.has_default_route) {
            return;
        }
        let changes = self.changes.clone();
        let (list, was_through) = (self.exceptions.list(), self.was_through);
        let is_taken = self.worker.run(move || {
            let error = changes.set_kill_switch(list, was_through).err()?;
            Some(Notice::Warning {
                text: error.to_string(),
            })
        });
        self.is_kill_switch_due = !is_taken;
    }

    /// Takes up what the host's thread has done with the device.
    pub(super) fn take_reports(&mut self, now: Instant) -> Result<(), HostError> {
        while let Some(present) = self.setup.poll() {
            let present = match present {
                Ok(present) => present,
                // What the device has had protects on.
                Err(error) if self.is_set_up || self.has_default_route => {
                    self.plan.warn(error.to_string());
                    self.retry.failed(now);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if std::mem::replace(&mut self.mtu, present.mtu) != present.mtu {
                self.plan.mark_changed(now);
            }
            let Some(PresentRoutes {
                routes,
                has_addresses,
                warnings,
            }) = present.routes
            else {
                continue;
            };
            self.is_set_up |= has_addresses;
            if has_addresses {
                self.names.begin(now);
            }
            if !warnings.is_empty() {
                self.retry.failed(now);
            } else if has_addresses || !self.wants_layer3() {
                self.retry.succeeded();
            }
            if routes != self.routes {
                self.plan.mark_changed(now);
                self.routes_version += 1;
                self.routes = routes;
            }
            warnings.into_iter().for_each(|text| self.plan.warn(text));
        }
        Ok(())
    }

    /// When it is time, what the host refused is handed over again.
    pub(super) fn retry_refused(&mut self, now: Instant) {
        if self.retry.take_due(now) {
            self.is_layer3_due |= self.wants_layer3();
            self.are_exceptions_due |= self.has_default_route;
        }
    }

    /// The device has, or should have, addresses and routes.
    fn wants_layer3(&self) -> bool {
        self.is_set_up || !self.plan.addresses().is_empty()
    }

    /// Looks which networks are near and local.
    pub(super) fn follow_network(&mut self) {
        match self.exceptions.follow_network(&mut self.network) {
            Ok(is_new) => self.exceptions_changed(is_new, false),
            Err(error) => self.plan.warn(error.to_string()),
        }
        self.find_local_networks();
    }

    /// Where the kernel does not answer, the next news may be better.
    fn find_local_networks(&mut self) {
        let own = self.names.own();
        let found = local_networks::find(&mut self.network, self.index, &self.local.excluded, &own);
        let Ok(mut local) = found else { return };
        if self.has_default_route {
            // Those of the machine are replaced by the tunnel's.
            local.resolvers.clone_from(&self.local.resolvers);
        }
        if local != self.local {
            self.plan.set_local(&local);
            self.local = local;
            self.local_version += 1;
        }
    }

    pub(super) fn must_bind(&self, server: IpAddr) -> bool {
        !self.has_default_route && self.plan.leads_into_tun(server)
    }

    /// Routing and kill switch follow the list of exceptions; the kill switch also the tunnel's first time up.
    pub(super) fn exceptions_changed(&mut self, is_list_new: bool, is_first_up: bool) {
        self.are_exceptions_due |= is_list_new && self.has_default_route;
        self.is_kill_switch_due |= is_list_new || is_first_up;
    }

    pub(super) fn notice(&self) -> Notice {
        Notice::Tun {
            name: self.name.clone(),
            addresses: self.plan.addresses().iter().map(Prefix::address).collect(),
            routes: self.routes.clone(),
            mtu: Some(self.mtu),
        }
    }
}
