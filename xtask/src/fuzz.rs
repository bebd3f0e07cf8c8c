//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/` on the nightly toolchain.
//!
//! The engine is installed where it is missing. Each target starts from the inputs that it makes itself, those of
//! `fuzz/inputs`, which are committed, and those that earlier runs found (`fuzz/corpus`); an input that fails stays in
//! `fuzz/artifacts`, and the engine prints how to run it again. `cargo xtask test` must work without a nightly
//! toolchain: it runs the targets on their starting inputs and the committed ones, as a test of that crate.

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, run_to_success};
use crate::{nightly, setup};

/// The engine's driver and the version that this repository is fuzzed with.
const ENGINE: (&str, &str) = ("cargo-fuzz", "0.13.2");

/// Bytes of the longest input: more than one super-packet, or many small ones.
const INPUT_BYTES_MAX: &str = "-max_len=4096";

/// Inputs are chosen evenly. By the rarity of what they reach, the default, the choice itself took half of the time of
/// `engine`: 22 inputs a second instead of 54. Its cryptography takes 3 % of the time, so it is real.
const EVEN_CHOICE: &str = "-entropic=0";

/// The engine builds in the release profile: here with every check on, and without optimization across crates, which
/// takes minutes.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
];

/// Runs one target, or all, for so many seconds each.
pub(crate) fn run(repository: &Repository, seconds: u32, only: Option<&str>) -> Result<()> {
    let targets = targets(repository)?;
    let chosen: Vec<&String> = targets
        .iter()
        .filter(|target| only.is_none_or(|only| only == *target))
        .collect();
    if chosen.is_empty() {
        bail!(
            "there is no fuzz target {}; these are there: {}",
            only.unwrap_or_default(),
            targets.join(", ")
        );
    }
    nightly::require(repository)?;
    setup::install_cargo_tool(repository, ENGINE.0, ENGINE.1)?;
    let build = repository.target().join("fuzz");
    let build = build.to_string_lossy();
    run_to_success(nightly::command(repository, "cargo").args([
        "run",
        "--quiet",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target-dir",
        &build,
        "--example",
        "seeds",
        "--",
        "fuzz/corpus",
    ]))?;
    let engine = repository.tools().join("bin").join(ENGINE.0);
    for target in &chosen {
        println!("==> {target}");
        let directory = |name: &str| repository.root().join("fuzz").join(name).join(target);
        let mut run = nightly::command(repository, &engine.to_string_lossy());
        run.envs(PROFILE);
        run.args(["run", "--fuzz-dir", "fuzz", "--target-dir", &build]);
        run.args(["--features", "engine", target]);
        // What it finds goes to the first directory; not every target has committed inputs.
        run.arg(directory("corpus"));
        run.args(Some(directory("inputs")).filter(|inputs| inputs.is_dir()));
        run.args([
            "--",
            &format!("-max_total_time={seconds}"),
            INPUT_BYTES_MAX,
            EVEN_CHOICE,
        ]);
        run_to_success(run.arg("-print_final_stats=1"))?;
    }
    println!("{} targets found nothing in {seconds} s each", chosen.len());
    Ok(())
}

/// The names of all targets.
fn targets(repository: &Repository) -> Result<Vec<String>> {
    let path = repository.root().join("fuzz/Cargo.toml");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    names(&text).with_context(|| format!("{} cannot be understood", path.display()))
}

fn names(manifest: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse()?;
    let programs = manifest.get("bin").and_then(toml::Value::as_array);
    Ok(programs
        .into_iter()
        .flatten()
        .filter_map(|program| program.get("name")?.as_str())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_the_manifest_are_the_targets() {
        let manifest = "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"one\"\n[[bin]]\nname = \"two\"\n";
        assert_eq!(names(manifest).unwrap(), ["one", "two"]);
        assert!(names("[package]").unwrap().is_empty());
    }
}
