//! A hole in the firewall of the router of IPv6, for the endpoint's port: others reach it there although the router
//! lets in nothing else that was not asked for. Asked for by PCP ([`pcp`]), or by the service WANIPv6FirewallControl of
//! UPnP.
//!
//! UPnP asks our router by its address first, and the whole network for the sake of old routers. Only the router is
//! asked for a hole, by whichever address of its own it answers.

mod gateway;
mod pcp;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use igd_next::aio::Ipv6FirewallGateway;
use igd_next::aio::tokio::{Tokio, search_ipv6_firewall_gateway};
use igd_next::{IPV6_SSDP_LINK_LOCAL, PortMappingProtocol, SearchError, SearchOptions};

use super::answers::{Refusal, problem, wait};
use super::nonces::Nonces;
use super::problem::MappingProblem;
use super::{Kept, SEARCH_PORT};
use crate::companion::Companion;
use crate::limits::{MAPPING_LIFETIME, PINHOLE_LIFETIME_LAST, ROUTER_SEARCH_TIME};
use crate::rendezvous::Meetings;
use crate::shared::State;
use gateway::Gateway;
use pcp::{Granted, Question};

/// A router's firewall that lets others in to our port.
pub(super) enum Pinhole {
    /// By PCP.
    Pcp {
        router: SocketAddrV6,
        question: Question,
        granted: Granted,
    },
    /// By UPnP.
    Upnp {
        firewall: Ipv6FirewallGateway<Tokio>,
        /// What the router calls it.
        number: u16,
        own: SocketAddrV6,
    },
}

impl Kept for Pinhole {
    type Router = Gateway;

    fn companion(state: &mut State) -> &mut Companion<SocketAddr, MappingProblem> {
        &mut state.pinhole
    }

    fn tell(meetings: &mut Meetings, address: Option<SocketAddr>) {
        meetings.set_pinhole(address);
    }

    fn router(local: SocketAddr) -> Result<Gateway, MappingProblem> {
        Gateway::find(local)
    }

    fn ask(router: &Gateway, port: u16, nonces: &Nonces) -> Result<Self, MappingProblem> {
        let by_pcp = match by_pcp(router, port, nonces) {
            Ok(pinhole) => return Ok(pinhole),
            Err(refusal) => refusal,
        };
        let by_upnp = match wait(by_upnp(router, port)) {
            Ok(pinhole) => return Ok(pinhole),
            Err(refusal) => refusal,
        };
        Err(problem(router.address.into(), [by_pcp, by_upnp]))
    }

    fn renewed(self, _: &Gateway, _: u16) -> Option<Self> {
        match self {
            Self::Pcp { router, question, .. } => {
                let granted = question.ask(router).ok()?;
                Some(Self::Pcp {
                    router,
                    question,
                    granted,
                })
            }
            Self::Upnp {
                firewall,
                number,
                own,
            } => {
                let renewed = async {
                    let renewed = firewall.update_pinhole(number, lifetime_seconds()).await;
                    renewed.map_err(refused)
                };
                wait(renewed).ok()?;
                Some(Self::Upnp {
                    firewall,
                    number,
                    own,
                })
            }
        }
    }

    fn external(&self) -> SocketAddr {
        match self {
            Self::Pcp { granted, .. } => granted.external,
            Self::Upnp { own, .. } => (*own).into(),
        }
    }

    fn lifetime(&self) -> Duration {
        match self {
            Self::Pcp { granted, .. } => granted.lifetime,
            Self::Upnp { .. } => MAPPING_LIFETIME,
        }
    }

    fn unreachable(router: &Gateway, external: SocketAddr) -> MappingProblem {
        MappingProblem::BehindAnother {
            router: router.address.into(),
            outer: external.ip(),
        }
    }

    fn take_back(self) {
        match self {
            Self::Pcp { router, question, .. } => {
                let lasting = |lifetime| Question { lifetime, ..question }.ask(router);
                // Routers with miniupnpd over nftables do not end one that was renewed, but shorten it.
                if let Err(Refusal::Answer(_)) = lasting(Duration::ZERO) {
                    let _ = lasting(PINHOLE_LIFETIME_LAST);
                }
            }
            Self::Upnp { firewall, number, .. } => {
                let _ = wait(async { firewall.remove_pinhole(number).await.map_err(refused) });
            }
        }
    }
}

