//! The TUN device gets its MTU, and a client's its addresses and routes, from the host's thread: a thousand routes
//! take the kernel longer than packets should wait.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use host::{DefaultRoute, HostError, Network, Route};
use tunnel_proto::Prefix;

use super::host_prefix;
use crate::driver::host_worker::{HostWorker, JobWaker};

/// What the device should have.
#[derive(Default)]
pub(in crate::driver) struct Wanted {
    /// Bytes; `None`: as it is.
    pub(in crate::driver) mtu: Option<u32>,
    /// `None`: as they are.
    pub(in crate::driver) layer3: Option<Layer3>,
    /// What a default route leaves outside the tunnel; `None`: as it is.
    pub(in crate::driver) exceptions: Option<Vec<host::Prefix>>,
}

/// Addresses and routes.
pub(in crate::driver) struct Layer3 {
    pub(in crate::driver) addresses: Vec<Prefix>,
    pub(in crate::driver) routes: Vec<Prefix>,
}

/// What the device has.
#[derive(Debug)]
pub(in crate::driver) struct Present {
    /// Bytes.
    pub(in crate::driver) mtu: u32,
    /// `None`: as they were.
    pub(in crate::driver) routes: Option<PresentRoutes>,
}

/// The routes of a device.
#[derive(Debug)]
pub(in crate::driver) struct PresentRoutes {
    pub(in crate::driver) routes: Vec<Prefix>,
    /// The device has got the addresses that were wanted.
    pub(in crate::driver) has_addresses: bool,
    /// Routes that were refused, and why.
    pub(in crate::driver) warnings: Vec<String>,
}

/// The way to the device.
pub(in crate::driver) struct TunSetup {
    /// Locked by the host's thread alone.
    device: Arc<Mutex<Device>>,
    report: mpsc::Sender<Result<Present, HostError>>,
    reports: mpsc::Receiver<Result<Present, HostError>>,
}

struct Device {
    network: Network,
    index: u32,
    mtu: u32,
    routes: Vec<Prefix>,
    /// Where routes go into a table of our own; `None`: into the main table.
    default_route: Option<DefaultRoute>,
    exceptions: Vec<host::Prefix>,
}

impl TunSetup {
    /// The device of this index, whose MTU is `mtu` bytes; 0 where that does not matter. With `default_route` its
    /// routes go there, else into the main table.
    pub(in crate::driver) fn new(
        network: Network,
        index: u32,
        mtu: u32,
        default_route: Option<DefaultRoute>,
    ) -> Self {
        let (report, reports) = mpsc::channel();
        let device = Device {
            network,
            index,
            mtu,
            routes: Vec::new(),
            default_route,
            exceptions: Vec::new(),
        };
        Self {
            device: Arc::new(Mutex::new(device)),
            report,
            reports,
        }
    }

    /// Has `worker` give the device what is wanted; [`Self::poll`] tells what came of it. The shard is
    /// woken then, where it waits for that. False where the worker takes no more jobs.
    pub(in crate::driver) fn apply(
        &self,
        wanted: Wanted,
        worker: &HostWorker,
        waker: Option<&JobWaker>,
    ) -> bool {
        let (device, report) = (Arc::clone(&self.device), self.report.clone());
        let job = move || {
            let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
            // At the end nobody listens.
            let _ = report.send(device.apply(&wanted));
            None
        };
        match waker {
            Some(waker) => worker.run_and_wake(waker, job),
            None => worker.run(job),
        }
    }

    /// What the device has after the next of the jobs.
    ///
    /// # Errors
    /// The host refuses the addresses.
    pub(in crate::driver) fn poll(&self) -> Option<Result<Present, HostError>> {
        self.reports.try_recv().ok()
    }
}

impl Device {
    fn apply(&mut self, wanted: &Wanted) -> Result<Present, HostError> {
        if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != self.mtu)
            && self.network.set_mtu(self.index, mtu).is_ok()
        {
            self.mtu = mtu;
        }
        if let Some(exceptions) = &wanted.exceptions {
            self.exceptions.clone_from(exceptions);
        }
        let routes = match &wanted.layer3 {
            Some(layer3) => {
                self.set_addresses(&layer3.addresses)?;
                Some(self.set_routes(&layer3.routes, true)?)
            }
            None if wanted.exceptions.is_some() => {
                let routes = self.routes.clone();
                Some(self.set_routes(&routes, false)?)
            }
            None => None,
        };
        Ok(Present {
            mtu: self.mtu,
            routes,
        })
    }

    fn set_addresses(&mut self, wanted: &[Prefix]) -> Result<(), HostError> {
        self.network.set_up(self.index, true)?;
        let addresses: Vec<host::Prefix> = wanted.iter().filter_map(host_prefix).collect();
        self.network.replace_addresses(self.index, &addresses)
    }

    fn set_routes(&mut self, wanted: &[Prefix], has_addresses: bool) -> Result<PresentRoutes, HostError> {
        let warnings = match &self.default_route {
            Some(route) => {
                let into_tun: Vec<host::Prefix> = wanted.iter().filter_map(host_prefix).collect();
                let refused = route.set(&mut self.network, &into_tun, &self.exceptions)?;
                let is_refused = |prefix: &Prefix| {
                    let prefix = host_prefix(prefix).map(|prefix| prefix.network());
                    refused
                        .iter()
                        .any(|(destination, _)| Some(*destination) == prefix)
                };
                self.routes = wanted
                    .iter()
                    .filter(|prefix| !is_refused(prefix))
                    .copied()
                    .collect();
                refused.into_iter().map(|(_, error)| error.to_string()).collect()
            }
            None => self.set_main_routes(wanted)?,
        };
        Ok(PresentRoutes {
            routes: self.routes.clone(),
            has_addresses,
            warnings,
        })
    }

    /// Why routes of the main table were refused.
    fn set_main_routes(&mut self, wanted: &[Prefix]) -> Result<Vec<String>, HostError> {
        let kept: HashSet<&Prefix> = wanted.iter().collect();
        let gone = self.routes.iter().filter(|route| !kept.contains(route));
        for route in gone.filter_map(host_prefix) {
            self.network.remove_route(&Route::on_link(route, self.index))?;
        }
        self.routes.clear();
        let on_link = |prefix: &Prefix| Some((*prefix, Route::on_link(host_prefix(prefix)?, self.index)));
        let (prefixes, routes): (Vec<_>, Vec<_>) = wanted.iter().filter_map(on_link).unzip();
        let mut warnings = Vec::new();
        for (prefix, added) in prefixes.into_iter().zip(self.network.add_routes(&routes)) {
            match added {
                Ok(()) => self.routes.push(prefix),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        Ok(warnings)
    }
}
