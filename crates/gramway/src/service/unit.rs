//! The text of a unit: what the program may do under systemd, by what its settings need.
//!
//! Everything is refused that no mode needs. What the program gives up by itself afterwards (`crate::sandbox`) comes on
//! top of it, and holds for each of its processes apart.

use std::fmt::Write;

use crate::exit::Problem;

/// What a service does with its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// It listens on a port below 1,024.
    pub(super) low_port: bool,
    /// It has a TUN device, and changes the host's network.
    pub(super) tun: bool,
    /// It sets the machine's name servers, which are root's.
    pub(super) names: bool,
    /// It leads packets of a router's network to itself, and changes the host's network for that.
    pub(super) tproxy: bool,
    /// It may send packets in TCP's shape.
    pub(super) tcp_shape: bool,
}

/// Which of the two programs it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    /// A template: each instance has the name of its link.
    Client,
}

impl Role {
    /// The unit's file.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Server => "gramway.service",
            Self::Client => "gramway-connect@.service",
        }
    }
}

/// By which the file is known as ours.
pub(super) const FIRST_LINE: &str = "# Written by `gramway service install`, which writes it anew, also with other rights \
where settings need them;";

/// What holds in every mode.
const HARDENING: &str = "\
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
PrivateDevices=yes
PrivateTmp=yes
PrivateMounts=yes
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
";

/// The text of a unit that runs `program` with these `arguments` beside those of its role.
///
/// # Errors
/// A word that no unit can hold.
pub(super) fn text(
    role: Role,
    rights: Rights,
    program: &str,
    arguments: &[String],
) -> Result<String, Problem> {
    let (what, own, directory) = match role {
        Role::Server => ("server", "up", "gramway"),
        Role::Client => ("client %i", "connect --link-file %d/link", "gramway-connect/%i"),
    };
    let program = quoted(program)?;
    let mut command = format!("{program} {own} --state %S/{directory}");
    for argument in arguments {
        write!(command, " {}", quoted(argument)?).expect("a String takes everything");
    }
    let mut lines = vec![
        FIRST_LINE.to_owned(),
        "# `gramway service remove` removes it.".to_owned(),
        "[Unit]".to_owned(),
        format!("Description=Gramway {what}"),
        "After=network-online.target".to_owned(),
        "Wants=network-online.target".to_owned(),
        String::new(),
        "[Service]".to_owned(),
        "Type=notify".to_owned(),
        "WatchdogSec=30".to_owned(),
        format!("ExecStart={command}"),
        format!("ExecReload={program} ctl reload --state %S/{directory}"),
        "Restart=on-failure".to_owned(),
        "RestartSec=2".to_owned(),
        "# A wrong command line or configuration does not get better.".to_owned(),
        "RestartPreventExitStatus=64 78".to_owned(),
        "LimitNOFILE=524288".to_owned(),
        format!("StateDirectory={directory}"),
        "StateDirectoryMode=0700".to_owned(),
    ];
    if role == Role::Client {
        lines.push("# The link is a secret: root's alone, and in no process list.".to_owned());
        lines.push("LoadCredential=link:/etc/gramway/%i.link".to_owned());
    }
    lines.extend(user(rights));
    lines.extend(network(rights));
    lines.push(HARDENING.trim_end().to_owned());
    let call = if rights.tun { " bpf" } else { "" };
    lines.push(format!(
        "SystemCallFilter=@system-service landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp{call}"
    ));
    lines.push("SystemCallFilter=~@resources".to_owned());
    lines.push(String::new());
    lines.push("[Install]".to_owned());
    lines.push("WantedBy=multi-user.target".to_owned());
    Ok(lines.join("\n") + "\n")
}

/// Whose the process is, and what it may do as that user.
fn user(rights: Rights) -> Vec<String> {
    let capabilities: Vec<_> = [
        (rights.low_port, "CAP_NET_BIND_SERVICE"),
        (rights.tun || rights.tproxy, "CAP_NET_ADMIN"),
        (rights.tun || rights.tproxy || rights.tcp_shape, "CAP_NET_RAW"),
        (rights.tun, "CAP_BPF"),
    ]
    .into_iter()
    .filter_map(|(is_needed, name)| is_needed.then_some(name))
    .collect();
    let capabilities = capabilities.join(" ");
    let mut lines = vec![format!("CapabilityBoundingSet={capabilities}")];
    if rights.names {
        lines.extend(
            [
                "# The machine's name servers are root's to set.",
                "User=root",
                "ReadWritePaths=/etc /run",
                "RuntimeDirectory=gramway",
                "# What a killed client left undone is listed there for the next one.",
                "RuntimeDirectoryPreserve=yes",
                "RuntimeDirectoryMode=0700",
            ]
            .map(str::to_owned),
        );
    } else {
        lines.push("DynamicUser=yes".to_owned());
        lines.push(format!("AmbientCapabilities={capabilities}"));
    }
    lines
}

