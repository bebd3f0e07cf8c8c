//! The benchmarks that both programs have, `gramway bench` and `bench`, with their flags.

use std::io::Write;

use clap::Subcommand;

use crate::matrix::MatrixOptions;
use crate::{Error, Programs, floor, forward, l3};

/// A benchmark.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// UDP and TCP through the tunnel, compared with direct traffic and a plaintext relay
    Forward(forward::Options),
    /// IP packets through the tunnel, compared with direct traffic; needs root
    L3(MatrixOptions),
    /// Cost of the parts: AEAD, one encrypted hop, QUIC in memory
    Floor(floor::Options),
}

impl Command {
    /// Runs it and prints as it goes; `l3` measures these rivals too.
    ///
    /// # Errors
    /// Those of [`forward::run`], [`l3::run`] and [`floor::run`].
    pub fn run(
        &self,
        programs: &Programs,
        rivals: &[l3::Rival],
        output: &mut dyn Write,
    ) -> Result<(), Error> {
        match self {
            Self::Forward(options) => forward::run(programs, options, output),
            Self::L3(options) => l3::run(programs, options, rivals, output),
            Self::Floor(options) => floor::run(options, output),
        }
    }
}
