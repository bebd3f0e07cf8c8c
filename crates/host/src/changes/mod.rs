//! Changes to the host for one TUN device, by this process itself or by its helper (`crate::helper`).
//!
//! Every change is a request, which is checked before it is made, and has an answer (`request.rs`, `check.rs`,
//! `executor.rs`). Both are the same, whoever makes it.

mod check;
mod executor;
mod request;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use packet_io::TunQueue;

use crate::dns::NamesWay;
use crate::error::{Explain, HostError};
use crate::helper::ChangesLane;
use crate::holder::Process;
use crate::kill_switch::Exception;
use crate::prefix::Prefix;
use crate::route::Uplink;
use crate::transparent_proxy::TransparentSettings;
use crate::undo::GuardianProgram;
pub(crate) use executor::{Device, Executor, Place};
pub use request::Refused;
pub(crate) use request::{Answer, Request, decode, encode, fuzz};

/// Where changes are asked for. Copies are for the same device. What stands is undone when the last one is dropped,
/// as after a failure.
#[derive(Clone, Debug)]
pub struct HostChanges {
    /// Makes the device, and changes everything but name servers.
    network: Arc<Maker>,
    /// Changes name servers, which may take seconds.
    names: Arc<Maker>,
}

/// Who makes changes.
#[derive(Debug)]
enum Maker {
    ThisProcess(Box<Mutex<Executor>>),
    Helper(ChangesLane),
}

/// A TUN device that is down and has no address.
#[derive(Debug)]
pub struct OpenedDevice {
    /// Name of the interface.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// One for each thread.
    pub queues: Vec<TunQueue>,
}

/// How a device is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSettings<'a> {
    /// Name of the interface; `None`: the first free `gramwayN`.
    pub name: Option<&'a str>,
    /// Queues, one for each thread.
    pub queues: usize,
    /// Exchange super-packets with the kernel where it has them.
    pub offloads: bool,
    /// The machine takes packets of its own addresses from the device.
    pub takes_own: bool,
    /// Packets that may wait in the kernel.
    pub queue_packets: u32,
}

impl HostChanges {
    /// With the privileges of this process. Changes are listed in `directory`, and undone after a kill by `guardian`.
    ///
    /// # Errors
    /// The system tells nothing about this process.
    pub fn by_this_process(directory: &Path, guardian: GuardianProgram) -> Result<Self, HostError> {
        let place = Place {
            directory: directory.to_owned(),
            guardian,
            owner: Process::this().explain(|| "read about this process in /proc".to_owned())?,
        };
        let device = Device::default();
        let executor = || {
            let executor = Executor::new(&place, Arc::clone(&device));
            Arc::new(Maker::ThisProcess(Box::new(Mutex::new(executor))))
        };
        Ok(Self {
            network: executor(),
            names: executor(),
        })
    }

    /// By a helper.
    pub(crate) fn by_helper(network: ChangesLane, names: ChangesLane) -> Self {
        Self {
            network: Arc::new(Maker::Helper(network)),
            names: Arc::new(Maker::Helper(names)),
        }
    }

