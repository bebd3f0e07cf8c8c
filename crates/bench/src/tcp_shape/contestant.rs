//! Who is compared, and how each is started between the two machines.

use std::net::{Ipv4Addr, SocketAddr};

use serde::Serialize;
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs;
use testbed::usage::{self, Usage};
use testbed::wait::holds_within;

use crate::children::Load;
use crate::network::{Network, SERVER};
use crate::relay::RelayOptions;
use crate::rivals::phantun;
use crate::tunnel::serve;
use crate::{Error, Programs, hidden, limits};

/// Where loads enter at the client's machine, except those that need no relay.
const ENTRANCE: SocketAddr = address(Ipv4Addr::LOCALHOST, 7_000);

/// Where the ends meet.
const BETWEEN: SocketAddr = address(SERVER, 4_433);

/// Where loads end at the server's machine.
pub(super) const TARGET: SocketAddr = address(SERVER, 5_201);

/// The server's address in the tunnel, and what it leases.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 98, 3, 1);
const POOL: &str = "10.98.3.0/24";

const fn address(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(ip), port)
}

/// Who is compared, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contestant {
    /// Nothing between.
    Direct,
    /// Two hops of the plaintext UDP relay.
    Relay,
    /// phantun's pair.
    Phantun,
    /// A pair of `gramway relay`.
    Gramway,
    /// The tunnel over UDP.
    CarrierUdp,
    /// The tunnel in packets that look like TCP.
    CarrierTcp,
}

impl Contestant {
    /// All, in the order of the table.
    pub(super) const ALL: [Self; 6] = [
        Self::Direct,
        Self::Relay,
        Self::Phantun,
        Self::Gramway,
        Self::CarrierUdp,
        Self::CarrierTcp,
    ];

    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relay => "relay",
            Self::Phantun => "phantun",
            Self::Gramway => "gramway",
            Self::CarrierUdp => "c. udp",
            Self::CarrierTcp => "c. tcp",
        }
    }

    /// Whether it is what is measured, and no measure for it.
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Gramway | Self::CarrierUdp | Self::CarrierTcp)
    }
}

/// Whether this gramway's tunnel knows the carrier.
pub(super) fn has_carrier(programs: &Programs) -> bool {
    let help = programs::run(programs.gramway().args(["up", "--help"]));
    help.is_ok_and(|help| help.contains("--tcp"))
}

/// A contestant that carries.
pub(super) struct Running {
    /// Where loads enter.
    pub(super) entrance: SocketAddr,
    /// The server's address in IP packets through it.
    pub(super) layer3: Ipv4Addr,
    ends: Vec<End>,
    _beside: Option<Load>,
    _directory: Option<Directory>,
}

/// A process between the load's ends.
enum End {
    Ours(Load),
    Program(Process),
}

impl End {
    fn pid(&self) -> u32 {
        match self {
            Self::Ours(load) => load.pid(),
            Self::Program(process) => process.id(),
        }
    }
}

impl Running {
    /// Starts both ends and waits until they are ready.
    ///
    /// # Errors
    /// When one does not start, with its own words.
    pub(super) fn start(
        programs: &Programs,
        contestant: Contestant,
        rival: Option<&phantun::Installed>,
        network: &Network,
    ) -> Result<Self, Error> {
        match contestant {
            Contestant::Direct => Ok(Self::new(TARGET, Vec::new())),
            Contestant::Relay => {
                let hop = |namespace: &Namespace, listen, target| {
                    let options = RelayOptions { listen, target };
                    launch(programs, namespace, hidden::RELAY, &options).map(End::Ours)
                };
                let server = hop(&network.server, BETWEEN, TARGET)?;
                let client = hop(&network.client, ENTRANCE, BETWEEN)?;
                Ok(Self::new(ENTRANCE, vec![client, server]))
            }
            Contestant::Phantun => {
                let rival = rival.ok_or_else(|| Error::Setup(phantun::HOW_TO_GET.to_owned()))?;
                let ends = phantun::start(rival, network, [ENTRANCE, BETWEEN, TARGET])?;
                Self::with_control(programs, network, ends)
            }
            Contestant::Gramway => {
                let relay = |namespace: &Namespace, listen: String, to: String| {
                    let mut command = programs.gramway();
                    command.args(["relay", "--listen", &listen, "--to", &to]);
                    let mut relay = Process::start(namespace.wrap(&command), "gramway relay")?;
                    relay.wait_for_line("relaying ", limits::READY_TIMEOUT)?;
                    Ok::<_, Error>(relay)
                };
                let server = relay(&network.server, format!("tcp:{BETWEEN}"), format!("udp:{TARGET}"))?;
                let client = relay(
                    &network.client,
                    format!("udp:{ENTRANCE}"),
                    format!("tcp:{BETWEEN}"),
                )?;
                Self::with_control(programs, network, [client, server])
            }
            Contestant::CarrierUdp => tunnel(programs, network, "udp"),
            Contestant::CarrierTcp => tunnel(programs, network, "tcp"),
        }
    }

