//! The TUN device gets its MTU, and a client's its addresses and routes, from the host's thread: a thousand routes
//! take the kernel longer than packets should wait.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use host::{HostError, Network, Route};
use tunnel_proto::Prefix;

use super::host_prefix;
use crate::driver::host_worker::{HostWorker, JobWaker};

/// What the device should have.
pub(in crate::driver) struct Wanted {
    /// Bytes; `None`: as it is.
    pub(in crate::driver) mtu: Option<u32>,
    /// `None`: as they are.
    pub(in crate::driver) layer3: Option<Layer3>,
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

/// The routes of a device that has got its addresses.
#[derive(Debug)]
pub(in crate::driver) struct PresentRoutes {
    pub(in crate::driver) routes: Vec<Prefix>,
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
}

impl TunSetup {
    /// The device of this index, whose MTU is `mtu` bytes; 0 where that does not matter.
    pub(in crate::driver) fn new(network: Network, index: u32, mtu: u32) -> Self {
        let (report, reports) = mpsc::channel();
        let device = Device {
            network,
            index,
            mtu,
            routes: Vec::new(),
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
        let routes = wanted.layer3.as_ref().map(|layer3| self.set_layer3(layer3));
        Ok(Present {
            mtu: self.mtu,
            routes: routes.transpose()?,
        })
    }

    fn set_layer3(&mut self, wanted: &Layer3) -> Result<PresentRoutes, HostError> {
        self.network.set_up(self.index, true)?;
        let addresses: Vec<host::Prefix> = wanted.addresses.iter().filter_map(host_prefix).collect();
        self.network.replace_addresses(self.index, &addresses)?;
        let kept: HashSet<&Prefix> = wanted.routes.iter().collect();
        let gone = self.routes.iter().filter(|route| !kept.contains(route));
        for route in gone.filter_map(host_prefix) {
            self.network.remove_route(&Route::on_link(route, self.index))?;
        }
        self.routes.clear();
        let on_link = |prefix: &Prefix| Some((*prefix, Route::on_link(host_prefix(prefix)?, self.index)));
        let (prefixes, routes): (Vec<_>, Vec<_>) = wanted.routes.iter().filter_map(on_link).unzip();
        let mut warnings = Vec::new();
        for (prefix, added) in prefixes.into_iter().zip(self.network.add_routes(&routes)) {
            match added {
                Ok(()) => self.routes.push(prefix),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        Ok(PresentRoutes {
            routes: self.routes.clone(),
            warnings,
        })
    }
}
