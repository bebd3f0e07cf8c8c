//! What people hear of the kill switch: at the end of a client, at the start of others, and in `gramway status`.

use std::fmt::Write;

use host::kill_switch::{Standing, standing};
use serde_json::{Value, json};

use crate::log;

/// Ends the kill switch of a client that has ended, `as_asked` or because it failed, and says so where it stays.
pub(crate) fn end(kill_switch: &tunnel::handle::KillSwitch, as_asked: bool) {
    match kill_switch.end(as_asked) {
        Ok(false) => {}
        Ok(true) => log::info(
            "kill_switch",
            "the kill switch stays: nothing but what it excepts leaves this machine until the next client with \
             --default-route, or `gramway release`",
        ),
        Err(error) => log::warning("kill_switch", format!("{error}; run: gramway release")),
    }
}

/// Says where a kill switch that a dead client left is in the way of this process.
pub(crate) fn warn_of_one_left() {
    // Without the privilege nobody can ask.
    if let Ok(Some(Standing { client: None, .. })) = standing() {
        log::warning(
            "kill_switch",
            "the kill switch of a client that has ended lets nothing leave this machine; \
             `gramway release` removes it",
        );
    }
}

/// The kill switch that stands in this network, as far as this process may ask.
pub(crate) fn find() -> Option<Standing> {
    standing().ok().flatten()
}

/// For programs.
pub(crate) fn as_json(standing: Option<&Standing>) -> Value {
    standing.map_or(
        Value::Null,
        |standing| json!({ "client_pid": standing.client, "lets_out": standing.lets_out }),
    )
}

/// For people.
pub(crate) fn as_text(standing: &Standing) -> String {
    let whose = match standing.client {
        Some(process) => format!("of the client with process ID {process}"),
        None => "of a client that has ended; `gramway release` removes it".to_owned(),
    };
    let mut text = format!("kill switch {whose}\n");
    let names = std::iter::once("lets out").chain(std::iter::repeat(""));
    for (name, line) in names.zip(grouped(&standing.lets_out)) {
        writeln!(text, "  {name:<14}{line}").expect("writing to a String does not fail");
    }
    text
}

/// `NETWORK (REASON)` by reason, one line each, behind everything else.
fn grouped(lets_out: &[String]) -> Vec<String> {
    let mut always = Vec::new();
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for text in lets_out {
        let Some((network, reason)) = text.strip_suffix(')').and_then(|text| text.split_once(" (")) else {
            always.push(text.as_str());
            continue;
        };
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, networks)) => networks.push(network),
            None => groups.push((reason, vec![network])),
        }
    }
    let groups = groups.into_iter();
    let named = groups.map(|(reason, networks)| format!("{reason}: {}", networks.join(", ")));
    std::iter::once(always.join(", ")).chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_it_is_and_what_it_lets_out_is_shown() {
        let mut standing = Standing {
            client: Some(7),
            lets_out: [
                "loopback",
                "DHCP",
                "10.0.0.0/8 (excluded)",
                "192.0.2.1/32 (the server)",
                "10.9.0.0/16 (excluded)",
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        assert_eq!(
            as_text(&standing),
            "kill switch of the client with process ID 7\n  \
             lets out      loopback, DHCP\n                \
             excluded: 10.0.0.0/8, 10.9.0.0/16\n                \
             the server: 192.0.2.1/32\n"
        );
        standing.client = None;
        assert!(as_text(&standing).contains("`gramway release`"));
        assert_eq!(as_json(None), Value::Null);
        assert_eq!(as_json(Some(&standing))["lets_out"][1], "DHCP");
    }
}
