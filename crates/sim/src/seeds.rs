//! Which seeds a test runs with, and how a failing one is found again.
//!
//! `GRAMWAY_SIM_SEED=N cargo test …` runs seed N alone.

/// Environment variable that replays one seed.
const REPLAY_VARIABLE: &str = "GRAMWAY_SIM_SEED";

/// The seeds 0 to `count - 1`, or the one that `GRAMWAY_SIM_SEED` names.
///
/// # Panics
/// When the variable is set to something that is not an unsigned number.
#[must_use]
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var(REPLAY_VARIABLE) {
        Ok(text) => {
            let seed = text.trim().parse();
            vec![seed.unwrap_or_else(|_| {
                panic!("{REPLAY_VARIABLE}={text} is not a seed: give an unsigned number")
            })]
        }
        Err(_) => (0..count).collect(),
    }
}

/// Runs `test` with each of [`seeds`]; a panic in it prints the seed and how to replay it.
pub fn for_each_seed(count: u64, mut test: impl FnMut(u64)) {
    for seed in seeds(count) {
        let guard = PrintOnPanic(seed);
        test(seed);
        drop(guard);
    }
}

struct PrintOnPanic(u64);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "failed with seed {0}; replay: {REPLAY_VARIABLE}={0} cargo test …",
                self.0
            );
        }
    }
}
