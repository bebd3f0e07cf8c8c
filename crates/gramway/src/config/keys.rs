//! The table of all keys, and which one a misspelt key was meant to be.

use crate::limits::SUGGESTION_EDITS_MAX;

/// What a key's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Boolean,
    /// A list of texts; separated by commas in the environment.
    List,
}

/// One key of the config file; `GRAMWAY_` and its upper-case form is its environment variable.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The value in the commented file, in TOML: the default where there is one.
    pub(super) example: &'static str,
    pub(super) meaning: &'static str,
}

impl Key {
    /// The example as an environment variable would hold it.
    #[cfg(test)]
    pub(super) fn example_text(&self) -> &'static str {
        self.example.trim_matches(['[', ']']).trim_matches('"')
    }
}

const fn key(name: &'static str, kind: Kind, example: &'static str, meaning: &'static str) -> Key {
    Key {
        name,
        kind,
        example,
        meaning,
    }
}

/// Every key.
pub(super) const KEYS: &[Key] = &[
    key(
        "listen",
        Kind::Text,
        "\"[::]:443\"",
        "Server: address and port that the server listens on.",
    ),
    key(
        "public",
        Kind::List,
        "[\"vpn.example.org\"]",
        "Server: hosts in the link, HOST or HOST:PORT; without it the listening address, or the default route's.",
    ),
    key(
        "allow_target",
        Kind::List,
        "[\"127.0.0.1/32:53\"]",
        "Server: targets that are closed otherwise (loopback, the server's own addresses, …), CIDR or CIDR:PORT.",
    ),
    key(
        "tun",
        Kind::Text,
        "\"auto\"",
        "Carry IP packets through a TUN device of this name, or \"auto\".",
    ),
    key(
        "pool",
        Kind::List,
        "[\"10.86.0.0/24\"]",
        "Server: where clients' addresses come from; the first one is the server's own.",
    ),
    key(
        "nat",
        Kind::Boolean,
        "false",
        "Server: let clients of the TUN reach what this machine reaches, by its address.",
    ),
    key(
        "advertise",
        Kind::List,
        "[\"192.168.1.0/24\"]",
        "Server: what clients of the TUN are told to be reachable; without it everything with nat, else the pools.",
    ),
    key(
        "client_to_client",
        Kind::Boolean,
        "false",
        "Server: let clients of the TUN reach each other.",
    ),
    key(
        "route",
        Kind::List,
        "[\"192.168.1.0/24\"]",
        "Client: what is routed through the TUN; without it what the server advertises.",
    ),
    key(
        "no_routes",
        Kind::Boolean,
        "false",
        "Client: route nothing through the TUN but what default_route says.",
    ),
    key(
        "default_route",
        Kind::Boolean,
        "false",
        "Client: route everything through the TUN that has no better route.",
    ),
    key(
        "dns",
        Kind::List,
        "[\"10.86.0.1\"]",
        "Client: name servers to ask while the TUN is there.",
    ),
    key(
        "tun_offloads",
        Kind::Boolean,
        "true",
        "Exchange super-packets with the kernel through the TUN where it has them.",
    ),
    key(
        "forward",
        Kind::List,
        "[\"udp:5353=10.0.0.1:53\"]",
        "Client: forwards, as after -L.",
    ),
    key(
        "repair",
        Kind::Text,
        "\"40ms\"",
        "Client: repair what the path loses of UDP forwards and urgent IP packets, at most so much later, 1ms to 500ms; or \"off\".",
    ),
    key(
        "link_file",
        Kind::Text,
        "\"server.link\"",
        "Client: the file that holds the link.",
    ),
    key(
        "bind",
        Kind::Text,
        "\"192.0.2.7\"",
        "Client: local address towards the server; without it the system chooses.",
    ),
    key(
        "connections",
        Kind::Integer,
        "2",
        "Threads that carry traffic, and a client's connections to its server, 1 to 16; without it one for each core.",
    ),
    key(
        "max_udp_payload",
        Kind::Integer,
        "1452",
        "Upper bound for QUIC packets in bytes of UDP payload, 1200 to 65507; without it the interface's MTU.",
    ),
    key(
        "profile",
        Kind::Text,
        "\"throughput\"",
        "\"throughput\", \"latency\", or \"fixed:RATE\" in bits per second, e.g. \"fixed:500M\".",
    ),
    key(
        "gso",
        Kind::Boolean,
        "true",
        "Use UDP segmentation offload where the kernel has it.",
    ),
    key(
        "gro",
        Kind::Boolean,
        "true",
        "Use UDP receive offload where the kernel has it.",
    ),
    key(
        "receive_buffer_bytes",
        Kind::Integer,
        "8388608",
        "Receive buffer asked for on every UDP socket.",
    ),
    key(
        "send_buffer_bytes",
        Kind::Integer,
        "4194304",
        "Send buffer asked for on every UDP socket.",
    ),
    key(
        "udp_idle_timeout_s",
        Kind::Integer,
        "120",
        "A UDP session without traffic for so many seconds is closed.",
    ),
    key(
        "oversize",
        Kind::Text,
        "\"split\"",
        "Payloads that do not fit one datagram: \"split\" between Gramway peers, or \"drop\" and count.",
    ),
    key(
        "queue_policy",
        Kind::Text,
        "\"drop-newest\"",
        "What a full queue gives up: \"drop-newest\" or \"drop-oldest\".",
    ),
];

/// The key of this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The sentence about an unknown key, with the likely one.
pub(super) fn unknown(name: &str) -> String {
    let likely = KEYS
        .iter()
        .map(|key| (edits(name, key.name), key.name))
        .filter(|(edits, _)| *edits <= SUGGESTION_EDITS_MAX)
        .min_by_key(|(edits, _)| *edits);
    match likely {
        Some((_, likely)) => format!("unknown key \"{name}\"; did you mean \"{likely}\"?"),
        None => {
            let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            format!("unknown key \"{name}\"; the keys are {}", names.join(", "))
        }
    }
}

/// Insertions, deletions and replacements that turn one word into the other (Levenshtein), `-` counting as `_`.
fn edits(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.to_lowercase().replace('-', "_").chars().take(64).collect();
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_gets_the_nearest_one_as_suggestion() {
        assert!(unknown("lisen").ends_with("did you mean \"listen\"?"));
        assert!(unknown("max-udp-payload").ends_with("did you mean \"max_udp_payload\"?"));
        assert!(unknown("forwards").ends_with("did you mean \"forward\"?"));
        assert!(unknown("colour").contains("the keys are listen, public"));
    }

    #[test]
    fn edits_are_counted_as_usual() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "gso"), 3);
        assert_eq!(edits("gso", "gso"), 0);
    }
}
