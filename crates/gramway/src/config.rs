//! Settings: flag over environment (`GRAMWAY_…`) over file (TOML) over default.
//!
//! One table, [`KEYS`], names every key with its kind and meaning; the file's check for unknown keys, the environment
//! variables and the commented file of a first run all come from it. The layers are applied from the weakest to the
//! strongest, each through [`Settings::set`], so that a value means the same wherever it comes from. A list that is
//! given replaces the weaker layer's list.

mod error;
mod file;
mod keys;
mod values;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use tunnel::config::{CommonConfig, Forward};
use tunnel_proto::{AllowedTarget, TunRoutes};

use crate::exit::Problem;
use crate::tun::TunSettings;
use error::SettingError;
pub(crate) use file::template;
use keys::{KEYS, Kind};
use values::Value;

/// All settings of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `None`: the default, every address with port 443.
    pub(crate) listen: Option<SocketAddr>,
    /// Host, and port where it is another than the listener's.
    pub(crate) public: Vec<(String, Option<u16>)>,
    pub(crate) allow_target: Vec<AllowedTarget>,
    pub(crate) forward: Vec<Forward>,
    pub(crate) link_file: Option<PathBuf>,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) tun: TunSettings,
    pub(crate) common: CommonConfig,
}

/// Where `gramway up` listens when nothing else is said.
pub(crate) const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 443);

impl Settings {
    /// Applies the environment; `variable` looks one up.
    pub(crate) fn apply_environment(
        &mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), Problem> {
        for key in KEYS {
            let name = format!("GRAMWAY_{}", key.name.to_uppercase());
            let Some(text) = variable(&name) else { continue };
            let wrong =
                |error: SettingError| Problem::configuration(format!("environment variable {name}: {error}"));
            let text = text.into_string().map_err(|_| wrong(SettingError::NotUtf8))?;
            let value = Value::from_text(key.kind, &text).map_err(wrong)?;
            self.set(key.name, value).map_err(wrong)?;
        }
        Ok(())
    }

    /// Applies one flag, named as on the command line; nothing where it was not given.
    pub(crate) fn apply_flag(&mut self, flag: &str, key: &str, texts: &[String]) -> Result<(), Problem> {
        let Some(last) = texts.last() else { return Ok(()) };
        let wrong = |error: SettingError| Problem::usage(format!("{flag}: {error}"));
        let kind = keys::find(key).expect("flags name keys of the table").kind;
        let value = match kind {
            Kind::List => Value::List(texts.to_vec()),
            _ => Value::from_text(kind, last).map_err(wrong)?,
        };
        self.set(key, value).map_err(wrong)
    }

