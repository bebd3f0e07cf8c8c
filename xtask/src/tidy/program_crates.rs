//! Rule `programs`: `clap` and `anyhow` serve programs; libraries have error types of their own and no flags.

use super::tree::Tree;
use super::{Finding, manifest};

const PROGRAM_DEPENDENCIES: [&str; 2] = ["anyhow", "clap"];
const PROGRAM_CRATES: [&str; 4] = ["bench", "gramway", "system-tests", "xtask"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifest::all(tree)
        .0
        .iter()
        .filter(|manifest| !PROGRAM_CRATES.contains(&manifest.name.as_str()))
    {
        for dependency in &manifest.dependencies {
            if PROGRAM_DEPENDENCIES.contains(&dependency.name.as_str()) {
                let message = format!(
                    "library {} depends on {}; give it an error enum or an options struct instead",
                    manifest.name, dependency.name
                );
                findings.push(manifest.file.finding(dependency.line, "programs", message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_may_not_depend_on_them_and_a_program_may() {
        let text =
            |name: &str| format!("[package]\nname = \"{name}\"\n[dependencies]\nanyhow.workspace = true\n");
        let library = text("quic");
        let program = text("gramway");
        let tree = Tree::of(&[
            ("crates/quic/Cargo.toml", &library),
            ("crates/gramway/Cargo.toml", &program),
        ]);
        let found = check(&tree);
        assert_eq!(
            (found.len(), found[0].path.as_str(), found[0].line),
            (1, "crates/quic/Cargo.toml", 4)
        );
    }
}
