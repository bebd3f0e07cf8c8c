//! Which lines of the repository only tests compile: files below `tests/`, and what stands under `#[cfg(test)]`, be it
//! an item in the file or a module in a file of its own.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::rust_code::{code_only, end_of, line_at, positions_of};
use super::tree::{File, Tree};

const MARKER: &str = "#[cfg(test)]";

/// The test code of all Rust files.
pub(super) struct TestCode {
    /// Files that `#[cfg(test)] mod NAME;` brings in.
    modules: BTreeSet<String>,
}

/// The test code of one file.
pub(super) struct TestLines {
    is_whole_file: bool,
    items: Vec<RangeInclusive<usize>>,
}

impl TestCode {
    pub(super) fn of(tree: &Tree) -> Self {
        let modules = tree.rust().flat_map(|file| {
            let code = code_only(&file.text);
            let names: Vec<String> = marked_items(&code)
                .filter_map(|item| module_name(&code[item.start..item.end]).map(str::to_owned))
                .collect();
            let directory = submodules(&file.path);
            names.into_iter().flat_map(move |name| {
                [
                    format!("{directory}{name}.rs"),
                    format!("{directory}{name}/mod.rs"),
                ]
            })
        });
        Self {
            modules: modules.collect(),
        }
    }

    /// The lines of one file; `code` is its text without comments and literals.
    pub(super) fn lines(&self, file: &File, code: &str) -> TestLines {
        let path = &file.path;
        let items = marked_items(code).map(|item| line_at(code, item.start)..=line_at(code, item.end));
        TestLines {
            is_whole_file: path.contains("/tests/") || self.modules.contains(path),
            items: items.collect(),
        }
    }
}

impl TestLines {
    /// Whether the line (from 1) is test code.
    pub(super) fn contains(&self, line: usize) -> bool {
        self.is_whole_file || self.items.iter().any(|item| item.contains(&line))
    }
}

/// Items under the marker, from it to their last character.
fn marked_items(code: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    code.match_indices(MARKER).map(|(start, _)| {
        let mut end = end_of(code, start + MARKER.len(), b"{;");
        if code.as_bytes().get(end) == Some(&b'{') {
            end = end_of(code, end + 1, b"");
        }
        start..end
    })
}

/// The name in `mod NAME;`.
fn module_name(item: &str) -> Option<&str> {
    let start = positions_of(item, "mod").next()? + "mod".len();
    let name = item[start..].trim();
    name.chars()
        .all(|character| character.is_alphanumeric() || character == '_')
        .then_some(name)
}

/// The directory of a file's submodules, with its last `/`.
fn submodules(path: &str) -> String {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{directory}/"),
        _ => format!("{}/", path.trim_end_matches(".rs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(files: &[(&str, &str)]) -> Vec<Vec<usize>> {
        let tree = Tree::of(files);
        let code = TestCode::of(&tree);
        let lines = |file: &File| {
            let lines = code.lines(file, &code_only(&file.text));
            (1..=file.text.lines().count())
                .filter(|line| lines.contains(*line))
                .collect()
        };
        tree.rust().map(lines).collect()
    }

    #[test]
    fn a_module_in_a_file_of_its_own_is_test_code_and_what_follows_it_here_is_not() {
        let declares = "#[cfg(test)]\n#[path]\nmod checks;\nfn a() {}\n";
        for (parent, child) in [
            ("crates/a/src/lib.rs", "crates/a/src/checks.rs"),
            ("crates/a/src/b/mod.rs", "crates/a/src/b/checks/mod.rs"),
            ("crates/a/src/b.rs", "crates/a/src/b/checks.rs"),
        ] {
            let found = tested(&[(parent, declares), (child, "fn a() {}\n")]);
            assert_eq!(found, [vec![1, 2, 3], vec![1]], "{child}");
        }
        assert_eq!(tested(&[("crates/a/src/checks.rs", "fn a() {}\n")]), [[0; 0]]);
    }

    #[test]
    fn an_item_under_the_marker_is_test_code_to_its_end() {
        let code = "fn a() {}\n#[cfg(test)]\n/// B.\nfn b() -> [u8; 2] {\n    c('}');\n}\nfn d() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(
            tested(&[("crates/a/src/b.rs", code)]),
            [[2, 3, 4, 5, 6, 8, 9, 10]]
        );
        assert_eq!(
            tested(&[("crates/a/src/b.rs", "// #[cfg(test)]\nmod b {\n}\n")]),
            [[0; 0]]
        );
    }

    #[test]
    fn files_below_tests_are_test_code() {
        assert_eq!(tested(&[("crates/a/tests/b.rs", "fn a() {}\n\n")]), [[1, 2]]);
    }
}