fn by_pcp(router: &Gateway, port: u16, nonces: &Nonces) -> Result<Pinhole, Refusal> {
    let question = Question {
        own: SocketAddrV6::new(router.own, port, 0, 0),
        nonce: nonces.of(router.address.into(), router.own.into()),
        lifetime: MAPPING_LIFETIME,
    };
    let router = router.at(crab_nat::GATEWAY_PORT);
    let granted = question.ask(router)?;
    Ok(Pinhole::Pcp {
        router,
        question,
        granted,
    })
}

async fn by_upnp(router: &Gateway, port: u16) -> Result<Pinhole, Refusal> {
    let firewall = match search(router, router.address).await {
        Err(_) => search(router, IPV6_SSDP_LINK_LOCAL).await?,
        found => found?,
    };
    let own = SocketAddrV6::new(router.own, port, 0, 0);
    let added = firewall
        .add_pinhole(PortMappingProtocol::UDP, own, lifetime_seconds())
        .await;
    let number = added.map_err(refused)?;
    Ok(Pinhole::Upnp {
        firewall,
        number,
        own,
    })
}

/// Our router's firewall, as it answers a question to this address. The question comes from the address that others
/// are to reach: a router has then one of the same kind for the answers, which our requests for that address leave to
/// by themselves.
async fn search(router: &Gateway, asked: Ipv6Addr) -> Result<Ipv6FirewallGateway<Tokio>, Refusal> {
    let mut options = SearchOptions::ipv6(router.interface);
    options.bind_addr = SocketAddr::new(IpAddr::V6(router.own), 0);
    options.broadcast_address = SocketAddrV6::new(asked, SEARCH_PORT, 0, router.interface).into();
    options.timeout = Some(ROUTER_SEARCH_TIME);
    options.single_search_timeout = Some(ROUTER_SEARCH_TIME);
    let firewall = match search_ipv6_firewall_gateway(options).await {
        Ok(firewall) => firewall,
        Err(SearchError::NoResponseWithinTimeout) => return Err(Refusal::NoAnswer),
        Err(SearchError::IoError(error)) => return Err(Refusal::of_socket("UPnP", &error)),
        Err(error) => return Err(refused(error)),
    };
    // Whoever else answers on the network is not between us and the world.
    match router.has(firewall.addr) {
        true => Ok(firewall),
        false => Err(Refusal::NoAnswer),
    }
}

fn lifetime_seconds() -> u32 {
    u32::try_from(MAPPING_LIFETIME.as_secs()).unwrap_or(u32::MAX)
}

fn refused(error: impl fmt::Display) -> Refusal {
    Refusal::of("UPnP", error)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use super::*;

    /// The lifetimes that are asked for one after the other, always with the same nonce; a router that ends no mapping.
    #[test]
    fn a_pinhole_is_renewed_as_the_same_and_shortened_where_the_router_does_not_end_it() {
        let router = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V6(address) = router.local_addr().unwrap() else {
            panic!("it is bound to IPv6");
        };
        let asked = thread::spawn(move || {
            let mut asked: Vec<([u8; 4], [u8; 12])> = Vec::new();
            // A question that is repeated on a busy machine is answered again.
            while asked.last().is_none_or(|(lifetime, _)| *lifetime != [0, 0, 0, 1]) {
                let mut question = [0; 60];
                let (_, from) = router.recv_from(&mut question).unwrap();
                let (lifetime, nonce) = (&question[4..8], &question[24..36]);
                let this = (lifetime.try_into().unwrap(), nonce.try_into().unwrap());
                if asked.last() != Some(&this) {
                    asked.push(this);
                }
                question[1] |= 0x80;
                // NOT_AUTHORIZED.
                question[3] = if this.0 == [0; 4] { 2 } else { 0 };
                router.send_to(&question, from).unwrap();
            }
            asked
        });
        let question = Question {
            own: SocketAddrV6::new(Ipv6Addr::LOCALHOST, 4_000, 0, 0),
            nonce: [7; 12],
            lifetime: MAPPING_LIFETIME,
        };
        let pinhole = Pinhole::Pcp {
            router: address,
            question,
            granted: question.ask(address).unwrap(),
        };
        let gateway = Gateway {
            address: Ipv6Addr::LOCALHOST,
            interface: 1,
            own: Ipv6Addr::LOCALHOST,
        };
        let renewed = pinhole.renewed(&gateway, 4_000).expect("it is granted again");
        assert_eq!(renewed.external(), SocketAddr::from(question.own));
        assert_eq!(renewed.lifetime(), MAPPING_LIFETIME);
        renewed.take_back();
        let lifetimes = [lifetime_seconds(), 0, 1].map(u32::to_be_bytes);
        let asked = asked.join().unwrap();
        assert_eq!(asked, lifetimes.map(|lifetime| (lifetime, [7; 12])));
    }
}
