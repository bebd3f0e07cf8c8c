//! phantun itself at the other end, in both roles.

use std::path::{Path, PathBuf};

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::phantun;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::Routed;
use system_tests::{require_program, require_root, skip, test_name};
use testbed::namespace::Namespace;
use testbed::process::Process;

use super::{ENTRANCE, TARGET, end, start};

const PHANTUN: [&str; 2] = ["--compat", "phantun"];

/// One of phantun's programs, which has a TUN device, and what its manual has the machine do for it.
fn phantun_program(namespace: &Namespace, path: &Path, arguments: &[&str], rules: &str) -> Process {
    namespace.set_parameter("net.ipv4.ip_forward", "1").unwrap();
    namespace.nft(rules).unwrap();
    let mut command = namespace.command(path);
    command
        .args(arguments)
        .args(["-4", "--tun", "tun0"])
        .env("RUST_LOG", "info");
    let mut process = Process::start(command, "phantun").unwrap();
    process
        .wait_for_line("Created TUN device", PROGRAM_LIMIT)
        .unwrap();
    process
}

fn programs() -> Option<PathBuf> {
    let found = phantun();
    if found.is_none() {
        skip::skip(test_name!(), "needs phantun; `cargo xtask setup` installs it");
    }
    found
}

fn all_sizes_pass(net: &Routed) {
    let mut sources: Vec<_> = (0..3).map(|_| Source::new(&net.client, ENTRANCE)).collect();
    for (number, source) in sources.iter_mut().enumerate() {
        for size in [1, 100, 1_150, 1_400] {
            source.ask(&pattern(number as u64, size), PROGRAM_LIMIT);
        }
    }
}

#[test]
fn a_relay_talks_to_the_server_of_phantun() {
    require_root!();
    require_program!("nft");
    let Some(programs) = programs() else { return };
    let net = Routed::new(1500);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let _server = phantun_program(
        &net.server,
        &programs.join("server"),
        &["--local", "4433", "--remote", TARGET],
        "table ip phantun {\n chain entering {\n type nat hook prerouting priority dstnat;\n\
         iifname \"eth0\" tcp dport 4433 dnat to 192.168.201.2\n}\n }\n",
    );
    let near = start(
        &net.client,
        &format!("udp:{ENTRANCE}"),
        "tcp:10.78.0.1:4433",
        &PHANTUN,
    );
    all_sizes_pass(&net);
    end(near);
}

#[test]
fn a_relay_talks_to_the_client_of_phantun() {
    require_root!();
    require_program!("nft");
    let Some(programs) = programs() else { return };
    let net = Routed::new(1500);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let far = start(
        &net.server,
        "tcp:10.78.0.1:4433",
        &format!("udp:{TARGET}"),
        &PHANTUN,
    );
    let _client = phantun_program(
        &net.client,
        &programs.join("client"),
        &["--local", ENTRANCE, "--remote", "10.78.0.1:4433"],
        "table ip phantun {\n chain leaving {\n type nat hook postrouting priority srcnat;\n\
         iifname \"tun0\" oifname \"eth0\" masquerade\n}\n }\n",
    );
    all_sizes_pass(&net);
    let counters = end(far);
    assert_eq!(counters["flows"]["all"], 3, "{counters}");
}
