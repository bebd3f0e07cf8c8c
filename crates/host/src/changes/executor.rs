//! Makes changes to the host, and undoes them. It belongs to one device, which it makes itself; whoever asks for
//! changes names no other.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use packet_io::{TunDevice, TunOffloads, TunOpenError};

use super::request::{Answer, Failure, Refused, Request, shortened};
use crate::default_route::DefaultRoute;
use crate::dns::{NameServers, NamesNotSet, NamesWay};
use crate::error::{Explain, HostError};
use crate::holder::Process;
use crate::kill_switch::KillSwitch;
use crate::nat::{Nat, forwarding_blockers};
use crate::network::Network;
use crate::prefix::Prefix;
use crate::privilege::can_administer;
use crate::route::{Route, Uplink};
use crate::transparent_proxy::TransparentProxy;
use crate::undo::{GuardianProgram, Undo};

/// The device, once it is there; all executors for one process share it.
pub(crate) type Device = Arc<OnceLock<OwnDevice>>;

#[derive(Debug)]
pub(crate) struct OwnDevice {
    name: String,
    index: u32,
}

/// Whose changes they are, and where they are listed.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) guardian: GuardianProgram,
    /// The process that carries the tunnel.
    pub(crate) owner: Process,
}

/// Dropping it undoes what it did, as if its process had failed.
#[derive(Debug)]
pub(crate) struct Executor {
    owner: Process,
    device: Device,
    // Undone in this order.
    undo: Undo,
    default_route: Option<DefaultRoute>,
    nat: Option<Nat>,
    transparent_proxy: Option<TransparentProxy>,
    kill_switch: Option<KillSwitch>,
    /// Who was given name servers.
    names: Vec<NamesWay>,
}

impl Executor {
    pub(crate) fn new(place: &Place, device: Device) -> Self {
        Self {
            owner: place.owner,
            device,
            undo: Undo::of(place.owner, &place.directory, place.guardian.clone()),
            default_route: None,
            nat: None,
            transparent_proxy: None,
            kill_switch: None,
            names: Vec::new(),
        }
    }

    /// What came of it, and descriptors that belong to the answer.
    pub(crate) fn execute(&mut self, request: Request) -> (Answer, Vec<OwnedFd>) {
        let mut descriptors = Vec::new();
        let checked = request.check().explain(|| "change the host".to_owned());
        let done = checked.and_then(|()| match request {
            Request::OpenDevice {
                name,
                queues,
                offloads,
                takes_own,
                queue_packets,
            } => {
                let (answer, queues) =
                    self.open_device(name.as_deref(), queues, offloads, takes_own, queue_packets)?;
                descriptors = queues;
                Ok(answer)
            }
            other => self.change(other),
        });
        let answer = done.unwrap_or_else(|error| Answer::Failed(Failure::of(&error)));
        (answer, descriptors)
    }

    fn open_device(
        &mut self,
        name: Option<&str>,
        queues: usize,
        offloads: bool,
        takes_own: bool,
        queue_packets: u32,
    ) -> Result<(Answer, Vec<OwnedFd>), HostError> {
        can_administer()
            .map_err(|error| HostError::sentence(error.to_string(), io::ErrorKind::PermissionDenied))?;
        if self.device.get().is_some() {
            let exists = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(HostError::new("make a second TUN device", exists));
        }
        let offloads = if offloads {
            TunOffloads::default()
        } else {
            TunOffloads::NONE
        };
        let made = TunDevice::open(name, queues, offloads).map_err(|error| {
            let kind = match error {
                TunOpenError::NotPermitted => io::ErrorKind::PermissionDenied,
                TunOpenError::BadParameter(_) => io::ErrorKind::InvalidInput,
                _ => io::ErrorKind::Other,
            };
            HostError::sentence(error.to_string(), kind)
        })?;
        let mut network = Network::open()?;
        network.prepare_tun(&made.name, takes_own)?;
        // Where it is refused, the queue is as long as the kernel makes it.
        let _ = network.set_queue_length(made.index, queue_packets);
        let (name, index) = (made.name, made.index);
        let own = OwnDevice {
            name: name.clone(),
            index,
        };
        // Two requests at once make two devices, and the second one goes at once.
        if self.device.set(own).is_err() {
            return Err(HostError::new(
                "make a second TUN device",
                io::ErrorKind::AlreadyExists,
            ));
        }
        let queues = made.queues.into_iter().map(OwnedFd::from).collect();
        Ok((Answer::Device { name, index }, queues))
    }

