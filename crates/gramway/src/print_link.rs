//! `gramway link`: prints the same link every time, as text, as a QR code, or in the form for foreign MASQUE clients.

use tunnel_proto::link::{Link, Proof};

use crate::cli::{LinkArguments, Places};
use crate::exit::Problem;
use crate::server_state::ServerState;
use crate::state::StateDirectory;
use crate::{addresses, output, qr, startup};

/// Runs the command.
pub(crate) fn run(arguments: &LinkArguments) -> Result<(), Problem> {
    let state = arguments.places.state.as_deref();
    let directory = StateDirectory::locate(state, |name| std::env::var_os(name))?.into_owners()?;
    let places = Places {
        state: Some(directory.path().to_owned()),
        config: arguments.places.config.clone(),
        profile: None,
    };
    let (directory, settings) = startup::settings(&places, &arguments.flags)?;
    let state = ServerState::existing(&directory)?;
    let (mut endpoints, tcp_port) = state.endpoints()?;
    if endpoints.is_empty() || arguments.flags.value("public").is_some() {
        let mut listen = settings.listen.unwrap_or_else(addresses::default_listen);
        if let Some(announced) = endpoints.first() {
            listen.set_port(announced.port);
        }
        endpoints = addresses::announced(listen, &settings.public);
    }
    let link = Link {
        proof: state.last_proof()?,
        token: state.token,
        endpoints,
        tcp_port,
        name: String::new(),
    };
    if arguments.masque {
        if let Proof::Cover { .. } = link.proof {
            return Err(Problem::configuration(
                "the server has a cover, which is all that foreign MASQUE clients reach; start it without --cover for them",
            ));
        }
        let own = Proof::Pin(state.identity.pin());
        let certificate = if link.proof == own {
            state.identity.certificate_pem()
        } else {
            // An ordinary one.
            ""
        };
        output::data(masque_text(&link, certificate).trim_end())
    } else if arguments.qr {
        show_with_code(&link)
    } else {
        output::data(&link.reveal())
    }
}

/// Prints the link and its QR code; a link that is too long for a code is printed alone.
pub(crate) fn show_with_code(link: &Link) -> Result<(), Problem> {
    let text = link.reveal();
    if let Some(code) = qr::draw(&text) {
        output::data(&code)?;
    }
    output::data(&text)
}

/// The URI templates of UDP (RFC 9298 section 2) and of IP packets (RFC 9484 section 3), each for every endpoint, then
/// the certificate to trust.
fn masque_text(link: &Link, certificate_pem: &str) -> String {
    let segment = link.token.path_segment();
    let mut text = String::new();
    for variables in ["{target_host}/{target_port}", "{target}/{ipproto}"] {
        for endpoint in &link.endpoints {
            text.push_str(&format!("https://{endpoint}/{segment}/{variables}/\n"));
        }
    }
    text + certificate_pem
}

#[cfg(test)]
mod tests {
    use tunnel_proto::Token;

    use super::*;
    use tunnel_proto::link::Endpoint;

    #[test]
    fn the_uri_templates_hold_the_derived_segment_and_never_the_token() {
        let token = Token::from_bytes([5; 32]);
        let endpoints = vec![Endpoint::parse("[2001:db8::1]:443").unwrap()];
        let link = Link {
            token: token.clone(),
            endpoints,
            proof: Proof::Pin([0; 32]),
            tcp_port: None,
            name: String::new(),
        };
        let text = masque_text(&link, "-----BEGIN CERTIFICATE-----\n");
        let prefix = format!("https://[2001:db8::1]:443/{}", token.path_segment());
        let templates =
            format!("{prefix}/{{target_host}}/{{target_port}}/\n{prefix}/{{target}}/{{ipproto}}/\n");
        assert!(text.starts_with(&templates), "{text}");
        assert!(text.ends_with("CERTIFICATE-----\n"));
        assert!(!text.contains(&token.reveal()));
    }
}
