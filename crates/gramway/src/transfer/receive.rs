//! `gramway receive`: meets the sender, takes what it offers, and meets it again where the connection breaks.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use files::{Answer, Conflict, Destination, OnConflict, ReceiveOptions, TransferError};
use peer::{CloseReason, PeerId, PeerPath, code};
use serde_json::json;

use super::arguments::{ConflictArgument, ReceiveArguments};
use super::display::{Display, End};
use super::events::EventName;
use super::interrupt::Interrupt;
use super::meeting::{self, Meeting};
use super::tally::Tally;
use super::{complete, confine, needs, problem, server, state};
use crate::close_code::{self, SPENT};
use crate::exit::Problem;
use crate::limits::{PEER_GOODBYE_MAX, TRANSFER_BREAKS_MAX, TRANSFER_BUSY_PAUSE, TRANSFER_TURN};
use crate::{output, units};

/// Runs the command.
///
/// # Errors
/// The command line is wrong, the sender is not met, or the transfer failed.
pub(crate) fn run(arguments: &ReceiveArguments) -> Result<(), Problem> {
    let has_data = arguments.output.is_some();
    let writes_nothing = arguments.list || arguments.dry_run;
    let state = state(&arguments.common)?;
    let to = match has_data {
        true => Destination::Stdout,
        false => Destination::Directory(destination(arguments)?),
    };
    let writes: Vec<PathBuf> = match &to {
        Destination::Directory(directory) => vec![directory.clone()],
        Destination::Stdout => Vec::new(),
    };
    // The link and its certificates lie anywhere.
    let server = server::of(&arguments.common.rendezvous)?;
    let mut needs = needs(server.as_ref(), None);
    // A guest knows no port in TCP's shape, and tries that of the code.
    needs.has_tcp |= arguments.code.as_deref().is_some_and(|code| code.contains('@'));
    let _alone = meeting::alone(arguments)?;
    confine(&arguments.common, needs, &state, Vec::new(), writes);
    let display = Display::new(
        arguments.common.json,
        has_data || writes_nothing && !arguments.common.json,
    );
    let interrupt = Interrupt::watch()?;
    let mut meeting = Meeting::new(arguments, server)?;
    let options = ReceiveOptions {
        on_conflict: on_conflict(arguments.on_conflict, &display, &interrupt),
        only: arguments.only.clone(),
        checksum: arguments.checksum,
        xattrs: arguments.common.xattrs,
        links_all: arguments.all_links,
        dry_run: arguments.dry_run,
        list: arguments.list,
        parallel_files: arguments.parallel_files.map(usize::from),
        ..ReceiveOptions::new(to)
    };
    let received = receive(arguments, &mut meeting, &options, &display, &interrupt);
    meeting.close();
    received
}

/// Receives, over several connections where one breaks.
fn receive(
    arguments: &ReceiveArguments,
    meeting: &mut Meeting,
    options: &ReceiveOptions,
    display: &Display,
    interrupt: &Interrupt,
) -> Result<(), Problem> {
    let limit = Duration::from_secs(arguments.timeout.into());
    let mut tally = Tally::default();
    // Connections that were lost, since one has brought something.
    let mut breaks = 0;
    // Since when the sender has no room.
    let mut busy: Option<Instant> = None;
    loop {
        let met = meeting.meet(limit, interrupt, &|text| display.tell(EventName::Waiting, text));
        if interrupt.is_over() {
            return Err(interrupted(interrupt, options));
        }
        let peer = match met {
            Ok(peer) => peer,
            Err(problem) if breaks > 0 => return Err(gone_on_with(&problem, options)),
            Err(problem) => return Err(problem),
        };
        tally.begin();
        display.json(EventName::Connected, json!({ "peer": peer.id().to_string() }));
        let progress = display.progress();
        let _running = interrupt.add(&progress);
        let watch = display.watch(End::Receiver, &progress, {
            let (allowance, display, peer) = (meeting.allowance(), display.clone(), peer.clone());
            move |snapshot| {
                let is_relayed = matches!(peer.path(), Some(PeerPath::Relayed(_)));
                let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(text) = allowance.look(snapshot, is_relayed, Instant::now()) {
                    display.tell(EventName::Note, &text);
                }
            }
        });
        let received = files::receive(&peer, options, &progress);
        drop(watch);
        match received {
            Ok(report) => {
                let is_transfer = !options.list && !options.dry_run;
                if !is_transfer {
                    display.end_look();
                    return complete(&report);
                }
                let all = tally.of_all(report);
                display.report("received", &all, &progress.snapshot(), tally.took());
                return complete(&all);
            }
            Err(TransferError::Cancelled) => return Err(interrupted(interrupt, options)),
            Err(error @ TransferError::Lost(_)) => {
                let ended = interrupt.wait_for(PEER_GOODBYE_MAX, peer.closed());
                let is_busy = ended.as_ref().is_some_and(is_busy);
                if let Some(end) = ended.and_then(|reason| said(&reason, meeting.own())) {
                    return Err(end);
                }
                if is_busy {
                    if busy.is_none() {
                        display.tell(
                            EventName::Waiting,
                            "the sender has too much to do at present; trying again",
                        );
                    }
                    let left = limit.saturating_sub(busy.get_or_insert_with(Instant::now).elapsed());
                    if left.is_zero() {
                        return Err(Problem::unavailable(
                            "the sender has too much to do, for others or for another command of this machine; try again",
                        ));
                    }
                    if breaks == 0 {
                        // The transfer has not begun.
                        tally = Tally::default();
                    }
                    interrupt.pause(TRANSFER_BUSY_PAUSE.min(left));
                    continue;
                }
                busy = None;
                if tally.add(&progress.snapshot()) {
                    breaks = 0;
                }
                if let Some(end) = gone_for_good(&error, &options.to, breaks) {
                    return Err(end);
                }
                breaks += 1;
                let why = output::shown(&error.to_string()).into_owned();
                display.tell(EventName::Lost, &format!("{why}; connecting again"));
                interrupt.pause(TRANSFER_TURN);
            }
            Err(error) => return Err(problem(&error)),
        }
    }
}

