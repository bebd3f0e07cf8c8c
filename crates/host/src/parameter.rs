//! Kernel parameters of the network, by their path below `/proc/sys`: `net/ipv4/ip_forward`. Slashes, because names of
//! interfaces may have dots. The namespace is that of the calling thread.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::{Explain, HostError};

/// What the kernel does with a packet whose source has its route over another interface (`rp_filter`, IPv4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReversePathFilter {
    /// Nothing.
    Off,
    /// It drops it: answers of a server come in vain where the routes lead into the TUN.
    Strict,
    /// It drops it only where no route leads to the source at all.
    Loose,
}

/// What holds for an interface: the greater of its own value and that for all.
#[must_use]
pub fn reverse_path_filter(interface: &str) -> ReversePathFilter {
    let value = |name: &str| read(&format!("net/ipv4/conf/{name}/rp_filter")).ok();
    let greatest = [value("all"), value(interface)]
        .into_iter()
        .flatten()
        .filter_map(|value| value.parse::<u8>().ok())
        .max();
    match greatest {
        Some(1) => ReversePathFilter::Strict,
        Some(2..) => ReversePathFilter::Loose,
        _ => ReversePathFilter::Off,
    }
}

/// The value, without the end of the line.
pub(super) fn read(parameter: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path(parameter)?)?.trim_end().to_owned())
}

/// The same, with the sentence on what failed.
pub(super) fn value(parameter: &str) -> Result<String, HostError> {
    read(parameter).explain(|| format!("read {}", dotted(parameter)))
}

/// As people know it.
pub(super) fn dotted(parameter: &str) -> String {
    parameter.replace('/', ".")
}

/// Sets a value.
pub(super) fn write(parameter: &str, value: &str) -> Result<(), HostError> {
    let set = || {
        // Never creates: a missing parameter has no file.
        let mut file = fs::OpenOptions::new().write(true).open(path(parameter)?)?;
        file.write_all(value.as_bytes())
    };
    set().explain(|| {
        format!(
            "set the kernel parameter {} to {value} (in a container it is set from outside)",
            dotted(parameter)
        )
    })
}

/// Interfaces that have parameters in `net/ipv4/conf` or `net/ipv6/conf`, without the two that stand for many.
pub(super) fn interfaces(directory: &str) -> Vec<String> {
    let Ok(entries) = path(directory).and_then(fs::read_dir) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name != "all" && name != "default")
        .collect();
    names.sort_unstable();
    names
}

/// Whether this program ever sets it; names may come from a list of changes.
pub(super) fn is_changed_by_us(parameter: &str) -> bool {
    match *parameter.split('/').collect::<Vec<_>>() {
        ["net", "ipv4", "ip_forward"]
        | [
            "net",
            "ipv4",
            "conf",
            "all",
            "accept_redirects" | "src_valid_mark",
        ] => true,
        ["net", "ipv4", "conf", interface, "forwarding"]
        | ["net", "ipv6", "conf", interface, "forwarding" | "accept_ra"] => is_one_part(interface),
        _ => false,
    }
}

/// What all of those are set to.
pub(super) fn is_whole_number(value: &str) -> bool {
    value.parse::<i32>().is_ok()
}

fn is_one_part(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".."
}

fn path(parameter: &str) -> io::Result<PathBuf> {
    if !parameter.starts_with("net/") || !parameter.split('/').all(is_one_part) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no parameter of the network",
        ));
    }
    Ok(Path::new("/proc/sys").join(parameter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_of_the_network_are_touched() {
        assert!(read("net/ipv4/ip_forward").is_ok_and(|value| value == "0" || value == "1"));
        for name in [
            "kernel/hostname",
            "net/../kernel/hostname",
            "/etc/hostname",
            "net//x",
            "",
        ] {
            assert_eq!(
                read(name).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{name}"
            );
        }
    }
}
