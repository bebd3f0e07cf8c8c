//! How a router is asked for a mapping: by PCP, or by NAT-PMP where it knows that alone; otherwise by UPnP.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use crab_nat::{InternetProtocol, PortMapping, PortMappingOptions, PortMappingType, TimeoutConfig, natpmp};
use igd_next::aio::Gateway;
use igd_next::aio::tokio::{Tokio, search_gateway};
use igd_next::{AddPortError, PortMappingProtocol, SearchOptions};
use tokio::runtime;

use super::router::Router;
use crate::limits::{
    MAPPING_LIFETIME, ROUTER_ANSWER_FIRST, ROUTER_ANSWER_MAX, ROUTER_ATTEMPTS, ROUTER_SEARCH_TIME,
};

/// What the router's own page calls a mapping.
const DESCRIPTION: &str = "gramway peer";

/// A port of the router that leads to ours.
pub(super) enum Mapping {
    /// By PCP or NAT-PMP.
    Pcp { mapping: PortMapping, external: IpAddr },
    /// By UPnP.
    Upnp {
        gateway: Box<Gateway<Tokio>>,
        external: SocketAddr,
    },
}

impl Mapping {
    /// Asks for a mapping to this port.
    pub(super) fn ask(router: &Router, port: u16) -> Result<Self, String> {
        by_pcp(router, port).or_else(|pcp| by_upnp(router, port).map_err(|upnp| format!("{pcp}; {upnp}")))
    }

    /// The same mapping for longer.
    pub(super) fn renewed(self, router: &Router, port: u16) -> Result<Self, String> {
        match self {
            Self::Pcp { mut mapping, .. } => wait(async move {
                mapping.renew().await.map_err(|error| error.to_string())?;
                with_address(mapping).await
            }),
            Self::Upnp { gateway, external } => {
                let suggested = external.port();
                wait(map_by_upnp(gateway, router, port, suggested))
            }
        }
    }

    /// Where others reach us by it.
    pub(super) fn external(&self) -> SocketAddr {
        match self {
            Self::Pcp { mapping, external } => SocketAddr::new(*external, mapping.external_port().get()),
            Self::Upnp { external, .. } => *external,
        }
    }

    /// How long it lives without a renewal.
    pub(super) fn lifetime(&self) -> Duration {
        match self {
            Self::Pcp { mapping, .. } => Duration::from_secs(mapping.lifetime().into()),
            // UPnP does not tell what was granted.
            Self::Upnp { .. } => MAPPING_LIFETIME,
        }
    }

    /// Gives the port back, as far as the router answers.
    pub(super) fn take_back(self) {
        match self {
            Self::Pcp { mapping, .. } => {
                let _ = wait(async move {
                    let dropped = mapping.try_drop().await;
                    dropped.map_err(|(error, _)| error.to_string())
                });
            }
            Self::Upnp { gateway, external } => {
                let _ = wait(async move {
                    let removed = gateway
                        .remove_port(PortMappingProtocol::UDP, external.port())
                        .await;
                    removed.map_err(|error| error.to_string())
                });
            }
        }
    }
}

/// Waits for a future of one of the libraries, which needs tokio's sockets and timers.
fn wait<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

fn by_pcp(router: &Router, port: u16) -> Result<Mapping, String> {
    let port = NonZeroU16::new(port).ok_or("the endpoint has no port")?;
    let options = PortMappingOptions {
        external_port: Some(port),
        lifetime_seconds: u32::try_from(MAPPING_LIFETIME.as_secs()).ok(),
        timeout_config: Some(TimeoutConfig {
            initial_timeout: ROUTER_ANSWER_FIRST,
            max_retries: ROUTER_ATTEMPTS,
            max_retry_timeout: Some(ROUTER_ANSWER_MAX),
        }),
    };
    let (gateway, own) = (router.gateway.into(), router.own.into());
    wait(async move {
        let mapping = PortMapping::new(gateway, own, InternetProtocol::Udp, port, options).await;
        with_address(mapping.map_err(|error| error.to_string())?).await
    })
}

/// The mapping with the router's outer address, which NAT-PMP has a question of its own for.
async fn with_address(mapping: PortMapping) -> Result<Mapping, String> {
    let external = match mapping.mapping_type() {
        PortMappingType::Pcp { external_ip, .. } => external_ip.to_canonical(),
        PortMappingType::NatPmp => {
            let asked = natpmp::external_address(mapping.gateway(), Some(mapping.timeout_config)).await;
            asked.map_err(|error| error.to_string())?.into()
        }
    };
    Ok(Mapping::Pcp { mapping, external })
}

fn by_upnp(router: &Router, port: u16) -> Result<Mapping, String> {
    let mut options = SearchOptions::default();
    options.bind_addr = SocketAddr::new(router.own.into(), 0);
    options.timeout = Some(ROUTER_SEARCH_TIME);
    options.single_search_timeout = Some(ROUTER_SEARCH_TIME);
    wait(async {
        let gateway = search_gateway(options).await.map_err(told)?;
        // Whoever else answers on the network is no router of ours, and could name anybody's address.
        if gateway.addr.ip() != IpAddr::V4(router.gateway) {
            return Err(format!("UPnP: {} is not our router", gateway.addr.ip()));
        }
        map_by_upnp(Box::new(gateway), router, port, port).await
    })
}

async fn map_by_upnp(
    gateway: Box<Gateway<Tokio>>,
    router: &Router,
    port: u16,
    suggested: u16,
) -> Result<Mapping, String> {
    let inside = SocketAddr::new(router.own.into(), port);
    let lifetime = u32::try_from(MAPPING_LIFETIME.as_secs()).unwrap_or(0);
    let protocol = PortMappingProtocol::UDP;
    let mut added = gateway
        .add_port(protocol, suggested, inside, lifetime, DESCRIPTION)
        .await;
    if matches!(added, Err(AddPortError::OnlyPermanentLeasesSupported)) {
        // Zero is for ever: some routers know nothing else.
        added = gateway
            .add_port(protocol, suggested, inside, 0, DESCRIPTION)
            .await;
    }
    let outside = match added {
        Ok(()) => suggested,
        Err(AddPortError::PortInUse) => {
            let any = gateway
                .add_any_port(protocol, inside, lifetime, DESCRIPTION)
                .await;
            any.map_err(told)?
        }
        Err(error) => return Err(told(error)),
    };
    let ip = match gateway.get_external_ip().await {
        Ok(ip) => ip,
        Err(error) => {
            // It may be one for ever.
            let _ = gateway.remove_port(protocol, outside).await;
            return Err(told(error));
        }
    };
    Ok(Mapping::Upnp {
        gateway,
        external: SocketAddr::new(ip, outside),
    })
}

fn told(error: impl std::fmt::Display) -> String {
    format!("UPnP: {error}")
}
