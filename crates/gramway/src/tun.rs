//! The TUN device's settings: what flags and keys mean for `tunnel`, the default pools, and a client's lasting name.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;

use host::HostChanges;
use rustix::fs::{FlockOperation, flock};
use tunnel::config::{ClientTun, OfferedDns, ServerTun, TunFloodLimit};
use tunnel_proto::{ClientId, Prefix, TunRoutes};

use crate::exit::Problem;
use crate::limits::CLIENT_NAMES_MAX;
use crate::log;
use crate::state::StateDirectory;

/// The word for a name that the system chooses.
pub(crate) const AUTOMATIC: &str = "auto";

/// Addresses of clients where no pool is named; private (RFC 1918).
const DEFAULT_POOL_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 86, 0, 0), 24);

const LEASES_FILE: &str = "leases.json";

/// Everything about the TUN device that can be set.
#[derive(Clone, Debug)]
pub(crate) struct TunSettings {
    /// `None`: no TUN; [`AUTOMATIC`]: a name of the system's choice.
    pub(crate) name: Option<String>,
    pub(crate) offloads: bool,
    pub(crate) pools: Vec<Prefix>,
    pub(crate) nat: bool,
    pub(crate) client_to_client: bool,
    pub(crate) advertise: Option<Vec<Prefix>>,
    /// `None`: what the server advertises.
    pub(crate) routes: Option<Vec<Prefix>>,
    /// No routes, whatever `routes` says.
    pub(crate) no_routes: bool,
    pub(crate) default_route: bool,
    pub(crate) allow_lan: bool,
    pub(crate) exclude: Vec<Prefix>,
    pub(crate) kill_switch: bool,
    pub(crate) dns: Vec<IpAddr>,
    /// A server offers no name server, a client uses none that is offered, whatever `dns` says.
    pub(crate) no_dns: bool,
}

impl Default for TunSettings {
    fn default() -> Self {
        Self {
            name: None,
            offloads: true,
            pools: Vec::new(),
            nat: false,
            client_to_client: false,
            advertise: None,
            routes: None,
            no_routes: false,
            default_route: false,
            allow_lan: false,
            exclude: Vec::new(),
            kill_switch: false,
            dns: Vec::new(),
            no_dns: false,
        }
    }
}

impl TunSettings {
    fn interface(&self) -> Option<String> {
        self.name.clone().filter(|name| name != AUTOMATIC)
    }

    /// A server's TUN, which `changes` make; `None` without them. `pin` makes the default IPv6 pool this server's own.
    pub(crate) fn for_server(
        &self,
        directory: &StateDirectory,
        pin: [u8; 32],
        changes: Option<HostChanges>,
    ) -> Option<ServerTun> {
        let pools = if self.pools.is_empty() {
            default_pools(pin)
        } else {
            self.pools.clone()
        };
        Some(ServerTun {
            changes: changes?,
            name: self.interface(),
            pools,
            nat: self.nat,
            client_to_client: self.client_to_client,
            routes: self.advertise.clone(),
            dns: self.offered_dns(),
            offloads: self.offloads,
            flood_limit: flood_limit(),
            leases_file: directory.file(LEASES_FILE),
        })
    }

    /// Whether a client sets the machine's name servers: the user's, or with a default route those that are offered.
    pub(crate) fn sets_names(&self) -> bool {
        !self.no_dns && (self.default_route || !self.dns.is_empty())
    }

    fn offered_dns(&self) -> OfferedDns {
        match &self.dns[..] {
            _ if self.no_dns => OfferedDns::None,
            [] => OfferedDns::Own,
            servers => OfferedDns::These(servers.to_vec()),
        }
    }

    fn client_routes(&self) -> TunRoutes {
        match &self.routes {
            _ if self.no_routes => TunRoutes::None,
            Some(routes) => TunRoutes::These(routes.clone()),
            None => TunRoutes::Advertised,
        }
    }

    /// A client's TUN, which `changes` make, and the lock on its name; `None` if it has none.
    pub(crate) fn for_client(
        &self,
        directory: &StateDirectory,
        changes: Option<HostChanges>,
    ) -> Result<Option<(ClientTun, File)>, Problem> {
        let Some(changes) = changes else {
            return Ok(None);
        };
        let (client, lock) = client_name(directory)?;
        let settings = ClientTun {
            name: self.interface(),
            client,
            routes: self.client_routes(),
            default_route: self.default_route,
            allow_lan: self.allow_lan,
            exclude: self.exclude.clone(),
            kill_switch: self.kill_switch,
            dns: if self.no_dns { Vec::new() } else { self.dns.clone() },
            takes_offered_dns: !self.no_dns,
            offloads: self.offloads,
            flood_limit: flood_limit(),
            changes,
        };
        Ok(Some((settings, lock)))
    }
}

