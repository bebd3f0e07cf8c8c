//! What is transferred, and what must be reached.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::contestant::Contestant;
use crate::Error;
use crate::error::During;
use crate::matrix;

/// A line of the matrix.
pub(super) struct Case {
    pub(super) name: &'static str,
    files: u32,
    file_bytes: u64,
    kind: Kind,
    /// How many times as fast as whom.
    pub(super) faster_than: &'static [(Contestant, f64)],
    pub(super) judges_cpu: bool,
}

/// What is in the files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Random,
    /// Lines of a log.
    Text,
}

impl matrix::Case for Case {
    fn name(&self) -> &str {
        self.name
    }
}

/// All of them; `quick` ones are smaller.
pub(super) fn all(quick: bool) -> Vec<Case> {
    let part = if quick { 8 } else { 1 };
    vec![
        Case {
            name: "large",
            files: 1,
            file_bytes: (2 << 30) / part,
            kind: Kind::Random,
            faster_than: &[
                (Contestant::Croc, 2.0),
                (Contestant::Scp, 1.5),
                (Contestant::Cp, 0.5),
            ],
            judges_cpu: true,
        },
        Case {
            name: "small",
            files: 20_000 / part as u32,
            file_bytes: 4 << 10,
            kind: Kind::Random,
            faster_than: &[(Contestant::Scp, 5.0), (Contestant::Rsync, 1.0)],
            judges_cpu: false,
        },
        Case {
            name: "text",
            files: 16,
            file_bytes: (32 << 20) / part,
            kind: Kind::Text,
            faster_than: &[(Contestant::Rsync, 1.0)],
            judges_cpu: false,
        },
    ]
}

impl Case {
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.files) * self.file_bytes
    }

    /// Makes the directory that is transferred.
    pub(super) fn make(&self, directory: &Path) -> Result<PathBuf, Error> {
        let source = directory.join("source");
        let make = || -> std::io::Result<()> {
            fs::create_dir(&source)?;
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            for number in 0..self.files {
                let mut file = std::io::BufWriter::with_capacity(
                    1 << 20,
                    fs::File::create(source.join(number.to_string()))?,
                );
                let mut left = self.file_bytes;
                while left > 0 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let line;
                    let random = state.to_le_bytes();
                    let bytes: &[u8] = match self.kind {
                        Kind::Random => &random,
                        Kind::Text => {
                            line = format!(
                                "GET /items/{} HTTP/1.1 200 {} bytes in {} us\n",
                                state % 9_973,
                                state % 65_521,
                                state % 997
                            );
                            line.as_bytes()
                        }
                    };
                    let taken = left.min(bytes.len() as u64);
                    file.write_all(&bytes[..taken as usize])?;
                    left -= taken;
                }
                file.flush()?;
            }
            Ok(())
        };
        make().during(|| format!("make files in {}", source.display()))?;
        Ok(source)
    }

    /// Whether all files have come: their number and their sizes.
    pub(super) fn check(&self, source: &Path, to: &Path) -> Result<(), Error> {
        let name = source.file_name().expect("the source has a name");
        let mut bytes = 0;
        for number in 0..self.files {
            let path = to.join(name).join(number.to_string());
            let found = fs::metadata(&path).during(|| format!("find {}", path.display()))?;
            bytes += found.len();
        }
        if bytes == self.bytes() {
            return Ok(());
        }
        Err(Error::Setup(format!(
            "{bytes} bytes have come of {}",
            self.bytes()
        )))
    }
}
