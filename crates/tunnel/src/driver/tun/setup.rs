//! The TUN device gets its MTU, and a client's its addresses and routes, from the host's thread: a thousand routes
//! take the kernel longer than packets should wait.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use host::{HostError, Network, Route};
use tunnel_proto::Prefix;

use super::host_prefix;
use crate::driver::host_worker::HostWorker;

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
    pub(in crate::driver) routes: Vec<Prefix>,
    /// It has got addresses and routes here.
    pub(in crate::driver) is_set_up: bool,
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
    is_set_up: bool,
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
            is_set_up: false,
        };
        Self {
            device: Arc::new(Mutex::new(device)),
            report,
            reports,
        }
    }

    /// Has `worker` give the device what is wanted; [`Self::poll`] tells what came of it. False where the worker takes
    /// no more jobs.
    pub(in crate::driver) fn apply(&self, wanted: Wanted, worker: &HostWorker) -> bool {
        let (device, report) = (Arc::clone(&self.device), self.report.clone());
        worker.run(move || {
            let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
            // At the end nobody listens.
            let _ = report.send(device.apply(&wanted));
            None
        })
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
        let warnings = match &wanted.layer3 {
            Some(layer3) => self.set_layer3(layer3)?,
            None => Vec::new(),
        };
        Ok(Present {
            mtu: self.mtu,
            routes: self.routes.clone(),
            is_set_up: self.is_set_up,
            warnings,
        })
    }

    /// What was refused of the routes.
    fn set_layer3(&mut self, wanted: &Layer3) -> Result<Vec<String>, HostError> {
        self.network.set_up(self.index, true)?;
        let addresses: Vec<host::Prefix> = wanted.addresses.iter().filter_map(host_prefix).collect();
        self.network.replace_addresses(self.index, &addresses)?;
        self.is_set_up = true;
        let gone = self.routes.iter().filter(|route| !wanted.routes.contains(route));
        for route in gone.filter_map(host_prefix) {
            self.network.remove_route(&Route::on_link(route, self.index))?;
        }
        self.routes.clear();
        let mut refused = Vec::new();
        for prefix in &wanted.routes {
            let Some(route) = host_prefix(prefix) else {
                continue;
            };
            match self.network.add_route(&Route::on_link(route, self.index)) {
                Ok(()) => self.routes.push(*prefix),
                Err(error) => refused.push(error.to_string()),
            }
        }
        Ok(refused)
    }
}
