//! `bench scale` as a program: every case carries datagrams, every bound has a verdict, and a missed one is no failure.
//! How fast it is, and whether bounds are met, is not checked.

use std::process::Command;

use serde_json::Value;

#[test]
fn every_case_carries_datagrams_without_loss_and_every_bound_has_a_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("scale.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(["scale", "--quick", "--json"]).arg(&json);
    let output = command.output().expect("bench starts");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let costs = results["costs"].as_array().unwrap();
    assert_eq!(costs.len(), 9, "{stdout}");
    for cost in costs {
        assert!(cost["ns"].as_f64().unwrap() > 0.0, "{cost}");
        assert!(cost["datagrams"].as_u64().unwrap() > 0, "{cost}");
        assert_eq!(cost["lost"], 0, "{cost}");
    }
    let memory = results["memory"].as_array().unwrap();
    assert_eq!(memory.len(), 2, "{stdout}");
    assert!(memory[0]["bytes"].as_f64().unwrap() > 0.0, "{stdout}");
    let verdicts = |word: &str| stdout.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(verdicts("met "), 4 - results["missed"].as_array().unwrap().len());
    assert_eq!(verdicts("met ") + verdicts("missed "), 4, "{stdout}");
}
