//! What describes one setting: its key, type, flag, default, documentation and meaning.
//!
//! The key names everything else: `udp_idle_timeout_s` is GRAMWAY_UDP_IDLE_TIMEOUT_S in the environment, and would be
//! `--udp-idle-timeout-s` as a flag.

use super::Settings;
use super::error::SettingError;
use super::values::Value;

/// What the variables of all settings begin with.
pub(super) const VARIABLE_PREFIX: &str = "GRAMWAY_";

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.to_uppercase())
}

/// Type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A text in the file; any bytes that name a file elsewhere.
    Path,
    Integer,
    Boolean,
    /// A list of texts; separated by commas in the environment.
    List,
}

/// Which commands read a setting. `gramway link` has the server's flags that concern the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Server,
    /// The server, and `gramway link`.
    ServerAndLink,
    Client,
    Both,
}

/// When a change of a setting counts in a process that reads its configuration again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reload {
    /// At once.
    Live,
    /// For what opens from then on.
    New,
    /// After a restart.
    Restart,
}

/// How the command line gives a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// Only file and environment give it.
    None,
    /// `--key VALUE`; a list repeats it.
    Value(&'static str),
    /// As `Value`, with a letter of its own, by which messages name it: `-L VALUE`.
    Letter(char, &'static str),
    /// `--key [VALUE]`, with what the flag alone means.
    OptionalValue {
        value: &'static str,
        alone: &'static str,
    },
    /// `--key` sets true.
    On,
    /// `--no-key` sets false; with its own help.
    Off(&'static str),
}

/// The value that a setting has when nothing sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultValue {
    /// This value, in TOML.
    Value(&'static str),
    /// No value: what happens then, and a value for the file of a first run, in TOML.
    Unset {
        effect: &'static str,
        example: &'static str,
    },
}

/// Stores a value in the settings.
pub(super) type Apply = fn(&mut Settings, Value) -> Result<(), SettingError>;

/// One setting.
#[derive(Debug)]
pub(super) struct Setting {
    /// The key in the file.
    pub(super) key: &'static str,
    pub(super) kind: Kind,
    pub(super) reader: Reader,
    pub(super) flag: Flag,
    /// The key whose flag cannot be given together with this one's.
    pub(super) excludes: Option<&'static str>,
    pub(super) default: DefaultValue,
    pub(super) reload: Reload,
    /// A sentence or two without the last full stop.
    pub(super) documentation: &'static str,
    pub(super) apply: Apply,
}

impl Setting {
    /// The environment variable.
    pub(super) fn variable(&self) -> String {
        variable(self.key)
    }

    /// The long flag without its dashes.
    pub(super) fn long_flag(&self) -> Option<String> {
        let key = self.key.replace('_', "-");
        match self.flag {
            Flag::None => None,
            Flag::Off(_) => Some(format!("no-{key}")),
            _ => Some(key),
        }
    }

    /// The flag as messages name it.
    pub(super) fn shown_flag(&self) -> Option<String> {
        match self.flag {
            Flag::Letter(letter, _) => Some(format!("-{letter}")),
            _ => self.long_flag().map(|flag| format!("--{flag}")),
        }
    }

    /// A valid value in TOML: the default where there is one.
    pub(super) fn example(&self) -> &'static str {
        match self.default {
            DefaultValue::Value(value) => value,
            DefaultValue::Unset { example, .. } => example,
        }
    }

    /// The default, for people.
    pub(super) fn shown_default(&self) -> &'static str {
        match self.default {
            DefaultValue::Value(value) => value.trim_matches('"'),
            DefaultValue::Unset { effect, .. } => effect,
        }
    }
}
