//! The schema of the config file, judged by a validator and a reader of TOML that we did not write.

use std::path::PathBuf;
use std::process::Command;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::gramway_binary;
use system_tests::{python, require_python};
use testbed::directory::Directory;
use testbed::place::Place;
use testbed::programs::run;

#[test]
fn the_schema_accepts_what_the_program_writes_and_refuses_wrong_keys_and_types() {
    let python = require_python!();
    let directory = Directory::create_for_test().unwrap();
    let config = |arguments: &[&str]| {
        let mut command = Command::new(gramway_binary());
        command.env_clear().env("HOME", directory.path());
        run(command.arg("config").args(arguments)).unwrap()
    };
    let write = |name: &str, text: &str| -> PathBuf { directory.write(name, text).unwrap() };
    let files = [
        write("schema.json", &config(&["--schema"])),
        write("all.toml", &config(&["--effective"])),
        write(
            "up.toml",
            &config(&["--effective", "up", "--tun", "--connections", "2"]),
        ),
        write(
            "connect.toml",
            &config(&["--effective", "connect", "-L", "udp:1=a:1", "--no-gso"]),
        ),
        write(
            "wrong.toml",
            "lisen = \"[::]:443\"\ngso = 1\nforward = [1]\nconnections = \"2\"\n",
        ),
    ];
    let mut judge = python::start(&python, &Place::Host, "schema.py", &files);
    let errors = judge.next_line(PROGRAM_LIMIT);
    assert!(
        judge.wait(PROGRAM_LIMIT).unwrap().success(),
        "{}",
        judge.last_words()
    );
    let errors: Vec<Vec<String>> = serde_json::from_str(&errors.unwrap()).unwrap();
    for right in &errors[..3] {
        assert!(right.is_empty(), "{right:?}");
    }
    assert_eq!(errors[3].len(), 4, "{:?}", errors[3]);
    assert!(
        errors[3].iter().any(|error| error.contains("lisen")),
        "{:?}",
        errors[3]
    );
}
