//! Why no port of a router leads to an endpoint, or its firewall lets nobody in, in words for people and names for
//! programs.

use std::net::IpAddr;

/// Why no port of the router of IPv4 leads to the endpoint, or why the firewall of the router of IPv6 was not opened
/// for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingProblem {
    /// There is no router to ask.
    #[error("no router can be asked: {0}")]
    NoRouter(String),
    /// The machine has a public address: others reach it without a mapping, unless a firewall is between.
    #[error("none is needed: {0} is a public address")]
    NotNeeded(IpAddr),
    /// The router answers none of the protocols.
    #[error("the router {router} answers {}", no_protocol(*router))]
    NoAnswer {
        /// The router.
        router: IpAddr,
    },
    /// It answers one of them, and refuses.
    #[error("the router {router} refuses: {answers}")]
    Refused {
        /// The router.
        router: IpAddr,
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
        router: IpAddr,
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

/// Which protocols a router does not answer, and what helps.
fn no_protocol(router: IpAddr) -> &'static str {
    match router {
        IpAddr::V4(_) => {
            "neither PCP nor NAT-PMP nor UPnP; switch one of them on there, or lead a port to this machine by hand"
        }
        IpAddr::V6(_) => {
            "neither PCP nor UPnP; switch one of them on there, or have its firewall let UDP in to this machine by hand"
        }
    }
}
