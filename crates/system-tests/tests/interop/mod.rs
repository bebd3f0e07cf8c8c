//! Both roles against HTTP/3 stacks that we did not write (aioquic, and quic-go for IP packets): what goes over the
//! wire is what the RFCs say, and whoever breaks them is refused as they say.
//!
//! The programs in `interop/` and `interop-go/` judge by themselves and print one line of JSON; these tests start both
//! sides, read it, and look at the counters of ours.

mod connect_ip;
mod foreign_client;
mod foreign_server;

use serde_json::Value;
use testbed::process::Process;

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