/// Why a connection that was lost is not made again, after so many that were.
fn gone_for_good(error: &TransferError, to: &Destination, breaks: u32) -> Option<Problem> {
    if *to == Destination::Stdout {
        // What it has cannot be taken back.
        return Some(Problem::unavailable(format!(
            "{error}. What has gone to standard output stays there, and another transfer brings everything from its beginning: run the \
             command again, with a new code where the sender has ended, and into an empty file (> FILE, not >> FILE)"
        )));
    }
    (breaks >= TRANSFER_BREAKS_MAX).then(|| {
        Problem::unavailable(format!(
            "{error}, like {breaks} connections before; run the command again to go on where it ended"
        ))
    })
}

/// Why a sender that was met before is met no more, and how its transfer goes on.
fn gone_on_with(problem: &Problem, options: &ReceiveOptions) -> Problem {
    if options.list || options.dry_run {
        return Problem::new(problem.code(), problem.to_string());
    }
    let text = problem.to_string();
    let stop = if text.ends_with('?') { "" } else { "." };
    Problem::new(
        problem.code(),
        format!(
            "{text}{stop} What has come is kept: run the same command again, with a new code where the sender has ended; only the \
             rest is sent"
        ),
    )
}

/// What the sender said when it ended the connection: then it does not wait for us.
fn said(reason: &CloseReason, own: PeerId) -> Option<Problem> {
    match reason {
        CloseReason::ApplicationClosed { code, .. } if *code == code::REFUSED => {
            Some(Problem::permission(format!(
                "the sender does not let this machine in; there, name its ID, {own}, by send --peer or share --to"
            )))
        }
        CloseReason::ApplicationClosed { code, .. } if *code == SPENT => Some(Problem::unavailable(
            "the sender sends its standard input, which can be read once, and an earlier receiver has had a part of it: run \
                 both commands again",
        )),
        _ if is_busy(reason) => None,
        CloseReason::ApplicationClosed { .. } => Some(Problem::unavailable(
            "the sender has ended before everything had come. What has come is kept: have it send again, and receive into the \
             same directory; only the rest is sent",
        )),
        _ => None,
    }
}

/// Whether the sender has too much to do.
fn is_busy(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::ApplicationClosed { code, .. } if close_code::is_busy(*code))
}

/// The directory to put everything into, made where there is none.
fn destination(arguments: &ReceiveArguments) -> Result<PathBuf, Problem> {
    let path = std::path::absolute(&arguments.to);
    let path = path.map_err(|error| Problem::file("use", &arguments.to, &error))?;
    if !arguments.list && !arguments.dry_run {
        fs::create_dir_all(&path).map_err(|error| match error.kind() {
            // Which one, the path tells, or one above it.
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                Problem::usage(format!("{} is not a directory", not_a_directory(&path).display()))
            }
            _ => Problem::file("create", &path, &error),
        })?;
    }
    match fs::metadata(&path) {
        Ok(found) if !found.is_dir() => Err(Problem::usage(format!("{} is not a directory", path.display()))),
        Ok(_) => Ok(path),
        // Who only looks needs no directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound && (arguments.list || arguments.dry_run) => {
            Ok(path)
        }
        Err(error) => Err(Problem::file("receive into", &path, &error)),
    }
}

/// What of a path is there and no directory.
fn not_a_directory(path: &Path) -> &Path {
    path.ancestors()
        .find(|above| above.symlink_metadata().is_ok())
        .unwrap_or(path)
}

