//! The programs that `bench l3`, `bench peers` and `bench tcp` measure Gramway against, and what they leave behind. They belong to bench's own program:
//! the shipped one runs nobody else's.

pub(crate) mod libraries;
pub(crate) mod phantun;
mod quincy;
mod wireguard;

use crate::l3::Rival;

/// What carries IP packets as Gramway does, in the order of the table.
pub const L3: &[Rival] = &[wireguard::RIVAL, quincy::RIVAL];

/// Removes what the rivals of the benchmark with this process ID left outside its namespaces and directories.
pub(crate) fn sweep(process: u32) {
    wireguard::remove_sockets(process);
}
