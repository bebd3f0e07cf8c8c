//! A process of its own that removes what a benchmark leaves when it is interrupted or killed.
//!
//! It reads a pipe that only the benchmark holds open. However the benchmark ends, the pipe ends with it, and the sweeper
//! removes what carries the benchmark's process ID in its name.

use std::os::unix::process::CommandExt;

use testbed::leftovers;

use crate::children::Load;
use crate::{Error, Programs, hidden};

/// A process that removes what the benchmark leaves, when it ends by itself or is ended.
#[derive(Debug)]
pub(crate) struct Sweeper {
    process: Option<Load>,
}

impl Sweeper {
    /// Starts it. What dead benchmarks left because their sweeper was killed too is removed at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(programs: &Programs) -> Result<Self, Error> {
        for process in leftovers::abandoned() {
            sweep(process);
        }
        let mut command = programs.load(hidden::SWEEP, &std::process::id().to_string());
        // Ctrl-C of a terminal goes to a process group; the sweeper has to survive it.
        command.process_group(0);
        let (process, ()) = Load::launch(hidden::SWEEP, command)?;
        Ok(Self {
            process: Some(process),
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // Its report is that it has ended; without one nothing more can be done here.
        let _: Option<Result<(), Error>> = self.process.take().map(Load::finish);
    }
}

/// Removes all that the benchmark with this process ID left.
pub(crate) fn sweep(process: u32) {
    leftovers::remove(process);
    #[cfg(feature = "rivals")]
    crate::rivals::sweep(process);
}
