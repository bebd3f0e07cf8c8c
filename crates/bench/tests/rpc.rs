//! `bench rpc` as a program: every contestant answers every kind of load, in two processes and in one. The answers are
//! checked by the clients; how fast they come is not.

use std::process::Command;

use serde_json::Value;

fn rpc(arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    let output = command.arg("rpc").args(arguments).output().expect("bench starts");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_contestant_answers_calls_and_messages_rightly_in_both_places() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("rpc.json");
    let cases = [
        "sequential",
        "parallel-8",
        "messages",
        "clients-16",
        "payload-64KiB",
        "payload-16MiB",
    ];
    let mut arguments = vec!["--quick", "--json", json.to_str().unwrap()];
    arguments.extend(cases.iter().flat_map(|case| ["--only", *case]));
    let (succeeded, stdout, stderr) = rpc(&arguments);
    assert!(succeeded, "{stdout}\n{stderr}");
    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = results["rows"].as_array().unwrap();
    // Eight contestants in two places, but "in-process" is one place only and tarpc has no streams.
    assert_eq!(rows.len(), cases.len() * (2 * 8 - 1) - 2, "{stdout}");
    for row in rows {
        let result = &row["result"];
        let contestant = row["contestant"].as_str().unwrap();
        if contestant == "quic" && row["case"]["name"] == "messages" && result.is_null() {
            // noq over UDP may end a stream of many small messages ("too many gaps"). A rival may fail, with its reason.
            assert!(!row["failure"].as_str().unwrap().is_empty(), "{row}");
            assert!(stdout.contains("quic-loopback   FAILED in "), "{stdout}");
            continue;
        }
        assert!(row["failure"].is_null(), "{row}");
        assert!(result["rate"].as_f64().unwrap() > 0.0, "{row}");
        assert!(result["cpu_us"].as_f64().unwrap() > 0.0, "{row}");
        assert!(result["peak_bytes"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(
            result["latency_us"].is_null(),
            row["case"]["name"] == "messages",
            "{row}"
        );
        let over_quic = ["unix", "unix-spin", "quic"].contains(&contestant);
        assert_eq!(result["datagrams"].is_number(), over_quic, "{row}");
    }
    for contestant in [
        "in-process",
        "unix-spin",
        "quic-loopback",
        "tarpc-unix",
        "raw-stream",
    ] {
        assert!(stdout.contains(contestant), "{stdout}");
    }
    assert!(stdout.contains("pull request 96"), "{stdout}");
}

#[test]
fn a_pattern_that_matches_nothing_says_what_there_is() {
    let (succeeded, _, stderr) = rpc(&["--only", "sequantial"]);
    assert!(!succeeded);
    assert!(
        stderr.contains("parallel-32") && stderr.contains("tonic-unix"),
        "{stderr}"
    );
}
