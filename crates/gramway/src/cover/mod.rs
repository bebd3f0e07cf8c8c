//! The cover's settings: whose web site a server looks like to everybody without its link, and under which name.

mod examination;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tunnel::config::{self, KeepProfile};
use tunnel_proto::link::{Endpoint, shown_name};

use crate::exit::Problem;
use crate::limits::COVER_WINDOW_SECONDS_DEFAULT;
use crate::server_state::CoverKeys;
pub(crate) use examination::{Imitated, refusal};

/// The port of a cover that is named without one: HTTP/3's.
const DEFAULT_PORT: u16 = 443;

/// Everything about the cover that can be set.
#[derive(Clone, Debug)]
pub(crate) struct CoverSettings {
    /// Host, and port where one is named; `None`: no cover.
    pub(crate) place: Option<(String, Option<u16>)>,
    /// The name to show; `None`: the host's.
    pub(crate) name: Option<String>,
    /// TCP connections go on to the cover, too.
    pub(crate) tcp: bool,
    /// How far a client's clock may be off.
    pub(crate) window: Duration,
}

impl Default for CoverSettings {
    fn default() -> Self {
        Self {
            place: None,
            name: None,
            tcp: true,
            window: Duration::from_secs(COVER_WINDOW_SECONDS_DEFAULT),
        }
    }
}

/// A server's cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Where it is.
    pub(crate) place: Endpoint,
    /// The name that clients ask for.
    pub(crate) name: String,
}

impl Cover {
    /// All that it is known by.
    pub(crate) fn names(&self) -> [String; 2] {
        [self.place.host.clone(), self.name.clone()]
    }
}

impl CoverSettings {
    /// The cover; `None` where there is none.
    pub(crate) fn for_server(&self) -> Result<Option<Cover>, Problem> {
        let Some((host, port)) = &self.place else {
            return Ok(None);
        };
        let place = Endpoint {
            host: host.clone(),
            port: port.unwrap_or(DEFAULT_PORT),
        };
        let name = match &self.name {
            Some(name) => name.clone(),
            None if host.parse::<IpAddr>().is_ok() => {
                return Err(Problem::configuration(format!(
                    "the cover {host} is an address, and browsers ask for a name: add --cover-name HOST, or set cover_name"
                )));
            }
            None => shown_name(host).unwrap_or_else(|| host.clone()),
        };
        Ok(Some(Cover { place, name }))
    }
}

impl Cover {
    /// As the server takes it.
    pub(crate) fn with(
        self,
        settings: &CoverSettings,
        keys: &CoverKeys,
        replays_file: PathBuf,
        imitated: &Imitated,
        keep_profile: KeepProfile,
    ) -> config::Cover {
        config::Cover {
            host: self.place.host,
            port: self.place.port,
            name: self.name,
            tcp: settings.tcp,
            window: settings.window,
            keys: [Some(keys.present), keys.previous]
                .into_iter()
                .flatten()
                .collect(),
            replays_file,
            is_first_run: keys.is_new,
            profile: imitated.profile().clone(),
            met: imitated.met(),
            keep_profile,
        }
    }
}

#[cfg(test)]
mod tests {
    use tunnel_proto::link::parse_optional_port;

    use super::*;

    fn cover(place: &str, name: Option<&str>) -> Result<Option<Cover>, Problem> {
        CoverSettings {
            place: Some(parse_optional_port(place).unwrap()),
            name: name.map(str::to_owned),
            ..CoverSettings::default()
        }
        .for_server()
    }

    #[test]
    fn a_cover_shows_its_own_name_or_the_one_that_is_set() {
        let shown = |place, name| cover(place, name).unwrap().unwrap();
        let own = shown("WWW.Example.org.", None);
        assert_eq!(own.name, "www.example.org");
        assert_eq!(own.place.to_string(), "WWW.Example.org.:443");
        let other = shown("[2001:db8::1]:8443", Some("example.org"));
        assert_eq!(other.name, "example.org");
        assert_eq!(other.place.to_string(), "[2001:db8::1]:8443");
    }

    #[test]
    fn an_address_without_a_name_is_refused_with_the_cure() {
        let problem = cover("192.0.2.7", None).unwrap_err();
        assert_eq!(problem.code() as u8, 78);
        assert!(problem.to_string().contains("--cover-name HOST"), "{problem}");
        assert_eq!(CoverSettings::default().for_server().unwrap(), None);
    }
}
