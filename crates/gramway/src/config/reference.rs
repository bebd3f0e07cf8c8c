//! docs/settings.md: generates the reference of all settings, and checks that the file matches the table.

use std::fmt::Write;
use std::path::Path;

use super::setting::{DefaultValue, Flag, Kind, Reader, Reload, Setting};
use super::table;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
/// With this variable the test writes the file instead of comparing it.
const WRITE_VARIABLE: &str = "GRAMWAY_WRITE_REFERENCE";

const OPENING: &str = "\
# Settings

Generated from `crates/gramway/src/config/table`; do not edit. To write it again: `GRAMWAY_WRITE_REFERENCE=1 cargo test -p gramway
the_reference`.

A flag overrides the environment, the environment overrides the config file, and the file overrides the default. A list replaces the
list of a weaker source. The config file is TOML, a flat list of keys: `DIR/config.toml` in the state directory, or the file that
`--config` or `GRAMWAY_CONFIG` names. `gramway connect NAME` reads `DIR/profiles/NAME.toml` on top of it. In the environment lists are separated by commas.

The settings are read when the program starts, and again at SIGHUP and by `gramway ctl reload`: the column **reload** says when a change
counts then, at once, for what opens from then on (new), or after a restart.

Three values have no key: the state directory (`--state`, `GRAMWAY_STATE`), the config file (`--config`, `GRAMWAY_CONFIG`), and a client's
link as text (`LINK`, `GRAMWAY_LINK`). The link is given once: as text or by `--link-file`; the key `link_file` counts if neither is given.
";

fn reference() -> String {
    let mut text = OPENING.to_owned();
    let sections: [(&str, &[Reader]); 3] = [
        ("Server (`gramway up`)", &[Reader::Server, Reader::ServerAndLink]),
        ("Client (`gramway connect`)", &[Reader::Client]),
        ("Server and client", &[Reader::Both]),
    ];
    for (title, readers) in sections {
        write!(
            text,
            "\n## {title}\n\n| key | type | flag | environment | default | reload | meaning |\n|---|---|---|---|---|---|---|\n"
        )
        .expect("strings take everything");
        for setting in table::all().filter(|setting| readers.contains(&setting.reader)) {
            text.push_str(&row(setting));
        }
    }
    text
}

fn row(setting: &Setting) -> String {
    let kind = match setting.kind {
        Kind::Text => "text",
        Kind::Path => "file",
        Kind::Integer => "integer",
        Kind::Boolean => "true, false",
        Kind::List => "list of texts",
    };
    let default = match setting.default {
        DefaultValue::Value(value) => format!("`{value}`"),
        DefaultValue::Unset { effect, .. } => effect.to_owned(),
    };
    let reload = match setting.reload {
        Reload::Live => "at once",
        Reload::New => "new",
        Reload::Restart => "restart",
    };
    format!(
        "| `{}` | {kind} | {} | `{}` | {default} | {reload} | {} |\n",
        setting.key,
        flag(setting),
        setting.variable(),
        setting.documentation
    )
}

fn flag(setting: &Setting) -> String {
    let Some(long) = setting.long_flag() else {
        return "none".to_owned();
    };
    match setting.flag {
        Flag::Letter(letter, value) => format!("`-{letter}`, `--{long} {value}`"),
        Flag::Value(value) => format!("`--{long} {value}`"),
        Flag::OptionalValue { value, .. } => format!("`--{long} [{value}]`"),
        Flag::None | Flag::On | Flag::Off(_) => format!("`--{long}`"),
    }
}

#[test]
fn the_reference_says_what_the_table_says() {
    let text = reference();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let file = std::fs::read_to_string(Path::new(FILE)).unwrap_or_default();
    assert!(
        file == text,
        "docs/settings.md is not what the table gives; write it again with {WRITE_VARIABLE}=1"
    );
}
