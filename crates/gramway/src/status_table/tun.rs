//! The TUN device with its leases and name servers.

use serde_json::Value;

use super::block::Block;
use crate::units::count;

impl Block<'_> {
    pub(super) fn tun(&self) -> String {
        let leases = match self.text("/role") {
            "server" => format!(
                ", {} leases held of {} kept",
                self.count("/tun/leases/open"),
                self.count("/tun/leases_kept")
            ),
            _ => String::new(),
        };
        format!(
            "{}, MTU {}, {} sessions{leases}; {} read ({} super-packets), {}; {} written ({} super-packets), {}{}{}",
            self.text("/tun/name"),
            self.number("/tun/mtu"),
            self.count("/tun/sessions"),
            self.count("/tun/io/reads"),
            self.count("/tun/io/super_reads"),
            self.bytes("/tun/io/bytes_read"),
            self.count("/tun/io/writes"),
            self.count("/tun/io/super_writes"),
            self.bytes("/tun/io/bytes_written"),
            self.unless_zero("{} refused by the kernel", "/tun/io/refused"),
            self.unless_zero("{} errors", "/tun/io/errors"),
        )
    }

    pub(super) fn names(&self) -> String {
        let error = self.0.pointer("/tun/names/error").and_then(Value::as_str);
        let error = error
            .map(|error| format!(" (retrying: {error})"))
            .unwrap_or_default();
        let set_by = match self.texts("/tun/names/set_by") {
            nobody if nobody.is_empty() => ", not set".to_owned(),
            set_by => format!(", set in {set_by}"),
        };
        let is_offered = self.0.pointer("/tun/names/is_offered") == Some(&Value::Bool(true));
        let by_server = if is_offered { " of the server" } else { "" };
        format!("{}{by_server}{set_by}{error}", self.texts("/tun/names/servers"))
    }

    pub(super) fn name_server(&self) -> String {
        let count = |name: &str| self.count(&format!("/tun/name_server/{name}"));
        format!(
            "{} questions, {} answered, {} waiting{}{}{}{}",
            count("questions"),
            count("answered"),
            count("waiting"),
            self.unless_zero("{} without an answer", "/tun/name_server/unanswered"),
            self.unless_zero("{} malformed", "/tun/name_server/malformed"),
            self.unless_zero("{} over the limit", "/tun/name_server/over_limit"),
            self.unless_zero(
                "{} connections over the limit",
                "/tun/name_server/streams_over_limit"
            ),
        )
    }
}

pub(super) fn render_lease(lease: &Value) -> String {
    let block = Block(lease);
    let addresses = lease["addresses"].as_array().map_or(&[][..], Vec::as_slice);
    let addresses: Vec<_> = addresses.iter().filter_map(Value::as_str).collect();
    format!(
        "{} of client {} of {}, {}",
        addresses.join(" and "),
        block.text("/client"),
        block.text("/user"),
        match block.number("/sessions") {
            0 => "which is gone".to_owned(),
            sessions => format!("{} sessions", count(sessions)),
        }
    )
}
