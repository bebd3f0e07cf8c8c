//! The test programs of the workspace: cargo builds them all and says where they are, so that they need not run one
//! after the other, as `cargo test` has them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::repository::{Repository, shown, succeeded};

/// A library, a program or a file of tests, compiled with its tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    pub(crate) package: String,
    /// What selects it for `cargo test`: `--lib`, `--bin NAME`, `--test NAME`.
    pub(crate) selection: String,
    executable: PathBuf,
    /// That of the package, in which tests run.
    directory: PathBuf,
}

impl TestProgram {
    /// What runs it as `cargo test` does, or through `sudo`.
    pub(crate) fn command(&self, repository: &Repository, through_sudo: bool) -> Command {
        let mut command = if through_sudo {
            let mut sudo = repository.command("sudo");
            sudo.args(["-n", "-E"]).arg(&self.executable);
            sudo
        } else {
            repository.command(&self.executable)
        };
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }
}

/// Builds all of them, and the programs that they start.
pub(crate) fn build(repository: &Repository, options: &[&str]) -> Result<Vec<TestProgram>> {
    let mut command = repository.cargo(&[
        "test",
        "--quiet",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    command.args(options).stdout(Stdio::piped());
    let mut cargo = command
        .spawn()
        .with_context(|| format!("`{}` cannot be started", shown(&command)))?;
    let mut programs = Vec::new();
    for line in BufReader::new(cargo.stdout.take().expect("it is piped")).lines() {
        let line = line.context("cargo's list of test programs cannot be read")?;
        programs.extend(serde_json::from_str(&line).ok().as_ref().and_then(described));
    }
    succeeded(cargo.wait(), &command)?;
    // Where cargo says so otherwise than we read it, nothing would run, and pass.
    ensure!(!programs.is_empty(), "cargo names no test program");
    Ok(programs)
}

/// The test program of a message of cargo, if it tells of one ("External tools" in cargo's book).
fn described(message: &Value) -> Option<TestProgram> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let target = &message["target"];
    let name = target["name"].as_str()?;
    let kind = target["kind"][0].as_str()?;
    Some(TestProgram {
        package: package_name(message["package_id"].as_str()?).to_owned(),
        selection: match kind {
            "bin" | "test" | "example" | "bench" => format!("--{kind} {name}"),
            _ => "--lib".to_owned(),
        },
        executable: message["executable"].as_str()?.into(),
        directory: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
    })
}

/// The name in `path+file:///…/NAME#VERSION` or `path+file:///…#NAME@VERSION`.
fn package_name(id: &str) -> &str {
    let (place, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    match rest.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_a_test_program_describes_it_and_others_do_not() {
        let mut message = serde_json::json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///tree/crates/quic#0.1.0",
            "manifest_path": "/tree/crates/quic/Cargo.toml",
            "target": { "kind": ["test"], "name": "paths" },
            "profile": { "test": true },
            "executable": "/tree/target/debug/deps/paths-1",
        });
        let program = TestProgram {
            package: "quic".to_owned(),
            selection: "--test paths".to_owned(),
            executable: "/tree/target/debug/deps/paths-1".into(),
            directory: "/tree/crates/quic".into(),
        };
        assert_eq!(described(&message), Some(program));
        message["target"]["kind"] = serde_json::json!(["lib"]);
        assert_eq!(described(&message).unwrap().selection, "--lib");
        message["profile"]["test"] = false.into();
        assert_eq!(described(&message), None);
        assert_eq!(
            described(&serde_json::json!({ "reason": "build-finished" })),
            None
        );
    }

    #[test]
    fn the_name_of_a_package_is_that_of_its_directory_unless_its_id_says_another() {
        assert_eq!(package_name("path+file:///tree/crates/quic#0.1.0"), "quic");
        assert_eq!(
            package_name("path+file:///tree/fuzz#gramway-fuzz@0.1.0"),
            "gramway-fuzz"
        );
    }
}
