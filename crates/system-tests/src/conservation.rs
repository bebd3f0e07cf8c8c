//! The law of conservation: every datagram that came in was sent on, dropped for a named reason, or waits.

use serde_json::Value;

/// Checks both directions of one process's counters, as `gramway status --json` shows them:
/// `accepted + split + parity_sent + repaired = sent + joined + parity_received + sum(drops) + waiting`.
///
/// # Panics
/// When the law is broken, or a counter is missing.
pub fn assert_conserved(status: &Value) {
    let imbalance = imbalance(status);
    assert!(imbalance.is_none(), "{}", imbalance.unwrap_or_default());
}

/// The first direction where the law is broken, with its counters.
///
/// # Panics
/// When a counter is missing.
#[must_use]
pub fn imbalance(status: &Value) -> Option<String> {
    ["ingress", "egress"].into_iter().find_map(|name| {
        let direction = &status[name];
        let count = |counter: &str| {
            direction[counter]
                .as_u64()
                .unwrap_or_else(|| panic!("{name}.{counter} is missing: {status}"))
        };
        let came = count("accepted") + count("split") + count("parity_sent") + count("repaired");
        let sent = count("sent") + count("joined") + count("parity_received");
        let went = sent + dropped(direction) + count("waiting");
        let told = || format!("{came} ≠ {went}: {name} of the {}: {direction}", status["role"]);
        (came != went).then(told)
    })
}

/// Datagrams that one direction dropped, for whatever reason.
///
/// # Panics
/// When there are no counters.
#[must_use]
pub fn dropped(direction: &Value) -> u64 {
    let drops = direction["drops"].as_object();
    drops
        .unwrap_or_else(|| panic!("drops are missing: {direction}"))
        .values()
        .filter_map(Value::as_u64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(sent: u64) -> Value {
        let direction = json!({"accepted": 3, "split": 5, "sent": sent, "joined": 1, "waiting": 1,
            "parity_sent": 2, "repaired": 1, "parity_received": 3,
            "drops": {"queue_full": 2, "too_large": 1}});
        json!({"role": "server", "ingress": direction, "egress": direction})
    }

    #[test]
    fn a_balanced_account_passes() {
        assert_conserved(&status(3));
    }

    #[test]
    #[should_panic(expected = "ingress of the")]
    fn a_datagram_that_vanished_is_told() {
        assert_conserved(&status(2));
    }
}
