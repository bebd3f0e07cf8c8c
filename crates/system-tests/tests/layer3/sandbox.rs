//! What servers and clients have given up when they run, in each thread; their helpers, guardians and the programs
//! that those run.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::json;
use system_tests::{require_program, require_root};

use super::dns::{connect_by, resolved, with_resolvectl};
use super::*;
use crate::confinement::{NET_ADMIN, NET_BIND_SERVICE, NET_RAW, assert_confined, fields, threads};
use crate::scene::{LISTEN as SCENE_LISTEN, OPEN_LOOPBACK, Scene, both};

#[test]
fn forwards_need_neither_other_capabilities_nor_other_calls() {
    require_root!();
    let mut scene = Scene::new(&both!("7000"));
    // The buffers of this machine decide about NET_ADMIN.
    let allowed = NET_BIND_SERVICE | NET_ADMIN;
    for process in [scene.client.process().id(), scene.server.process().id()] {
        assert!(threads(process).len() > 2);
        assert_confined(&threads(process), allowed);
    }
    for status in [scene.client.status(), scene.server.status()] {
        let sandbox = &status["sandbox"];
        for what in ["no_new_privileges", "files", "system_calls"] {
            assert_eq!(sandbox[what], true, "{sandbox}");
        }
        let capabilities = sandbox["capabilities"].as_array().unwrap();
        assert!(
            capabilities
                .iter()
                .all(|one| one == "net_bind_service" || one == "net_admin")
        );
    }
    let options = [&OPEN_LOOPBACK[..], &["--no-sandbox"]].concat();
    let listen = SCENE_LISTEN.replace("4433", "4434");
    let files = scene.directory.join("open");
    fs::create_dir(&files).unwrap();
    let mut open = Server::start(&scene.pair.server.place(), "open", &listen, &options, &files);
    assert!(open.status()["sandbox"].is_null());
    let status = fields(PathBuf::from(format!("/proc/{}/status", open.process().id())));
    assert_eq!(
        (status["Seccomp"].as_str(), status["NoNewPrivs"].as_str()),
        ("0", "0")
    );
}

#[test]
fn ends_with_a_tun_keep_nothing_and_their_helpers_what_networks_need_alone() {
    require_root!();
    require_program!("ping", "nft");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let mut server = machines.serve(&["--nat"], &directory);
    let options = ["--default-route", "--no-dns"];
    let mut client = connect(&machines.first, "client", &server, &options, &directory);
    reaches(&machines.first, WORLD_V4);
    for (process, allowed) in [
        (client.process().id(), 0),
        (server.process().id(), NET_BIND_SERVICE),
    ] {
        let own = PathBuf::from(format!("/proc/{process}"));
        let (mine, theirs): (Vec<_>, Vec<_>) = threads(process)
            .into_iter()
            .partition(|thread| thread.starts_with(&own));
        assert_confined(&mine, allowed);
        // A helper, and a guardian of it.
        let processes: BTreeSet<_> = theirs
            .iter()
            .filter_map(|thread| thread.ancestors().nth(2))
            .collect();
        assert!(processes.len() > 1, "{processes:?}");
        assert_confined(&theirs, NET_ADMIN | NET_RAW);
    }
    let sandbox = &client.status()["sandbox"];
    // Buffers beyond the system's limit are the helper's to grant.
    assert!(!client.process().stderr().contains("buffer got"));
    assert_eq!(sandbox["capabilities"], json!([]));
    assert_eq!(sandbox["helper"]["capabilities"], json!(["net_admin", "net_raw"]));
    for what in ["no_new_privileges", "files", "system_calls"] {
        assert!(
            sandbox[what] == true && sandbox["helper"][what] == true,
            "{sandbox}"
        );
    }
    assert_eq!(client.stop(), Some(0));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_program_that_a_client_runs_is_confined_with_it() {
    require_root!();
    require_program!("unshare");
    let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
    let secret = directory.join("secret");
    fs::write(&secret, "the secret\n").unwrap();
    let server = machines.serve(&[], &directory);
    let _resolved = resolved(&machines.first);
    let script = format!(
        "read line < '{secret}' && echo \"read $line\" >> $TOLD\n\
         echo x > '{secret}.new' && echo wrote >> $TOLD\n\
         unshare --user true && echo unshared >> $TOLD\n\
         grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status >> $TOLD\n\
         echo \"asked: $*\" >> $TOLD",
        secret = secret.display()
    );
    let (wrapper, told) = with_resolvectl(&script, &directory);
    let options = ["--dns", SERVER_V4];
    let _client = connect_by(&wrapper, &machines.first, &server, &options, &directory);
    wait_until("the program's end", PROGRAM_LIMIT, || {
        fs::read_to_string(&told).is_ok_and(|told| told.contains("asked: dns tun0"))
    });
    let told = fs::read_to_string(&told).unwrap();
    for forbidden in ["read the secret", "wrote", "unshared"] {
        assert!(!told.contains(forbidden), "{told}");
    }
    assert!(
        told.contains("NoNewPrivs:\t1") && told.contains("Seccomp:\t2"),
        "{told}"
    );
    let kept = format!("CapEff:\t{:016x}", NET_ADMIN | NET_RAW);
    assert!(told.contains(&kept), "{told}");
}
