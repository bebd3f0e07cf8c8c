//! Rule `text`: no notes to be done later (they belong into an issue) and no paths of the machine something was written
//! on, in code, comments or documents.

use super::Finding;
use super::architecture::names;
use super::tree::{File, Tree};

const RULE: &str = "text";
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACHINE_PATHS: [&str; 3] = [
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, text) in file.text.lines().enumerate() {
        let message = if let Some(note) = NOTES.iter().find(|note| names(text, note)) {
            format!("{note}: do it, or open an issue and say why the code is as it is")
        } else if let Some(path) = MACHINE_PATHS.iter().find(|path| starts_path(text, path)) {
            format!("a path of one machine ({path}…); make it relative, or a placeholder such as DIR")
        } else {
            continue;
        };
        if !file.allows(index + 1, RULE) {
            findings.push(file.finding(index + 1, RULE, message));
        }
    }
    findings
}

/// Whether the path stands at the beginning of a path in the line, as against inside one (`target/…`).
fn starts_path(line: &str, path: &str) -> bool {
    let part =
        |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '}' | '~');
    line.match_indices(path)
        .any(|(start, _)| !line[..start].ends_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        Tree::of(&[("a.md", text)]).lines_found(check)
    }

    #[test]
    fn notes_are_found_as_whole_words() {
        let note = NOTES[0];
        assert_eq!(lines(&format!("// {note}: later\nMAS{note}N\n{note}")), [1, 3]);
    }

    #[test]
    fn machine_paths_are_found_where_they_start() {
        let path = MACHINE_PATHS[0];
        assert_eq!(
            lines(&format!(
                "cd {path}a\ntarget{path}b\n`{path}c`\n\"{path}d\" # tidy-allow(text): why\n"
            )),
            [1, 3]
        );
    }
}
