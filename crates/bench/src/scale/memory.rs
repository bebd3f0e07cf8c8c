//! What an idle connection and an idle flow occupy at the server: how much this process grows with so many of them.
//!
//! Clients live only until they are idle. What one of them frees, the next one uses again, so that what grows is the
//! server.

use std::fs;

use serde::Serialize;

use super::CONNECTION_KIB_MAX;
use super::end::{Setting, failed};
use super::world::World;
use crate::check::{Bound, Check};
use crate::error::During;
use crate::{Error, limits};

/// Clients that connect, are idle and are forgotten together.
const CLIENTS_AT_ONCE: usize = 50;

/// Flows of one such client where flows are measured.
const FLOWS_EACH: usize = 500;

/// What one of many occupies.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Occupied {
    pub(super) what: &'static str,
    /// How many there were.
    pub(super) count: usize,
    /// Resident bytes of each.
    pub(super) bytes: f64,
    pub(super) check: Option<Check>,
}

/// Measures connections, then flows. To be called before anything else has used much memory.
///
/// # Errors
/// The ends cannot be set up, some did not stay, or this process's memory cannot be read.
pub(super) fn measure(setting: &Setting, connections: usize, flows: usize) -> Result<Vec<Occupied>, Error> {
    // It lives until flows are measured: they would be made of what it frees.
    let mut without_flows = World::new(setting)?;
    let bytes = growth(&mut without_flows, connections, CLIENTS_AT_ONCE, 0)?;
    let per_connection = bytes / connections as f64;
    // One client more comes first and does not count: there is room for so many flows in all.
    let clients = (flows / FLOWS_EACH - 1).max(1);
    let flows = clients * FLOWS_EACH;
    let bytes = growth(&mut World::new(setting)?, clients, 1, FLOWS_EACH)?;
    drop(without_flows);
    let per_flow = (bytes - clients as f64 * per_connection).max(0.0) / flows as f64;
    let kib = per_connection / 1_024.0;
    Ok(vec![
        Occupied {
            what: "an authenticated connection",
            count: connections,
            bytes: per_connection,
            check: Some(Check::new("KiB", kib, Bound::AtMost(CONNECTION_KIB_MAX))),
        },
        Occupied {
            what: "a UDP flow",
            count: flows,
            bytes: per_flow,
            check: None,
        },
    ])
}

/// By how many bytes the process grows while `clients` come and go, so many at once, with so many flows each.
fn growth(world: &mut World<'_>, clients: usize, at_once: usize, flows: usize) -> Result<f64, Error> {
    // What allocator, TLS and the world's own tables need once does not count.
    come_and_go(world, at_once, flows)?;
    let before = resident_bytes()?;
    for _ in 0..clients / at_once {
        come_and_go(world, at_once, flows)?;
    }
    let after = resident_bytes()?;
    let all = clients + at_once;
    let open = world.server.open();
    if open != (all * flows, all) {
        return Err(failed(&format!(
            "of {all} connections with {flows} flows each, {} stayed, with {} flows",
            open.1, open.0
        )));
    }
    Ok(after.saturating_sub(before) as f64)
}

fn come_and_go(world: &mut World<'_>, clients: usize, flows: usize) -> Result<(), Error> {
    world.add_clients(clients, flows)?;
    if flows > 0 {
        // A flow that is idle has been used before.
        for _ in 0..(clients * flows).div_ceil(limits::SCALE_BURST) {
            world.send(clients, limits::SCALE_BURST)?;
        }
        world.settle()?;
    }
    world.forget_clients();
    Ok(())
}

/// Resident memory of this process.
fn resident_bytes() -> Result<u64, Error> {
    const STATUS: &str = "/proc/self/status";
    let status = fs::read_to_string(STATUS).during(|| format!("read {STATUS}"))?;
    kibibytes(&status)
        .map(|kibibytes| kibibytes * 1_024)
        .ok_or_else(|| failed(&format!("{STATUS} has no VmRSS")))
}

fn kibibytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(kibibytes("Name:\tbench\nVmRSS:\t   14336 kB\n"), Some(14_336));
        assert_eq!(kibibytes("Name:\tbench\n"), None);
        assert!(resident_bytes().unwrap() > 0);
    }
}
