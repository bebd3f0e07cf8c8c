//! The rivals of `bench peers`: iroh, and quinn as it is, in the trial that bench runs with Gramway's peers.
//!
//! `rivals iroh|quinn OPTIONS`, as bench calls it; `trial` says what the options are and what is answered.

mod known_keys;
mod over_iroh;
mod over_quinn;
#[path = "../../src/peers/trial/mod.rs"]
mod trial;

use std::process::ExitCode;

use over_iroh::Iroh;
use over_quinn::Quinn;
use trial::contestant::{Outcome, failed};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("rivals: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rival, options] = arguments.as_slice() else {
        return Err("usage: rivals iroh|quinn OPTIONS, the options as JSON".to_owned());
    };
    let options = serde_json::from_str(options).map_err(failed("read the options"))?;
    match rival.as_str() {
        "iroh" => trial::run::<Iroh>(&options),
        "quinn" => trial::run::<Quinn>(&options),
        other => Err(format!("there is no rival {other}: iroh, quinn")),
    }
}
