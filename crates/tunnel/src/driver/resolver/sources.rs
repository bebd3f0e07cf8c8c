//! Where names are looked up: the system's files, read again when they change.
//!
//! A `/etc/resolv.conf` with a line that cannot be used still counts for its name servers. Where it names none, this
//! machine is asked, as by the C library. Both are told, when a name is asked for.
//!
//! A client's names are asked for outside its tunnel, of those whom the system asked before the client's own `--dns`:
//! where a file names servers of that setting alone, those that it named before go on. systemd-resolved would ask
//! through the tunnel, so the servers that it knows are asked themselves.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::{ConnectionProvider, Hosts, Resolver, system_conf};

use super::sockets::{Sockets, Way};
use crate::limits;

/// Where names are looked up.
#[derive(Clone)]
pub(in crate::driver) struct NameSources {
    /// As resolv.conf(5) describes it.
    pub(in crate::driver) resolv_conf: PathBuf,
    /// The same, of systemd-resolved: whom it asks itself.
    pub(in crate::driver) resolved_conf: PathBuf,
    /// As hosts(5) describes it.
    pub(in crate::driver) hosts: PathBuf,
    /// Where name servers listen.
    pub(in crate::driver) port: u16,
    /// How long a name may take.
    pub(in crate::driver) time_max: Duration,
    /// How packets to name servers leave.
    pub(in crate::driver) way: Way,
    /// They are not asked.
    pub(in crate::driver) excluded: OwnNameServers,
}

/// Name servers that our own tunnel brings; entered before the system's files name them.
#[derive(Clone, Debug, Default)]
pub(in crate::driver) struct OwnNameServers(Arc<Mutex<Vec<IpAddr>>>);

impl OwnNameServers {
    pub(in crate::driver) fn new(servers: Vec<IpAddr>) -> Self {
        Self(Arc::new(Mutex::new(servers)))
    }

    pub(in crate::driver) fn set(&self, servers: Vec<IpAddr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    pub(in crate::driver) fn contain(&self, server: IpAddr) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&server)
    }
}

impl NameSources {
    /// Asks as the system does, but never the servers `excluded`.
    pub(in crate::driver) fn without(excluded: Vec<IpAddr>) -> Self {
        Self {
            excluded: OwnNameServers::new(excluded),
            ..Self::default()
        }
    }

    /// Asks beside a tunnel, by `way`, and never its name servers `excluded`.
    pub(in crate::driver) fn beside_tunnel(way: Way, excluded: OwnNameServers) -> Self {
        Self {
            way,
            excluded,
            ..Self::default()
        }
    }

    /// Whether a tunnel of ours may be between us and what the system asks.
    fn is_beside_tunnel(&self) -> bool {
        matches!(self.way, Way::Uplink(..))
    }
}

impl Default for NameSources {
    fn default() -> Self {
        Self {
            resolv_conf: "/etc/resolv.conf".into(),
            resolved_conf: "/run/systemd/resolve/resolv.conf".into(),
            hosts: "/etc/hosts".into(),
            port: limits::NAME_SERVER_PORT,
            time_max: limits::RESOLUTION_TIME_MAX,
            way: Way::default(),
            excluded: OwnNameServers::default(),
        }
    }
}

/// Whom the files name.
#[derive(Clone)]
pub(super) struct Described {
    pub(super) resolver: Resolver<Sockets>,
    /// Asked first.
    pub(super) hosts: Arc<Hosts>,
}

/// The resolver of the present configuration.
pub(super) struct Names {
    sources: NameSources,
    resolver: Option<Described>,
    /// What is wrong with the files, until it is told.
    warning: Option<String>,
    /// Whom the system named last, besides those that are excluded.
    servers: Vec<NameServerConfig>,
    files: Files,
}

impl Names {
    pub(super) fn new(sources: NameSources, now: Instant) -> Self {
        let files = Files::new(&sources, now);
        let mut servers = Vec::new();
        let (resolver, warning) = build(&sources, &mut servers);
        Self {
            sources,
            servers,
            resolver,
            warning,
            files,
        }
    }

    /// None where the configuration is of no use.
    pub(super) fn resolver(&mut self, now: Instant) -> Option<Described> {
        if self.files.have_changed(&self.sources, now) {
            (self.resolver, self.warning) = build(&self.sources, &mut self.servers);
        }
        self.resolver.clone()
    }

    /// What is wrong with the present configuration, once.
    pub(super) fn poll_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

/// Whom the system asks for names, for who passes questions on to them.
pub(in crate::driver) struct SystemNameServers {
    sources: NameSources,
    servers: Vec<SocketAddr>,
    files: Files,
}

impl SystemNameServers {
    pub(in crate::driver) fn new(sources: NameSources, now: Instant) -> Self {
        Self {
            files: Files::new(&sources, now),
            servers: system_servers(&sources),
            sources,
        }
    }

    /// In their order, without those that are excluded.
    pub(in crate::driver) fn servers(&mut self, now: Instant) -> Vec<SocketAddr> {
        if self.files.have_changed(&self.sources, now) {
            self.servers = system_servers(&self.sources);
        }
        self.servers.clone()
    }
}

fn system_servers(sources: &NameSources) -> Vec<SocketAddr> {
    let (config, ..) = configuration(&sources.resolv_conf);
    let named = config.name_servers.iter().map(|server| server.ip);
    named
        .filter(|server| !sources.excluded.contain(*server))
        .map(|server| SocketAddr::new(server, sources.port))
        .take(limits::SYSTEM_NAME_SERVERS_MAX)
        .collect()
}

/// The files as they were when they were last looked at.
struct Files {
    stamp: Stamp,
    looked_at: Instant,
}

impl Files {
    fn new(sources: &NameSources, now: Instant) -> Self {
        Self {
            stamp: stamp(sources),
            looked_at: now,
        }
    }