    fn change(&mut self, request: Request) -> Result<Answer, HostError> {
        match request {
            Request::SetNameServers { servers, all_names } => {
                return self.set_name_servers(servers, all_names);
            }
            Request::UnsetNameServers => self.unset_name_servers()?,
            Request::LookAtNameServers => return Ok(Answer::Is(self.undo.name_servers_hold())),
            Request::StartForwarding { v4, v6 } => {
                self.undo.enable_forwarding(v4, v6)?;
                return Ok(Answer::Warnings(told(forwarding_blockers())));
            }
            Request::StartNat(pools) => self.nat = Some(self.undo.start_nat(self.index()?, &pools)?),
            Request::StartTransparentProxy(settings) => {
                can_administer().map_err(|error| {
                    HostError::sentence(error.to_string(), io::ErrorKind::PermissionDenied)
                })?;
                self.transparent_proxy = Some(self.undo.start_transparent_proxy(&settings)?);
            }
            Request::SetExceptionRoute {
                server,
                index,
                gateway,
                source,
            } => self.set_exception_route(server, index, gateway, source)?,
            Request::StartKillSwitch { exceptions, is_kept } => {
                let started = KillSwitch::start_for(self.owner, self.index()?, exceptions, is_kept)?;
                self.kill_switch = Some(started);
            }
            Request::SetKillSwitch {
                exceptions,
                was_through,
            } => {
                if let Some(switch) = &mut self.kill_switch {
                    if was_through {
                        switch.set_through();
                    }
                    switch.set_exceptions(exceptions)?;
                }
            }
            Request::EndKillSwitch { as_asked } => {
                let ended = self.kill_switch.take().map(|mut switch| switch.end(as_asked));
                return Ok(Answer::Is(ended.transpose()?.unwrap_or(false)));
            }
            Request::Undo => {
                self.transparent_proxy = None;
                let undone = self.undo.undo();
                (self.default_route, self.nat) = (None, None);
                undone?;
            }
            other => return self.change_routing(other),
        }
        Ok(Answer::Done)
    }

    /// Addresses and routes.
    fn change_routing(&mut self, request: Request) -> Result<Answer, HostError> {
        let index = self.index()?;
        let mut network = Network::open()?;
        match request {
            Request::SetMtu(bytes) => network.set_mtu(index, bytes)?,
            Request::SetAddresses(prefixes) => {
                network.set_up(index, true)?;
                network.replace_addresses(index, &prefixes)?;
            }
            Request::AddRoutes(destinations) => {
                let on_link = |destination: &Prefix| Route::on_link(*destination, index);
                let added = network.add_routes(&destinations.iter().map(on_link).collect::<Vec<_>>());
                let refused = destinations.into_iter().zip(added);
                let refused = refused.filter_map(|(destination, added)| Some((destination, added.err()?)));
                return Ok(Answer::Refused(Refused::of(refused)));
            }
            Request::RemoveRoutes(destinations) => destinations
                .iter()
                .try_for_each(|destination| network.remove_route(&Route::on_link(*destination, index)))?,
            Request::StartDefaultRoute => {
                let route = self.undo.start_default_route(index)?;
                let warning = route.warning();
                self.default_route = Some(route);
                return Ok(Answer::Warnings(told(warning)));
            }
            Request::SetDefaultRoute { into_tun, exceptions } => {
                let Some(route) = &self.default_route else {
                    let none = io::Error::from(io::ErrorKind::NotFound);
                    return Err(HostError::new("change a default route that is not there", none));
                };
                let refused = route.set(&mut network, &into_tun, &exceptions)?;
                return Ok(Answer::Refused(Refused::of(refused)));
            }
            // All others have had their turn.
            _ => {}
        }
        Ok(Answer::Done)
    }

    /// Past the device, by an interface that is there.
    fn set_exception_route(
        &mut self,
        server: IpAddr,
        index: u32,
        gateway: Option<IpAddr>,
        source: Option<IpAddr>,
    ) -> Result<(), HostError> {
        let name = Network::open()?.name_of(index)?;
        if self.device.get().is_some_and(|device| device.index == index) {
            let own = io::ErrorKind::InvalidInput;
            return Err(HostError::new(
                format!("lead {server} past {name} by itself"),
                own,
            ));
        }
        let uplink = Uplink {
            index,
            name,
            gateway,
            source,
        };
        self.undo.set_exception_route(server, &uplink)
    }

    fn set_name_servers(&mut self, servers: Vec<IpAddr>, all_names: bool) -> Result<Answer, HostError> {
        let wanted = NameServers {
            interface: self.device()?.name.clone(),
            servers,
            all_names,
        };
        let ways = self.undo.set_name_servers(&wanted).map_err(names_error)?;
        self.names.clone_from(&ways);
        Ok(Answer::NameServersSet(ways))
    }

    fn unset_name_servers(&mut self) -> Result<(), HostError> {
        let interface = self.device()?.name.clone();
        self.undo
            .unset_name_servers(&interface, &self.names)
            .map_err(names_error)?;
        self.names.clear();
        Ok(())
    }

    fn device(&self) -> Result<&OwnDevice, HostError> {
        let none = || HostError::new("change a TUN device that is not there", io::ErrorKind::NotFound);
        self.device.get().ok_or_else(none)
    }

    fn index(&self) -> Result<u32, HostError> {
        self.device().map(|device| device.index)
    }
}

fn names_error(error: NamesNotSet) -> HostError {
    match error {
        NamesNotSet::Host(error) => error,
        refused => HostError::sentence(refused.to_string(), io::ErrorKind::Other),
    }
}

/// Sentences that fit an answer.
fn told(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let few = texts.into_iter().take(crate::limits::REASONS_MAX);
    few.map(shortened).collect()
}
