//! iroh and quinn, the libraries that `bench peers` measures Gramway's peers against. Their program has a workspace of its
//! own, `crates/bench/rivals`: hundreds of crates that nothing else needs.

use std::path::PathBuf;

/// How to get them.
pub(crate) const HOW_TO_GET: &str = "iroh and quinn are not there: cargo xtask setup --rivals";

/// Looks beside this program, where `cargo xtask setup --rivals` has built theirs.
pub(crate) fn find() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let program = own.ancestors().nth(2)?.join("rivals/release/rivals");
    program.is_file().then_some(program)
}
