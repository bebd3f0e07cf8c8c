//! A config file, and values of the environment: any text is applied or refused with a line that it has, the same each
//! time; and what one setting takes from the environment, it takes or refuses without a panic.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::config::{Settings, template};

/// A byte says which source it is; then the text.
pub fn run(data: &[u8]) {
    let Some((source, text)) = data.split_first() else {
        return;
    };
    if source % 2 == 0 {
        file(text);
    } else {
        environment(text);
    }
}

fn apply(text: &str) -> Result<String, String> {
    let mut settings = Settings::default();
    match settings.apply_file(Path::new("config.toml"), text) {
        Ok(()) => Ok(format!("{settings:?}")),
        Err(problem) => Err(problem.to_string()),
    }
}

fn file(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let applied = apply(text);
    assert_eq!(applied, apply(text), "the same text means something else");
    match applied {
        // What an empty line and a comment change is the number of lines. A byte order mark is none but at the start.
        Ok(settings) => {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            assert_eq!(apply(&format!("\n# {settings:.8}\n{text}")), Ok(settings));
        }
        Err(told) => {
            let line = told
                .strip_prefix("config.toml line ")
                .and_then(|rest| rest.split_once(':'));
            let line = line.and_then(|(line, _)| line.parse::<usize>().ok());
            let lines = text.split('\n').count();
            assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{told}");
        }
    }
}

/// A key, a zero byte, and its value, for every variable whose name ends with the key.
fn environment(text: &[u8]) {
    let (key, value) = match text.iter().position(|byte| *byte == 0) {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[][..]),
    };
    let key = String::from_utf8_lossy(key).to_uppercase();
    let value: OsString = OsStr::from_bytes(value).to_owned();
    let apply = || {
        let mut settings = Settings::default();
        let applied = settings.apply_environment(|name| name.ends_with(&key).then(|| value.clone()));
        applied
            .map(|()| format!("{settings:?}"))
            .map_err(|problem| problem.to_string())
    };
    assert_eq!(apply(), apply());
}

/// The file of a first run, as it is and with everything set; what is wrong in each way; and variables.
pub fn seeds() -> Vec<Vec<u8>> {
    let set: String = template()
        .lines()
        .filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')))
        .map(|line| format!("{line}\n"))
        .collect();
    let files = [
        template().as_str(),
        &set,
        "gso = \"yes\"\n[server]\n",
        "\u{feff}gso = false\n",
        "max_udp_payload = 0x5AC\nmax_udp_payload = 1.5",
        "forward = [\"udp:53-60=[2001:db8::1]:53-60\", 1]",
        "lisen = 1979-05-27T07:32:00Z\nprofile = 'fixed:500M'\nrepair = \"501ms\"",
        "pool = [\"10.0.0.0/8\", \"fd00::/64\"]\nroute = []\nconnections = 99999999999999999999999",
    ]
    .map(|text| [b"\0", text.as_bytes()].concat());
    let variables = [
        "listen\0localhost:443",
        "forward\0tcp:1-3=a:1-3,udp:[::1]:53=b.example:53",
        "allow_target\x00127.0.0.1/32:53,::1/128",
        "profile\0fixed:1G",
        "public\0a:1,b,[::1]:5",
        "repair\x0040ms",
        "gso\x001",
    ]
    .map(|text| [b"\x01", text.as_bytes()].concat());
    [&files[..], &variables[..]].concat()
}
