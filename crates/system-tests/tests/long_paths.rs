//! `bench paths` as a program: one short cell is measured, told in the table and written to its files, and nothing is
//! left behind. How fast it was is not judged.

use std::path::PathBuf;

use serde_json::Value;
use system_tests::program::{bench_binary, gramway_binary};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::leftovers;
use testbed::place::Place;

/// A link that one second tells enough about.
const CELL: &str = "20x10x1x1";

#[test]
fn a_cell_is_measured_and_leaves_files_but_no_namespaces() {
    require_root!();
    require_program!("iperf3");
    let _load = crate::scene::load();
    let directory = Directory::create_for_test().unwrap();
    let file = |name: &str| directory.path().join(name);
    let mut command = Place::Host.command(bench_binary());
    command.arg("--gramway").arg(gramway_binary());
    command.args(["paths", "--only", &format!("{CELL}:tcp-up,{CELL}:udp-down")]);
    command.args(["--contestants", "direct,gramway", "--inner", "cubic"]);
    command.args(["--rounds", "1", "--seconds", "1"]);
    for kind in ["json", "svg", "csv"] {
        command.arg(format!("--{kind}")).arg(file(kind));
    }
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");

    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let results: Value = serde_json::from_str(&read("json")).unwrap();
    let rows = results["cases"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{text}");
    for row in rows {
        for contestant in ["direct", "gramway"] {
            let run = &row["runs"][contestant][0];
            let rate = run["bits_per_second"].as_f64().unwrap();
            assert!((1.0..20e6).contains(&rate), "{contestant}: {rate} over {row}");
            assert!(run["link"]["sent"].as_u64().unwrap() > 0, "{run}");
        }
    }
    assert!(read("svg").contains(CELL));
    assert!(read("csv").lines().count() > 10);
    let left: Vec<String> = leftovers::namespaces_of(process).collect();
    assert!(left.is_empty(), "{left:?}");
    let left: Vec<PathBuf> = leftovers::directories_of(process).collect();
    assert!(left.is_empty(), "{left:?}");
}
