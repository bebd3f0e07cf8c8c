//! A transfer that is cut at half of its bytes by killing both ends, and begun again: what is measured is the second one.

use super::contestant::Contestant;
use super::trial::{Run, Trial};
use crate::Error;
use crate::limits::FILES_FIRST_BYTES;

/// A second transfer that brings more than this share of all bytes has not gone on with the first.
const AGAIN_MAX: f64 = 0.6;

/// Transfers twice; `first_bytes_seconds` is the time until data comes, from the start of the second.
///
/// # Errors
/// One of them fails, or the second begins anew.
pub(super) fn run(contestant: Contestant, trial: &Trial<'_>) -> Result<Run, Error> {
    let bytes = trial.source.bytes;
    let mut first = contestant.start(trial)?;
    trial.wait_for_bytes(&mut first, bytes / 2)?;
    trial.cut(first);
    let mut second = contestant.start(trial)?;
    let first_bytes_seconds = trial.wait_for_bytes(&mut second, FILES_FIRST_BYTES)?;
    let run = trial.finish(second)?;
    if run.is_whole && run.wire_bytes as f64 > bytes as f64 * AGAIN_MAX {
        return Err(Error::Setup(format!(
            "it began anew: {} bytes over the wire after half of {bytes} had come (first bytes after {first_bytes_seconds:.2} s)",
            run.wire_bytes
        )));
    }
    Ok(Run {
        first_bytes_seconds: Some(first_bytes_seconds),
        ..run
    })
}
