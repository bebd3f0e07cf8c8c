//! The crates of the workspace and what each manifest depends on.

use anyhow::{Context, Result};

use super::Finding;
use super::tree::{File, Tree};

/// One crate.
pub(super) struct Manifest<'tree> {
    pub(super) name: String,
    pub(super) file: &'tree File,
    pub(super) dependencies: Vec<Dependency>,
}

/// One dependency of a crate.
pub(super) struct Dependency {
    /// Package name, also where the manifest renames it.
    pub(super) name: String,
    /// Declared under `dev-dependencies`.
    pub(super) dev: bool,
    /// Line in the manifest.
    pub(super) line: usize,
}

/// All crates, and a finding for each manifest that cannot be read.
pub(super) fn all(tree: &Tree) -> (Vec<Manifest<'_>>, Vec<Finding>) {
    let mut manifests = Vec::new();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_crate_manifest(&file.path)) {
        match parse(file) {
            Ok(manifest) => manifests.push(manifest),
            Err(error) => findings.push(file.finding(1, "manifest", format!("{error:#}"))),
        }
    }
    (manifests, findings)
}

fn is_crate_manifest(path: &str) -> bool {
    let below = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    path == "xtask/Cargo.toml" || below.is_some_and(|(_, file)| file == "Cargo.toml")
}

fn parse(file: &File) -> Result<Manifest<'_>> {
    let document: toml::Table = file.text.parse().context("not valid TOML")?;
    let name = document
        .get("package")
        .and_then(|package| package.get("name")?.as_str())
        .context("has no package.name; add it")?
        .to_owned();
    let mut dependencies = Vec::new();
    collect(&document, &file.text, &mut dependencies);
    let targets = document.get("target").and_then(toml::Value::as_table);
    for table in targets
        .into_iter()
        .flat_map(toml::Table::values)
        .filter_map(toml::Value::as_table)
    {
        collect(table, &file.text, &mut dependencies);
    }
    Ok(Manifest {
        name,
        file,
        dependencies,
    })
}

fn collect(table: &toml::Table, text: &str, dependencies: &mut Vec<Dependency>) {
    for (section, dev) in [
        ("dependencies", false),
        ("build-dependencies", false),
        ("dev-dependencies", true),
    ] {
        let entries = table.get(section).and_then(toml::Value::as_table);
        for (key, value) in entries.into_iter().flatten() {
            let name = value
                .get("package")
                .and_then(toml::Value::as_str)
                .unwrap_or(key)
                .to_owned();
            dependencies.push(Dependency {
                name,
                dev,
                line: line_of(text, section, key),
            });
        }
    }
}

/// The first line of that section which starts with the key; 1 where a table is written in another form.
fn line_of(text: &str, section: &str, key: &str) -> usize {
    let header = format!("{section}]");
    text.lines()
        .enumerate()
        .skip_while(|(_, line)| {
            let line = line.trim();
            line != format!("[{section}]") && !line.ends_with(&format!(".{header}"))
        })
        .find(|(_, line)| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        })
        .map_or(1, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_and_renaming_is_read() {
        let text = "[package]\nname = \"a\"\n[dependencies]\nb = \"1\"\nc = { package = \"real\", version = \"1\" }\n\
                    [dev-dependencies]\nb.workspace = true\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n";
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", text),
            ("crates/a/fixture/Cargo.toml", "[broken"),
        ]);
        let (manifests, findings) = all(&tree);
        assert!(findings.is_empty());
        let mut seen: Vec<(&str, bool, usize)> = manifests[0]
            .dependencies
            .iter()
            .map(|item| (item.name.as_str(), item.dev, item.line))
            .collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [
                ("b", false, 4),
                ("b", true, 7),
                ("d", false, 9),
                ("real", false, 5)
            ]
        );
    }

    #[test]
    fn a_broken_manifest_is_a_finding() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", "[package"),
            ("xtask/Cargo.toml", "[package]\n"),
        ]);
        assert_eq!(all(&tree).1.len(), 2);
    }
}
