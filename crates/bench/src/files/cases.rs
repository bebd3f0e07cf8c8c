//! What is transferred over what, by whom, and what must be reached.

use std::collections::BTreeMap;
use std::time::Duration;

use testbed::directory::Directory;

use super::content::Content;
use super::contestant::Contestant::{self, Cp, Croc, Gramway, Qcp, Rsync, Scp, Sendme, Tcp, Wormhole};
use super::trial::Run;
use crate::check::{Bound, Check};
use crate::emulator::LinkSettings;
use crate::limits::{FILES_RIVAL_TIME_MAX, FILES_TIME_MAX};
use crate::matrix;

/// Bytes that count as a gigabyte.
const GIGABYTE: f64 = 1e9;

/// How large everything is by `--quick`: an eighth.
const QUICK: u64 = 8;

/// The most memory that a process of Gramway may take, in MiB.
const MEMORY_MIB_MAX: f64 = 128.0;

/// A line of the matrix.
#[derive(Clone, Copy)]
pub(super) struct Case {
    name: &'static str,
    content: Content,
    /// What is between the machines; without, a cable.
    link: Option<LinkSettings>,
    /// Whether the transfer is cut at half of its bytes and begun again, which is measured.
    is_resumed: bool,
    medium: Medium,
    /// Runs of those that decide what is judged; the others have one.
    rounds: usize,
    contestants: &'static [Contestant],
    demands: &'static [Demand],
}

/// Where files come from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// A file system without a disk: what network and processors allow.
    Memory,
    /// The file system of the system's temporary directory.
    Disk,
}

