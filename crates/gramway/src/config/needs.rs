//! Settings that do nothing without another one, a TUN, a default route, a cover, metrics or the status page: a command
//! that was given one alone would silently leave out what was asked for, which for `default_route` means traffic in
//! clear.

use tunnel_proto::Prefix;

use super::Settings;
use super::flags::{CommandWithSettings, Flags};
use super::names;
use crate::exit::Problem;

/// The key, and whether it asks for anything.
type Dependent = (&'static str, fn(&Settings) -> bool);

/// What is missing, and how it is given.
struct Need {
    what: &'static str,
    flag: &'static str,
    key: &'static str,
}

const TUN: Need = Need {
    what: "a TUN device",
    flag: "--tun",
    key: "tun = \"auto\"",
};

const DEFAULT_ROUTE: Need = Need {
    what: "the default route",
    flag: "--default-route",
    key: "default_route = true",
};

const COVER: Need = Need {
    what: "a cover",
    flag: "--cover HOST",
    key: "cover = \"HOST\"",
};

const TPROXY: Need = Need {
    what: "a transparent proxy",
    flag: "--tproxy PORT",
    key: "tproxy = \"PORT\"",
};

const METRICS: Need = Need {
    what: "metrics",
    flag: "--metrics PORT",
    key: "metrics = \"PORT\"",
};

const ADMIN: Need = Need {
    what: "the status page",
    flag: "--admin PORT",
    key: "admin = \"PORT\"",
};

const TUN_ONLY: &[Dependent] = &[
    ("pool", |settings| !settings.tun.pools.is_empty()),
    ("nat", |settings| settings.tun.nat),
    ("advertise", |settings| {
        names_any(settings.tun.advertise.as_deref())
    }),
    ("client_to_client", |settings| settings.tun.client_to_client),
    ("default_route", |settings| settings.tun.default_route),
    ("route", |settings| names_any(settings.tun.routes.as_deref())),
    ("dns", |settings| !settings.tun.dns.is_empty()),
];

const DEFAULT_ROUTE_ONLY: &[Dependent] = &[
    ("allow_lan", |settings| settings.tun.allow_lan),
    ("exclude", |settings| !settings.tun.exclude.is_empty()),
    ("kill_switch", |settings| settings.tun.kill_switch),
];

const COVER_ONLY: &[Dependent] = &[("cover_name", |settings| settings.cover.name.is_some())];

const TPROXY_ONLY: &[Dependent] = &[
    ("tproxy_interface", |settings| {
        !settings.tproxy.interfaces.is_empty()
    }),
    ("tproxy_private", |settings| settings.tproxy.with_private),
];

const METRICS_ONLY: &[Dependent] = &[("metrics_per_user", |settings| settings.metrics.per_user)];

const ADMIN_ONLY: &[Dependent] = &[("admin_token_file", |settings| settings.admin.token_file.is_some())];

fn names_any(networks: Option<&[Prefix]>) -> bool {
    networks.is_some_and(|networks| !networks.is_empty())
}

impl Settings {
    /// Refuses a setting of this command that needs another one, where that is missing.
    pub(crate) fn check_needs<C: CommandWithSettings>(&self, flags: &Flags<C>) -> Result<(), Problem> {
        let mut problems = Vec::new();
        if !self.tun.default_route {
            problems.extend(self.refusals(DEFAULT_ROUTE_ONLY, &DEFAULT_ROUTE, flags));
        }
        if self.tun.name.is_none() {
            problems.extend(self.refusals(TUN_ONLY, &TUN, flags));
        }
        if self.cover.place.is_none() {
            problems.extend(self.refusals(COVER_ONLY, &COVER, flags));
        }
        if self.tproxy.port.is_none() {
            problems.extend(self.refusals(TPROXY_ONLY, &TPROXY, flags));
        }
        if self.metrics.listen.is_none() {
            problems.extend(self.refusals(METRICS_ONLY, &METRICS, flags));
        }
        if self.admin.listen.is_none() {
            problems.extend(self.refusals(ADMIN_ONLY, &ADMIN, flags));
        }
        Problem::all(problems)
    }

    fn refusals<C: CommandWithSettings>(
        &self,
        dependents: &'static [Dependent],
        need: &'static Need,
        flags: &Flags<C>,
    ) -> impl Iterator<Item = Problem> {
        dependents.iter().filter_map(|(key, asks)| {
            let setting = names::find(key).expect("the keys above are settings");
            if !C::reads(setting.reader) || !asks(self) {
                return None;
            }
            let Need {
                what,
                flag: add,
                key: set,
            } = need;
            let flag = flags.value(key).and(setting.shown_flag());
            Some(match flag {
                Some(flag) => Problem::usage(format!("{flag} needs {what}; add {add}, or leave {flag} out")),
                None => Problem::configuration(format!(
                    "{key}, which the config file or {} sets, needs {what}; add {add}, or set {set}",
                    setting.variable()
                )),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{Args, FromArgMatches};

    use super::super::flags::{Connect, Up};
    use super::*;

    fn check<C: CommandWithSettings>(file: &str, line: &[&str]) -> Result<(), Problem> {
        let command = Flags::<C>::augment_args(clap::Command::new("command").no_binary_name(true));
        let flags = Flags::<C>::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap();
        let mut settings = Settings::default();
        settings.apply_file(Path::new("c.toml"), file).unwrap();
        settings.apply_flags(&flags).unwrap();
        settings.check_needs(&flags)
    }

    fn code(checked: Result<(), Problem>) -> Option<u8> {
        checked.err().map(|problem| problem.code() as u8)
    }

    #[test]
    fn what_needs_a_tun_is_refused_without_one_and_names_its_source() {
        for line in [
            ["--default-route"].as_slice(),
            &["--route", "10.0.0.0/8"],
            &["--dns", "10.0.0.1"],
        ] {
            let problem = check::<Connect>("", line).unwrap_err();
            assert_eq!(problem.code() as u8, 64);
            assert!(
                problem.to_string().starts_with(&format!("{} needs", line[0])),
                "{problem}"
            );
            assert!(check::<Connect>("", &[line, &["--tun"]].concat()).is_ok());
            assert!(check::<Connect>("tun = \"auto\"\n", line).is_ok());
        }
        for line in [
            ["--nat"].as_slice(),
            &["--pool", "10.0.0.0/8"],
            &["--client-to-client"],
            &["--advertise", "10.0.0.0/8"],
        ] {
            assert_eq!(code(check::<Up>("", line)), Some(64), "{line:?}");
            assert!(check::<Up>("", &[line, &["--tun"]].concat()).is_ok());
        }
        let problem = check::<Connect>("default_route = true\n", &[]).unwrap_err();
        assert_eq!(problem.code() as u8, 78);
        assert!(problem.to_string().contains("GRAMWAY_DEFAULT_ROUTE"), "{problem}");
    }

    #[test]
    fn what_needs_a_default_route_is_refused_without_one() {
        for line in [
            ["--allow-lan"].as_slice(),
            &["--exclude", "10.0.0.0/8"],
            &["--kill-switch"],
        ] {
            let with_tun = [line, &["--tun"]].concat();
            let problem = check::<Connect>("", &with_tun).unwrap_err();
            assert_eq!(problem.code() as u8, 64);
            let told = problem.to_string();
            assert!(told.starts_with(&format!("{} needs", line[0])), "{told}");
            assert!(told.contains("add --default-route"), "{told}");
            assert!(check::<Connect>("", &[&with_tun[..], &["--default-route"]].concat()).is_ok());
        }
        let problem = check::<Connect>("kill_switch = true\n", &["--tun"]).unwrap_err();
        assert_eq!(problem.code() as u8, 78);
        assert!(
            problem.to_string().contains("set default_route = true"),
            "{problem}"
        );
        assert_eq!(
            code(check::<Up>(
                "kill_switch = true\nexclude = [\"10.0.0.0/8\"]\n",
                &[]
            )),
            None
        );
        assert_eq!(
            code(check::<Connect>("exclude = []\nallow_lan = false\n", &["--tun"])),
            None
        );
    }

    #[test]
    fn a_name_to_show_is_refused_without_a_cover() {
        let problem = check::<Up>("", &["--cover-name", "example.org"]).unwrap_err();
        assert_eq!(problem.code() as u8, 64);
        assert!(problem.to_string().contains("add --cover HOST"), "{problem}");
        let with = ["--cover", "192.0.2.1", "--cover-name", "example.org"];
        assert!(check::<Up>("", &with).is_ok());
        assert_eq!(code(check::<Up>("cover_name = \"example.org\"\n", &[])), Some(78));
        assert_eq!(
            code(check::<Connect>("cover_name = \"example.org\"\n", &[])),
            None
        );
    }

    #[test]
    fn interfaces_of_a_transparent_proxy_are_refused_without_one() {
        let problem = check::<Connect>("", &["--tproxy-interface", "lan0"]).unwrap_err();
        assert_eq!(problem.code() as u8, 64);
        assert!(problem.to_string().contains("add --tproxy PORT"), "{problem}");
        assert!(check::<Connect>("", &["--tproxy-interface", "lan0", "--tproxy", "1"]).is_ok());
        assert_eq!(code(check::<Connect>("tproxy_private = true\n", &[])), Some(78));
    }

    #[test]
    fn counters_of_users_are_refused_without_metrics() {
        let problem = check::<Up>("", &["--metrics-per-user"]).unwrap_err();
        assert_eq!(problem.code() as u8, 64);
        assert!(problem.to_string().contains("add --metrics PORT"), "{problem}");
        assert!(check::<Up>("", &["--metrics-per-user", "--metrics", "9464"]).is_ok());
        assert_eq!(code(check::<Connect>("metrics_per_user = true\n", &[])), None);
    }

    #[test]
    fn the_other_commands_settings_switches_that_are_off_and_empty_lists_need_nothing() {
        assert_eq!(
            code(check::<Up>(
                "default_route = true\nroute = [\"10.0.0.0/8\"]\n",
                &[]
            )),
            None
        );
        assert_eq!(
            code(check::<Connect>("nat = true\npool = [\"10.0.0.0/8\"]\n", &[])),
            None
        );
        assert_eq!(
            code(check::<Up>("nat = false\nclient_to_client = false\n", &[])),
            None
        );
        assert_eq!(code(check::<Up>("pool = []\nadvertise = []\n", &[])), None);
        assert_eq!(code(check::<Connect>("route = []\ndns = []\n", &[])), None);
    }
}
