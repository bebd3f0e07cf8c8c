//! Which seeds a test runs with, and how a failing one is found again.
//!
//! `GRAMWAY_SIM_SEED=N cargo test …` runs seed N alone, `GRAMWAY_SIM_SEEDS=N cargo test …` at least N seeds of each
//! test.

/// Environment variable that replays one seed.
const REPLAY_VARIABLE: &str = "GRAMWAY_SIM_SEED";

/// Environment variable that asks for more seeds than a test runs with by default.
const COUNT_VARIABLE: &str = "GRAMWAY_SIM_SEEDS";

/// The seeds 0 to `count - 1`, to more where `GRAMWAY_SIM_SEEDS` asks for more, or the one that `GRAMWAY_SIM_SEED`
/// names.
///
/// # Panics
/// When a variable is set to something that is not an unsigned number.
#[must_use]
pub fn seeds(count: u64) -> Vec<u64> {
    match number(REPLAY_VARIABLE) {
        Some(seed) => vec![seed],
        None => (0..count.max(number(COUNT_VARIABLE).unwrap_or(0))).collect(),
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.trim().parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is not a number: give an unsigned one")))
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
