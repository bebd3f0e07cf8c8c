//! Two machines whose rendezvous is a server with a cover.

use system_tests::{require_python, require_root};

use super::Scene;
use crate::peer_command::assert_meets;

/// RDV-4.
#[test]
fn two_machines_meet_at_a_server_with_a_cover() {
    require_root!();
    let scene = Scene::new(require_python!(), &[]);
    let root = scene.authority.root().to_str().unwrap();
    let roots = ["--rendezvous-roots", root];
    assert_meets(&scene.pair, &scene.directory, &scene.server.link(), &roots);
}
