//! Three machines in a row: one peer's, the server's, the other peer's, and how the pair gets past the server.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use testbed::directory::Directory;
use testbed::namespace::{End, Namespace, join};
use testbed::process::Process;
use testbed::usage::usage;

use super::cases::{Case, Line, Way};
use super::{COMMAND, ends};
use crate::children::Load as Child;
use crate::counters::Counters;
use crate::emulator::{EmulatedEnd, EmulatorOptions, LinkSettings};
use crate::peers::trial::{Contact, Options, Role};
use crate::tunnel::{serve, status};
use crate::{Error, Programs, hidden, limits};

/// The caller's machine, the server on the same cable, the server on the other one, and the callee's machine.
const CALLER: Ipv4Addr = Ipv4Addr::new(10, 98, 1, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 98, 1, 1);
const SERVER_BEHIND: Ipv4Addr = Ipv4Addr::new(10, 98, 2, 1);
const CALLEE: Ipv4Addr = Ipv4Addr::new(10, 98, 2, 2);

const NETWORK_BITS: u8 = 24;

/// The port of the server, on all its addresses.
const PORT: u16 = 4_433;

/// Where the callee is at the caller's machine, by a forward.
const ENTRANCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7_000);

/// Interfaces of the two cables.
const NEAR: &str = "near";
const FAR: &str = "far";

const MTU_BYTES: u16 = 1_500;

/// Seed of the emulator.
const SEED: u64 = 1;

/// A line that is slower than all before it, with the queue of an ordinary router: 250 ms.
const SLOW: LinkSettings = LinkSettings {
    delay_us: 10_000,
    jitter_us: 0,
    loss: 0.0,
    duplicate: 0.0,
    reorder: 0.0,
    rate_bits_per_second: Some(20_000_000),
    queue_bytes: Some(625_000),
};

/// The machines, the server where there is one, and what is between. Processes end before their machines.
pub(super) struct Scene {
    client: Option<Process>,
    server: Option<Process>,
    link: Option<String>,
    _emulator: Option<Child>,
    programs: Programs,
    way: Way,
    directory: Directory,
    caller: Namespace,
    between: Namespace,
    callee: Namespace,
}

impl Scene {
    /// Builds it.
    ///
    /// # Errors
    /// When a machine can't be made or a program does not start.
    pub(super) fn start(programs: &Programs, case: &Case, way: Way) -> Result<Self, Error> {
        let [caller, between, callee] = [Namespace::create()?, Namespace::create()?, Namespace::create()?];
        cable([(&caller, CALLER), (&between, SERVER)], NEAR)?;
        let ends = [(&between, SERVER_BEHIND), (&callee, CALLEE)];
        let emulator = match case.line {
            Line::Cable => {
                cable(ends, FAR)?;
                None
            }
            Line::Slow => Some(emulated(programs, ends)?),
        };
        route(&caller, SERVER)?;
        route(&callee, SERVER_BEHIND)?;
        // Nobody forwards packets where the pair has to be relayed: no path joins the two ends.
        let forwards = if way == Way::Direct { "1" } else { "0" };
        between.set_parameter("net.ipv4.ip_forward", forwards)?;
        let mut scene = Self {
            client: None,
            server: None,
            link: None,
            _emulator: emulator,
            programs: programs.clone(),
            way,
            directory: Directory::create()?,
            caller,
            callee,
            between,
        };
        if way != Way::Direct {
            scene.serve()?;
        }
        Ok(scene)
    }

    fn serve(&mut self) -> Result<(), Error> {
        let state = self.directory.join("server");
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let place = self.between.place();
        let (server, link) = serve(&self.programs, &place, &state, listen, &[])?;
        self.server = Some(server);
        // It names the addresses that the server found; each end knows it by the one on its cable.
        self.link = Some(link.trim().to_owned());
        Ok(())
    }

    fn link(&self, server: Ipv4Addr) -> Result<String, Error> {
        let link = self.link.as_deref().unwrap_or_default();
        let parts = link
            .split_once('@')
            .and_then(|(before, rest)| Some((before, rest.split_once('?')?.1)));
        let (before, query) = parts.ok_or_else(|| Error::NotReady {
            program: "gramway up".to_owned(),
            reason: "its link cannot be read".to_owned(),
        })?;
        Ok(format!("{before}@{server}:{PORT}?{query}"))
    }