    fn new(entrance: SocketAddr, ends: Vec<End>) -> Self {
        Self {
            entrance,
            layer3: SERVER,
            ends,
            _beside: None,
            _directory: None,
        }
    }

    /// iperf3's connection for control goes beside what carries UDP only.
    fn with_control(programs: &Programs, network: &Network, ends: [Process; 2]) -> Result<Self, Error> {
        let options = RelayOptions {
            listen: ENTRANCE,
            target: TARGET,
        };
        let beside = launch(programs, &network.client, hidden::RELAY_TCP, &options)?;
        Ok(Self {
            _beside: Some(beside),
            ..Self::new(ENTRANCE, ends.map(End::Program).into())
        })
    }

    /// CPU and memory of both ends at present, the client's first.
    pub(super) fn usage(&self) -> [Usage; 2] {
        let of = |end: usize| self.ends.get(end).map(|end| usage::usage(end.pid()));
        [of(0).unwrap_or_default(), of(1).unwrap_or_default()]
    }

    /// Starts the memory peaks of both ends again.
    pub(super) fn reset_peaks(&self) {
        self.ends.iter().for_each(|end| usage::reset_peak(end.pid()));
    }
}

fn launch(
    programs: &Programs,
    namespace: &Namespace,
    name: &'static str,
    options: &RelayOptions,
) -> Result<Load, Error> {
    let command = namespace.wrap(&programs.load_with(name, options)?);
    Ok(Load::launch::<SocketAddr>(name, command)?.0)
}

/// Both ends of a tunnel with this carrier, a UDP and a TCP forward, and a TUN device.
fn tunnel(programs: &Programs, network: &Network, carrier: &str) -> Result<Running, Error> {
    let directory = Directory::create()?;
    let [client_state, server_state] = ["client", "server"].map(|name| directory.join(name));
    let up = ["--tcp", "--tun", "--pool", POOL]
        .into_iter()
        .chain(["--allow-target", "10.98.0.0/16"])
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let (server, link) = serve(programs, &network.server.place(), &server_state, BETWEEN, &up)?;
    let link = directory.write("link", &link)?;
    let mut connect = programs.gramway();
    connect.arg("connect").arg("--link-file").arg(link);
    connect.arg("--state").arg(client_state);
    connect.args(["--tun", "--carrier", carrier]);
    for protocol in ["udp", "tcp"] {
        connect.args(["-L", &format!("{protocol}:{ENTRANCE}={TARGET}")]);
    }
    let mut client = Process::start(network.client.wrap(&connect), "gramway connect")?;
    let inner = INNER.to_string();
    let ping = || network.client.run("ping", ["-n", "-c1", "-W1", &inner]).is_ok();
    if !holds_within(limits::READY_TIMEOUT, || ping() || !client.is_running()) || !client.is_running() {
        return Err(Error::NotReady {
            program: format!("gramway connect --carrier {carrier}"),
            reason: client.last_words(),
        });
    }
    Ok(Running {
        layer3: INNER,
        _directory: Some(directory),
        ..Running::new(ENTRANCE, [client, server].map(End::Program).into())
    })
}