/// What Gramway is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Demand {
    /// So many times as fast as the fastest of these.
    Faster(&'static [Contestant], f64),
    /// The same until all is on the disk.
    FasterToDisk(&'static [Contestant], f64),
    /// At most this share of its processor time for the same bytes.
    CpuOf(Contestant, f64),
    /// At least this share of the link's rate.
    OfLink(f64),
    /// Seconds until the first new bytes.
    FirstBytes(f64),
    /// The same as [`Self::Faster`], only reported.
    AimFaster(Contestant, f64),
}

impl matrix::Case for Case {
    fn name(&self) -> &str {
        self.name
    }
}

/// A line of 100 Mbit/s with a queue of one bandwidth-delay product.
const fn line(round_trip_ms: u64, loss: f64) -> LinkSettings {
    const BITS_PER_SECOND: u64 = 100_000_000;
    LinkSettings {
        delay_us: round_trip_ms * 500,
        jitter_us: 0,
        loss,
        duplicate: 0.0,
        reorder: 0.0,
        rate_bits_per_second: Some(BITS_PER_SECOND),
        queue_bytes: Some((BITS_PER_SECOND / 8 / 1_000 * round_trip_ms) as usize),
    }
}

/// All of them; `quick` ones are smaller.
pub(super) fn all(quick: bool) -> Vec<Case> {
    let part = if quick { QUICK } else { 1 };
    let large = Case {
        name: "large",
        content: Content::Random {
            bytes: (2 << 30) / part,
        },
        link: None,
        is_resumed: false,
        medium: Medium::Memory,
        rounds: 5,
        contestants: &[Cp, Gramway, Croc, Sendme, Wormhole, Qcp, Scp, Rsync],
        demands: &[
            Demand::Faster(&[Croc, Sendme], 2.0),
            Demand::Faster(&[Scp], 1.5),
            Demand::CpuOf(Scp, 0.6),
            Demand::AimFaster(Cp, 0.5),
        ],
    };
    vec![
        large,
        Case {
            name: "disk",
            medium: Medium::Disk,
            demands: &[
                Demand::FasterToDisk(&[Croc, Sendme], 2.0),
                Demand::FasterToDisk(&[Scp], 1.5),
                Demand::AimFaster(Scp, 1.5),
            ],
            ..large
        },
        Case {
            name: "small",
            content: Content::RandomFiles {
                files: 20_000 / part as u32,
                bytes_each: 4 << 10,
            },
            medium: Medium::Disk,
            demands: &[
                Demand::Faster(&[Scp], 5.0),
                Demand::Faster(&[Rsync], 1.0),
                Demand::AimFaster(Rsync, 2.0),
            ],
            ..large
        },
        Case {
            name: "text",
            content: Content::Text {
                bytes: (2 << 30) / part,
            },
            link: Some(line(20, 0.0)),
            medium: Medium::Disk,
            rounds: 3,
            contestants: &[Gramway, Croc, Rsync],
            demands: &[Demand::Faster(&[Rsync], 1.0), Demand::AimFaster(Rsync, 1.5)],
            ..large
        },
        Case {
            name: "lossy",
            content: Content::Random {
                bytes: (512 << 20) / part,
            },
            link: Some(line(100, 0.005)),
            medium: Medium::Disk,
            rounds: 3,
            contestants: &[Tcp, Gramway, Croc, Sendme, Wormhole, Qcp, Scp, Rsync],
            demands: &[
                Demand::OfLink(0.9),
                Demand::Faster(&[Croc, Sendme, Wormhole, Qcp, Scp, Rsync], 1.0),
                Demand::AimFaster(Tcp, 1.0),
            ],
            ..large
        },
        Case {
            name: "resumed",
            content: Content::Sparse {
                bytes: (8 << 30) / part,
            },
            is_resumed: true,
            medium: Medium::Disk,
            rounds: 3,
            contestants: &[Gramway, Croc, Rsync],
            demands: &[Demand::FirstBytes(1.0)],
            ..large
        },
    ]
}

impl Case {
    pub(super) fn content(&self) -> Content {
        self.content
    }

    pub(super) fn link(&self) -> Option<LinkSettings> {
        self.link
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Makes the directory of source and copies.
    ///
    /// # Errors
    /// The file system refuses it.
    pub(super) fn directory(&self) -> Result<Directory, testbed::Error> {
        match self.medium {
            Medium::Memory => Directory::create_in_memory(),
            Medium::Disk => Directory::create(),
        }
    }

    pub(super) fn is_compressible(&self) -> bool {
        matches!(self.content, Content::Text { .. })
    }

    /// Whether what came stays until all runs are done: ext4 looks through all inodes that were freed in the last minutes
    /// for one that was not, so that a run would pay for the files of the one before.
    pub(super) fn keeps_copies(&self) -> bool {
        matches!(self.content, Content::RandomFiles { .. })
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    pub(super) fn contestants(&self) -> &'static [Contestant] {
        self.contestants
    }

    /// After so long its transfer is stopped.
    pub(super) fn time_max(contestant: Contestant) -> Duration {
        match contestant {
            Gramway => FILES_TIME_MAX,
            _ => FILES_RIVAL_TIME_MAX,
        }
    }

    /// Whether something is judged by it.
    pub(super) fn decides(&self, contestant: Contestant) -> bool {
        // A link's loss leaves TCP's transfers so little that one of them, stopped, says it.
        contestant == Gramway
            || self.link.is_none_or(|link| link.loss == 0.0)
                && self.demands.iter().any(|demand| match demand {
                    Demand::Faster(rivals, _) | Demand::FasterToDisk(rivals, _) => {
                        rivals.contains(&contestant)
                    }
                    Demand::CpuOf(rival, _) => *rival == contestant,
                    Demand::OfLink(_) | Demand::FirstBytes(_) | Demand::AimFaster(..) => false,
                })
    }

    /// What the case must reach, and which of that could not be judged for want of a rival.
    pub(super) fn judge(&self, results: &BTreeMap<Contestant, Run>) -> (Vec<Check>, Vec<String>) {
        let (mut checks, mut not_judged) = (Vec::new(), Vec::new());
        let Some(ours) = results.get(&Gramway) else {
            return (checks, not_judged);
        };
        for demand in self.demands {
            match demand.judge(ours, results, self.link) {
                Some(check) => checks.push(check),
                None => not_judged.push(demand.to_string()),
            }
        }
        let memory = ours.peak_bytes as f64 / f64::from(1 << 20);
        checks.push(Check::new(
            "MiB of memory at the larger end",
            memory,
            Bound::AtMost(MEMORY_MIB_MAX),
        ));
        (checks, not_judged)
    }
}

impl Demand {
    fn judge(
        self,
        ours: &Run,
        results: &BTreeMap<Contestant, Run>,
        link: Option<LinkSettings>,
    ) -> Option<Check> {
        match self {
            Self::Faster(rivals, least) => {
                let (what, ratio) = beside_best(rivals, Run::rate, ours, results)?;
                Some(Check::new(what, ratio, Bound::AtLeast(least)))
            }
            Self::FasterToDisk(rivals, least) => {
                let (what, ratio) = beside_best(rivals, Run::disk_rate, ours, results)?;
                let what = format!("{what}, until all is on the disk");
                Some(Check::new(what, ratio, Bound::AtLeast(least)))
            }
            Self::CpuOf(rival, most) => {
                let theirs = results.get(&rival)?;
                let what = format!(
                    "of {}'s processor time ({:.2} s of {:.2} s a gigabyte)",
                    rival.name(),
                    ours.cpu_seconds / ours.bytes as f64 * GIGABYTE,
                    theirs.cpu_seconds / theirs.bytes as f64 * GIGABYTE,
                );
                let share =
                    (ours.cpu_seconds / ours.bytes as f64) / (theirs.cpu_seconds / theirs.bytes as f64);
                Some(Check::new(what, share, Bound::AtMost(most)))
            }
            Self::OfLink(least) => {
                let rate = link?.rate_bits_per_second? as f64;
                let share = ours.rate() * 8.0 / rate;
                Some(Check::new("of the link", share, Bound::AtLeast(least)))
            }
            Self::FirstBytes(most) => {
                let seconds = ours.first_bytes_seconds?;
                let what = "s until the first new bytes";
                Some(Check::new(what, seconds, Bound::AtMost(most)))
            }
            Self::AimFaster(rival, aim) => {
                let theirs = results.get(&rival)?;
                let what = format!("times as fast as {} (aim: {aim})", rival.name());
                Some(Check::new(what, ours.rate() / theirs.rate(), Bound::Free))
            }
        }
    }
}

/// What Gramway's rate is of the best of these rivals', and what that says; `None` if none is there.
fn beside_best(
    rivals: &[Contestant],
    rate: fn(&Run) -> f64,
    ours: &Run,
    results: &BTreeMap<Contestant, Run>,
) -> Option<(String, f64)> {
    let of = |rival: &Contestant| Some((*rival, rate(results.get(rival)?)));
    let best = rivals.iter().filter_map(of).max_by(|a, b| a.1.total_cmp(&b.1));
    let (rival, best) = best?;
    let what = match rivals {
        [_] => format!("times as fast as {}", rival.name()),
        _ => format!("times as fast as the best rival, {}", rival.name()),
    };
    Some((what, rate(ours) / best))
}

impl std::fmt::Display for Demand {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = |rivals: &[Contestant]| {
            let names: Vec<_> = rivals.iter().map(|rival| rival.name()).collect();
            names.join(", ")
        };
        match self {
            Self::Faster(rivals, least) => write!(formatter, "{least} times as fast as {}", names(rivals)),
            Self::FasterToDisk(rivals, least) => {
                let names = names(rivals);
                write!(
                    formatter,
                    "{least} times as fast as {names}, until all is on the disk"
                )
            }
            Self::CpuOf(rival, most) => {
                write!(formatter, "{most} of {}'s processor time", rival.name())
            }
            Self::OfLink(least) => write!(formatter, "{least} of the link"),
            Self::FirstBytes(most) => write!(formatter, "{most} s until the first new bytes"),
            Self::AimFaster(rival, aim) => {
                write!(formatter, "{aim} times as fast as {} (aim)", rival.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64, cpu_seconds: f64) -> Run {
        Run {
            seconds,
            disk_seconds: seconds + 1.0,
            bytes: 125_000_000,
            is_whole: true,
            cpu_seconds,
            peak_bytes: 64 << 20,
            wire_bytes: 0,
            first_bytes_seconds: Some(0.5),
        }
    }

    fn case(name: &str) -> Case {
        let mut all = all(false).into_iter();
        all.find(|case| case.name == name).unwrap()
    }

    #[test]
    fn gramway_is_held_against_the_fastest_rival_that_is_there() {
        let mut results = BTreeMap::from([(Gramway, run(1.0, 0.5)), (Croc, run(4.0, 9.0))]);
        let (checks, not_judged) = case("large").judge(&results);
        assert_eq!((checks[0].value, checks[0].must), (4.0, Bound::AtLeast(2.0)));
        assert!(checks[0].what.ends_with("the best rival, croc"));
        // Of the case's own demands only that one, and memory.
        assert_eq!((checks.len(), not_judged.len()), (2, 3));
        results.insert(Sendme, run(1.5, 9.0));
        results.insert(Scp, run(1.5, 1.0));
        results.insert(Cp, run(0.25, 0.1));
        let (checks, not_judged) = case("large").judge(&results);
        let values: Vec<f64> = checks.iter().map(|check| check.value).collect();
        assert_eq!(values, [1.5, 1.5, 0.5, 0.25, 64.0]);
        let hold: Vec<bool> = checks.iter().map(Check::holds).collect();
        assert_eq!(hold, [false, true, true, true, true]);
        assert_eq!(not_judged, Vec::<String>::new());
    }

    #[test]
    fn until_all_is_on_the_disk_counts_what_was_left_to_the_system() {
        let results = BTreeMap::from([(Gramway, run(3.0, 0.5)), (Scp, run(1.0, 1.0))]);
        let (checks, not_judged) = case("disk").judge(&results);
        let values: Vec<f64> = checks.iter().map(|check| check.value).collect();
        assert_eq!(values[..2], [0.5, 1.0 / 3.0]);
        assert_eq!(
            not_judged,
            ["2 times as fast as croc, sendme, until all is on the disk"]
        );
    }

    #[test]
    fn a_share_of_the_link_is_that_of_the_bytes_of_files() {
        let results = BTreeMap::from([(Gramway, run(11.0, 1.0))]);
        let (checks, _) = case("lossy").judge(&results);
        assert!((checks[0].value - 1.0 / 1.1).abs() < 1e-9 && checks[0].holds());
        let (checks, _) = case("resumed").judge(&results);
        assert_eq!(checks[0].value, 0.5);
        // Without Gramway nothing is judged.
        assert_eq!(case("lossy").judge(&BTreeMap::new()).0, []);
    }

    #[test]
    fn who_decides_nothing_runs_once() {
        let decides = |name: &str, contestant| case(name).decides(contestant);
        assert!(decides("large", Croc) && decides("large", Scp) && decides("text", Rsync));
        assert!(!decides("large", Wormhole) && !decides("large", Cp) && !decides("lossy", Scp));
        assert!(decides("lossy", Gramway) && decides("resumed", Gramway));
    }
}
