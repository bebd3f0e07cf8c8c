//! `gramway check`: tells all errors of the config file and the environment; or examines a web site that is to be a
//! server's cover, and says whether it can be one.

mod report;
mod settings;

use std::net::IpAddr;
use std::path::Path;

use tunnel::examination::{Roots, Site, examine};
use tunnel_proto::link::{Endpoint, parse_optional_port};

use crate::cli::CheckArguments;
use crate::cover::refusal;
use crate::exit::Problem;
use crate::limits::HTTPS_PORT;
use crate::{authorities, output};

/// Runs the command.
pub(crate) fn run(arguments: &CheckArguments) -> Result<(), Problem> {
    let Some(asked) = &arguments.cover else {
        return settings::run(&arguments.places);
    };
    let site = site(arguments, asked)?;
    let cover = Endpoint {
        host: site.host.clone(),
        port: site.port,
    };
    let findings = examine(&site)?;
    output::data(&if arguments.json {
        report::json(&cover, &site.name, &findings).to_string()
    } else {
        report::text(&findings)
    })?;
    if findings.verdict.obstacles.is_empty() {
        return Ok(());
    }
    Err(refusal(&cover, &findings.verdict))
}

fn site(arguments: &CheckArguments, cover: &str) -> Result<Site, Problem> {
    let (host, port) = parse_optional_port(cover).map_err(|error| {
        Problem::usage(format!(
            "--cover: {error}; write HOST, HOST:PORT or [ADDRESS]:PORT"
        ))
    })?;
    let name = match (&arguments.cover_name, host.parse::<IpAddr>()) {
        (Some(name), _) => name_of(name)?,
        (None, Err(_)) => host.clone(),
        (None, Ok(_)) => {
            return Err(Problem::usage(
                "--cover is an address: give the name that it has a certificate for by --cover-name",
            ));
        }
    };
    Ok(Site {
        host,
        port: port.unwrap_or(HTTPS_PORT),
        name,
        roots: roots(arguments.cover_roots.as_deref())?,
    })
}

fn name_of(text: &str) -> Result<String, Problem> {
    match parse_optional_port(text) {
        Ok((name, None)) if name.parse::<IpAddr>().is_err() => Ok(name),
        Ok(_) => Err(Problem::usage(format!(
            "--cover-name: \"{text}\" is not the name of a host"
        ))),
        Err(error) => Err(Problem::usage(format!("--cover-name: {error}"))),
    }
}

fn roots(file: Option<&Path>) -> Result<Roots, Problem> {
    let authorities = authorities::read(file)?;
    Roots::with(authorities).map_err(|error| match file {
        Some(path) => authorities::unusable(path, &error),
        None => Problem::bug(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Places;

    fn arguments(name: Option<&str>) -> CheckArguments {
        CheckArguments {
            places: Places::default(),
            cover: None,
            cover_name: name.map(str::to_owned),
            cover_roots: None,
            json: false,
        }
    }

    #[test]
    fn a_cover_by_name_needs_no_other_name_and_one_by_address_does() {
        let asked = |cover, name| {
            let site = site(&arguments(name), cover).unwrap();
            (site.host, site.port, site.name)
        };
        let example = || "www.example.com".to_owned();
        assert_eq!(asked("www.example.com", None), (example(), 443, example()));
        assert_eq!(
            asked("192.0.2.1:8443", Some("www.example.com")),
            ("192.0.2.1".to_owned(), 8443, example())
        );
        assert_eq!(
            asked("2001:db8::1", Some("www.example.com")),
            ("2001:db8::1".to_owned(), 443, example())
        );
        for (cover, name, part) in [
            ("192.0.2.1", None, "--cover-name"),
            ("https://example.com", None, "URL"),
            ("a b", None, "neither"),
            ("example.com:0", None, "port"),
            ("192.0.2.1", Some("192.0.2.2"), "not the name"),
            ("192.0.2.1", Some("example.com:443"), "not the name"),
            ("192.0.2.1", Some(""), "missing"),
        ] {
            let problem = site(&arguments(name), cover).unwrap_err();
            assert_eq!(problem.code() as u8, 64);
            assert!(problem.to_string().contains(part), "{cover}: {problem}");
        }
    }
}
