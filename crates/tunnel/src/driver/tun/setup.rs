//! The TUN device gets its MTU, and a client's its addresses and routes, from the host's thread: a thousand routes
//! take the kernel longer than packets should wait.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use host::{HostChanges, HostError};
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
    changes: HostChanges,
    mtu: u32,
    routes: Vec<Prefix>,
    /// Routes go into a table of our own, not into the main table.
    has_default_route: bool,
    exceptions: Vec<host::Prefix>,
}

impl TunSetup {
    /// The device that was made by `changes`, whose MTU is `mtu` bytes; 0 where that does not matter.
    pub(in crate::driver) fn new(changes: HostChanges, mtu: u32, has_default_route: bool) -> Self {
        let (report, reports) = mpsc::channel();
        let device = Device {
            changes,
            mtu,
            routes: Vec::new(),
            has_default_route,
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
            && self.changes.set_mtu(mtu).is_ok()
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
        self.changes.set_addresses(&host_prefixes(wanted))
    }

    fn set_routes(&mut self, wanted: &[Prefix], has_addresses: bool) -> Result<PresentRoutes, HostError> {
        let into_tun = host_prefixes(wanted);
        let refused = if self.has_default_route {
            self.changes
                .set_default_route(into_tun, self.exceptions.clone())?
        } else {
            let kept: HashSet<&Prefix> = wanted.iter().collect();
            let gone = self.routes.iter().filter(|route| !kept.contains(route));
            self.changes
                .remove_routes(gone.filter_map(host_prefix).collect())?;
            self.routes.clear();
            self.changes.add_routes(into_tun)?
        };
        let destinations: HashSet<_> = refused.destinations.iter().map(host::Prefix::network).collect();
        let is_made = |prefix: &&Prefix| {
            host_prefix(prefix).is_some_and(|prefix| !destinations.contains(&prefix.network()))
        };
        self.routes = wanted.iter().filter(is_made).copied().collect();
        Ok(PresentRoutes {
            routes: self.routes.clone(),
            has_addresses,
            warnings: refused.reasons,
        })
    }
}

fn host_prefixes(prefixes: &[Prefix]) -> Vec<host::Prefix> {
    prefixes.iter().filter_map(host_prefix).collect()
}
