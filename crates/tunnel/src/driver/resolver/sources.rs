//! Where names are looked up: the system's files, read again when they change.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Hosts, TokioResolver, system_conf};

use crate::limits;

/// Where names are looked up.
#[derive(Clone, Debug)]
pub(in crate::driver) struct Sources {
    /// As resolv.conf(5) describes it.
    pub(in crate::driver) resolv_conf: PathBuf,
    /// As hosts(5) describes it.
    pub(in crate::driver) hosts: PathBuf,
    /// Where name servers listen.
    pub(in crate::driver) port: u16,
    /// How long a name may take.
    pub(in crate::driver) time_max: Duration,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            resolv_conf: "/etc/resolv.conf".into(),
            hosts: "/etc/hosts".into(),
            port: limits::NAME_SERVER_PORT,
            time_max: limits::RESOLUTION_TIME_MAX,
        }
    }
}

/// The resolver of the present configuration.
pub(super) struct Names {
    sources: Sources,
    resolver: Option<TokioResolver>,
    stamp: [Option<(SystemTime, u64)>; 2],
    looked_at: Instant,
}

impl Names {
    pub(super) fn new(sources: Sources, now: Instant) -> Self {
        Self {
            stamp: stamp(&sources),
            resolver: build(&sources),
            sources,
            looked_at: now,
        }
    }

    /// None where the configuration is of no use.
    pub(super) fn resolver(&mut self, now: Instant) -> Option<TokioResolver> {
        if now.saturating_duration_since(self.looked_at) >= limits::NAME_SOURCES_INTERVAL {
            self.looked_at = now;
            let stamp = stamp(&self.sources);
            if stamp != self.stamp {
                self.stamp = stamp;
                self.resolver = build(&self.sources);
            }
        }
        self.resolver.clone()
    }
}

/// Changes when one of the files does.
fn stamp(sources: &Sources) -> [Option<(SystemTime, u64)>; 2] {
    [&sources.resolv_conf, &sources.hosts].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

fn build(sources: &Sources) -> Option<TokioResolver> {
    let (mut config, mut options) = configuration(&sources.resolv_conf);
    for server in &mut config.name_servers {
        for connection in &mut server.connections {
            connection.port = sources.port;
        }
    }
    options.timeout = options.timeout.min(limits::RESOLUTION_TRY_TIME);
    options.attempts = limits::RESOLUTION_RETRIES as usize;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = limits::NAMES_CACHED_MAX;
    options.negative_max_ttl = Some(limits::NAME_ABSENT_TIME_MAX);
    options.use_hosts_file = ResolveHosts::Never;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    let mut resolver = builder.build().ok()?;
    let mut hosts = Hosts::default();
    if let Ok(file) = std::fs::File::open(&sources.hosts) {
        // A line that cannot be read leaves the lines before it.
        let _ = hosts.read_hosts_conf(file);
    }
    resolver.set_hosts(Arc::new(hosts));
    Some(resolver)
}

/// What the file says; the name server of this machine where it says nothing, as the C library does.
fn configuration(path: &Path) -> (ResolverConfig, ResolverOpts) {
    let text = std::fs::read(path).unwrap_or_default();
    system_conf::parse_resolv_conf(text).unwrap_or_else(|_| {
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let config = ResolverConfig::from_name_servers(vec![local]);
        (config, ResolverOpts::default())
    })
}