/// Devices, families of sockets and parameters of the network.
fn network(rights: Rights) -> Vec<String> {
    let packets = if rights.tcp_shape { " AF_PACKET" } else { "" };
    let mut lines = vec![format!(
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK{packets}"
    )];
    if rights.tun || rights.tproxy {
        if rights.tun {
            lines.extend(["BindPaths=/dev/net/tun", "DeviceAllow=/dev/net/tun rw"].map(str::to_owned));
        }
        lines.extend(
            [
                "ReadWritePaths=/proc/sys/net",
                "# The guardian of its helper outlives a crash and undoes what was changed.",
                "KillMode=process",
            ]
            .map(str::to_owned),
        );
    }
    lines
}

/// A word of a command line as systemd reads it (systemd.service(5), systemd.unit(5)).
fn quoted(word: &str) -> Result<String, Problem> {
    if word.chars().any(char::is_control) {
        return Err(Problem::usage(format!(
            "a unit cannot hold control characters: {word:?}"
        )));
    }
    let escaped = word
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+[]%$".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Ok(escaped);
    }
    Ok(format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(role: Role, rights: Rights) -> String {
        text(role, rights, "/usr/local/bin/gramway", &[]).unwrap()
    }

    #[test]
    fn words_arrive_as_they_are() {
        for (word, shown) in [
            ("--listen", "--listen"),
            ("[::]:443", "[::]:443"),
            ("100%", "100%%"),
            ("$HOME", "$$HOME"),
            ("a b", "\"a b\""),
            ("\"", "\"\\\"\""),
            ("\\", "\"\\\\\""),
            ("", "\"\""),
            (";", "\";\""),
        ] {
            assert_eq!(quoted(word).unwrap(), shown);
        }
        assert_eq!(quoted("a\nUser=root").unwrap_err().code() as u8, 64);
    }

    #[test]
    fn a_service_gets_the_capabilities_that_its_mode_needs_and_no_others() {
        let bounding = |rights| {
            let text = lines(Role::Server, rights);
            let line = text
                .lines()
                .find(|line| line.starts_with("CapabilityBoundingSet="));
            line.unwrap()["CapabilityBoundingSet=".len()..].to_owned()
        };
        let none = Rights::default();
        assert_eq!(bounding(none), "");
        let low_port = Rights {
            low_port: true,
            ..none
        };
        assert_eq!(bounding(low_port), "CAP_NET_BIND_SERVICE");
        let tcp_shape = Rights {
            tcp_shape: true,
            ..none
        };
        assert_eq!(bounding(tcp_shape), "CAP_NET_RAW");
        let tun = Rights { tun: true, ..none };
        assert_eq!(bounding(tun), "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF");
        assert!(lines(Role::Server, tun).contains("DeviceAllow=/dev/net/tun rw"));
        assert!(!lines(Role::Server, tun).contains("AF_PACKET"));
        let tproxy = Rights { tproxy: true, ..none };
        assert_eq!(bounding(tproxy), "CAP_NET_ADMIN CAP_NET_RAW");
        let text = lines(Role::Client, tproxy);
        assert!(text.contains("KillMode=process") && !text.contains("/dev/net/tun"));
    }

    #[test]
    fn only_who_sets_the_machines_name_servers_is_root() {
        let tun = Rights {
            tun: true,
            ..Rights::default()
        };
        assert!(lines(Role::Client, tun).contains("\nDynamicUser=yes\n"));
        let text = lines(Role::Client, Rights { names: true, ..tun });
        assert!(text.contains("\nUser=root\n") && !text.contains("DynamicUser"));
        assert!(!text.contains("AmbientCapabilities"));
    }

    #[test]
    fn a_clients_link_is_a_credential() {
        let text = lines(Role::Client, Rights::default());
        assert!(text.contains("\nLoadCredential=link:/etc/gramway/%i.link\n"));
        assert!(text.contains(" --link-file %d/link --state %S/gramway-connect/%i\n"));
    }
}
