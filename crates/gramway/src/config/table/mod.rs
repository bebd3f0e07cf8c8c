//! The table of all settings, a part for each subject. The file, the environment, the flags with their help, the
//! commented file of a first run and docs/settings.md come from it; a new setting is an entry of a part and a field in
//! what the entry sets.

mod client;
mod cover;
mod server;
mod transport;
mod tun;
mod watching;

use super::setting::{Apply, DefaultValue, Flag, Kind, Reader, Reload, Setting};

const fn setting(
    key: &'static str,
    kind: Kind,
    reader: Reader,
    default: DefaultValue,
    apply: Apply,
) -> Setting {
    Setting {
        key,
        kind,
        reader,
        flag: Flag::None,
        excludes: None,
        default,
        reload: Reload::Restart,
        documentation: "",
        apply,
    }
}

/// A default, in TOML.
const fn default(value: &'static str) -> DefaultValue {
    DefaultValue::Value(value)
}

/// What happens without a value, and a value for the file of a first run, in TOML.
const fn unset(effect: &'static str, example: &'static str) -> DefaultValue {
    DefaultValue::Unset { effect, example }
}

impl Setting {
    const fn flag(mut self, flag: Flag) -> Self {
        self.flag = flag;
        self
    }

    const fn excludes(mut self, key: &'static str) -> Self {
        self.excludes = Some(key);
        self
    }

    const fn reload(mut self, reload: Reload) -> Self {
        self.reload = reload;
        self
    }

    const fn about(mut self, documentation: &'static str) -> Self {
        self.documentation = documentation;
        self
    }
}

/// Every setting, in the order of the file of a first run. Each source is applied in this order.
pub(super) fn all() -> impl Iterator<Item = &'static Setting> {
    let parts = [
        server::SETTINGS,
        cover::SETTINGS,
        tun::SETTINGS,
        client::SETTINGS,
        transport::SETTINGS,
        watching::SETTINGS,
    ];
    parts.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::super::Settings;
    use super::super::error::SettingError;
    use super::super::values::Value;
    use super::*;

    fn try_apply(setting: &Setting, text: &str) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        let value = Value::from_text(setting.kind, OsStr::new(text))?;
        (setting.apply)(&mut settings, value)?;
        Ok(settings)
    }

    fn apply(setting: &Setting, toml: &str) -> Settings {
        let text = toml.trim_matches(['[', ']']).trim_matches('"');
        try_apply(setting, text).unwrap_or_else(|error| panic!("{}: {error}", setting.key))
    }

    #[test]
    fn every_default_is_what_the_program_does_without_the_setting() {
        let without = format!("{:?}", Settings::default());
        for setting in all() {
            if let DefaultValue::Value(value) = setting.default {
                assert_eq!(format!("{:?}", apply(setting, value)), without, "{}", setting.key);
            }
        }
    }

    #[test]
    fn every_example_sets_something() {
        let without = format!("{:?}", Settings::default());
        for setting in all() {
            if let DefaultValue::Unset { example, .. } = setting.default {
                assert_ne!(
                    format!("{:?}", apply(setting, example)),
                    without,
                    "{}",
                    setting.key
                );
            }
        }
    }

    #[test]
    fn every_switch_changes_its_default() {
        for setting in all() {
            match (setting.flag, setting.default) {
                (Flag::On, default) => assert_eq!(default, DefaultValue::Value("false"), "{}", setting.key),
                (Flag::Off(_), default) => {
                    assert_eq!(default, DefaultValue::Value("true"), "{}", setting.key)
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_setting_is_documented_without_a_full_stop() {
        for setting in all() {
            let text = setting.documentation;
            assert!(
                text.starts_with(char::is_uppercase) && !text.ends_with('.'),
                "{}",
                setting.key
            );
        }
    }
    /// Numbers tell theirs at the end of their documentation: "…, FIRST to LAST".
    #[test]
    fn every_number_keeps_exactly_the_bounds_that_are_documented() {
        for setting in all().filter(|setting| setting.kind == Kind::Integer) {
            let bounds = setting
                .documentation
                .rsplit_once(", ")
                .map_or("", |(_, bounds)| bounds);
            let bounds = bounds
                .split_once(" to ")
                .unwrap_or_else(|| panic!("{} tells no bounds", setting.key));
            let first: i64 = bounds.0.parse().unwrap();
            let last: i64 = bounds.1.parse().unwrap();
            for (number, is_inside) in [(first - 1, false), (first, true), (last, true), (last + 1, false)] {
                let applied = try_apply(setting, &number.to_string());
                assert_eq!(applied.is_ok(), is_inside, "{} = {number}", setting.key);
            }
        }
    }

    #[test]
    fn latencies_and_rates_keep_exactly_the_bounds_that_are_documented() {
        for (key, bounds, inside, outside) in [
            ("repair", "1ms to 500ms", ["1ms", "500ms"], ["0ms", "501ms"]),
            (
                "profile",
                "1M to 1000G",
                ["fixed:1M", "fixed:1000G"],
                ["fixed:999k", "fixed:1001G"],
            ),
        ] {
            let setting = all().find(|setting| setting.key == key).unwrap();
            assert!(setting.documentation.contains(bounds), "{key}");
            assert!(
                inside.iter().all(|text| try_apply(setting, text).is_ok()),
                "{key}"
            );
            assert!(
                outside.iter().all(|text| try_apply(setting, text).is_err()),
                "{key}"
            );
        }
    }
}
