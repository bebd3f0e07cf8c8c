//! The settings that result from all sources, as a config file that says of each value where it comes from.
//!
//! The sources are read a second time, after they were applied, and by the same code; what has errors is not shown. No
//! setting holds a secret: links, tokens and keys are in files of their own, and a link in the place of a value is
//! refused.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use super::file;
use super::flags::{Flags, Given};
use super::setting::{DefaultValue, Reader, Reload, Setting};
use super::table;
use super::values::Value;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// This line of this file.
    File(PathBuf, usize),
    /// The variable.
    Environment(String),
    /// The flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(f, "{}:{line}", path.to_string_lossy().escape_debug()),
            Self::Environment(name) => write!(f, "environment, {name}"),
            Self::Flag(name) => write!(f, "flag, {name}"),
        }
    }
}

/// What the strongest source says of each key. Sources are taken from the weakest to the strongest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effective(BTreeMap<&'static str, (Value, Origin)>);

impl Effective {
    /// Takes a config file.
    pub(crate) fn take_file(&mut self, path: &Path, text: &str) {
        for (setting, value, line) in file::values(text) {
            self.take(setting, value, Origin::File(path.to_owned(), line));
        }
    }

    /// Takes the environment; `variable` looks one up.
    pub(crate) fn take_environment(&mut self, variable: impl Fn(&str) -> Option<OsString>) {
        for setting in table::all() {
            let name = setting.variable();
            let value = variable(&name).and_then(|text| Value::from_text(setting.kind, &text).ok());
            if let Some(value) = value {
                self.take(setting, value, Origin::Environment(name));
            }
        }
    }

    /// Takes the flags of a command line.
    pub(crate) fn take_flags<C>(&mut self, flags: &Flags<C>) {
        for Given { setting, texts } in flags.given() {
            let value = Value::from_texts(setting.kind, texts);
            if let (Ok(value), Some(name)) = (value, setting.shown_flag()) {
                self.take(setting, value, Origin::Flag(name));
            }
        }
    }

    /// The settings of these readers that have another value in `other`, and when that counts.
    pub(crate) fn changes(
        &self,
        other: &Self,
        reads: impl Fn(Reader) -> bool,
    ) -> Vec<(&'static str, Reload)> {
        table::all()
            .filter(|setting| reads(setting.reader) && self.value(setting) != other.value(setting))
            .map(|setting| (setting.key, setting.reload))
            .collect()
    }

    /// Takes the value of one key from `other`.
    pub(crate) fn follow(&mut self, other: &Self, key: &'static str) {
        match other.0.get(key) {
            Some(found) => self.0.insert(key, found.clone()),
            None => self.0.remove(key),
        };
    }

    /// What counts, be it given or the default.
    fn value(&self, setting: &Setting) -> Option<Value> {
        let default = || match setting.default {
            DefaultValue::Value(text) => {
                Value::from_text(setting.kind, OsStr::new(text.trim_matches('"'))).ok()
            }
            DefaultValue::Unset { .. } => None,
        };
        let given = self.0.get(setting.key).map(|(value, _)| value.clone());
        given.or_else(default)
    }

    fn take(&mut self, setting: &'static Setting, value: Value, origin: Origin) {
        // As `apply` does: a list of routes overrides a weaker source's wish for none.
        if let Some(overridden) = setting.excludes {
            self.0.remove(overridden);
        }
        self.0.insert(setting.key, (value, origin));
    }

    /// The config file with the settings of these readers. A setting without a value is a comment.
    pub(crate) fn file(&self, reads: impl Fn(Reader) -> bool) -> String {
        let mut text = String::new();
        for setting in table::all().filter(|setting| reads(setting.reader)) {
            let key = setting.key;
            let written = match (self.0.get(key), setting.default) {
                (Some((value, origin)), _) => match toml_of(value) {
                    Some(value) => writeln!(text, "{key} = {value} # {origin}"),
                    None => writeln!(text, "# {key} is not UTF-8 # {origin}"),
                },
                (None, DefaultValue::Value(value)) => writeln!(text, "{key} = {value} # default"),
                (None, DefaultValue::Unset { effect, .. }) => writeln!(text, "# {key}: {effect} # default"),
            };
            written.expect("strings take everything");
        }
        text
    }
}

