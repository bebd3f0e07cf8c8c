//! `gramway bench floor`: what the parts cost, to know what a tunnel could reach at best on this machine.
//!
//! The AEADs by themselves; one sealed hop, thread to thread, over loopback sockets with segmentation and receive
//! offload; and the QUIC layer, in memory and over sockets, beside bare quinn-proto in the same run.

mod aead;
mod bare;
mod end;
pub(crate) mod identity;
mod ours;
mod quic_driver;
mod sealed_hop;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::Error;
use crate::machine::Machine;
use crate::matrix::{print, write_json};
use crate::table::{Align, Table};

/// Flags of `bench floor`.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Write the results as JSON too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Shorter runs, one of each
    #[arg(long)]
    pub quick: bool,
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Time per AEAD sample.
    sample: Duration,
    /// Time per hop.
    hop: Duration,
    /// Samples, of which the median counts.
    runs: usize,
}

#[derive(Debug, Serialize)]
struct Results {
    machine: Machine,
    aead: Vec<aead::Cost>,
    sealed_hop: Vec<sealed_hop::Hop>,
    quic: Vec<quic_driver::Drive>,
}

/// Runs all parts and prints each as soon as it is measured.
///
/// # Errors
/// When sockets can't be made, a library refuses its keys, or results can't be written.
pub fn run(options: &Options, output: &mut dyn Write) -> Result<(), Error> {
    let effort = if options.quick {
        Effort {
            sample: Duration::from_millis(5),
            hop: Duration::from_millis(500),
            runs: 1,
        }
    } else {
        Effort {
            sample: Duration::from_millis(20),
            hop: Duration::from_secs(2),
            runs: 5,
        }
    };
    let machine = Machine::describe();
    print(output, &machine.to_string())?;
    let results = Results {
        machine,
        aead: measure_aead(effort, output)?,
        sealed_hop: measure_hops(effort, output)?,
        quic: measure_quic(effort, output)?,
    };
    options
        .json
        .as_deref()
        .map_or(Ok(()), |path| write_json(path, &results))
}

fn measure_aead(effort: Effort, output: &mut dyn Write) -> Result<Vec<aead::Cost>, Error> {
    let table = Table::new(&[
        ("AEAD, ns per operation", 34, Align::Left),
        ("bytes", 5, Align::Right),
        ("seal", 7, Align::Right),
        ("open", 7, Align::Right),
    ]);
    print(output, &table.header())?;
    let mut results = Vec::new();
    for cost in aead::measure(effort)? {
        let name = format!("{} {}", cost.provider, cost.algorithm);
        let number = |ns: f64| format!("{ns:.0}");
        print(
            output,
            &table.row(&[
                name,
                cost.bytes.to_string(),
                number(cost.seal_ns),
                number(cost.open_ns),
            ]),
        )?;
        results.push(cost);
    }
    Ok(results)
}

fn measure_hops(effort: Effort, output: &mut dyn Write) -> Result<Vec<sealed_hop::Hop>, Error> {
    let table = Table::new(&[
        ("one hop, thread to thread", 34, Align::Left),
        ("bytes", 5, Align::Right),
        ("Gbit/s", 7, Align::Right),
        ("kpps", 7, Align::Right),
        ("send ns", 7, Align::Right),
        ("recv ns", 7, Align::Right),
        ("lost", 6, Align::Right),
    ]);
    print(output, &table.header())?;
    let mut results = Vec::new();
    for sealed in [true, false] {
        let hop = sealed_hop::measure(effort, sealed)?;
        let name = if sealed {
            "AES-128-GCM sealed, GSO and GRO"
        } else {
            "plain, GSO and GRO"
        };
        let seconds = hop.seconds.max(1e-9);
        print(
            output,
            &table.row(&[
                name.to_owned(),
                hop.payload_bytes.to_string(),
                format!(
                    "{:.2}",
                    hop.received as f64 * hop.payload_bytes as f64 * 8.0 / seconds / 1e9
                ),
                format!("{:.0}", hop.received as f64 / seconds / 1e3),
                format!("{:.0}", hop.send_ns),
                format!("{:.0}", hop.receive_ns),
                hop.lost.to_string(),
            ]),
        )?;
        results.push(hop);
    }
    Ok(results)
}

fn measure_quic(effort: Effort, output: &mut dyn Write) -> Result<Vec<quic_driver::Drive>, Error> {
    let table = Table::new(&[
        ("QUIC DATAGRAM, ns per datagram", 34, Align::Left),
        ("bytes", 5, Align::Right),
        ("send", 7, Align::Right),
        ("receive", 7, Align::Right),
        ("both", 7, Align::Right),
        ("Gbit/s", 7, Align::Right),
        ("lost", 6, Align::Right),
    ]);
    print(output, &table.header())?;
    let mut results = Vec::new();
    for drive in quic_driver::measure(effort)? {
        print(
            output,
            &table.row(&[
                drive.name.to_owned(),
                drive.payload_bytes.to_string(),
                format!("{:.0}", drive.send_ns),
                format!("{:.0}", drive.receive_ns),
                format!("{:.0}", drive.send_ns + drive.receive_ns),
                format!("{:.2}", drive.bits_per_second() / 1e9),
                drive.lost.to_string(),
            ]),
        )?;
        results.push(drive);
    }
    Ok(results)
}
