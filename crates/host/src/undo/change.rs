//! A change to the host, and how it is undone.
//!
//! A parameter is only set back while it has the value it was given; an exception route is only removed where it is
//! marked as ours. So nobody's later decision is overwritten.

use std::io;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::default_route::{self, Rule};
use crate::dns::NamesChange;
use crate::error::HostError;
use crate::network::Network;
use crate::parameter;
use crate::prefix::Prefix;
use crate::route::Route;

/// What to undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// A kernel parameter.
    Parameter {
        name: String,
        before: String,
        after: String,
    },
    /// A route to one address over another interface than the TUN.
    Route {
        destination: IpAddr,
        index: u32,
        gateway: Option<IpAddr>,
        source: Option<IpAddr>,
    },
    /// A rule of routing.
    Rule(Rule),
    /// A table of ours, with all its routes.
    Table { number: u32 },
    /// Connections are translated ([`crate::Nat`]). The kernel undoes it; the guardian keeps the connections for a
    /// while.
    Nat,
    /// The machine's name servers are others.
    Names(NamesChange),
}

impl Change {
    /// What it changes, for people.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Parameter { name, .. } => parameter::dotted(name),
            Self::Route { destination, .. } => format!("the route to {destination}"),
            Self::Rule(_) => "a rule of routing".to_owned(),
            Self::Table { number } => format!("the routing table {number}"),
            Self::Nat => "NAT".to_owned(),
            Self::Names(names) => names.subject(),
        }
    }

    /// What stays of it where its owner has died, for people; NAT goes with its owner.
    pub(super) fn left_behind(&self) -> Option<String> {
        let is_gone = match self {
            Self::Nat => true,
            Self::Names(names) => names.is_overtaken(),
            _ => false,
        };
        (!is_gone).then(|| self.subject())
    }

    /// What it does to the machine's name servers.
    pub(super) fn names(&self) -> Option<&NamesChange> {
        match self {
            Self::Names(names) => Some(names),
            _ => None,
        }
    }

    /// The same, where others of the living go on needing what it changed.
    pub(super) fn handed_on<'a>(self, others: impl Iterator<Item = &'a Self>) -> Self {
        match self {
            Self::Names(names) => Self::Names(names.handed_on(others.filter_map(Self::names))),
            other => other,
        }
    }

    /// Makes it; it is on the list by now.
    pub(super) fn make(&self) -> Result<(), HostError> {
        match self {
            Self::Parameter { name, after, .. } => parameter::write(name, after),
            &Self::Route {
                destination,
                index,
                gateway,
                source,
            } => Network::open()?.add_marked_route(&exception(destination, index, gateway, source)),
            Self::Rule(rule) => Network::open()?.add_rule(rule),
            // Its owner makes it.
            Self::Table { .. } | Self::Nat | Self::Names(_) => Ok(()),
        }
    }

    /// Whether this program makes such changes.
    pub(super) fn is_one_of_ours(&self) -> bool {
        match self {
            Self::Parameter { name, before, after } => {
                parameter::is_changed_by_us(name)
                    && [before, after]
                        .iter()
                        .all(|value| parameter::is_whole_number(value))
            }
            _ => true,
        }
    }

    /// Whether it is a parameter of this directory.
    pub(super) fn is_parameter_below(&self, directory: &str) -> bool {
        matches!(self, Self::Parameter { name, .. } if name.starts_with(directory))
    }

    /// Whether both changes are about the same thing, so that taking back one would break the other.
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Parameter { name, after, .. },
                Self::Parameter {
                    name: also,
                    after: wanted,
                    ..
                },
            ) => name == also && after == wanted,
            _ => self == other,
        }
    }

    pub(super) fn take_back(&self) -> Result<(), HostError> {
        match self {
            Self::Parameter { name, before, after } => match parameter::read(name) {
                Ok(value) if value == *after => parameter::write(name, before),
                Ok(_) => Ok(()),
                // Its interface is gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(HostError::new(format!("read {}", self.subject()), error)),
            },
            &Self::Route {
                destination,
                index,
                gateway,
                source,
            } => Network::open()?.remove_marked_route(&exception(destination, index, gateway, source)),
            Self::Rule(rule) => Network::open()?.remove_rule(rule),
            &Self::Table { number } => default_route::clear(&mut Network::open()?, number),
            // Gone with its owner.
            Self::Nat => Ok(()),
            Self::Names(names) => names.take_back(),
        }
    }
}

fn exception(destination: IpAddr, index: u32, gateway: Option<IpAddr>, source: Option<IpAddr>) -> Route {
    Route {
        gateway,
        source,
        ..Route::on_link(Prefix::host(destination), index)
    }
}
