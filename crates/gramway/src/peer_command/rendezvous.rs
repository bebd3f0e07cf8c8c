//! The Gramway server at which a machine is registered, so that peers who know its ID alone reach it.

use peer::{Endpoint, Rendezvous};

use super::arguments::{Carrier, RendezvousArguments};
use crate::exit::Problem;
use crate::{authorities, connect, output, tcp_shape};

/// The server that the command line names, if it does.
///
/// # Errors
/// A file cannot be read, or holds no link, or no certificates.
pub(super) fn of(arguments: &RendezvousArguments) -> Result<Option<Rendezvous>, Problem> {
    let Some(path) = &arguments.rendezvous_file else {
        return Ok(None);
    };
    let text = connect::read_link_file(path)?;
    let rendezvous = Rendezvous::from_link(&text)
        .map_err(|error| Problem::configuration(format!("{}: {error}", path.display())))?;
    reached_as_said(rendezvous, arguments).map(Some)
}

/// A server that is reached, and known, as the command line says.
///
/// # Errors
/// There are no certificates in the file, or the carrier cannot be had.
pub(crate) fn reached_as_said(
    rendezvous: Rendezvous,
    arguments: &RendezvousArguments,
) -> Result<Rendezvous, Problem> {
    let authorities = authorities::read(arguments.rendezvous_roots.as_deref())?;
    let carrier = arguments.rendezvous_carrier.unwrap_or(Carrier::Auto);
    if carrier == Carrier::Tcp {
        tcp_shape::require("--rendezvous-carrier tcp")?;
    }
    Ok(rendezvous.with_authorities(authorities).over(carrier.into()))
}

/// Why the endpoint, which has a rendezvous, is not registered there at present, for people.
pub(super) fn why_not_registered(endpoint: &Endpoint) -> String {
    let why = endpoint.rendezvous_problem();
    why.map_or_else(
        || "it does not answer".to_owned(),
        |why| output::shown(&why.to_string()).into_owned(),
    )
}
