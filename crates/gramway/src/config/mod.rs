//! Settings: flag over environment (`GRAMWAY_…`) over file (TOML) over default.
//!
//! One table, in `table`, describes every setting: flags, environment, file, the commented file of a first run and
//! docs/settings.md come from it. The layers are applied from the weakest to the strongest, each through the setting's
//! `apply`, so that a value means the same wherever it comes from. A list that is given replaces the weaker layer's
//! list.

mod effective;
mod error;
mod file;
mod flags;
mod names;
mod needs;
#[cfg(test)]
mod reference;
mod schema;
mod setting;
mod table;
mod values;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use tunnel::config::{CommonConfig, Forward, RemoteForward, TcpListen};
use tunnel_proto::AllowedTarget;

use crate::admin::AdminSettings;
use crate::cover::CoverSettings;
use crate::drain::DrainTime;
use crate::exit::Problem;
use crate::hook_url::HookUrl;
use crate::log::LogFormat;
use crate::metrics::MetricsSettings;
use crate::proxies::Proxies;
use crate::qlog::QlogSettings;
use crate::tproxy::TransparentProxy;
use crate::tun::TunSettings;
pub(crate) use effective::Effective;
pub(crate) use file::template;
use flags::Given;
pub(crate) use flags::{CommandWithSettings, Connect, Flags, Link, Up};
pub(crate) use names::{likely as nearest, misspelt_variables};
pub(crate) use schema::schema;
pub(crate) use setting::Reload;
use values::Value;
pub(crate) use values::bit_rate;

/// The long flags of all settings that a command reads.
#[cfg(test)]
pub(crate) fn long_flags(reads: fn(setting::Reader) -> bool) -> Vec<String> {
    let read = table::all().filter(|setting| reads(setting.reader));
    read.filter_map(setting::Setting::long_flag).collect()
}

/// All settings of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `None`: the default, every address with port 443.
    pub(crate) listen: Option<SocketAddr>,
    /// Where a server listens in TCP's shape; `None`: nowhere.
    pub(crate) tcp: Option<TcpListen>,
    /// Host, and port where it is another than the listener's.
    pub(crate) public: Vec<(String, Option<u16>)>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_pin: bool,
    pub(crate) allow_target: Vec<AllowedTarget>,
    pub(crate) auth_hook: Option<HookUrl>,
    pub(crate) auth_hook_roots: Option<PathBuf>,
    pub(crate) has_no_rendezvous: bool,
    pub(crate) cover: CoverSettings,
    pub(crate) forward: Vec<Forward>,
    pub(crate) remote_forward: Vec<RemoteForward>,
    pub(crate) proxies: Proxies,
    pub(crate) tproxy: TransparentProxy,
    pub(crate) link_file: Option<PathBuf>,
    /// Files with the links of other servers, in order of preference.
    pub(crate) fallback: Vec<PathBuf>,
    pub(crate) cover_roots: Option<PathBuf>,
    pub(crate) tls_roots: Option<PathBuf>,
    pub(crate) exit_on_failure: bool,
    pub(crate) bind: Option<IpAddr>,
    pub(crate) carrier: CarrierSetting,
    pub(crate) tun: TunSettings,
    pub(crate) metrics: MetricsSettings,
    pub(crate) admin: AdminSettings,
    pub(crate) qlog: QlogSettings,
    pub(crate) has_no_sandbox: bool,
    /// How much is told, as so many `-v`.
    pub(crate) verbose: u8,
    /// How long a server that drains waits for its clients to leave.
    pub(crate) drain_time: DrainTime,
    pub(crate) log_format: LogFormat,
    pub(crate) common: CommonConfig,
}

/// Over what a client reaches its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CarrierSetting {
    /// Over UDP, or in TCP's shape where the link names a port: whichever answers first.
    #[default]
    Auto,
    /// Over UDP.
    Udp,
    /// In TCP's shape.
    Tcp,
}

/// Where `gramway up` listens by default.
pub(crate) const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 443);

