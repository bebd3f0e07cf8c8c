//! Writes the starting inputs of every target: `cargo run --example seeds -- CORPUS_DIRECTORY`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let corpus = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| "corpus".into()));
    for target in fuzz::TARGETS {
        let directory = corpus.join(target.name);
        fs::create_dir_all(&directory)?;
        for (index, seed) in (target.seeds)().iter().enumerate() {
            fs::write(directory.join(format!("seed-{index:02}")), seed)?;
        }
    }
    Ok(())
}
