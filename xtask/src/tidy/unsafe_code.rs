//! Rule `unsafe`: unsafe code lives in `packet-io` and nowhere else, tests and benches included.

use super::Finding;
use super::rust_code::{code_only, lines_with};
use super::tree::Tree;

const UNSAFE_CRATE: &str = "packet-io";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let outside = tree.rust().filter(|file| file.crate_name() != Some(UNSAFE_CRATE));
    outside
        .flat_map(|file| {
            let lines = lines_with(&code_only(&file.text), "unsafe");
            let message = "unsafe code outside packet-io; use a safe crate (rustix, socket2), or put a safe interface \
                           into packet-io";
            lines.into_iter().map(move |line| file.finding(line, "unsafe", message))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_found_everywhere_but_in_packet_io() {
        let source = "// unsafe\n#![deny(unsafe_code)]\nfn a() { unsafe { b() } }\n";
        let tree = Tree::of(&[
            ("crates/packet-io/src/a.rs", source),
            ("crates/quic/tests/a.rs", source),
        ]);
        let found = check(&tree);
        assert_eq!(
            (found.len(), found[0].path.as_str(), found[0].line),
            (1, "crates/quic/tests/a.rs", 3)
        );
    }
}
