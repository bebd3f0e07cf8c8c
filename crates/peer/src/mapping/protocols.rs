//! How a router is asked for a mapping: by PCP, or by NAT-PMP where it knows that alone; otherwise by UPnP.
//!
//! UPnP looks for routers by asking the whole network, where anybody may answer, and answer first. So our router is
//! asked by its address, too, which nobody else hears; the whole network is asked for the sake of old routers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use crab_nat::pcp::BaseMapRequest;
use crab_nat::{
    InternetProtocol, PortMapping, PortMappingOptions, PortMappingType, TimeoutConfig, VersionCode, natpmp,
    pcp,
};
use igd_next::aio::Gateway;
use igd_next::aio::tokio::{Tokio, search_gateway};
use igd_next::{AddPortError, PortMappingProtocol, SearchError, SearchOptions};

use super::answers::{Refusal, first_of, problem, wait};
use super::nonces::{Nonce, Nonces};
use super::problem::MappingProblem;
use super::router::Router;
use super::{Kept, SEARCH_PORT};
use crate::companion::Companion;
use crate::limits::{
    MAPPING_LIFETIME, ROUTER_ANSWER_FIRST, ROUTER_ANSWER_MAX, ROUTER_ATTEMPTS, ROUTER_SEARCH_TIME,
};
use crate::rendezvous::Meetings;
use crate::shared::State;

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

impl Kept for Mapping {
    type Router = Router;

    fn companion(state: &mut State) -> &mut Companion<SocketAddr, MappingProblem> {
        &mut state.mapping
    }

    fn tell(meetings: &mut Meetings, address: Option<SocketAddr>) {
        meetings.set_mapped(address);
    }

    fn router(local: SocketAddr) -> Result<Router, MappingProblem> {
        Router::find(local)
    }

    fn ask(router: &Router, port: u16, nonces: &Nonces) -> Result<Self, MappingProblem> {
        let by_pcp = match by_pcp(router, port, nonces) {
            Ok(mapping) => return Ok(mapping),
            Err(refusal) => refusal,
        };
        let by_upnp = match by_upnp(router, port) {
            Ok(mapping) => return Ok(mapping),
            Err(refusal) => refusal,
        };
        Err(problem(router.gateway.into(), [by_pcp, by_upnp]))
    }

    fn renewed(self, router: &Router, port: u16) -> Option<Self> {
        let renewed = match self {
            Self::Pcp { mut mapping, .. } => wait(async move {
                mapping.renew().await?;
                with_address(mapping).await
            }),
            Self::Upnp { gateway, external } => {
                let suggested = external.port();
                wait(map_by_upnp(gateway, router, port, suggested))
            }
        };
        renewed.ok()
    }

    fn external(&self) -> SocketAddr {
        match self {
            Self::Pcp { mapping, external } => SocketAddr::new(*external, mapping.external_port().get()),
            Self::Upnp { external, .. } => *external,
        }
    }

    fn lifetime(&self) -> Duration {
        match self {
            Self::Pcp { mapping, .. } => Duration::from_secs(mapping.lifetime().into()),
            // UPnP does not tell what was granted.
            Self::Upnp { .. } => MAPPING_LIFETIME,
        }
    }

    fn unreachable(router: &Router, external: SocketAddr) -> MappingProblem {
        MappingProblem::BehindAnother {
            router: router.gateway.into(),
            outer: external.ip(),
        }
    }

    fn take_back(self) {
        match self {
            Self::Pcp { mapping, .. } => {
                let _ = wait(async move { mapping.try_drop().await.map_err(|(failure, _)| failure.into()) });
            }
            Self::Upnp { gateway, external } => {
                let _ = wait(async move {
                    let removed = gateway
                        .remove_port(PortMappingProtocol::UDP, external.port())
                        .await;
                    removed.map_err(|error| Refusal::of("UPnP", error))
                });
            }
        }
    }
}