/// The value in TOML, on one line; `None` for a path that no text can hold.
fn toml_of(value: &Value) -> Option<toml::Value> {
    Some(match value {
        Value::Text(text) => text.as_str().into(),
        Value::Path(path) => path.to_str()?.into(),
        Value::Integer(number) => (*number).into(),
        Value::Boolean(value) => (*value).into(),
        Value::List(texts) => texts.clone().into(),
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::super::flags::Connect;
    use super::super::{CommandWithSettings, Settings};
    use super::*;

    /// What file, environment and flags of a client make: the settings, and the file that is shown of them.
    fn effective(file: &str, variables: &[(&str, &str)], line: &[&str]) -> (Settings, String) {
        let command = Flags::<Connect>::augment_args(clap::Command::new("command").no_binary_name(true));
        let flags = Flags::<Connect>::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap();
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let path = Path::new("c.toml");
        let (mut settings, mut effective) = (Settings::default(), Effective::default());
        settings.apply_file(path, file).unwrap();
        effective.take_file(path, file);
        settings.apply_environment(variable).unwrap();
        effective.take_environment(variable);
        settings.apply_flags(&flags).unwrap();
        effective.take_flags(&flags);
        (settings, effective.file(Connect::reads))
    }

    #[test]
    fn each_value_is_shown_with_its_origin() {
        let file =
            "# c\nforward = [\n  \"udp:1=a:1\",\n  \"tcp:1=a:1\",\n]\ngro = false\nbind = \"192.0.2.7\"\n";
        let variables = [("GRAMWAY_BIND", "192.0.2.8"), ("GRAMWAY_LINK_FILE", "a \"b\"")];
        let (_, text) = effective(file, &variables, &["--no-gso", "--tun"]);
        for line in [
            "forward = [\"udp:1=a:1\", \"tcp:1=a:1\"] # c.toml:2",
            "gro = false # c.toml:6",
            "bind = \"192.0.2.8\" # environment, GRAMWAY_BIND",
            "link_file = 'a \"b\"' # environment, GRAMWAY_LINK_FILE",
            "gso = false # flag, --no-gso",
            "tun = \"auto\" # flag, --tun",
            "carrier = \"auto\" # default",
            "# socks: none # default",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        assert!(
            !text.contains("\nlisten") && !text.contains("\n# listen"),
            "{text}"
        );
    }

    #[test]
    fn what_is_shown_gives_the_same_settings_when_it_is_read() {
        let routes = "no_routes = true\nroute = [\"10.0.0.0/8\"]\nno_dns = true\n";
        for (file, variables, line) in [
            ("", &[][..], &[][..]),
            (routes, &[], &[]),
            (routes, &[("GRAMWAY_NO_ROUTES", "false")], &["--dns", "10.0.0.1"]),
            (routes, &[("GRAMWAY_REPAIR", "40ms")], &["--route", "10.1.0.0/16"]),
            (
                "profile = \"fixed:5M\"\nmax_udp_payload = 0x5AC\n",
                &[],
                &["-L", "udp:1=a:1", "--socks", "1080"],
            ),
        ] {
            let (settings, text) = effective(file, variables, line);
            let mut again = Settings::default();
            again.apply_file(Path::new("shown.toml"), &text).unwrap();
            assert_eq!(format!("{again:?}"), format!("{settings:?}"), "{text}");
        }
    }

    #[test]
    fn what_differs_is_named_with_when_it_counts_and_a_default_that_is_written_down_does_not_differ() {
        let of = |text: &str| {
            let mut effective = Effective::default();
            effective.take_file(Path::new("c.toml"), text);
            effective
        };
        let mut running = of("gso = true\nlisten = \"[::]:1\"\nudp_idle_timeout_s = 60\n");
        let next = of("listen = \"[::]:2\"\nallow_target = [\"10.0.0.1/32\"]\nforward = [\"udp:1=a:1\"]\n");
        let changes = [
            ("listen", Reload::Restart),
            ("allow_target", Reload::New),
            ("udp_idle_timeout_s", Reload::Live),
        ];
        assert_eq!(running.changes(&next, super::super::Up::reads), changes);
        running.follow(&next, "allow_target");
        running.follow(&next, "udp_idle_timeout_s");
        let left = running.changes(&next, super::super::Up::reads);
        assert_eq!(left, [("listen", Reload::Restart)]);
    }

    #[cfg(unix)]
    #[test]
    fn a_path_without_a_text_is_a_comment() {
        use std::os::unix::ffi::OsStringExt;
        let mut effective = Effective::default();
        let path = || OsString::from_vec(vec![b'a', 0xff]);
        effective.take_environment(|name| (name == "GRAMWAY_LINK_FILE").then(path));
        let text = effective.file(|_| true);
        assert!(
            text.contains("\n# link_file is not UTF-8 # environment, GRAMWAY_LINK_FILE\n"),
            "{text}"
        );
    }
}
