//! resolvconf, by the two programs of that name. openresolv takes a metric and the wish to be the only one (`-m 0
//! -x`); Debian's goes by the name of the record: `tun*` comes early in its order of interfaces.

use std::path::Path;

use super::program::Program;
use super::resolv_conf::nameserver_lines;
use super::{NameServers, NamesNotSet, tell};
use crate::error::{Explain, HostError};

/// Debian's alone has it.
const INTERFACE_ORDER: &str = "/etc/resolvconf/interface-order";

/// Bytes of a record's name: an interface, and a prefix as long as one.
const RECORD_BYTES_MAX: usize = 32;

/// The name of an interface's record.
pub(super) fn record(interface: &str) -> String {
    let order = std::fs::read_to_string(INTERFACE_ORDER).unwrap_or_default();
    record_by(&order, interface)
}

/// The first pattern that takes any name behind a prefix makes the record one of the first.
fn record_by(order: &str, interface: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let mut prefixes = order.lines().filter_map(|line| line.strip_suffix('*'));
    match prefixes.find(|prefix| !prefix.is_empty() && prefix.bytes().all(is_word)) {
        Some(prefix) => format!("{prefix}.{interface}"),
        None => interface.to_owned(),
    }
}

pub(super) fn add(record: &str, wanted: &NameServers) -> Result<(), NamesNotSet> {
    let mut arguments = vec!["-a", record];
    if !Path::new(INTERFACE_ORDER).exists() {
        arguments.extend(["-m", "0"]);
        arguments.extend(wanted.all_names.then_some("-x"));
    }
    let input = nameserver_lines(&wanted.servers);
    tell(Program::Resolvconf, &wanted.interface, &arguments, &input)
}

/// One that it does not have is no error.
pub(super) fn remove(record: &str) -> Result<(), HostError> {
    let what = || format!("have resolvconf forget the name servers of {record}");
    // It may come from a file of changes.
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if record.is_empty()
        || record.len() > RECORD_BYTES_MAX
        || record.starts_with('-')
        || !record.bytes().all(is_usual)
    {
        return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput)).explain(what);
    }
    let mut arguments = vec!["-d", record];
    if !Path::new(INTERFACE_ORDER).exists() {
        arguments.push("-f");
    }
    Program::Resolvconf.run(&arguments, "").explain(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_gets_a_name_that_comes_early_and_openresolv_the_interfaces() {
        let order = "lo.inet6\nlo.!(pdns|pdns-recursor)\nlo\ntun*\ntap*\neth*\n*\n";
        assert_eq!(record_by(order, "gramway0"), "tun.gramway0");
        assert_eq!(record_by("", "gramway0"), "gramway0");
        assert_eq!(record_by("*\n@(a)*\n", "gramway0"), "gramway0");
    }

    #[test]
    fn a_record_that_no_interface_can_have_is_refused_before_anything_runs() {
        for record in ["", "-a", "a b", "a/b", "a;b", &"x".repeat(RECORD_BYTES_MAX + 1)] {
            let error = remove(record).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{record:?}");
        }
    }
}
