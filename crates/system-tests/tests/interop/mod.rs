//! Both roles against HTTP/3 stacks that we did not write (aioquic, and quic-go for IP packets): what goes over the
//! wire is what the RFCs say, and whoever breaks them is refused as they say.
//!
//! The programs in `interop/` and `interop-go/` judge by themselves and print one line of JSON; these tests start both
//! sides, read it, and look at the counters of ours.

mod connect_ip;
mod foreign_client;
mod foreign_server;
pub(crate) mod go;

use std::path::Path;

use serde_json::Value;
use testbed::place::Place;
use testbed::process::Process;

/// Runs one of the programs under guard.
fn start_python(python: &Path, program: &str, arguments: &[&str]) -> Process {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("interop")
        .join(program);
    let mut command = Place::Host.command(python);
    command.arg(script).args(arguments);
    // The source tree stays as it is.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Process::start(command, program).unwrap()
}

/// The last line that the program printed; nothing in it has failed.
fn result_of(process: &Process) -> Value {
    let output = process.stdout();
    let last = output.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("the last line is no result ({error}): {last:?}"));
    let failed: Vec<_> = result["failed"].as_array().unwrap().iter().collect();
    assert!(failed.is_empty(), "{failed:#?}");
    result
}