impl Settings {
    /// Applies the environment; `variable` looks one up.
    pub(crate) fn apply_environment(
        &mut self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(), Problem> {
        let mut problems = Vec::new();
        for setting in table::all() {
            let name = setting.variable();
            let Some(text) = variable(&name) else { continue };
            let applied =
                Value::from_text(setting.kind, &text).and_then(|value| (setting.apply)(self, value));
            problems.extend(
                applied
                    .err()
                    .map(|error| Problem::configuration(format!("environment variable {name}: {error}"))),
            );
        }
        Problem::all(problems)
    }

    /// Applies the flags of a command line.
    pub(crate) fn apply_flags<C>(&mut self, flags: &Flags<C>) -> Result<(), Problem> {
        for Given { setting, texts } in flags.given() {
            let name = setting
                .shown_flag()
                .expect("only settings with a flag are given by one");
            Value::from_texts(setting.kind, texts)
                .and_then(|value| (setting.apply)(self, value))
                .map_err(|error| Problem::usage(format!("{name}: {error}")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::time::Duration;

    use clap::{Args, FromArgMatches};
    use tunnel::config::Profile;
    use tunnel_proto::Oversize;

    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Result<Settings, Problem> {
        let variables: BTreeMap<_, _> = pairs.iter().copied().collect();
        let mut settings = Settings::default();
        settings.apply_environment(|name| variables.get(name).map(OsString::from))?;
        Ok(settings)
    }

    fn flags<C: CommandWithSettings>(line: &[&str]) -> Flags<C> {
        let command = Flags::<C>::augment_args(clap::Command::new("command").no_binary_name(true));
        Flags::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap()
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
            .apply_flags(&flags::<Up>(&["--listen", "[::]:3", "--public", "c"]))
            .unwrap();
        assert_eq!(settings.listen, Some("[::]:3".parse().unwrap()));
        assert_eq!(settings.common.max_udp_payload, Some(1_400));
        assert_eq!(settings.public, [("c".to_owned(), None)]);
        assert!(!settings.common.gso);
        assert_eq!(settings.common.profile, Profile::Throughput);
    }

    /// What the file, the environment and the flags make of a client's routes.
    fn routes(file: &str, variable: Option<(&str, &str)>, line: &[&str]) -> (Option<usize>, bool) {
        let mut settings = Settings::default();
        settings.apply_file(Path::new("c.toml"), file).unwrap();
        let look_up = |name: &str| {
            variable
                .filter(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        };
        settings.apply_environment(look_up).unwrap();
        settings.apply_flags(&flags::<Connect>(line)).unwrap();
        (
            settings.tun.routes.map(|routes| routes.len()),
            settings.tun.no_routes,
        )
    }

    #[test]
    fn of_route_and_no_routes_the_stronger_source_decides() {
        let none = "no_routes = true\nroute = [\"10.0.0.0/8\"]\n";
        let variable = |value| Some(("GRAMWAY_NO_ROUTES", value));
        assert_eq!(
            routes("no_routes = true\n", variable("false"), &[]),
            (None, false)
        );
        assert_eq!(routes(none, variable("false"), &[]), (Some(1), false));
        assert_eq!(
            routes("no_routes = true\n", variable("false"), &["--no-routes"]),
            (None, true)
        );
        assert!(routes(none, None, &[]).1);
        let two = ["--route", "10.1.0.0/16", "--route", "10.2.0.0/16"];
        assert_eq!(routes(none, variable("true"), &two), (Some(2), false));
        assert!(routes("", Some(("GRAMWAY_ROUTE", "10.1.0.0/16")), &["--no-routes"]).1);
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
        assert_eq!(settings.common.engine.repair, Some(Duration::from_millis(40)));
        assert_eq!(settings.forward.len(), 2);
        let problem = environment(&[("GRAMWAY_MAX_UDP_PAYLOAD", "big")]).unwrap_err();
        assert_eq!(problem.code() as u8, 78);
        assert!(
            problem.to_string().contains("GRAMWAY_MAX_UDP_PAYLOAD: \"big\""),
            "{problem}"
        );
    }

    #[test]
    fn switches_set_what_they_say_and_lists_keep_their_commas() {
        let mut settings = Settings::default();
        let line = ["--no-gso", "--nat", "--public", "a", "--public", "b", "--tun"];
        settings.apply_flags(&flags::<Up>(&line)).unwrap();
        assert!(!settings.common.gso && settings.common.gro && settings.tun.nat);
        assert_eq!(settings.public.len(), 2);
        assert_eq!(settings.tun.name.as_deref(), Some("auto"));
        let problem = settings
            .apply_flags(&flags::<Connect>(&["-L", "udp:1=a:1,udp:2=a:2"]))
            .unwrap_err();
        assert!(problem.to_string().starts_with("-L: "), "{problem}");
        assert_eq!(problem.code() as u8, 64);
    }

    #[test]
    fn an_integer_that_is_given_as_text_must_be_one() {
        let problem = environment(&[("GRAMWAY_CONNECTIONS", "0")]).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "environment variable GRAMWAY_CONNECTIONS: 0 is outside 1 to 16 connections"
        );
    }
}
