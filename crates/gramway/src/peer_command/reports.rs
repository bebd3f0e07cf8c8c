//! What `gramway peer` tells while it runs: sentences for people, or with `--json` an object a line for programs, whose
//! `event` says which other fields there are.

use std::net::SocketAddr;

use peer::{CarrierKind, PeerPath};
use serde_json::{Map, Value, json};

use crate::exit::Problem;
use crate::output;

/// How it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reports {
    /// For programs.
    pub(super) is_json: bool,
}

impl Reports {
    /// Tells on standard error, where standard output belongs to pipes.
    pub(super) fn note(self, event: &str, fields: Value, text: &str) {
        match self.is_json {
            true => output::note(&object(event, fields)),
            false => output::note(text),
        }
    }

    /// Tells on standard output.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn data(self, event: &str, fields: Value, text: &str) -> Result<(), Problem> {
        match self.is_json {
            true => output::data(&object(event, fields)),
            false => output::data(text),
        }
    }
}

/// What people are told in the place of an address where a rendezvous relays.
pub(super) const RELAY: &str = "the relay of the rendezvous";

/// Where a path leads to: no address, where a rendezvous relays, over this carrier.
pub(super) fn path_fields(path: PeerPath, carrier: Option<CarrierKind>) -> Value {
    match path {
        PeerPath::Direct(address) => {
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            json!({ "path": "direct", "address": address, "carrier": null })
        }
        PeerPath::Relayed(_) => {
            json!({ "path": "relayed", "address": null, "carrier": carrier.map(CarrierKind::name) })
        }
    }
}

/// One line.
fn object(event: &str, fields: Value) -> String {
    let mut object = Map::from_iter([("event".to_owned(), event.into())]);
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    output::json(&Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relays_name_for_a_peer_is_no_address() {
        let direct = PeerPath::Direct("[::ffff:192.0.2.1]:9".parse().unwrap());
        let relayed = PeerPath::Relayed("[100::7]:1".parse().unwrap());
        let fields = [direct, relayed].map(|path| path_fields(path, Some(CarrierKind::Tcp)));
        let expected = [
            json!({ "path": "direct", "address": "192.0.2.1:9", "carrier": null }),
            json!({ "path": "relayed", "address": null, "carrier": "tcp" }),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn an_event_is_one_line_with_its_fields() {
        let line = object("mapped", json!({ "address": "192.0.2.1:9" }));
        assert_eq!(line, r#"{"event":"mapped","address":"192.0.2.1:9"}"#);
        assert_eq!(object("announced", Value::Null), r#"{"event":"announced"}"#);
        assert!(!object("problem", json!({ "text": "two\nlines" })).contains('\n'));
    }
}
