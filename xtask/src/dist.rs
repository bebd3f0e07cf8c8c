//! `cargo xtask dist`: the program as one static file that runs in an empty root directory, and what it was made of.
//!
//! glibc is linked statically. The target is named although it is this machine's, because cargo then keeps the flags
//! from build scripts and procedural macros, which are loaded or run here and stay dynamic.

mod bill;
mod trial;

use std::fs;

use anyhow::{Context, Result};

use crate::repository::{Repository, is_root, run_to_success};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// In a static program getrandom cannot look the system call up by name, and would read /dev/random instead, which an
/// empty root directory lacks: it is told to use the call (Linux 3.17 or later).
pub(crate) const FLAGS: &str = "-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";

/// Builds the program into `target/dist`, and tries it in empty root directories where this process may ([`trial`]).
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let mut build = repository.cargo(&[
        "build",
        "--release",
        "--locked",
        "--target",
        TARGET,
        "--package",
        "gramway",
    ]);
    build
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", FLAGS);
    run_to_success(&mut build)?;
    let directory = repository.target().join("dist");
    fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let program = directory.join("gramway");
    let built = repository.target().join(TARGET).join("release/gramway");
    fs::copy(&built, &program).with_context(|| format!("{} cannot be copied", built.display()))?;
    let bill = bill::write(repository, &directory)?;
    if is_root() {
        trial::run(&program, &directory)?;
        println!("tried: a server and a client in empty root directories, and a TCP forward between them");
    } else {
        println!("not tried in empty root directories: that needs root");
    }
    println!("{}\n{}", program.display(), bill.display());
    Ok(())
}