fn on_conflict(argument: ConflictArgument, display: &Display, interrupt: &Interrupt) -> OnConflict {
    match argument {
        ConflictArgument::Skip => OnConflict::Skip,
        ConflictArgument::Rename => OnConflict::Rename,
        ConflictArgument::Overwrite => OnConflict::Overwrite,
        ConflictArgument::Newer => OnConflict::Newer,
        // Nobody is there to answer: nothing is lost by another name.
        ConflictArgument::Ask if !io::stdin().is_terminal() => OnConflict::Rename,
        ConflictArgument::Ask => {
            let (display, interrupt, for_all) = (display.clone(), interrupt.clone(), Mutex::new(None));
            OnConflict::Ask(Arc::new(move |conflict| {
                let mut for_all = for_all.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(answer) = *for_all {
                    return answer;
                }
                let (answer, is_for_all) = ask(&display, &interrupt, conflict);
                if is_for_all {
                    *for_all = Some(answer);
                }
                answer
            }))
        }
    }
}

/// Asks until there is an answer; without anybody at the terminal, nothing is lost by another name.
fn ask(display: &Display, interrupt: &Interrupt, conflict: &Conflict) -> (Answer, bool) {
    let path = output::shown(&conflict.path);
    let question = match conflict.is_replaceable {
        true => file_question(conflict),
        false => format!(
            "{path}: a directory, or something that is no file, is there, which stays.\n\
             [s]kip the offered one, [r]ename it; in capitals for all that follow: "
        ),
    };
    loop {
        match display.ask(&question, interrupt) {
            Ok(text) if !text.is_empty() => match answer(text.trim()) {
                Some((Answer::Overwrite, _)) if !conflict.is_replaceable => {}
                Some(answer) => return answer,
                None => {}
            },
            // The transfer ends here, and nothing of the file is to be touched.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return (Answer::Skip, true),
            _ => return (Answer::Rename, true),
        }
    }
}

/// What is asked about a file in the place of another.
fn file_question(conflict: &Conflict) -> String {
    let age = match conflict.offered_modified_ns.cmp(&conflict.modified_ns) {
        std::cmp::Ordering::Less => "older",
        std::cmp::Ordering::Equal => "as old",
        std::cmp::Ordering::Greater => "newer",
    };
    format!(
        "{} is there, with {}; the offered one has {} and is {age}.\n\
         [s]kip it, [r]ename the offered one, [o]verwrite; in capitals for all that follow: ",
        output::shown(&conflict.path),
        units::bytes(conflict.size),
        units::bytes(conflict.offered_size),
    )
}

/// What somebody has typed, and whether it is for all.
fn answer(text: &str) -> Option<(Answer, bool)> {
    let chosen = match text.to_lowercase().as_str() {
        "s" | "skip" => Answer::Skip,
        "r" | "rename" => Answer::Rename,
        "o" | "overwrite" => Answer::Overwrite,
        _ => return None,
    };
    Some((chosen, text.starts_with(char::is_uppercase)))
}

/// The user ended it.
fn interrupted(interrupt: &Interrupt, options: &ReceiveOptions) -> Problem {
    interrupt.problem(match &options.to {
        _ if options.list || options.dry_run => "interrupted",
        Destination::Stdout => {
            "interrupted. What has gone to standard output stays there, and another transfer brings everything from its beginning"
        }
        Destination::Directory(_) => {
            "interrupted. What has come is kept: run the same command again, with a new code where the sender has ended; only \
             the rest is sent"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_made_again_unless_the_bytes_would_come_twice_or_it_never_lasts() {
        let error = TransferError::Lost("timed out".to_owned());
        let told = |to, breaks| gone_for_good(&error, &to, breaks).map(|problem| problem.to_string());
        let directory = Destination::Directory(PathBuf::from("to"));
        assert_eq!(told(directory.clone(), TRANSFER_BREAKS_MAX - 1), None);
        let never = told(directory, TRANSFER_BREAKS_MAX).unwrap();
        assert!(
            never.contains("(timed out), like 100 connections before"),
            "{never}"
        );
        let twice = told(Destination::Stdout, 0).unwrap();
        assert!(twice.contains("was lost (timed out). What has gone"), "{twice}");
        assert!(
            twice.contains("from its beginning") && twice.contains("not >> FILE"),
            "{twice}"
        );
    }

    #[test]
    fn an_answer_is_a_letter_or_a_word_and_a_capital_counts_for_all() {
        assert_eq!(answer("s"), Some((Answer::Skip, false)));
        assert_eq!(answer("R"), Some((Answer::Rename, true)));
        assert_eq!(answer("Overwrite"), Some((Answer::Overwrite, true)));
        for text in ["", "x", "yes", "so"] {
            assert_eq!(answer(text), None, "{text}");
        }
    }
}
