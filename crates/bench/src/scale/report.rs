//! The tables, and a line for each bound.

use super::Cost;
use super::memory::Occupied;
use crate::check::Check;
use crate::table::{Align, Table, count};

/// How to read the table.
pub(super) const LEGEND: &str = "\
ns: processor time of the server's engine per datagram, received or sent; bursts are of 32 datagrams of 1,150 bytes,
but where they are said to be single; clients send in turn, and a client's datagrams go to its flows in turn;
a batch: datagrams per message, lone acknowledgements included; memory: growth of the process";

fn memory_table() -> Table {
    Table::new(&[
        ("idle at the server", 32, Align::Left),
        ("number", 7, Align::Right),
        ("KiB each", 8, Align::Right),
    ])
}

fn cost_table() -> Table {
    Table::new(&[
        ("case", 32, Align::Left),
        ("clients", 7, Align::Right),
        ("flows", 8, Align::Right),
        ("ns", 6, Align::Right),
        ("datagrams", 9, Align::Right),
        ("lost", 6, Align::Right),
        ("a batch", 7, Align::Right),
        ("compared", 0, Align::Left),
    ])
}

pub(super) fn memory_header() -> String {
    memory_table().header()
}

pub(super) fn memory_line(occupied: &Occupied) -> String {
    memory_table().row(&[
        occupied.what.to_owned(),
        occupied.count.to_string(),
        format!("{:.1}", occupied.bytes / 1_024.0),
    ])
}

pub(super) fn cost_header() -> String {
    cost_table().header()
}

pub(super) fn cost_line(cost: &Cost) -> String {
    let compared = cost.check.as_ref().map(Check::to_string);
    cost_table().row(&[
        cost.case.name.to_owned(),
        cost.case.clients.to_string(),
        (cost.case.clients * cost.case.flows).to_string(),
        format!("{:.0}", cost.ns),
        count(cost.datagrams),
        cost.lost.to_string(),
        format!("{:.1}", cost.datagrams as f64 / cost.messages.max(1) as f64),
        compared.unwrap_or_default(),
    ])
}

/// Whether a bound is met.
pub(super) fn verdict(name: &str, check: &Check) -> String {
    let met = if check.holds() { "met   " } else { "missed" };
    format!("{met}  {name}: {check}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Bound;

    #[test]
    fn a_bound_is_said_to_be_met_or_missed_with_its_value() {
        let check = |value| Check::new("KiB", value, Bound::AtMost(64.0));
        assert_eq!(
            verdict("an authenticated connection", &check(40.25)),
            "met     an authenticated connection: 40.25 KiB (must: <= 64)"
        );
        assert_eq!(
            verdict("it", &check(80.0)),
            "missed  it: 80.00 KiB (must: <= 64) MISSED"
        );
    }
}
