//! What this machine does with names: who is asked first, and who only seems to be there.
//!
//! systemd-resolved counts where it answers in this very network: the directory of one that was stopped stays, and that
//! of another network namespace is seen, too. resolvconf counts where `/etc/resolv.conf` is its work.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::program::Program;
use super::resolv_conf::{self, name_servers};
use super::{NamesWay, RESOLV_CONF};

/// systemd-resolved's own addresses as a name server.
const RESOLVED_ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 53), Ipv4Addr::new(127, 0, 0, 54)];

/// Where it is asked by the C library's plug-in.
const RESOLVED_PLUG_IN: &str = "/run/systemd/resolve/io.systemd.Resolve";

/// Whom it asks itself.
const RESOLVED_SERVERS: &str = "/run/systemd/resolve/resolv.conf";

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The contents of `/etc/resolv.conf`.
    pub(super) resolv_conf: String,
    /// That file is a link into a directory of resolvconf.
    pub(super) is_link_of_resolvconf: bool,
    /// The contents of `/etc/nsswitch.conf`.
    pub(super) nsswitch: String,
    /// UDP sockets of this network, as the kernel lists them.
    pub(super) udp_sockets: String,
    /// systemd-resolved takes calls of the C library's plug-in.
    pub(super) answers_plug_in: bool,
    /// There is a resolvconf that is not systemd-resolved's own.
    pub(super) has_resolvconf: bool,
}

impl Facts {
    pub(super) fn gather() -> Self {
        let is_own = |path: &Path| {
            let real = fs::canonicalize(path).unwrap_or_default();
            real.file_name()
                .is_some_and(|name| name != "resolvectl" && name != "systemd-resolve")
        };
        let real = fs::canonicalize(RESOLV_CONF).unwrap_or_default();
        Self {
            resolv_conf: resolv_conf::read_text(RESOLV_CONF),
            is_link_of_resolvconf: real.iter().any(|part| part == "resolvconf"),
            nsswitch: fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default(),
            udp_sockets: fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default(),
            answers_plug_in: UnixStream::connect(RESOLVED_PLUG_IN).is_ok(),
            has_resolvconf: Program::Resolvconf.find().is_some_and(|path| is_own(&path)),
        }
    }

    /// Who has to be told: programs that read the file, and those that call the plug-in, may ask different ones.
    pub(super) fn ways(&self) -> Vec<NamesWay> {
        let leads_to_resolved = self.leads_to_resolved();
        let calls_resolved = self.calls_plug_in() && self.answers_plug_in;
        let mut ways = Vec::new();
        if leads_to_resolved || calls_resolved {
            ways.push(NamesWay::Resolved);
        }
        if !leads_to_resolved {
            let is_resolvconfs = self.has_resolvconf && self.is_written_by_resolvconf();
            ways.push(if is_resolvconfs {
                NamesWay::Resolvconf
            } else {
                NamesWay::File
            });
        }
        ways
    }

    fn leads_to_resolved(&self) -> bool {
        let named = name_servers(&self.resolv_conf);
        RESOLVED_ADDRESSES.iter().any(|address| {
            // The kernel writes the four bytes as one number of this machine, and the port, 53, behind it.
            let socket = format!(" {:08X}:0035 ", u32::from_ne_bytes(address.octets()));
            named.contains(&IpAddr::V4(*address)) && self.udp_sockets.contains(&socket)
        })
    }

    fn calls_plug_in(&self) -> bool {
        let mut orders = self
            .nsswitch
            .lines()
            .filter_map(|line| line.strip_prefix("hosts:"));
        orders.any(|order| order.split_whitespace().any(|name| name == "resolve"))
    }

    /// Both kinds say so in a comment.
    fn is_written_by_resolvconf(&self) -> bool {
        let mut comments = self
            .resolv_conf
            .lines()
            .filter(|line| line.starts_with(['#', ';']));
        let says_so = |line: &str| line.contains("enerated by") && line.contains("resolvconf");
        self.is_link_of_resolvconf || comments.any(says_so)
    }
}

/// Whom systemd-resolved asks itself, where `named` is it alone and it says so.
pub(super) fn behind_resolved(named: &[IpAddr]) -> Option<Vec<IpAddr>> {
    let is_resolved = |server: &IpAddr| RESOLVED_ADDRESSES.iter().any(|address| server == address);
    let behind = || name_servers(&resolv_conf::read_text(RESOLVED_SERVERS));
    (!named.is_empty() && named.iter().all(is_resolved))
        .then(behind)
        .filter(|servers| !servers.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUB: &str = "nameserver 127.0.0.53\noptions edns0 trust-ad\n";
    const ROUTER: &str = "search lan\nnameserver 192.168.1.1\n";

    fn listening() -> String {
        let own = u32::from_ne_bytes([127, 0, 0, 53]);
        format!("  sl  local_address rem_address\n  42: {own:08X}:0035 00000000:0000 07\n")
    }

    fn ways(change: impl FnOnce(&mut Facts)) -> Vec<NamesWay> {
        let mut facts = Facts {
            resolv_conf: ROUTER.to_owned(),
            nsswitch: "hosts: files dns\n".to_owned(),
            ..Facts::default()
        };
        change(&mut facts);
        facts.ways()
    }

    #[test]
    fn systemd_resolved_counts_where_the_file_leads_to_it_and_it_answers_in_this_network() {
        let resolved = ways(|facts| {
            facts.resolv_conf = STUB.to_owned();
            facts.udp_sockets = listening();
        });
        assert_eq!(resolved, [NamesWay::Resolved]);
        // It was stopped, or is in another network namespace.
        assert_eq!(
            ways(|facts| facts.resolv_conf = STUB.to_owned()),
            [NamesWay::File]
        );
        assert_eq!(ways(|facts| facts.udp_sockets = listening()), [NamesWay::File]);
    }

    #[test]
    fn where_programs_ask_both_the_plug_in_and_the_file_both_are_told() {
        let plug_in = "hosts: files resolve [!UNAVAIL=return] dns\n";
        let both = ways(|facts| {
            facts.nsswitch = plug_in.to_owned();
            facts.answers_plug_in = true;
        });
        assert_eq!(both, [NamesWay::Resolved, NamesWay::File]);
        assert_eq!(
            ways(|facts| facts.nsswitch = plug_in.to_owned()),
            [NamesWay::File]
        );
    }

    #[test]
    fn resolvconf_counts_where_the_file_is_its_work() {
        let comment = |text: &str| {
            let resolv_conf = format!("{text}\n{ROUTER}");
            ways(|facts| {
                facts.resolv_conf = resolv_conf;
                facts.has_resolvconf = true;
            })
        };
        assert_eq!(comment("# Generated by resolvconf"), [NamesWay::Resolvconf]);
        let debians = "# Dynamic resolv.conf(5) file for glibc resolver(3) generated by resolvconf(8)";
        assert_eq!(comment(debians), [NamesWay::Resolvconf]);
        assert_eq!(comment("# Generated by NetworkManager"), [NamesWay::File]);
        let linked = |has_resolvconf| {
            ways(|facts| {
                facts.is_link_of_resolvconf = true;
                facts.has_resolvconf = has_resolvconf;
            })
        };
        assert_eq!(linked(true), [NamesWay::Resolvconf]);
        assert_eq!(linked(false), [NamesWay::File]);
    }
}
