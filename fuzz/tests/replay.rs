//! All targets on the inputs that are known, without the engine.

use std::fs;
use std::path::Path;

use fuzz::TARGETS;

#[test]
fn every_target_takes_the_inputs_that_runs_have_found() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs");
    for directory in fs::read_dir(inputs).expect("inputs are committed") {
        let directory = directory.expect("a readable directory");
        let target = TARGETS.iter().find(|target| directory.file_name() == target.name);
        let target = target.expect("inputs lie in the directory of their target");
        for file in fs::read_dir(directory.path()).expect("a directory of inputs") {
            let file = file.expect("a readable directory").path();
            println!("{}", file.display());
            (target.run)(&fs::read(file).expect("a readable file"));
        }
    }
}

#[test]
fn every_target_takes_its_seeds_and_their_beginnings() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in seeds {
            for end in (0..seed.len()).step_by(1 + seed.len() / 50) {
                (target.run)(&seed[..end]);
            }
            (target.run)(&seed);
        }
    }
}
