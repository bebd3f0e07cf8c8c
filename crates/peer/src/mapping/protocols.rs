//! How a router is asked for a mapping: by PCP, or by NAT-PMP where it knows that alone; otherwise by UPnP.
//!
//! UPnP looks for routers by asking the whole network, where anybody may answer, and answer first. So our router is
//! asked by its address, too, which nobody else hears; the whole network is asked for the sake of old routers.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crab_nat::{
    InternetProtocol, MappingFailure, PortMapping, PortMappingOptions, PortMappingType, TimeoutConfig,
    natpmp, pcp,
};
use igd_next::aio::Gateway;
use igd_next::aio::tokio::{Tokio, search_gateway};
use igd_next::{AddPortError, PortMappingProtocol, SearchError, SearchOptions};
use tokio::runtime;

use super::problem::MappingProblem;
use super::router::Router;
use crate::limits::{
    MAPPING_LIFETIME, ROUTER_ANSWER_FIRST, ROUTER_ANSWER_MAX, ROUTER_ATTEMPTS, ROUTER_SEARCH_TIME,
};

/// What the router's own page calls a mapping.
const DESCRIPTION: &str = "gramway peer";

/// Where devices are asked by UPnP (UPnP Device Architecture 2.0, section 1.3.2).
const SEARCH_PORT: u16 = 1_900;

/// Why one protocol brought no mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// The router does not speak it.
    NoAnswer,
    /// What it answers, or what is wrong here.
    Answer(String),
}

impl Refusal {
    fn of(protocol: &str, answer: impl fmt::Display) -> Self {
        Self::Answer(format!("{protocol}: {answer}"))
    }

    /// Whether nobody listens there: nothing comes back, or that the port is closed.
    fn of_socket(protocol: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut => Self::NoAnswer,
            _ => Self::of(protocol, error),
        }
    }
}

impl From<MappingFailure> for Refusal {
    fn from(failure: MappingFailure) -> Self {
        match failure {
            MappingFailure::Pcp(failure) => failure.into(),
            MappingFailure::NatPmp(failure) => failure.into(),
        }
    }
}

impl From<pcp::Failure> for Refusal {
    fn from(failure: pcp::Failure) -> Self {
        match failure {
            pcp::Failure::Timeout => Self::NoAnswer,
            pcp::Failure::Socket(error) => Self::of_socket("PCP", &error),
            other => Self::of("PCP", other),
        }
    }
}

impl From<natpmp::Failure> for Refusal {
    fn from(failure: natpmp::Failure) -> Self {
        match failure {
            natpmp::Failure::Timeout => Self::NoAnswer,
            natpmp::Failure::Socket(error) => Self::of_socket("NAT-PMP", &error),
            other => Self::of("NAT-PMP", other),
        }
    }
}

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
    pub(super) fn ask(router: &Router, port: u16) -> Result<Self, MappingProblem> {
        let by_pcp = match by_pcp(router, port) {
            Ok(mapping) => return Ok(mapping),
            Err(refusal) => refusal,
        };
        let by_upnp = match by_upnp(router, port) {
            Ok(mapping) => return Ok(mapping),
            Err(refusal) => refusal,
        };
        Err(problem(router, [by_pcp, by_upnp]))
    }

    /// The same mapping for longer; nothing where the router does not go on with it.
    pub(super) fn renewed(self, router: &Router, port: u16) -> Option<Self> {
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

/// What the protocols' refusals mean together.
fn problem(router: &Router, refusals: [Refusal; 2]) -> MappingProblem {
    let router = router.gateway;
    let answers = refusals.into_iter().filter_map(|refusal| match refusal {
        Refusal::NoAnswer => None,
        Refusal::Answer(answer) => Some(answer),
    });
    let answers: Vec<String> = answers.collect();
    match answers.is_empty() {
        true => MappingProblem::NoAnswer { router },
        false => MappingProblem::Refused {
            router,
            answers: answers.join("; "),
        },
    }
}

/// Waits for a future of one of the libraries, which needs tokio's sockets and timers.
fn wait<T>(work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::of("no runtime", error))?;
    runtime.block_on(work)
}

fn by_pcp(router: &Router, port: u16) -> Result<Mapping, Refusal> {
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
    wait(async move {
        // It goes over to NAT-PMP where the router says that it knows that alone.
        let asked = PortMapping::new(gateway, own, InternetProtocol::Udp, port, options).await;
        let mapping = match asked {
            // Some routers that know NAT-PMP alone say nothing to PCP, against RFC 6886 section 3.5.
            Err(MappingFailure::Pcp(pcp::Failure::Timeout)) => {
                natpmp::port_mapping(gateway, InternetProtocol::Udp, port, options).await?
            }
            asked => asked?,
        };
        with_address(mapping).await
    })
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

/// What the first of them brings that succeeds; otherwise a refusal, with an answer if there was one.
async fn first_of<T>(
    mut open: Vec<Pin<Box<impl Future<Output = Result<T, Refusal>>>>>,
) -> Result<T, Refusal> {
    let mut refusal = Refusal::NoAnswer;
    poll_fn(|context| {
        let mut index = 0;
        while index < open.len() {
            match open[index].as_mut().poll(context) {
                Poll::Ready(Ok(found)) => return Poll::Ready(Ok(found)),
                Poll::Ready(Err(other)) => {
                    drop(open.remove(index));
                    if other != Refusal::NoAnswer {
                        refusal = other;
                    }
                }
                Poll::Pending => index += 1,
            }
        }
        match open.is_empty() {
            true => Poll::Ready(Err(refusal.clone())),
            false => Poll::Pending,
        }
    })
    .await
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::net::Ipv4Addr;

    use super::*;

    const ROUTER: Router = Router {
        gateway: Ipv4Addr::new(10, 0, 0, 1),
        own: Ipv4Addr::new(10, 0, 0, 2),
    };

    #[test]
    fn a_router_that_refuses_is_told_from_one_that_knows_no_protocol() {
        let silent = [
            Refusal::from(pcp::Failure::Timeout),
            Refusal::of_socket("UPnP", &io::ErrorKind::ConnectionRefused.into()),
        ];
        let problem_of = |refusals| problem(&ROUTER, refusals);
        let no_answer = problem_of(silent);
        assert_eq!(no_answer.name(), "no_answer");
        let refused = problem_of([Refusal::from(natpmp::Failure::NotAuthorized), Refusal::NoAnswer]);
        assert_eq!(refused.name(), "refused");
        let told = refused.to_string();
        assert!(
            told.contains("10.0.0.1 gives no port: NAT-PMP: ") && told.contains("Not authorized"),
            "{told}"
        );
    }

    /// Each has its own way to be ready.
    type Answers = Vec<Pin<Box<dyn Future<Output = Result<u8, Refusal>>>>>;

    fn outcome(answers: Answers) -> Result<u8, Refusal> {
        let boxed = answers.into_iter().map(Box::pin).collect();
        wait(first_of(boxed))
    }

    #[test]
    fn who_answers_nonsense_or_nothing_does_not_hold_up_who_answers() {
        let nonsense = || Box::pin(ready(Err(Refusal::of("UPnP", "nonsense"))));
        let found = outcome(vec![nonsense(), Box::pin(pending()), Box::pin(ready(Ok(7)))]);
        assert_eq!(found, Ok(7));
        let refused = outcome(vec![nonsense(), Box::pin(ready(Err(Refusal::NoAnswer)))]);
        assert_eq!(refused, Err(Refusal::of("UPnP", "nonsense")));
    }
}