fn by_pcp(router: &Router, port: u16, nonces: &Nonces) -> Result<Mapping, Refusal> {
    let port = NonZeroU16::new(port).ok_or_else(|| Refusal::of("PCP", "the endpoint has no port"))?;
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
    let base = BaseMapRequest::new(gateway, own, InternetProtocol::Udp, port);
    let nonce = words(nonces.of(router.gateway.into(), own));
    wait(async move {
        let asked = pcp::port_mapping(base, Some(nonce), None, options).await;
        let mapping = match asked {
            // It knows NAT-PMP alone. Some such routers say nothing to PCP, against RFC 6886 section 3.5.
            Err(pcp::Failure::UnsupportedVersion(VersionCode::NatPmp) | pcp::Failure::Timeout) => {
                natpmp::port_mapping(gateway, InternetProtocol::Udp, port, options).await?
            }
            asked => asked?,
        };
        with_address(mapping).await
    })
}

/// A nonce as crab_nat has it: it writes each word in the order of the network.
fn words(nonce: Nonce) -> [u32; 3] {
    let (words, _) = nonce.as_chunks::<4>();
    std::array::from_fn(|index| u32::from_be_bytes(words[index]))
}

/// The mapping with the router's outer address, which NAT-PMP has a question of its own for.
async fn with_address(mapping: PortMapping) -> Result<Mapping, Refusal> {
    let external = match mapping.mapping_type() {
        PortMappingType::Pcp { external_ip, .. } => external_ip.to_canonical(),
        PortMappingType::NatPmp => {
            let asked = natpmp::external_address(mapping.gateway(), Some(mapping.timeout_config)).await;
            asked?.into()
        }
    };
    Ok(Mapping::Pcp { mapping, external })
}

fn by_upnp(router: &Router, port: u16) -> Result<Mapping, Refusal> {
    wait(async {
        let whole_network = SearchOptions::default().broadcast_address;
        let itself = SocketAddr::new(router.gateway.into(), SEARCH_PORT);
        let searches = [itself, whole_network].map(|asked| Box::pin(search(router, asked)));
        let gateway = first_of(searches.into()).await?;
        map_by_upnp(gateway, router, port, port).await
    })
}

/// Our router, as it answers a question to this address.
async fn search(router: &Router, asked: SocketAddr) -> Result<Box<Gateway<Tokio>>, Refusal> {
    let mut options = SearchOptions::default();
    options.bind_addr = SocketAddr::new(router.own.into(), 0);
    options.broadcast_address = asked;
    options.timeout = Some(ROUTER_SEARCH_TIME);
    options.single_search_timeout = Some(ROUTER_SEARCH_TIME);
    let gateway = match search_gateway(options).await {
        Ok(gateway) => gateway,
        Err(SearchError::NoResponseWithinTimeout) => return Err(Refusal::NoAnswer),
        Err(SearchError::IoError(error)) => return Err(Refusal::of_socket("UPnP", &error)),
        Err(error) => return Err(Refusal::of("UPnP", error)),
    };
    // Whoever else answers on the network is no router of ours, and could name anybody's address.
    match gateway.addr.ip() == IpAddr::V4(router.gateway) {
        true => Ok(Box::new(gateway)),
        false => Err(Refusal::NoAnswer),
    }
}

async fn map_by_upnp(
    gateway: Box<Gateway<Tokio>>,
    router: &Router,
    port: u16,
    suggested: u16,
) -> Result<Mapping, Refusal> {
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
            any.map_err(refused)?
        }
        Err(error) => return Err(refused(error)),
    };
    let ip = match gateway.get_external_ip().await {
        Ok(ip) => ip,
        Err(error) => {
            // It may be one for ever.
            let _ = gateway.remove_port(protocol, outside).await;
            return Err(refused(error));
        }
    };
    Ok(Mapping::Upnp {
        gateway,
        external: SocketAddr::new(ip, outside),
    })
}

fn refused(error: impl fmt::Display) -> Refusal {
    Refusal::of("UPnP", error)
}
