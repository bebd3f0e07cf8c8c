//! The foreign programs in Python, `interop/`: their packages are pinned in `requirements.txt`.

use std::ffi::OsStr;
use std::path::Path;

use testbed::place::Place;
use testbed::process::Process;

/// Runs one of the programs under guard, by the interpreter that [`crate::require_python!`] gives.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn start<A: AsRef<OsStr>>(
    python: &Path,
    place: &Place,
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Process {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("interop")
        .join(program);
    let mut command = place.command(python);
    command.arg(script).args(arguments);
    // The source tree stays as it is.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Process::start(command, program).unwrap()
}
