//! The software bill of materials of the static program, as CycloneDX 1.5 JSON.
//!
//! `cargo-cyclonedx` knows licences, hashes and sources, but describes the whole workspace, with the features that
//! its other programs turn on, in a file beside each manifest. Kept is what cargo says that the program alone is linked
//! from, and paths of this machine become paths in the repository. Time and number of the run are left out: two runs
//! give the same file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::TARGET;
use crate::repository::{Repository, run_to_success, shown};
use crate::setup;

/// The tool and the version that this repository uses.
const TOOL: (&str, &str) = ("cargo-cyclonedx", "0.5.9");

/// The name of its files, without the ending.
const NAME: &str = "gramway.cdx";

/// Name and version.
pub(super) type Package = (String, String);

/// Writes the bill of these packages into `directory`, and gives its path.
pub(super) fn write(
    repository: &Repository,
    linked: &BTreeSet<Package>,
    directory: &Path,
) -> Result<PathBuf> {
    setup::install_cargo_tool(repository, TOOL.0, TOOL.1)?;
    let mut command = repository.command(repository.tools().join("bin").join(TOOL.0));
    command.args([
        "cyclonedx",
        "--quiet",
        "--format",
        "json",
        "--spec-version",
        "1.5",
    ]);
    command.args(["--target", TARGET, "--override-filename", NAME]);
    run_to_success(&mut command)?;
    let file = format!("{NAME}.json");
    let whole = fs::read_to_string(repository.root().join("crates/gramway").join(&file));
    remove_files(repository.root(), &file)?;
    let whole = whole.context("cargo-cyclonedx has written nothing for gramway")?;
    let path = directory.join(&file);
    let bill = bill(&whole, repository.root(), linked)?;
    fs::write(&path, bill).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// Removes the tool's files beside the manifests.
fn remove_files(root: &Path, file: &str) -> Result<()> {
    let crates = fs::read_dir(root.join("crates")).context("crates/ cannot be read")?;
    let directories = crates.filter_map(|entry| Some(entry.ok()?.path()));
    for directory in directories.chain([root.join("xtask")]) {
        let path = directory.join(file);
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))?;
        }
    }
    Ok(())
}

/// What the program is linked from.
pub(super) fn linked(repository: &Repository) -> Result<BTreeSet<Package>> {
    let mut tree = repository.cargo(&["tree", "--locked", "--package", "gramway", "--edges", "normal"]);
    tree.args([
        "--target",
        TARGET,
        "--prefix",
        "none",
        "--no-dedupe",
        "--format",
        "{p}",
    ]);
    let output = tree
        .output()
        .with_context(|| format!("`{}` cannot be started", shown(&tree)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed: {}",
            shown(&tree),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(packages(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads `NAME vVERSION (…)` of each line.
fn packages(tree: &str) -> BTreeSet<Package> {
    let package = |line: &str| {
        let mut words = line.split(' ');
        Some((
            words.next()?.to_owned(),
            words.next()?.strip_prefix('v')?.to_owned(),
        ))
    };
    tree.lines().filter_map(package).collect()
}

/// The bill with these packages alone, and without the repository's place, the time and the number of this run.
fn bill(whole: &str, root: &Path, linked: &BTreeSet<Package>) -> Result<String> {
    let whole = whole.replace(&format!("file://{}/", root.display()), "file:");
    let mut bill: Value = serde_json::from_str(&whole).context("cargo-cyclonedx has written no JSON")?;
    // The same commit gives the same file; both are optional.
    for (object, key) in [("", "serialNumber"), ("/metadata", "timestamp")] {
        if let Some(object) = bill.pointer_mut(object).and_then(Value::as_object_mut) {
            object.remove(key);
        }
    }
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut kept = BTreeSet::from([text(&bill["metadata"]["component"], "bom-ref")]);
    if let Some(components) = bill["components"].as_array_mut() {
        components
            .retain(|component| linked.contains(&(text(component, "name"), text(component, "version"))));
        kept.extend(components.iter().map(|component| text(component, "bom-ref")));
    }
    // The program itself is described apart from its components.
    if kept.len() != linked.len() {
        bail!(
            "{} packages are linked, and {} are described",
            linked.len(),
            kept.len()
        );
    }
    if let Some(dependencies) = bill["dependencies"].as_array_mut() {
        dependencies.retain(|entry| kept.contains(&text(entry, "ref")));
        for entry in dependencies {
            if let Some(on) = entry["dependsOn"].as_array_mut() {
                on.retain(|reference| {
                    reference
                        .as_str()
                        .is_some_and(|reference| kept.contains(reference))
                });
            }
        }
    }
    serde_json::to_string_pretty(&bill).context("the bill has no JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"serialNumber":"urn:uuid:1","metadata":{"timestamp":"2026-11-25T21:00:00Z","component":{"bom-ref":"path+file:///r/crates/gramway#0.1.0"}},"components":[
        {"bom-ref":"path+file:///r/crates/a#0.1.0","name":"a","version":"0.1.0"},{"bom-ref":"b","name":"b","version":"2.0.0"},
        {"bom-ref":"c","name":"b","version":"1.0.0"}],"dependencies":[
        {"ref":"path+file:///r/crates/a#0.1.0","dependsOn":["b","c"]},{"ref":"c"}]}"#;

    const TREE: &str =
        "gramway v0.1.0 (/r/crates/gramway)\na v0.1.0 (/r/crates/a)\nb v2.0.0\n\nb v2.0.0 (*)\n";

    #[test]
    fn what_the_program_is_not_linked_from_is_left_out() {
        let bill: Value =
            serde_json::from_str(&bill(WHOLE, Path::new("/r"), &packages(TREE)).unwrap()).unwrap();
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), 2);
        assert_eq!(components[0]["bom-ref"], "path+file:crates/a#0.1.0");
        let dependencies = bill["dependencies"].as_array().unwrap();
        assert_eq!(dependencies.len(), 1);
        assert_eq!(dependencies[0]["dependsOn"], serde_json::json!(["b"]));
        assert!(bill["serialNumber"].is_null() && bill["metadata"]["timestamp"].is_null());
    }

    #[test]
    fn a_package_that_is_not_described_is_an_error() {
        let tree = format!("{TREE}d v3.0.0\n");
        assert!(bill(WHOLE, Path::new("/r"), &packages(&tree)).is_err());
    }
}
