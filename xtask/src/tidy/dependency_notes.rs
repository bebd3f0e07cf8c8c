//! Rule `dependency-notes`: every foreign crate says in one comment, where the workspace declares it, what it is for.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file("Cargo.toml") else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut inside = false;
    let mut after_comment = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim() == "[workspace.dependencies]";
        }
        let declares = inside && line.starts_with(char::is_alphabetic) && !line.contains("path = ");
        if declares && !after_comment && !line.contains(" # ") {
            let name = line.split([' ', '=', '.']).next().unwrap_or(line);
            let message = format!("{name} has no note; add `# what for, why this one` behind it or above it");
            findings.push(file.finding(index + 1, "dependency-notes", message));
        }
        after_comment = line.starts_with('#');
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_may_stand_behind_or_above() {
        let text = "[package]\nname = \"a\"\n[workspace.dependencies]\nown = { path = \"b\" }\nc = \"1\" # for c\n\
                    # For d.\nd = \"1\"\ne = \"1\"\n[profile]\nf = 1\n";
        let found = check(&Tree::of(&[("Cargo.toml", text)]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [8]);
    }
}
