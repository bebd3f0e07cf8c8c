//! The config file: TOML with a flat list of keys. All errors are told at once, each with its line.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::SettingError;
use super::setting::{Reader, Setting};
use super::table;
use super::values::Value;
use super::{Settings, names};
use crate::exit::Problem;
use crate::limits::COMPLAINTS_MAX;

impl Settings {
    /// Applies a config file's text; `path` is for messages.
    pub(crate) fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), Problem> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let start = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
        let mut complaints: Vec<(usize, String)> = errors
            .iter()
            .map(|error| (line_at(text, start(error)), error.message().to_owned()))
            .collect();
        let is_broken =
            |line: usize, complaints: &[(usize, String)]| complaints.iter().any(|(at, _)| *at == line);
        let entries = table.get_ref();
        for (key, _) in entries {
            let line = line_at(text, key.span().start);
            if names::find(key.get_ref()).is_none() && !is_broken(line, &complaints) {
                complaints.push((line, names::unknown(key.get_ref())));
            }
        }
        // In the order of the settings, so that the order of the lines does not matter.
        for setting in table::all() {
            let Some(value) = entries.get(setting.key) else {
                continue;
            };
            let line = line_at(text, value.span().start);
            // What is left of a line that is no TOML is not what was meant.
            if is_broken(line, &complaints) {
                continue;
            }
            let applied = read(value.get_ref()).and_then(|value| (setting.apply)(self, value));
            complaints.extend(
                applied
                    .err()
                    .map(|error| (line, format!("{}: {error}", setting.key))),
            );
        }
        complaints.sort();
        let told = complaints
            .iter()
            .take(COMPLAINTS_MAX)
            .map(|(line, complaint)| format!("{} line {line}: {complaint}", path.display()));
        let mut told: Vec<_> = told.map(Problem::configuration).collect();
        if complaints.len() > COMPLAINTS_MAX {
            let others = complaints.len() - COMPLAINTS_MAX;
            told.push(Problem::configuration(format!(
                "{}: {others} more errors",
                path.display()
            )));
        }
        Problem::all(told)
    }
}

/// The line, from 1 on, of a byte of the text.
fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    before.filter(|&&byte| byte == b'\n').count() + 1
}

/// The values of a file that was applied without errors, in the order of the settings, with their lines.
pub(super) fn values(text: &str) -> Vec<(&'static Setting, Value, usize)> {
    let (table, _) = DeTable::parse_recoverable(text);
    let entries = table.get_ref();
    let found = table::all().filter_map(|setting| {
        let value = entries.get(setting.key)?;
        let line = line_at(text, value.span().start);
        Some((setting, read(value.get_ref()).ok()?, line))
    });
    found.collect()
}

fn read(value: &DeValue<'_>) -> Result<Value, SettingError> {
    match value {
        DeValue::String(text) => Ok(Value::Text(text.to_string())),
        DeValue::Boolean(value) => Ok(Value::Boolean(*value)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Integer)
            .map_err(|_| SettingError::TooLarge),
        DeValue::Array(array) => {
            let texts = array.iter().map(|element| match element.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                _ => Err(SettingError::Elements),
            });
            Ok(Value::List(texts.collect::<Result<_, _>>()?))
        }
        DeValue::Float(_) => Err(SettingError::Type("no fraction")),
        DeValue::Datetime(_) => Err(SettingError::Type("no date")),
        DeValue::Table(_) => Err(SettingError::Type("no table")),
    }
}

