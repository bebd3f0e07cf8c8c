//! `bench peers` as a program: Gramway's two ends start, agree, and carry each kind of load. How fast is not judged.

use std::process::Command;

use serde_json::Value;

/// Cases that together use messages of both kinds, streams, round trips and short connections.
const CASES: [&str; 4] = ["messages-32KiB", "unreliable", "beside-bulk", "connections"];

#[test]
fn two_ends_of_gramways_peers_carry_every_kind_of_load() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("peers.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command
        .args(["peers", "--quick", "--seconds", "1", "--json"])
        .arg(&json);
    command.args(CASES.iter().flat_map(|case| ["--only", *case]));
    let output = command.output().expect("bench starts");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), CASES.len(), "{stdout}");
    for row in rows {
        let figures = row["medians"]["gramway"].as_object().unwrap();
        assert!(!figures.is_empty(), "{row}");
        for value in figures.values() {
            assert!(value.as_f64().unwrap() > 0.0, "{row}");
        }
    }
}