    /// Whether one of them has changed, as far as it is time to look again.
    fn have_changed(&mut self, sources: &NameSources, now: Instant) -> bool {
        if now.saturating_duration_since(self.looked_at) < limits::NAME_SOURCES_INTERVAL {
            return false;
        }
        self.looked_at = now;
        let present = stamp(sources);
        std::mem::replace(&mut self.stamp, present) != present
    }
}

/// Changes when one of the files does.
type Stamp = [Option<(SystemTime, u64)>; 3];

fn stamp(sources: &NameSources) -> Stamp {
    [&sources.resolv_conf, &sources.resolved_conf, &sources.hosts].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

/// The resolver that the files describe, and what is wrong with them. Beside a tunnel, `servers` goes on where they
/// name nobody else.
fn build(sources: &NameSources, servers: &mut Vec<NameServerConfig>) -> (Option<Described>, Option<String>) {
    let (mut config, options, warning) = configuration(&sources.resolv_conf);
    if sources.is_beside_tunnel() {
        look_behind_resolved(sources, &mut config.name_servers);
        let all = config.name_servers.iter();
        let outside: Vec<_> = all
            .filter(|server| !sources.excluded.contain(server.ip))
            .cloned()
            .collect();
        if !outside.is_empty() {
            *servers = outside;
        }
        // Before our own were set, the machine may have had the same ones: they are asked beside the tunnel, too.
        if !servers.is_empty() {
            config.name_servers.clone_from(servers);
        }
    }
    let network = Sockets::new(sources.way.clone());
    let mut resolver = match bounded(config, options, sources.port, network) {
        Ok(resolver) => resolver,
        Err(error) => {
            let text = format!(
                "no name can be resolved by {}: {error}",
                sources.resolv_conf.display()
            );
            return (None, Some(text));
        }
    };
    let mut hosts = Hosts::default();
    if let Ok(file) = std::fs::File::open(&sources.hosts) {
        // A line that cannot be read leaves the lines before it.
        let _ = hosts.read_hosts_conf(file);
    }
    let hosts = Arc::new(hosts);
    // With the endings that names are tried with.
    resolver.set_hosts(Arc::clone(&hosts));
    (Some(Described { resolver, hosts }), warning)
}

/// A resolver of that configuration within our bounds; name servers listen on `port`.
pub(super) fn bounded<P: ConnectionProvider>(
    mut config: ResolverConfig,
    mut options: ResolverOpts,
    port: u16,
    network: P,
) -> Result<Resolver<P>, NetError> {
    for server in &mut config.name_servers {
        for connection in &mut server.connections {
            connection.port = port;
        }
    }
    options.timeout = options.timeout.min(limits::RESOLUTION_TRY_TIME);
    options.attempts = limits::RESOLUTION_RETRIES as usize;
    // One server at a time: more of them multiply the sockets of every name.
    options.num_concurrent_reqs = 1;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = limits::NAMES_CACHED_MAX;
    options.negative_max_ttl = Some(limits::NAME_ABSENT_TIME_MAX);
    options.use_hosts_file = ResolveHosts::Never;
    let mut builder = Resolver::builder_with_config(config, network);
    *builder.options_mut() = options;
    builder.build()
}

/// In the place of systemd-resolved stand those that it asks.
fn look_behind_resolved(sources: &NameSources, servers: &mut Vec<NameServerConfig>) {
    if servers.iter().all(|server| server.ip.is_loopback())
        && let Ok(text) = std::fs::read(&sources.resolved_conf)
        && let Ok((behind, _)) = system_conf::parse_resolv_conf(name_server_lines(&text))
    {
        servers.clone_from(&behind.name_servers);
    }
}

/// What the file says, and what is wrong with it.
fn configuration(path: &Path) -> (ResolverConfig, ResolverOpts, Option<String>) {
    match std::fs::read(path) {
        Ok(text) => described(path, &text, None),
        Err(error) => described(path, &[], Some(error.to_string())),
    }
}

/// The same of the file's text, which is empty where the file is `unreadable`.
pub(super) fn described(
    path: &Path,
    text: &[u8],
    unreadable: Option<String>,
) -> (ResolverConfig, ResolverOpts, Option<String>) {
    let error = match system_conf::parse_resolv_conf(text) {
        Ok((config, options)) => return (config, options, None),
        Err(error) => unreadable.unwrap_or_else(|| error.to_string()),
    };
    let path = path.display();
    if let Ok((config, options)) = system_conf::parse_resolv_conf(name_server_lines(text)) {
        let warning = format!("only the name servers of {path} are used, because of another line: {error}");
        return (config, options, Some(warning));
    }
    let local = Ipv4Addr::LOCALHOST;
    let config = ResolverConfig::from_name_servers(vec![NameServerConfig::udp_and_tcp(local.into())]);
    let warning = format!(
        "no name server in {path} ({error}): {local} is asked for names; a line `nameserver ADDRESS` there names another"
    );
    (config, ResolverOpts::default(), Some(warning))
}

/// The lines of a resolv.conf(5) that name servers.
fn name_server_lines(text: &[u8]) -> Vec<u8> {
    text.split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.trim_ascii_start().starts_with(b"nameserver"))
        .flatten()
        .copied()
        .collect()
}
