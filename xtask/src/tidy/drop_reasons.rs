//! Rule `drop-reasons`: ARCHITECTURE.md says where each drop reason arises.

use super::Finding;
use super::architecture::names;
use super::rust_code::code_only;
use super::tree::{File, Tree};

const HEADER: &str = "enum DropReason";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.rust().find(|file| code_only(&file.text).contains(HEADER)) else {
        println!("tidy: no `{HEADER}` in the tree yet, its rule is not checked");
        return Vec::new();
    };
    let Some(architecture) = tree.file("ARCHITECTURE.md") else {
        return Vec::new();
    };
    variants(file)
        .into_iter()
        .filter(|(_, name)| {
            let spellings = [name.clone(), separated(name, '_'), separated(name, '-')];
            !architecture
                .text
                .lines()
                .any(|line| spellings.iter().any(|spelling| names(line, spelling)))
        })
        .map(|(line, name)| {
            let message =
                format!("{name} is not in ARCHITECTURE.md; describe there the step at which it arises");
            file.finding(line, "drop-reasons", message)
        })
        .collect()
}

/// Lines and names of the variants; the formatter puts each on a line of its own.
fn variants(file: &File) -> Vec<(usize, String)> {
    let code = code_only(&file.text);
    code.lines()
        .enumerate()
        .skip_while(|(_, line)| !line.contains(HEADER))
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('}'))
        .filter_map(|(index, line)| {
            let name: String = line
                .trim()
                .chars()
                .take_while(|character| character.is_alphanumeric())
                .collect();
            name.starts_with(char::is_uppercase).then_some((index + 1, name))
        })
        .collect()
}

/// `QueueFull` as `queue_full` or `queue-full`.
fn separated(name: &str, separator: char) -> String {
    let mut output = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !output.is_empty() {
            output.push(separator);
        }
        output.extend(character.to_lowercase());
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENUM: &str = "//! Drops.\npub enum DropReason {\n    /// Of the Queue.\n    QueueFull,\n    #[default]\n    \
                        TooLarge = 3,\n}\nenum Other { Unrelated }\n";

    #[test]
    fn every_variant_must_be_told_in_any_spelling() {
        let found = |text: &str| -> Vec<usize> {
            let tree = Tree::of(&[
                ("ARCHITECTURE.md", text),
                ("crates/tunnel-proto/src/drops.rs", ENUM),
            ]);
            check(&tree).iter().map(|finding| finding.line).collect()
        };
        assert_eq!(found("`queue_full` and `TooLarge`"), [0; 0]);
        assert_eq!(found("`queue-full`"), [6]);
        assert_eq!(found("queue_fuller"), [4, 6]);
    }
}