    /// The command of one end, which is registered where the pair is relayed.
    fn end(&self, case: &Case, role: Role) -> Result<std::process::Command, Error> {
        let is_callee = matches!(role, Role::Server);
        let (machine, own, server) = match is_callee {
            true => (&self.callee, CALLEE, SERVER_BEHIND),
            false if self.way == Way::Forwarded => (&self.caller, Ipv4Addr::LOCALHOST, SERVER),
            false => (&self.caller, CALLER, SERVER),
        };
        let is_relayed = self.way == Way::Relayed;
        let options = ends::Options {
            trial: Options {
                role,
                load: case.load,
                address: SocketAddr::from((own, 0)),
                bounds: case.bounds(),
            },
            link: is_relayed.then(|| self.link(server)).transpose()?,
        };
        Ok(machine.wrap(&self.programs.load_with(COMMAND, &options)?))
    }

    /// Starts the callee, and then the caller, which is connected when this returns.
    ///
    /// # Errors
    /// When an end does not start, with its own words.
    pub(super) fn join(&mut self, case: &Case) -> Result<[Child; 2], Error> {
        let name = self.way.name();
        let (callee, mut contact) = Child::launch::<Contact>(name, self.end(case, Role::Server)?)?;
        if self.way == Way::Forwarded {
            self.forward(contact.address)?;
            contact.address = ENTRANCE.into();
        }
        let (caller, ()) = Child::launch(name, self.end(case, Role::Client(contact))?)?;
        Ok([caller, callee])
    }

    /// `gramway connect` at the caller's machine leads to the callee.
    fn forward(&mut self, target: SocketAddr) -> Result<(), Error> {
        let link = self.directory.write("link", &self.link(SERVER)?)?;
        let mut connect = self.programs.gramway();
        connect.args(["connect", "--link-file"]).arg(link);
        connect.arg("--state").arg(self.directory.join("client"));
        connect.args(["-L", &format!("udp:{ENTRANCE}={target}")]);
        let mut client = Process::start(self.caller.wrap(&connect), "gramway connect")?;
        client.wait_for_starts("connected", 1, limits::READY_TIMEOUT)?;
        self.client = Some(client);
        Ok(())
    }

    /// Processor time of the server, in seconds, and what it has counted; nothing where there is none.
    pub(super) fn server(&self) -> Option<(f64, Counters)> {
        let pid = self.server.as_ref()?.id();
        let status = status(&self.programs, &self.directory.join("server"))?;
        Some((usage(pid).cpu_seconds, Counters::of_process(&status, pid)?))
    }
}

fn network(address: Ipv4Addr) -> String {
    format!("{address}/{NETWORK_BITS}")
}

fn cable(ends: [(&Namespace, Ipv4Addr); 2], interface: &str) -> Result<(), Error> {
    let [left, right] = ends.map(|(namespace, address)| (namespace, network(address)));
    let (one, two) = ([left.1.as_str()], [right.1.as_str()]);
    let left = End {
        namespace: left.0,
        interface,
        addresses: &one,
    };
    let right = End {
        namespace: right.0,
        interface,
        addresses: &two,
    };
    join(left, right, MTU_BYTES)?;
    Ok(())
}

fn emulated(programs: &Programs, ends: [(&Namespace, Ipv4Addr); 2]) -> Result<Child, Error> {
    let options = EmulatorOptions {
        ends: ends.map(|(namespace, address)| EmulatedEnd {
            namespace: namespace.name().to_owned(),
            interface: FAR.to_owned(),
            addresses: vec![network(address)],
        }),
        mtu_bytes: MTU_BYTES,
        links: [SLOW; 2],
        seed: SEED,
    };
    let command = programs.load_with(hidden::EMULATE, &options)?;
    let (process, ()) = Child::launch(hidden::EMULATE, command)?;
    Ok(process)
}

fn route(machine: &Namespace, gateway: Ipv4Addr) -> Result<(), Error> {
    machine.run("ip", ["route", "add", "default", "via", &gateway.to_string()])?;
    Ok(())
}
