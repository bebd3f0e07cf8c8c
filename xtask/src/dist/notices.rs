//! `NOTICES`: the copyright notices and licences of what the static program is linked from, as these licences ask for.
//!
//! Each package's own files are copied from its sources. A text that several packages have is there once. Of the parts
//! that are no packages of cargo, the C library and Rust's own, the file names licence and source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::TARGET;
use super::bill::Package;
use crate::repository::{Repository, shown};

/// How names of files with notices begin, in capitals.
const BEGINNINGS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// What cargo does not know.
const OTHERS: &str = "\
The program also contains parts of
- the GNU C library, LGPL-2.1-or-later, Copyright (C) the Free Software Foundation and others:
  https://sourceware.org/glibc
- libgcc, GPL-3.0-or-later WITH GCC-exception-3.1, Copyright (C) the Free Software Foundation: https://gcc.gnu.org
- the Rust standard library, MIT OR Apache-2.0, Copyright (c) The Rust Project contributors:
  https://github.com/rust-lang/rust
- SQLite, which is in the public domain: https://sqlite.org
";

/// A package and the texts in its files.
#[derive(Debug)]
struct Noticed {
    name: String,
    version: String,
    licence: String,
    authors: String,
    source: String,
    texts: Vec<String>,
}

/// Writes the file into `directory`, and gives its path.
pub(super) fn write(
    repository: &Repository,
    linked: &BTreeSet<Package>,
    directory: &Path,
) -> Result<PathBuf> {
    let mut metadata = repository.cargo(&["metadata", "--format-version=1", "--locked"]);
    metadata.args(["--filter-platform", TARGET]);
    let output = metadata
        .output()
        .with_context(|| format!("`{}` cannot be started", shown(&metadata)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed: {}",
            shown(&metadata),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let packages = foreign(&serde_json::from_slice(&output.stdout)?, linked)?;
    let path = directory.join("NOTICES");
    fs::write(&path, text(&packages)).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(path)
}

/// The linked packages that are not ours.
fn foreign(metadata: &Value, linked: &BTreeSet<Package>) -> Result<Vec<Noticed>> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, version) = (text("name"), text("version"));
        if package["source"].is_null() || !linked.contains(&(name.clone(), version.clone())) {
            continue;
        }
        let manifest = PathBuf::from(text("manifest_path"));
        let texts = texts(manifest.parent().context("a manifest lies in a directory")?)?;
        let authors: Vec<_> = package["authors"].as_array().into_iter().flatten().collect();
        let authors: Vec<_> = authors.into_iter().filter_map(Value::as_str).collect();
        found.push(Noticed {
            name,
            version,
            licence: text("license"),
            authors: authors.join(", "),
            source: text("repository"),
            texts,
        });
    }
    found.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(found)
}

/// What is in the files with notices, in the order of their names.
fn texts(directory: &Path) -> Result<Vec<String>> {
    let cannot = || format!("{} cannot be read", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        if path.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        // Lines end in one way, so that equal texts are found.
        let lines = String::from_utf8_lossy(&bytes).replace('\r', "");
        Ok(lines.trim().to_owned())
    };
    paths.into_iter().map(read).collect()
}

/// The packages with the numbers of their texts, then the texts.
fn text(packages: &[Noticed]) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut order = Vec::new();
    let mut head = String::from(
        "Gramway is licensed under MIT or Apache-2.0. It is linked from the packages below; numbers refer to the texts\n\
         at the end of this file.\n\n",
    );
    for package in packages {
        let mut refers = Vec::new();
        for text in &package.texts {
            let next = numbers.len() + 1;
            let number = *numbers.entry(text).or_insert_with(|| {
                order.push(text);
                next
            });
            refers.push(number.to_string());
        }
        head.push_str(&format!(
            "{} {}, {}: ",
            package.name, package.version, package.licence
        ));
        if refers.is_empty() {
            // It brings no file: its manifest is all that it says.
            let parts = [package.authors.as_str(), package.source.as_str()];
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            head.push_str(&parts.join(", "));
        } else {
            head.push_str(&refers.join(", "));
        }
        head.push('\n');
    }
    let mut whole = format!("{head}\n{OTHERS}");
    for (index, text) in order.into_iter().enumerate() {
        whole.push_str(&format!("\n---- {} ----\n\n{text}\n", index + 1));
    }
    whole
}

#[cfg(test)]
mod tests {
    use testbed::directory::Directory;

    use super::*;

    #[test]
    fn notices_of_linked_packages_are_copied_once_and_those_without_files_are_named() {
        let directory = Directory::create().unwrap();
        let package = |name: &str, files: &[(&str, &str)]| {
            let place = directory.join(name);
            fs::create_dir(&place).unwrap();
            for (file, text) in files {
                fs::write(place.join(file), text).unwrap();
            }
            serde_json::json!({
                "name": name, "version": "1.0.0", "license": "MIT", "source": "registry", "authors": ["A"],
                "repository": "https://r", "manifest_path": place.join("Cargo.toml"),
            })
        };
        let metadata = serde_json::json!({ "packages": [
            package("b", &[("LICENSE-MIT", "one\n"), ("license-apache", "two\r\n"), ("README", "no")]),
            package("a", &[("LICENSE", "one")]),
            package("c", &[]),
            package("unlinked", &[("LICENSE", "three")]),
        ] });
        let linked = ["a", "b", "c"].map(|name| (name.to_owned(), "1.0.0".to_owned()));
        let written = text(&foreign(&metadata, &BTreeSet::from(linked)).unwrap());
        for part in [
            "\na 1.0.0, MIT: 1\nb 1.0.0, MIT: 1, 2\nc 1.0.0, MIT: A, https://r\n",
            "\n---- 1 ----\n\none\n\n---- 2 ----\n\ntwo\n",
        ] {
            assert!(written.contains(part), "{written}");
        }
        assert!(!written.contains("three"));
    }
}