/// The file of a first run: every key, commented out.
pub(crate) fn template() -> String {
    let mut text = String::from(
        "# Settings of gramway. A flag overrides the environment (GRAMWAY_ and the key in capitals), which overrides this file.\n\
         # Remove the # before a key to set it. The program reads this file when it starts, and again at\n\
         # SIGHUP and by `gramway ctl reload`.\n",
    );
    for setting in table::all() {
        let reader = match setting.reader {
            Reader::Server | Reader::ServerAndLink => "Server: ",
            Reader::Client => "Client: ",
            Reader::Both => "",
        };
        text.push_str(&format!(
            "\n# {reader}{}.\n# Default: {}.\n#{} = {}\n",
            setting.documentation,
            setting.shown_default(),
            setting.key,
            setting.example()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn apply(text: &str) -> Result<Settings, Problem> {
        let mut settings = Settings::default();
        settings.apply_file(Path::new("config.toml"), text)?;
        Ok(settings)
    }

    #[test]
    fn the_file_of_a_first_run_is_valid_with_and_without_its_comment_marks() {
        apply(&template()).unwrap();
        let text: String = template()
            .lines()
            .filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(text.lines().count(), table::all().count());
        let settings = apply(&text).unwrap();
        let common = tunnel::config::CommonConfig::default();
        assert_eq!(settings.listen, Some(super::super::DEFAULT_LISTEN));
        assert_eq!(settings.common.receive_buffer_bytes, common.receive_buffer_bytes);
        assert_eq!(settings.common.send_buffer_bytes, common.send_buffer_bytes);
        assert_eq!(
            settings.common.engine.udp_idle_timeout,
            common.engine.udp_idle_timeout
        );
        assert_eq!(
            settings.common.engine.tcp_idle_timeout,
            common.engine.tcp_idle_timeout
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        for (text, expected) in [
            (
                "\n\nlisen = 1",
                "config.toml line 3: unknown key \"lisen\"; did you mean \"listen\"?",
            ),
            (
                "gso = true\n[server]\n",
                "config.toml line 2: unknown key \"server\"; the keys are",
            ),
            ("gso = \"yes\"", "config.toml line 1: gso: it takes true or false"),
            (
                "# c\nmax_udp_payload = 100",
                "config.toml line 2: max_udp_payload: 100 is outside 1200 to 65507",
            ),
            (
                "max_udp_payload = 1.5",
                "config.toml line 1: max_udp_payload: it takes no fraction",
            ),
            (
                "forward = [\"udp:x\"]",
                "config.toml line 1: forward: \"udp:x\" is not a forward",
            ),
            (
                "forward = [1]",
                "config.toml line 1: forward: its elements are texts",
            ),
            (
                "repair = \"501ms\"",
                "config.toml line 1: repair: 501ms is outside 1ms to 500ms",
            ),
            (
                "repair = \"40\"",
                "config.toml line 1: repair: \"40\" is neither a latency in milliseconds, such as 40ms, nor off",
            ),
            (
                "gro = 1\nlisen = 1\ngso = 2",
                "config.toml line 1: gro: it takes true or false",
            ),
            ("gso = \n", "config.toml line 1: "),
            ("gso = true\ngso = false", "config.toml line 2: "),
            (
                "send_buffer_bytes = 99999999999999999999999",
                "config.toml line 1: send_buffer_bytes: ",
            ),
        ] {
            let error = apply(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_by_line() {
        let text = "gso = 2\nlisen = 1\nrepair = \nmax_udp_payload = 9\n";
        let problem = apply(text).unwrap_err();
        assert_eq!(problem.code() as u8, 78);
        let told = problem.to_string();
        let told: Vec<_> = told.lines().collect();
        assert_eq!(told.len(), 4, "{told:?}");
        for (line, (told, part)) in told
            .iter()
            .zip(["gso: it takes", "did you mean", "", "9 is outside"])
            .enumerate()
        {
            assert!(
                told.starts_with(&format!("config.toml line {}: ", line + 1)),
                "{told}"
            );
            assert!(told.contains(part), "{told}");
        }
        let many: String = (0..1_000).map(|number| format!("colour{number} = 1\n")).collect();
        let told = apply(&many).unwrap_err().to_string();
        assert_eq!(told.lines().count(), COMPLAINTS_MAX + 1);
        assert!(told.ends_with("config.toml: 980 more errors"), "{told}");
    }

    #[test]
    fn integers_may_be_hexadecimal_and_grouped() {
        assert_eq!(
            apply("max_udp_payload = 0x5AC").unwrap().common.max_udp_payload,
            Some(1_452)
        );
        assert_eq!(
            apply("max_udp_payload = 1_452").unwrap().common.max_udp_payload,
            Some(1_452)
        );
    }

    /// Any text, and any value behind a key that there is.
    fn any_file() -> impl Strategy<Value = String> {
        let key = prop::sample::select(table::all().map(|setting| setting.key).collect::<Vec<_>>());
        let known = (key, "\\PC{0,40}").prop_map(|(key, value)| format!("{key} = {value}"));
        let line = prop_oneof![known, "\\PC{0,80}", "#\\PC{0,20}"];
        prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        #[test]
        fn hostile_text_is_applied_or_refused_with_a_line_that_it_has(text in any_file()) {
            if let Err(problem) = apply(&text) {
                let told = problem.to_string();
                let line = told.strip_prefix("config.toml line ").and_then(|rest| rest.split_once(':'));
                let line = line.and_then(|(line, _)| line.parse::<usize>().ok());
                prop_assert!(line.is_some_and(|line| (1..=text.split('\n').count()).contains(&line)), "{}", told);
            }
        }
    }
}
