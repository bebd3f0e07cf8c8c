//! Two machines with one cable. On the server's: the web site, a server in front of it, and a plain one. On the client's:
//! honest clients, strangers, and whoever sends in others' names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Serialize;
use testbed::directory::Directory;
use testbed::process::Process;
use testbed::usage::Usage;

use super::SITE;
use super::handshakes::Proof;
use super::site::{self, Site};
use crate::children::Load;
use crate::error::During;
use crate::network::{CLIENT, Network, SERVER};
use crate::tunnel::{serve, status};
use crate::{Error, Programs, limits};

/// Where the server is that has a cover, and where the one that has none.
pub(super) const COVERED: SocketAddrV4 = SocketAddrV4::new(SERVER, 443);
const PLAIN: SocketAddrV4 = SocketAddrV4::new(SERVER, 444);

/// Where the site is.
const SITE_ADDRESS: SocketAddrV4 = SocketAddrV4::new(SERVER, 8_443);

/// The forward's ends: at the client's machine and at the server's.
pub(super) const ENTRANCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7_000);
pub(super) const TARGET: SocketAddrV4 = ENTRANCE;

/// Networks of which the client's machine has an address each: a server has a budget for each.
pub(super) const SOURCES: u8 = 20;

/// The network that these are of, and the one that spoofed packets name, with the bits of its prefix.
const SOURCES_NETWORK: &str = "10.99.0.0/16";
pub(super) const NOWHERE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 9);

/// Both servers, and all that is around them. Processes end before their machines.
pub(super) struct Scene {
    programs: Programs,
    client: Option<Process>,
    covered: Process,
    plain: Process,
    _site_process: Load,
    site: Site,
    link: String,
    network: Network,
    directory: Directory,
}

impl Scene {
    /// Starts everything but the honest client.
    ///
    /// # Errors
    /// When a machine can't be made or a program does not start.
    pub(super) fn start(programs: &Programs) -> Result<Self, Error> {
        let (network, directory) = (Network::build(programs, None)?, Directory::create()?);
        for number in 0..SOURCES {
            let address = format!("{}/32", source(number));
            let add = ["address", "add", &address, "dev", "lo"];
            network.client.run("ip", add)?;
        }
        let nowhere = format!("{}/{}", NOWHERE.0, NOWHERE.1);
        let client = CLIENT.to_string();
        for strangers in [SOURCES_NETWORK, &nowhere] {
            let route = ["route", "add", strangers, "via", &client];
            network.server.run("ip", route)?;
        }
        let load = programs.load_with(SITE, &SocketAddr::from(SITE_ADDRESS))?;
        let (site_process, site) = Load::launch::<Site>(SITE, network.server.wrap(&patient(&load)))?;
        let serve = |state: &str, listen: SocketAddrV4, options: &[&str]| {
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            let (place, state) = (network.server.place(), directory.path().join(state));
            serve(programs, &place, &state, listen.into(), &options)
        };
        let cover = site.address.to_string();
        let open = ["--allow-target", "127.0.0.0/8"];
        let front = ["--cover", &cover, "--cover-name", site::NAME, "--no-cover-tcp"];
        let (covered, link) = serve("covered", COVERED, &[&open[..], &front].concat())?;
        let (plain, _) = serve("plain", PLAIN, &open)?;
        Ok(Self {
            programs: programs.clone(),
            client: None,
            covered,
            plain,
            _site_process: site_process,
            site,
            link,
            network,
            directory,
        })
    }

    /// Starts the honest client, with a forward from [`ENTRANCE`] to [`TARGET`].
    ///
    /// # Errors
    /// When it does not connect.
    pub(super) fn connect(&mut self) -> Result<(), Error> {
        let link = self.directory.write("link", &self.link)?;
        let mut connect = self.programs.gramway();
        connect.arg("connect").arg("--link-file").arg(link);
        connect.arg("--state").arg(self.state("client"));
        connect.args(["-L", &format!("udp:{ENTRANCE}={TARGET}")]);
        let mut client = Process::start(self.network.client.wrap(&connect), "gramway connect")?;
        client.wait_for_starts("connected", 1, limits::READY_TIMEOUT)?;
        self.client = Some(client);
        Ok(())
    }

    /// The site.
    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// Addresses of the client's machine, each of a network of its own.
    pub(super) fn sources(&self) -> Vec<IpAddr> {
        (0..SOURCES).map(|number| source(number).into()).collect()
    }

    /// A hidden load command at the client's machine.
    ///
    /// # Errors
    /// When its options can't be written as JSON.
    pub(super) fn at_client(&self, name: &str, options: &impl Serialize) -> Result<Command, Error> {
        Ok(self.network.client.wrap(&self.programs.load_with(name, options)?))
    }

    /// The same at the server's machine.
    ///
    /// # Errors
    /// When its options can't be written as JSON.
    pub(super) fn at_server(&self, name: &str, options: &impl Serialize) -> Result<Command, Error> {
        Ok(self.network.server.wrap(&self.programs.load_with(name, options)?))
    }

    /// The same at the client's machine, of somebody who would be elsewhere.
    ///
    /// # Errors
    /// When its options can't be written as JSON.
    pub(super) fn elsewhere(&self, name: &str, options: &impl Serialize) -> Result<Command, Error> {
        let load = self.programs.load_with(name, options)?;
        Ok(self.network.client.wrap(&patient(&load)))
    }

    /// Where a server is, and what its clients know it by.
    ///
    /// # Errors
    /// When its state can't be read.
    pub(super) fn server(&self, is_plain: bool) -> Result<(SocketAddr, Proof), Error> {
        if is_plain {
            let certificate = CertificateDer::from_pem_file(self.state("plain").join("server.crt"))
                .map_err(|error| Error::Setup(format!("the server's certificate: {error}")))?;
            let pin = quic::public_key_pin(&certificate).map_err(|error| Error::Setup(error.to_string()))?;
            return Ok((PLAIN.into(), Proof::Pin(pin)));
        }
        let state = self.state("covered");
        let key = read(&state.join("cover.key"))?;
        let key = key
            .try_into()
            .map_err(|_| Error::Setup("the key of the front door has not 32 bytes".to_owned()))?;
        let token = String::from_utf8_lossy(&read(&state.join("owner.token"))?)
            .trim()
            .to_owned();
        Ok((COVERED.into(), Proof::FrontDoor(key, token)))
    }

    /// Processor time and memory of one of the servers.
    pub(super) fn usage(&self, is_plain: bool) -> Usage {
        if is_plain { &self.plain } else { &self.covered }.usage()
    }

    /// A counter of the relay to the site; zero as long as nothing was counted.
    pub(super) fn relay_counter(&self, name: &str) -> u64 {
        let status = status(&self.programs, &self.state("covered")).unwrap_or_default();
        let counter = status.pointer(&format!("/processes/0/cover/relay/{name}"));
        counter.and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    fn state(&self, of: &str) -> PathBuf {
        self.directory.path().join(of)
    }
}

fn source(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, number, 1)
}

/// The same command, which leaves the processors to others.
fn patient(command: &Command) -> Command {
    let mut patient = Command::new("nice");
    patient
        .args(["-n", "19"])
        .arg(command.get_program())
        .args(command.get_args());
    patient
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).during(|| format!("read {}", path.display()))
}