    /// Makes the device; it can be made once.
    ///
    /// # Errors
    /// A missing privilege; `InvalidInput` for a name that cannot be one; one that is taken; no driver.
    pub fn open_device(&self, settings: DeviceSettings<'_>) -> Result<OpenedDevice, HostError> {
        let request = Request::OpenDevice {
            name: settings.name.map(str::to_owned),
            queues: settings.queues,
            offloads: settings.offloads,
            takes_own: settings.takes_own,
            queue_packets: settings.queue_packets,
        };
        let (answer, descriptors) = self.network.call(request)?;
        match answer {
            Answer::Device { name, index } => Ok(OpenedDevice {
                name,
                index,
                queues: descriptors.into_iter().map(TunQueue::from).collect(),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets the device's MTU in bytes.
    ///
    /// # Errors
    /// As of [`crate::Network::set_mtu`].
    pub fn set_mtu(&self, bytes: u32) -> Result<(), HostError> {
        self.change(Request::SetMtu(bytes))
    }

    /// The device is up, and has exactly these addresses.
    ///
    /// # Errors
    /// As of [`crate::Network::replace_addresses`].
    pub fn set_addresses(&self, addresses: &[Prefix]) -> Result<(), HostError> {
        self.change(Request::SetAddresses(addresses.to_vec()))
    }

    /// Adds routes of the main table into the device, as [`crate::Network::add_routes`] does. What was refused.
    ///
    /// # Errors
    /// More than `limits::PREFIXES_MAX`, or what is never led into a tunnel.
    pub fn add_routes(&self, destinations: Vec<Prefix>) -> Result<Refused, HostError> {
        self.route(Request::AddRoutes(destinations))
    }

    /// Removes such routes; that they are not there is fine.
    ///
    /// # Errors
    /// A missing privilege.
    pub fn remove_routes(&self, destinations: Vec<Prefix>) -> Result<(), HostError> {
        self.change(Request::RemoveRoutes(destinations))
    }

    /// Leads everything of this machine into the device: until [`Self::set_default_route`] says more, nothing is
    /// reachable. What the kernel cannot do, and what comes of it.
    ///
    /// # Errors
    /// A missing privilege, a kernel without rules of routing, a file system that cannot be written.
    pub fn start_default_route(&self) -> Result<Vec<String>, HostError> {
        self.warnings(Request::StartDefaultRoute)
    }

    /// As [`crate::DefaultRoute::set`]. What was refused.
    ///
    /// # Errors
    /// There is no default route, or as of [`crate::DefaultRoute::set`] and [`Self::add_routes`].
    pub fn set_default_route(
        &self,
        into_tun: Vec<Prefix>,
        exceptions: Vec<Prefix>,
    ) -> Result<Refused, HostError> {
        self.route(Request::SetDefaultRoute { into_tun, exceptions })
    }

    /// As [`crate::Undo::set_exception_route`].
    ///
    /// # Errors
    /// As there.
    pub fn set_exception_route(&self, server: IpAddr, uplink: &Uplink) -> Result<(), HostError> {
        self.change(Request::SetExceptionRoute {
            server,
            index: uplink.index,
            gateway: uplink.gateway,
            source: uplink.source,
        })
    }

    /// As [`crate::Undo::enable_forwarding`]. What else keeps packets from being forwarded.
    ///
    /// # Errors
    /// As there.
    pub fn start_forwarding(&self, v4: bool, v6: bool) -> Result<Vec<String>, HostError> {
        self.warnings(Request::StartForwarding { v4, v6 })
    }

    /// As [`crate::Undo::start_nat`].
    ///
    /// # Errors
    /// As there.
    pub fn start_nat(&self, pools: Vec<Prefix>) -> Result<(), HostError> {
        self.change(Request::StartNat(pools))
    }

    /// As [`crate::Undo::start_transparent_proxy`]. It needs no device.
    ///
    /// # Errors
    /// As there.
    pub fn start_transparent_proxy(&self, settings: TransparentSettings) -> Result<(), HostError> {
        self.change(Request::StartTransparentProxy(settings))
    }

    /// As [`crate::kill_switch::KillSwitch::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start_kill_switch(&self, exceptions: Vec<Exception>, is_kept: bool) -> Result<(), HostError> {
        self.change(Request::StartKillSwitch { exceptions, is_kept })
    }

    /// Lets out these exceptions in the place of the former ones; `was_through`: the tunnel has carried traffic, and
    /// from now on only who asks for the end gets the network back.
    ///
    /// # Errors
    /// As of [`crate::kill_switch::KillSwitch::set_exceptions`].
    pub fn set_kill_switch(&self, exceptions: Vec<Exception>, was_through: bool) -> Result<(), HostError> {
        self.change(Request::SetKillSwitch {
            exceptions,
            was_through,
        })
    }

    /// As [`crate::kill_switch::KillSwitch::end`]. Whether it stays.
    ///
    /// # Errors
    /// As there.
    pub fn end_kill_switch(&self, as_asked: bool) -> Result<bool, HostError> {
        match self.network.call(Request::EndKillSwitch { as_asked })?.0 {
            Answer::Is(stays) => Ok(stays),
            other => Err(unexpected(&other)),
        }
    }

    /// As [`crate::Undo::set_name_servers`], for the device.
    ///
    /// # Errors
    /// As there.
    pub fn set_name_servers(
        &self,
        servers: Vec<IpAddr>,
        all_names: bool,
    ) -> Result<Vec<NamesWay>, HostError> {
        match self.names.call(Request::SetNameServers { servers, all_names })?.0 {
            Answer::NameServersSet(ways) => Ok(ways),
            other => Err(unexpected(&other)),
        }
    }

    /// As [`crate::Undo::unset_name_servers`].
    ///
    /// # Errors
    /// As there.
    pub fn unset_name_servers(&self) -> Result<(), HostError> {
        self.names.change(Request::UnsetNameServers)
    }

    /// Whether nobody else has changed the name servers that were set.
    ///
    /// # Errors
    /// Who sets them does not answer.
    pub fn name_servers_hold(&self) -> Result<bool, HostError> {
        match self.names.call(Request::LookAtNameServers)?.0 {
            Answer::Is(hold) => Ok(hold),
            other => Err(unexpected(&other)),
        }
    }

    /// Undoes everything but the kill switch, which has an end of its own.
    ///
    /// # Errors
    /// What could not be undone; it stays on the list, for the guardian and the next start.
    pub fn undo(&self) -> Result<(), HostError> {
        let named = self.names.change(Request::Undo);
        self.change(Request::Undo).and(named)
    }

    fn change(&self, request: Request) -> Result<(), HostError> {
        self.network.change(request)
    }

    fn route(&self, request: Request) -> Result<Refused, HostError> {
        match self.network.call(request)?.0 {
            Answer::Refused(refused) => Ok(refused),
            other => Err(unexpected(&other)),
        }
    }

    fn warnings(&self, request: Request) -> Result<Vec<String>, HostError> {
        match self.network.call(request)?.0 {
            Answer::Warnings(texts) => Ok(texts),
            other => Err(unexpected(&other)),
        }
    }
}

impl Maker {
    fn call(&self, request: Request) -> Result<(Answer, Vec<OwnedFd>), HostError> {
        let answer = match self {
            Self::ThisProcess(executor) => {
                // Each call leaves it whole.
                let mut executor = executor.lock().unwrap_or_else(PoisonError::into_inner);
                executor.execute(request)
            }
            Self::Helper(lane) => lane.call(request)?,
        };
        match answer {
            (Answer::Failed(failure), _) => Err(failure.into_error()),
            answer => Ok(answer),
        }
    }

    fn change(&self, request: Request) -> Result<(), HostError> {
        match self.call(request)?.0 {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(answer: &Answer) -> HostError {
    let text = format!("the answer was {answer:?}");
    HostError::new(
        "change the host",
        io::Error::new(io::ErrorKind::InvalidData, text),
    )
}
