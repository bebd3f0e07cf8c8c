//! Why no port of a router leads to an endpoint, in words for people and names for programs.

use std::net::{IpAddr, Ipv4Addr};

/// Why no port of the router leads to the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingProblem {
    /// There is no router to ask.
    #[error("no router of IPv4 can be asked: {0}")]
    NoRouter(String),
    /// The machine has a public address: others reach it without a mapping, unless a firewall is between.
    #[error("none is needed: {0} is a public address")]
    NotNeeded(Ipv4Addr),
    /// The router answers none of the protocols.
    #[error(
        "the router {router} answers neither PCP nor NAT-PMP nor UPnP; switch one of them on there, or lead a port to \
         this machine by hand"
    )]
    NoAnswer {
        /// The router.
        router: Ipv4Addr,
    },
    /// It answers one of them, and gives no port.
    #[error("the router {router} gives no port: {answers}")]
    Refused {
        /// The router.
        router: Ipv4Addr,
        /// What it answered, by protocol.
        answers: String,
    },
    /// It gives a port at an address that others do not reach.
    #[error(
        "the router {router} is behind another one: its own outer address, {outer}, is not public; have that router, or \
         the provider, lead a port to it"
    )]
    BehindAnother {
        /// The router.
        router: Ipv4Addr,
        /// Its address outside.
        outer: IpAddr,
    },
}

impl MappingProblem {
    /// Its name for programs, which stays: `no_router`, `not_needed`, `no_answer`, `refused`, `behind_another`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoRouter(_) => "no_router",
            Self::NotNeeded(_) => "not_needed",
            Self::NoAnswer { .. } => "no_answer",
            Self::Refused { .. } => "refused",
            Self::BehindAnother { .. } => "behind_another",
        }
    }
}
