//! Where a peer may be reached: addresses, each with where it is known from. All of them are tried beside each other.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use tunnel::names;
use tunnel_proto::link::Endpoint;

use crate::exit::Problem;
use crate::limits::PEER_ADDRESSES_MAX;

/// Where an address is known from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The command line.
    Given,
    /// A name of the command line, looked up.
    Name(String),
}

/// An address that is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) address: SocketAddr,
    pub(super) source: Source,
}

impl fmt::Display for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Given => write!(formatter, "{} (given)", self.address),
            Source::Name(name) => write!(formatter, "{} (of {name})", self.address),
        }
    }
}

/// The addresses of these places, HOST:PORT each, in their order. Where others name addresses, there need be
/// none.
///
/// # Errors
/// A place is none, there are none or too many, or no name has an address.
pub(super) fn of_places<'a>(
    places: impl Iterator<Item = &'a str>,
    others_name_some: bool,
) -> Result<Vec<Candidate>, Problem> {
    let places: Vec<Endpoint> = places
        .map(|text| Endpoint::parse(text).map_err(|error| Problem::usage(error.to_string())))
        .collect::<Result<_, _>>()?;
    if places.is_empty() && !others_name_some {
        return Err(Problem::usage(
            "where does the peer listen? Give PEER@HOST:PORT, --at HOST:PORT, --rendezvous-file FILE, or leave out --no-lan",
        ));
    }
    if places.len() > PEER_ADDRESSES_MAX {
        let count = places.len();
        return Err(Problem::usage(format!(
            "{count} places are too many: give at most {PEER_ADDRESSES_MAX}"
        )));
    }
    let (mut candidates, mut problems) = (Vec::new(), Vec::new());
    for place in places {
        match of_place(&place) {
            Ok(found) => candidates.extend(found),
            Err(problem) => problems.push(problem),
        }
    }
    if candidates.is_empty() && !others_name_some {
        Problem::all(problems)?;
    }
    Ok(without_repeats(candidates))
}

fn of_place(place: &Endpoint) -> Result<Vec<Candidate>, Problem> {
    if let Ok(ip) = place.host.parse::<IpAddr>() {
        return Ok(vec![Candidate {
            address: SocketAddr::new(ip, place.port),
            source: Source::Given,
        }]);
    }
    let unresolved = |why: &str| Problem::unavailable(format!("cannot resolve {}: {why}", place.host));
    let addresses = names::addresses(&place.host, place.port).map_err(|why| unresolved(&why))?;
    if addresses.is_empty() {
        return Err(unresolved("it has no address"));
    }
    let of_name = |address| Candidate {
        address,
        source: Source::Name(place.host.clone()),
    };
    Ok(addresses.into_iter().map(of_name).collect())
}

/// Each address once, and no more than are tried.
fn without_repeats(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        let is_new = kept.iter().all(|other| other.address != candidate.address);
        if is_new && kept.len() < PEER_ADDRESSES_MAX {
            kept.push(candidate);
        }
    }
    kept
}

/// How people call the address: with where it is known from; of the others, `otherwise` says that.
pub(super) fn shown(candidates: &[Candidate], address: SocketAddr, otherwise: Option<&str>) -> String {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let known = candidates.iter().find(|candidate| candidate.address == address);
    match (known, otherwise) {
        (Some(candidate), _) => candidate.to_string(),
        (None, Some(source)) => format!("{address} ({source})"),
        (None, None) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_order_and_come_once() {
        let found = of_places(
            ["[2001:db8::1]:9", "192.0.2.1:9", "192.0.2.1:9"].into_iter(),
            false,
        )
        .unwrap();
        let text: Vec<String> = found.iter().map(Candidate::to_string).collect();
        assert_eq!(text, ["[2001:db8::1]:9 (given)", "192.0.2.1:9 (given)"]);
        let mapped = "[::ffff:192.0.2.1]:9".parse().unwrap();
        assert_eq!(shown(&found, mapped, Some("found")), "192.0.2.1:9 (given)");
        let other = "192.0.2.7:9".parse().unwrap();
        assert_eq!(shown(&found, other, None), "192.0.2.7:9");
        assert_eq!(shown(&found, other, Some("found")), "192.0.2.7:9 (found)");
    }

    #[test]
    fn no_place_many_places_and_what_is_none_are_usage_errors() {
        for (places, part) in [
            (vec![], "where does the peer listen?"),
            (vec!["192.0.2.1"; 1], "has no port"),
            (vec!["192.0.2.1:9"; 9], "9 places are too many"),
        ] {
            let problem = of_places(places.into_iter(), false).unwrap_err();
            assert!(problem.to_string().contains(part), "{problem}");
            assert_eq!(problem.code() as u8, 64);
        }
        assert_eq!(of_places([].into_iter(), true).unwrap(), []);
    }
}