    /// Sets one key; the error completes "KEY: …".
    fn set(&mut self, key: &str, value: Value) -> Result<(), SettingError> {
        let (common, tun) = (&mut self.common, &mut self.tun);
        match key {
            "tun" => tun.name = Some(value.text()?).filter(|name| !name.is_empty()),
            "tun_offloads" => tun.offloads = value.boolean()?,
            "pool" => tun.pools = values::prefixes(&value.list()?)?,
            "nat" => tun.nat = value.boolean()?,
            "client_to_client" => tun.client_to_client = value.boolean()?,
            "advertise" => tun.advertise = Some(values::prefixes(&value.list()?)?),
            "route" => tun.routes = TunRoutes::These(values::prefixes(&value.list()?)?),
            "no_routes" => {
                if value.boolean()? {
                    tun.routes = TunRoutes::None;
                }
            }
            "default_route" => tun.default_route = value.boolean()?,
            "dns" => tun.dns = values::addresses(&value.list()?)?,
            "listen" => self.listen = Some(values::listen(&value.text()?)?),
            "public" => {
                let hosts = value.list()?;
                self.public = hosts
                    .iter()
                    .map(|host| crate::endpoint::parse_optional_port(host))
                    .collect::<Result<_, _>>()?;
            }
            "allow_target" => {
                let targets = value.list()?;
                self.allow_target = targets
                    .iter()
                    .map(|target| target.parse())
                    .collect::<Result<_, _>>()?;
            }
            "forward" => self.forward = crate::forward::parse_all(&value.list()?)?,
            "link_file" => self.link_file = Some(PathBuf::from(value.text()?)),
            "bind" => {
                let text = value.text()?;
                let address = text
                    .parse()
                    .map_err(|_| SettingError::text(&text, "not an IP address"))?;
                self.bind = Some(address);
            }
            "max_udp_payload" => {
                let bytes = value.integer_in(crate::limits::UDP_PAYLOAD_BYTES, "bytes")?;
                common.max_udp_payload = Some(u16::try_from(bytes).expect("the range ends below 65,536"));
            }
            "connections" => {
                let count = value.integer_in(crate::limits::CONNECTIONS, "connections")?;
                common.connections = Some(usize::try_from(count).expect("the range starts above zero"));
            }
            "profile" => common.profile = values::profile(&value.text()?)?,
            "gso" => common.gso = value.boolean()?,
            "gro" => common.gro = value.boolean()?,
            "receive_buffer_bytes" => common.receive_buffer_bytes = values::buffer(&value)?,
            "send_buffer_bytes" => common.send_buffer_bytes = values::buffer(&value)?,
            "udp_idle_timeout_s" => common.engine.udp_idle_timeout = values::seconds(&value)?,
            "oversize" => common.engine.oversize = values::oversize(&value.text()?)?,
            "repair" => common.engine.repair = values::repair(&value.text()?)?,
            "queue_policy" => common.engine.queue_policy = values::queue_policy(&value.text()?)?,
            _ => return Err(SettingError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use tunnel::config::Profile;
    use tunnel_proto::Oversize;

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Result<Settings, Problem> {
        let variables: BTreeMap<_, _> = pairs.iter().copied().collect();
        let mut settings = Settings::default();
        settings.apply_environment(|name| variables.get(name).map(OsString::from))?;
        Ok(settings)
    }

    #[test]
    fn a_flag_beats_the_environment_and_the_environment_beats_the_file() {
        let mut settings = Settings::default();
        let file = "listen = \"[::]:1\"\nmax_udp_payload = 1300\npublic = [\"a\", \"b:2\"]\ngso = false\n";
        settings.apply_file(Path::new("c.toml"), file).unwrap();
        let variables: BTreeMap<_, _> =
            [("GRAMWAY_LISTEN", "[::]:2"), ("GRAMWAY_MAX_UDP_PAYLOAD", "1400")].into();
        settings
            .apply_environment(|name| variables.get(name).map(OsString::from))
            .unwrap();
        settings
            .apply_flag("--listen", "listen", &["[::]:3".to_owned()])
            .unwrap();
        settings
            .apply_flag("--public", "public", &["c".to_owned()])
            .unwrap();
        settings.apply_flag("--profile", "profile", &[]).unwrap();
        assert_eq!(settings.listen, Some("[::]:3".parse().unwrap()));
        assert_eq!(settings.common.max_udp_payload, Some(1_400));
        assert_eq!(settings.public, [("c".to_owned(), None)]);
        assert!(!settings.common.gso);
        assert_eq!(settings.common.profile, Profile::Throughput);
    }

    #[test]
    fn environment_variables_are_typed_like_the_file() {
        let settings = environment(&[
            ("GRAMWAY_PUBLIC", "a.example,b.example:8443"),
            ("GRAMWAY_GRO", "false"),
            ("GRAMWAY_PROFILE", "fixed:500M"),
            ("GRAMWAY_OVERSIZE", "drop"),
            ("GRAMWAY_REPAIR", "40ms"),
            ("GRAMWAY_FORWARD", "udp:53=a:53,tcp:53=a:53"),
        ])
        .unwrap();
        assert_eq!(settings.public.len(), 2);
        assert!(!settings.common.gro);
        assert_eq!(
            settings.common.profile,
            Profile::Fixed {
                bits_per_second: 500_000_000
            }
        );
        assert_eq!(settings.common.engine.oversize, Oversize::Drop);
        assert_eq!(
            settings.common.engine.repair,
            Some(std::time::Duration::from_millis(40))
        );
        assert_eq!(settings.forward.len(), 2);
        let problem = environment(&[("GRAMWAY_MAX_UDP_PAYLOAD", "big")]).unwrap_err();
        assert_eq!(problem.code() as u8, 78);
        assert!(
            problem.to_string().contains("GRAMWAY_MAX_UDP_PAYLOAD: \"big\""),
            "{problem}"
        );
    }

    #[test]
    fn every_key_of_the_table_can_be_set() {
        for key in KEYS {
            let mut settings = Settings::default();
            let value = Value::from_text(key.kind, key.example_text()).unwrap();
            settings
                .set(key.name, value)
                .unwrap_or_else(|error| panic!("{}: {error}", key.name));
        }
    }
}