/// To be loaded before the sandbox takes the privilege; without it the tunnel works, and says so.
fn flood_limit() -> Option<TunFloodLimit> {
    let limit = TunFloodLimit::load();
    if let Err(error) = &limit {
        let text = format!(
            "note: a UDP flood into the TUN device may push out packets of other flows, because the kernel takes no \
             filter program of ours ({error}); with the capability CAP_BPF it does"
        );
        log::info("tun", text);
    }
    limit.ok()
}

/// One pool of each version. The IPv6 one is a unique local network whose global ID is as good as random (RFC 4193
/// section 3.2.2): it comes from the server's key.
fn default_pools(pin: [u8; 32]) -> Vec<Prefix> {
    let mut octets = [0; 16];
    octets[0] = 0xfd;
    octets[1..6].copy_from_slice(&pin[..5]);
    let (v4, length) = DEFAULT_POOL_V4;
    [(IpAddr::V4(v4), length), (IpAddr::V6(Ipv6Addr::from(octets)), 64)]
        .into_iter()
        .map(|(address, length)| Prefix::new(address, length).expect("both have no bits behind their prefix"))
        .collect()
}

/// The permanent name of this client, by which it gets the same addresses again. Processes that run at the same time
/// have different names: each locks its own file.
fn client_name(directory: &StateDirectory) -> Result<(ClientId, File), Problem> {
    directory.create()?;
    for number in 1..=CLIENT_NAMES_MAX {
        let path = directory.file(&format!("client-{number}.id"));
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options
            .open(&path)
            .map_err(|error| Problem::file("open", &path, &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => continue,
            Err(error) => return Err(Problem::file("lock", &path, &error.into())),
        }
        let mut name = Vec::new();
        (&mut file)
            .take(64)
            .read_to_end(&mut name)
            .map_err(|error| Problem::file("read", &path, &error))?;
        if let Ok(name) = name.try_into() {
            return Ok((ClientId(name), file));
        }
        let mut name = [0; 16];
        aws_lc_rs::rand::fill(&mut name).map_err(|_| Problem::bug("the system provides no random bytes"))?;
        rustix::io::pwrite(&file, &name, 0)
            .and_then(|_| rustix::fs::ftruncate(&file, name.len() as u64))
            .map_err(|error| Problem::file("write", &path, &error.into()))?;
        return Ok((ClientId(name), file));
    }
    Err(Problem::unavailable(format!(
        "{CLIENT_NAMES_MAX} clients with a TUN use the state directory {}; give this one its own --state DIR",
        directory.path().display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SESSION-2.
    #[test]
    fn a_client_keeps_its_name_and_clients_at_a_time_have_different_ones() {
        let place = tempfile::tempdir().unwrap();
        let directory = StateDirectory::locate(Some(&place.path().join("state")), |_| None).unwrap();
        let (first, lock) = client_name(&directory).unwrap();
        let (second, _second_lock) = client_name(&directory).unwrap();
        assert_ne!(first, second);
        drop(lock);
        assert_eq!(client_name(&directory).unwrap().0, first);
    }

    #[test]
    fn routes_are_the_servers_ours_or_none() {
        let mut settings = TunSettings::default();
        assert_eq!(settings.client_routes(), TunRoutes::Advertised);
        let ours = vec!["10.1.0.0/16".parse().unwrap()];
        settings.routes = Some(ours.clone());
        assert_eq!(settings.client_routes(), TunRoutes::These(ours));
        settings.no_routes = true;
        assert_eq!(settings.client_routes(), TunRoutes::None);
    }

    #[test]
    fn a_server_offers_its_own_name_server_those_named_or_none() {
        let mut settings = TunSettings::default();
        assert_eq!(settings.offered_dns(), OfferedDns::Own);
        settings.dns = vec!["9.9.9.9".parse().unwrap()];
        assert_eq!(settings.offered_dns(), OfferedDns::These(settings.dns.clone()));
        settings.no_dns = true;
        assert_eq!(settings.offered_dns(), OfferedDns::None);
    }

    #[test]
    fn the_default_pools_are_private_and_the_servers_own() {
        let pools = default_pools([0xab; 32]);
        let texts: Vec<_> = pools.iter().map(Prefix::to_string).collect();
        assert_eq!(texts, ["10.86.0.0/24", "fdab:abab:abab::/64"]);
    }
}
