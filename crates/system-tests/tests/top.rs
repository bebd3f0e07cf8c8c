//! `gramway top` on a terminal: what it shows, and that the terminal is as before when it has ended.

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::{python, require_python, require_root};

use crate::scene::{Scene, both};

#[test]
fn the_terminal_is_as_before_after_a_key_and_after_a_signal() {
    require_root!();
    let python = require_python!();
    let scene = Scene::new(&both!("7000"));
    let state = scene.server.state().display().to_string();
    let program = gramway_binary().display().to_string();
    for end in ["q", "\u{3}", "TERM"] {
        let arguments = [end, "listening", &program, "top", "--state", &state];
        let mut terminal = python::start(&python, &scene.pair.server.place(), "terminal.py", arguments);
        terminal
            .wait_for_line("done", PROGRAM_LIMIT)
            .unwrap_or_else(|error| panic!("{error}\n{}", terminal.last_words()));
        let told = terminal.stdout();
        for line in [
            "raw: True",
            "status: 0",
            "modes: True",
            "screen: True",
            "cursor: True",
        ] {
            assert!(told.contains(line), "{end:?}: {told}");
        }
    }
}
