//! Making the device, before the shards run.

use std::sync::{Arc, Mutex};

use host::Network;
use tunnel_proto::{Acceptance, TunPlan};

use super::SharedHost;
use super::state::Shared;
use crate::config::ClientTun;
use crate::driver::client::exceptions::Exceptions;
use crate::driver::client::local_networks;
use crate::driver::client::names::Names;
use crate::driver::client::ways::Ways;
use crate::driver::host_worker::HostWorker;
use crate::driver::tun::device::{Device, failure};
use crate::driver::tun::end::TunEnd;
use crate::driver::tun::retry::Retry;
use crate::driver::tun::setup::TunSetup;
use crate::handle::{Failure, Notice};

impl SharedHost {
    /// Makes the device; it is down until the server gives it an address. With a default route everything is
    /// unreachable until then, but for marked packets, exceptions, and the addresses among `servers`; and nothing else
    /// leaves.
    ///
    /// # Errors
    /// The [`Failure`] that names what is missing.
    pub(in crate::driver) fn start(
        settings: &ClientTun,
        servers: &[(String, u16)],
        shards: usize,
    ) -> Result<(Self, Vec<TunEnd>, Vec<Notice>), Failure> {
        let mut device = Device::open(
            settings.name.as_deref(),
            shards,
            settings.offloads,
            settings.flood_limit.as_ref(),
            false,
            &settings.changes,
        )?;
        let mut own_network = Network::open().map_err(|error| failure(&error))?;
        let exceptions = Exceptions::new(settings, device.index, servers, &mut own_network)
            .map_err(|error| failure(&error))?;
        // It stands before any route is touched.
        let mut notices = Vec::new();
        if settings.default_route {
            let started = settings
                .changes
                .start_kill_switch(exceptions.list(), settings.kill_switch)
                .and_then(|()| settings.changes.start_default_route());
            let warnings = started.map_err(|error| failure(&error))?;
            notices.extend(warnings.into_iter().map(|text| Notice::Warning { text }));
        }
        for end in &mut device.ends {
            // Flows go to the queues of stripes that are up.
            end.queue
                .detach()
                .map_err(|error| Failure::Unavailable(format!("the TUN device fails: {error}")))?;
        }
        let worker = || {
            HostWorker::start()
                .map_err(|error| Failure::Unavailable(format!("no thread for the host: {error}")))
        };
        let network = Network::open().map_err(|error| failure(&error))?;
        let names = Names::new(settings);
        let mut acceptance = Acceptance::new(settings.routes.clone(), settings.default_route);
        let local = local_networks::find(&mut own_network, device.index, &settings.exclude, &names.own())
            .map_err(|error| failure(&error))?;
        acceptance.set_local(&local);
        let mut state = Shared {
            name: device.name,
            index: device.index,
            setup: TunSetup::new(settings.changes.clone(), 0, settings.default_route),
            is_layer3_due: false,
            is_mtu_due: false,
            are_exceptions_due: settings.default_route,
            has_default_route: settings.default_route,
            retry: Retry::default(),
            exceptions,
            changes: settings.changes.clone(),
            is_kill_switch_due: false,
            was_through: false,
            is_set_up: false,
            ways: Ways::new(network, device.index, settings.changes.clone(), shards),
            plan: TunPlan::new(shards, acceptance.clone()),
            network: own_network,
            local,
            local_version: 0,
            routes: Vec::new(),
            mtu: 0,
            announced: None,
            routes_version: 0,
            names,
            worker: worker()?,
            name_worker: worker()?,
        };
        state.hand_over(None);
        let host = Self {
            shared: Arc::new(Mutex::new(state)),
            acceptance,
        };
        Ok((host, device.ends, notices))
    }
}
