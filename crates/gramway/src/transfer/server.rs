//! The Gramway server at which both ends meet: that of a link, or the one that a code names.

use std::time::{Duration, Instant};

use peer::{Endpoint, InviteError, Rendezvous, RendezvousProblem};
use tunnel_proto::link::{Link, Proof};

use super::interrupt::Interrupt;
use super::send::interrupted;

use crate::exit::{Problem, last_word};
use crate::peer_command::{RendezvousArguments, reached_as_said};
use crate::{connect, output};

/// What names the link where no file does.
const VARIABLE: &str = "GRAMWAY_LINK";

/// The port of servers whose codes name none.
const PORT: u16 = 443;

/// A server whose link we have.
pub(super) struct Server {
    pub(super) rendezvous: Rendezvous,
    /// As codes name it.
    pub(super) host: String,
    /// It has a cover, and answers nobody without a link: codes do not name it.
    pub(super) has_cover: bool,
}

impl Server {
    /// Whether it is the one that a code names: then its link is the better way there.
    pub(super) fn is_named(&self, host: &str) -> bool {
        with_port(&self.host) == with_port(host)
    }
}

/// The server of the file that the command line names, or of the environment.
///
/// # Errors
/// The link cannot be read, or is none.
pub(super) fn of(arguments: &RendezvousArguments) -> Result<Option<Server>, Problem> {
    let (source, text) = match &arguments.rendezvous_file {
        Some(path) => (path.display().to_string(), connect::read_link_file(path)?),
        None => match std::env::var(VARIABLE)
            .ok()
            .filter(|text| !text.trim().is_empty())
        {
            Some(text) => (VARIABLE.to_owned(), text),
            None => return Ok(None),
        },
    };
    let unusable = |error: String| Problem::configuration(format!("{source}: {error}"));
    let link = Link::parse(&text).map_err(|error| unusable(error.to_string()))?;
    let first = link.endpoints.first();
    let first = first.ok_or_else(|| unusable("the link names no server".to_owned()))?;
    let host = first.to_string();
    let host = host.strip_suffix(&format!(":{PORT}")).unwrap_or(&host).to_owned();
    let rendezvous = Rendezvous::from_link(&text).map_err(|error| unusable(error.to_string()))?;
    Ok(Some(Server {
        rendezvous: reached_as_said(rendezvous, arguments)?,
        host,
        has_cover: matches!(link.proof, Proof::Cover { .. }),
    }))
}

/// The server that a code names, for a guest.
///
/// # Errors
/// It is none.
pub(super) fn of_guest(host: &str, number: u32) -> Result<Rendezvous, Problem> {
    Rendezvous::as_guest(&with_port(host), number)
        .map_err(|error| Problem::usage(format!("the code's server {host}: {error}")))
}

/// A host of a code as `HOST:PORT`.
fn with_port(host: &str) -> String {
    let is_bare_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let has_port = match host.strip_prefix('[') {
        Some(rest) => rest.contains("]:"),
        None => host.contains(':') && !is_bare_v6,
    };
    match (is_bare_v6, has_port) {
        (true, _) => format!("[{host}]:{PORT}"),
        (false, true) => host.to_owned(),
        (false, false) => format!("{host}:{PORT}"),
    }
}

/// So many numbers, each for one guest of the server at which `endpoint` is registered.
///
/// # Errors
/// The server is not reached, or gives none.
pub(super) fn invite(
    endpoint: &Endpoint,
    count: u16,
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<u32>, Problem> {
    let until = Instant::now() + limit;
    let mut numbers = Vec::new();
    while numbers.len() < usize::from(count) {
        registered(
            endpoint,
            until.saturating_duration_since(Instant::now()),
            interrupt,
        )?;
        let left = until.saturating_duration_since(Instant::now());
        match interrupt.wait_for(left, endpoint.invite()) {
            Some(Ok(number)) => numbers.push(number),
            // It was lost meanwhile.
            Some(Err(InviteError::NotRegistered)) => {}
            Some(Err(error @ InviteError::Refused)) => {
                return Err(Problem::unavailable(format!(
                    "no code: {error}. An older server with a cover gives none: there, use --peer on both machines"
                )));
            }
            None if interrupt.is_over() => return Err(interrupted(interrupt)),
            None => {
                return Err(Problem::unavailable(
                    "no code: the server does not answer; try again",
                ));
            }
        }
    }
    Ok(numbers)
}

/// Waits until the endpoint is registered at the server of the link.
fn registered(endpoint: &Endpoint, limit: Duration, interrupt: &Interrupt) -> Result<(), Problem> {
    let registered = interrupt.wait_for(limit, endpoint.registered());
    if registered.flatten().is_some() {
        return Ok(());
    }
    if interrupt.is_over() {
        return Err(interrupted(interrupt));
    }
    Err(Problem::unavailable(format!(
        "the server of the link is not reached: {}",
        problem(endpoint)
    )))
}

/// Why an endpoint is not registered, for people.
pub(super) fn problem(endpoint: &Endpoint) -> String {
    let why = endpoint.rendezvous_problem().map(|why| match why {
        RendezvousProblem::Unreachable(reason) => {
            RendezvousProblem::Unreachable(last_word(&reason).to_owned())
        }
        other => other,
    });
    why.map_or_else(
        || "it does not answer; is the address right, and does UDP pass the firewalls?".to_owned(),
        |why| output::shown(&why.to_string()).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_port_has_the_usual_one() {
        for (host, expected) in [
            ("files.example.org", "files.example.org:443"),
            ("files.example.org:4433", "files.example.org:4433"),
            ("192.0.2.1", "192.0.2.1:443"),
            ("2001:db8::1", "[2001:db8::1]:443"),
            ("[2001:db8::1]", "[2001:db8::1]:443"),
            ("[2001:db8::1]:4433", "[2001:db8::1]:4433"),
        ] {
            assert_eq!(with_port(host), expected);
            assert!(of_guest(host, 4_711).is_ok(), "{host}");
        }
    }
}
