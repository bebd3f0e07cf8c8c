//! Name servers for one link, by systemd-resolved. It forgets them when the link disappears.

use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::limits::{RESOLVECTL_POLL, RESOLVECTL_TIME_MAX};

/// Where systemd-resolved keeps its state while it runs.
const RESOLVED_DIRECTORY: &str = "/run/systemd/resolve";

/// Its own addresses as a name server, one of which `/etc/resolv.conf` names where programs ask it.
const RESOLVED_ADDRESSES: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// The name servers were not set. Its text is a whole sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsUnavailable {
    /// Nothing here keeps name servers per link.
    #[error(
        "name servers cannot be set for one link here, because {0}: set {1} by hand, or leave out the DNS setting"
    )]
    NotHere(&'static str, String),
    /// systemd-resolved refused.
    #[error("systemd-resolved did not take the name servers of {0}: {1}")]
    Refused(String, String),
}

/// Lets names be asked of these servers while `interface` exists; with `all_names` every name, otherwise as the
/// system sees fit.
///
/// # Errors
/// The system keeps no name servers per link, or refuses these.
pub fn set_link_dns(interface: &str, servers: &[IpAddr], all_names: bool) -> Result<(), DnsUnavailable> {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    if let Some(reason) = missing() {
        return Err(DnsUnavailable::NotHere(reason, servers.join(" ")));
    }
    let mut arguments = vec!["dns", interface];
    arguments.extend(servers.iter().map(String::as_str));
    resolvectl(interface, &arguments)?;
    if all_names {
        resolvectl(interface, &["domain", interface, "~."])?;
    }
    Ok(())
}

/// What keeps systemd-resolved from being the one that programs ask.
fn missing() -> Option<&'static str> {
    if !Path::new(RESOLVED_DIRECTORY).is_dir() {
        return Some("systemd-resolved does not run");
    }
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let asked = text("/etc/resolv.conf")
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"))
        .any(|server| RESOLVED_ADDRESSES.contains(&server.trim()));
    let switched = text("/etc/nsswitch.conf")
        .lines()
        .filter_map(|line| line.strip_prefix("hosts:"))
        .any(|order| order.split_whitespace().any(|name| name == "resolve"));
    (!asked && !switched).then_some("/etc/resolv.conf does not name systemd-resolved")
}

fn resolvectl(interface: &str, arguments: &[&str]) -> Result<(), DnsUnavailable> {
    run(Command::new("resolvectl").args(arguments)).map_err(|error| {
        let reason = format!("`resolvectl {}`: {error}", arguments.join(" "));
        DnsUnavailable::Refused(interface.to_owned(), reason)
    })
}

/// Runs a command to its end, or ends one that hangs. An error holds the first line that the command complained with.
fn run(command: &mut Command) -> io::Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let deadline = Instant::now() + RESOLVECTL_TIME_MAX;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(RESOLVECTL_POLL);
    };
    if status.success() {
        return Ok(());
    }
    let complaint = child.stderr.take().map(BufReader::new);
    let line = complaint.and_then(|lines| lines.lines().next()?.ok());
    Err(io::Error::other(line.unwrap_or_else(|| status.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_resolved_is_told_what_to_do() {
        let error = DnsUnavailable::NotHere("systemd-resolved does not run", "10.77.0.1".into());
        assert!(error.to_string().contains("set 10.77.0.1 by hand"));
    }

    #[test]
    fn a_command_that_fails_or_is_missing_is_seen() {
        let shell = |script: &str| run(Command::new("sh").args(["-c", script]));
        assert!(shell("true").is_ok());
        assert!(shell("false").unwrap_err().to_string().contains("exit status: 1"));
        assert_eq!(shell("echo no bus >&2; false").unwrap_err().to_string(), "no bus");
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
    }
}
