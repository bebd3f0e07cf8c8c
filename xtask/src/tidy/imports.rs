//! The names by which a Rust file knows what it imports from a crate.

use super::rust_code::{end_of, positions_of};

/// What `use` statements of `code` import from `library`, by the names that they give; `*` for everything.
pub(super) fn names_from<'a>(code: &'a str, library: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for start in positions_of(code, "use") {
        let tree = start + "use".len();
        // `impl Trait + use<'a>` imports nothing.
        if code[tree..].starts_with('<') {
            continue;
        }
        collect(
            &code[tree..end_of(code, tree, b";")],
            "",
            false,
            library,
            &mut names,
        );
    }
    names
}

/// Reads one branch; `parent` is the last word before it, and `inside` says whether the library stands before it.
fn collect<'a>(tree: &'a str, parent: &'a str, inside: bool, library: &str, names: &mut Vec<&'a str>) {
    let tree = tree.trim();
    if let Some((path, _)) = tree.split_once('{') {
        let words = words(path);
        let inside = inside || words.contains(&library);
        let parent = words.last().copied().unwrap_or(parent);
        let mut position = path.len() + 1;
        while position < tree.len() {
            let end = end_of(tree, position, b",");
            collect(&tree[position..end], parent, inside, library, names);
            position = end + 1;
        }
        return;
    }
    let (path, alias) = match tree.split_once(" as ") {
        Some((path, alias)) => (path, Some(alias.trim())),
        None => (tree, None),
    };
    let words = words(path);
    if !inside && !words.contains(&library) {
        return;
    }
    let last = match *words {
        ["self"] => parent,
        [.., before, "self"] => before,
        [.., last] => last,
        [] => return,
    };
    names.extend(Some(alias.unwrap_or(last)).filter(|name| *name != "_"));
}

/// The words of a path.
fn words(path: &str) -> Vec<&str> {
    path.split("::")
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_file_uses() {
        for (code, expected) in [
            ("use a::B;", &["B"][..]),
            (
                "use a::b::{self, C, D as E, f::{G, H}};\nuse i::J;",
                &["b", "C", "E", "G", "H"],
            ),
            ("use {a::B, c::D};", &["B"]),
            ("use ::a::{B};", &["B"]),
            ("use a as b; use a::C as _;", &["b"]),
            ("use a::*; use a;", &["*", "a"]),
            ("use b::a_c::D; used::a::E;", &[]),
            ("fn b() -> impl C + use<'d> { a::E }", &[]),
            ("use a::{", &[]),
        ] {
            assert_eq!(names_from(code, "a"), expected, "{code}");
        }
    }
}
