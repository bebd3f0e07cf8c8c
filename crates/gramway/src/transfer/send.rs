//! `gramway send`: shows codes, or waits for a peer that is known, and sends to whoever proves to be the one.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files::{SendOptions, Source, TransferError};
use files_proto::code::{Code, ExchangeError};
use files_proto::name;
use peer::{Endpoint, Peer, PeerId, SecretKey};
use serde_json::json;
use tunnel_proto::limits::INVITATION_NUMBERS;

use super::arguments::{OfferArguments, SendArguments};
use super::codes::{Codes, Over};
use super::display::Display;
use super::events::EventName;
use super::guests::Place;
use super::interrupt::Interrupt;
use super::proof::{self, Unproved};
use super::server::Server;
use super::serving::{Serving, Threads};
use super::{close, complete, confine, listen, needs, options, problem, server, state};
use crate::close_code::{BUSY, ENDED, UNPROVED};
use crate::exit::Problem;
use crate::limits::{
    TRANSFER_ATTEMPTS_MAX, TRANSFER_CONFIRM_TIME_MAX, TRANSFER_INVITATION_S, TRANSFER_PATIENCE,
    TRANSFER_RETURN_TIME_MAX,
};
use crate::peer_command::{bind, key, peer_id};
use crate::{output, qr};

/// What the threads of all receivers share.
struct Sending {
    own: PeerId,
    codes: Option<Codes>,
    /// How long somebody is waited for who has not come yet.
    wait: Option<Duration>,
    serving: Arc<Serving>,
    /// Receivers that are to have everything.
    wanted: usize,
    /// Those that have.
    served: AtomicUsize,
    /// The codes, or the peer, of those that have everything and have not said that their disks have it.
    unconfirmed: Mutex<BTreeSet<Option<u32>>>,
    /// What failed at single files, or at all of them.
    failure: Mutex<Option<Problem>>,
    /// When the last transfer ended or the wait began.
    since: Mutex<Instant>,
}

/// Runs the command.
///
/// # Errors
/// The command line is wrong, nobody came, or a transfer failed.
pub(crate) fn run(arguments: &SendArguments) -> Result<(), Problem> {
    let sources = sources(arguments)?;
    let state = state(&arguments.common)?;
    let known = arguments.peer.as_deref().map(peer_id).transpose()?;
    let key = match known {
        Some(_) => key(arguments.common.state.as_deref())?,
        // Whoever has a code need not recognize this machine another time.
        None => SecretKey::generate().map_err(|error| Problem::bug(error.to_string()))?,
    };
    let server = server::of(&arguments.common.rendezvous)?;
    let wait = wait(arguments.timeout, known.is_none(), server.is_some())?;
    let mut options = options(&arguments.offer, &arguments.common, &state, sources);
    check_patterns(&arguments.offer, &options)?;
    // The key of whoever has a code is the code's.
    options.has_passing_peers = known.is_none();
    let reads = arguments.paths.iter().filter(|path| !is_stdin(path)).cloned();
    let needs = needs(server.as_ref(), arguments.offer.listen);
    confine(&arguments.common, needs, &state, reads.collect(), Vec::new());
    let display = Display::new(arguments.common.json, false);
    let interrupt = Interrupt::watch()?;
    let (endpoint, codes) = match known {
        Some(peer) => {
            let endpoint = listen(&arguments.common, &arguments.offer, key, server, [peer])?;
            (endpoint, None)
        }
        None => {
            let (endpoint, codes) = show_codes(arguments, key, server, &display, &interrupt)?;
            (endpoint, Some(codes))
        }
    };
    if known.is_some() {
        let id = endpoint.id();
        display.json(EventName::Waiting, json!({ "peer": id.to_string() }));
        if !arguments.common.json {
            output::note(&format!(
                "waiting for the peer; there, run: gramway receive --peer {id}"
            ));
        }
    }
    let sending = Arc::new(Sending {
        own: endpoint.id(),
        codes,
        wait,
        serving: Serving::new(options, display, interrupt, true),
        wanted: arguments.receivers.into(),
        served: AtomicUsize::new(0),
        unconfirmed: Mutex::default(),
        failure: Mutex::new(None),
        since: Mutex::new(Instant::now()),
    });
    let ended = serve(&sending, &endpoint);
    close(&endpoint);
    ended
}

/// How long somebody is waited for, where that has an end: a code is valid for no longer.
fn wait(timeout: Option<u32>, has_code: bool, has_server: bool) -> Result<Option<Duration>, Problem> {
    let seconds = match timeout {
        Some(seconds) if has_code && has_server && seconds > TRANSFER_INVITATION_S => {
            return Err(Problem::usage(format!(
                "--timeout {seconds}: a server keeps a code for {TRANSFER_INVITATION_S} s; for longer, name the receiver by \
                 --peer"
            )));
        }
        None if has_code => Some(TRANSFER_INVITATION_S),
        other => other,
    };
    Ok(seconds.map(|seconds| Duration::from_secs(seconds.into())))
}

/// What is to be sent, by absolute paths: the last name of each is the one at the other end.
fn sources(arguments: &SendArguments) -> Result<Vec<Source>, Problem> {
    if arguments.paths.len() > 1 && arguments.paths.iter().any(|path| is_stdin(path)) {
        return Err(Problem::usage("standard input (-) is sent alone"));
    }
    if arguments.receivers > 1 && arguments.paths.iter().any(|path| is_stdin(path)) {
        return Err(Problem::usage(
            "standard input (-) can be read once: it goes to one receiver",
        ));
    }
    let source = |path: &PathBuf| {
        if is_stdin(path) {
            name::check(arguments.name.as_bytes())
                .map_err(|error| Problem::usage(format!("--name {}: {error}", arguments.name)))?;
            if std::io::stdin().is_terminal() {
                output::note("reading standard input; Ctrl-D ends it");
            }
            return Ok(Source::Stdin {
                name: arguments.name.clone(),
            });
        }
        let cannot = |error| Problem::file("send", path, &error);
        let found = std::fs::metadata(path).map_err(cannot)?;
        if !found.is_file() && !found.is_dir() {
            return Err(Problem::usage(format!(
                "{path} is neither a file nor a directory; what a program reads from it is sent by: gramway send - < {path}",
                path = path.display()
            )));
        }
        std::path::absolute(path).map(Source::Path).map_err(cannot)
    };
    arguments.paths.iter().map(source).collect()
}

/// That the patterns have something: nobody is to come for nothing.
fn check_patterns(offer: &OfferArguments, options: &SendOptions) -> Result<(), Problem> {
    if offer.include.is_empty() && offer.exclude.is_empty()
        || files::finds_something(options).map_err(|error| problem(&error))?
    {
        return Ok(());
    }
    Err(Problem::usage(match offer.include.is_empty() {
        true => format!(
            "--exclude {}: nothing is left to be sent",
            offer.exclude.join(", ")
        ),
        false => format!(
            "nothing that is to be sent matches --include {}: paths begin with the name of what is sent, as in \
             photos/2024/** for the directory photos",
            offer.include.join(", ")
        ),
    }))
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Listens for whoever has a code, and shows the codes.
fn show_codes(
    arguments: &SendArguments,
    key: SecretKey,
    server: Option<Server>,
    display: &Display,
    interrupt: &Interrupt,
) -> Result<(Endpoint, Codes), Problem> {
    let has_cover = server.as_ref().is_some_and(|server| server.has_cover);
    let (endpoint, numbers, host) = match server {
        Some(Server { rendezvous, host, .. }) => {
            let endpoint = bind(
                Endpoint::builder(key).rendezvous(rendezvous),
                arguments.offer.listen,
            )?;
            let numbers = server::invite(&endpoint, arguments.receivers, TRANSFER_PATIENCE, interrupt)?;
            (endpoint, numbers, (!has_cover).then_some(host))
        }
        None if arguments.common.no_lan => {
            return Err(Problem::usage(
                "where is the receiver to find this machine? Give --rendezvous-file FILE with the link of a server, or leave out --no-lan",
            ));
        }
        None => {
            let numbers = draw_numbers(arguments.receivers)?;
            let builder = Endpoint::builder(key).announce_numbers_on_lan(numbers.iter().copied());
            let endpoint = bind(builder, arguments.offer.listen)?;
            if interrupt.wait_for(TRANSFER_PATIENCE, endpoint.announced()) != Some(true) {
                if interrupt.is_over() {
                    return Err(interrupted(interrupt));
                }
                let why = endpoint
                    .lan_problem()
                    .unwrap_or_else(|| "it takes long".to_owned());
                return Err(Problem::unavailable(format!(
                    "not announced on the local network: {why}. Across networks, give --rendezvous-file FILE with the link of \
                     a Gramway server"
                )));
            }
            (endpoint, numbers, None)
        }
    };
    let mut codes = Vec::new();
    for number in numbers {
        let seed = proof::random().map_err(|_| Problem::bug("the system gives no random bytes"))?;
        codes.push(Code::new(number, host.clone(), &seed));
    }
    if has_cover && !arguments.common.json {
        output::note(
            "the server has a cover and answers its users alone: the receiver needs a link of its own, in a file that its \
             command names",
        );
    }
    let link = if has_cover { " --rendezvous-file LINK" } else { "" };
    for code in &codes {
        let command = format!("gramway receive {code}{link}");
        if arguments.common.json {
            display.json(
                EventName::Code,
                json!({ "code": code.to_string(), "command": command, "needs_link": has_cover }),
            );
            continue;
        }
        // People copy it, and scripts read it, from standard output.
        output::data(&command)?;
        if display.is_drawn()
            && !arguments.no_qr
            && codes.len() == 1
            && std::io::stdout().is_terminal()
            && let Some(drawing) = qr::draw(&command)
        {
            output::data(&drawing)?;
        }
    }
    Ok((endpoint, Codes::new(codes)))
}

/// Different numbers that nobody can foresee.
fn draw_numbers(count: u16) -> Result<Vec<u32>, Problem> {
    let mut numbers = Vec::new();
    while numbers.len() < usize::from(count) {
        let bytes = proof::random().map_err(|_| Problem::bug("the system gives no random bytes"))?;
        let [a, b, c, d, ..] = bytes;
        let drawn = u32::from_be_bytes([a, b, c, d]);
        let number = INVITATION_NUMBERS.start + drawn % (INVITATION_NUMBERS.end - INVITATION_NUMBERS.start);
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Serves whoever connects until all have everything, or nobody can come any more.
fn serve(sending: &Arc<Sending>, endpoint: &Endpoint) -> Result<(), Problem> {
    let began = Instant::now();
    let mut threads = Threads::new(&sending.serving);
    let ended = loop {
        if let Some(codes) = &sending.codes
            && began.elapsed() >= sending.validity()
        {
            codes.expire();
        }
        let of_thread = Arc::clone(sending);
        if let Err(problem) = threads.take_next(endpoint, move |peer, place| of_thread.serve(peer, place)) {
            break Err(problem);
        }
        if sending.serving.interrupt.is_over() {
            break Err(interrupted(&sending.serving.interrupt));
        }
        let is_idle = sending.serving.is_idle();
        let served = sending.served.load(Ordering::SeqCst);
        if served >= sending.wanted {
            break Ok(());
        }
        let are_open = sending.codes.as_ref().is_none_or(Codes::are_open);
        if is_idle && !are_open {
            break Err(sending.why_over(served));
        }
        if is_idle && let Some(problem) = sending.give_up(served) {
            break Err(problem);
        }
    };
    threads.end();
    ended?;
    let failure = sending
        .failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    failure.map_or(Ok(()), Err)
}

impl Sending {
    /// Sends to a peer that proves that it is a receiver.
    fn serve(&self, peer: &Peer, place: &Place) {
        let number = match &self.codes {
            None => None,
            Some(codes) => match proof::as_host(peer, self.own, codes, &self.serving.interrupt) {
                Ok(number) => Some(number),
                Err(Unproved::Interrupted) => return peer.close(ENDED, "the sender has ended"),
                Err(Unproved::Silent) => return peer.close(BUSY, "it took too long"),
                Err(Unproved::Expired) => {
                    let text = format!(
                        "somebody came with a code after the {} s for which it is valid: run the command again for a new one",
                        self.validity().as_secs()
                    );
                    self.serving.display.tell(EventName::Note, &text);
                    return peer.close(UNPROVED, "the code is not known here");
                }
                Err(error) => {
                    let why = match error {
                        Unproved::Exchange(ExchangeError::WrongGuess) => {
                            Some("somebody tried a wrong code: it was mistyped, or guessed")
                        }
                        Unproved::TriedTooOften => {
                            Some("somebody began to try a code too often, and never said its words")
                        }
                        _ => None,
                    };
                    if let Some(why) = why {
                        let text = format!("{why}. That code is not valid any more");
                        self.serving.display.tell(EventName::WrongCode, &text);
                    }
                    return peer.close(UNPROVED, "the code is not known here");
                }
            },
        };
        let whose = number.map_or_else(String::new, |number| match self.codes_count() {
            1 => String::new(),
            _ => format!("{number}: "),
        });
        let display = self.serving.display.of_receiver(peer.id(), number, whose);
        let sent = self.serving.send(peer, place, &display);
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        match sent {
            Ok(None) | Err(TransferError::Cancelled) => {}
            // It may come again: what was not received must not count as sent.
            Ok(Some(report)) if report.is_look => display.tell(
                EventName::Looked,
                &format!(
                    "the receiver has looked at what is offered, and may come again to receive it{}",
                    waited_for(self.return_time())
                ),
            ),
            Ok(Some(report)) => {
                self.unconfirmed().remove(&number);
                if let Err(problem) = complete(&report) {
                    self.fail(problem);
                }
                let is_first = match (number, &self.codes) {
                    (Some(number), Some(codes)) => codes.complete(number),
                    _ => true,
                };
                self.served.fetch_add(usize::from(is_first), Ordering::SeqCst);
            }
            Err(error @ TransferError::Unconfirmed(_)) if self.serving.is_spent() => {
                let problem = Problem::unavailable(shown(&error));
                self.give_up_on(number, &display, EventName::Unconfirmed, problem);
            }
            Err(TransferError::Unconfirmed(why)) => {
                let why = output::shown(&why).into_owned();
                display.tell(
                    EventName::Unconfirmed,
                    &format!(
                        "everything has arrived, but the connection to the receiver was lost ({why}) before it said that its \
                         disk has it; waiting for it to come again and say so"
                    ),
                );
                self.unconfirmed().insert(number);
            }
            Err(error @ (TransferError::Lost(_) | TransferError::Interrupted)) => {
                let what = match error {
                    TransferError::Lost(why) => {
                        format!(
                            "the connection to the receiver was lost ({})",
                            output::shown(&why)
                        )
                    }
                    _ => "the receiver was interrupted".to_owned(),
                };
                if self.serving.is_spent() {
                    let problem = Problem::unavailable(format!(
                        "{what}, and standard input can be read once: run both commands again"
                    ));
                    return self.give_up_on(number, &display, EventName::Lost, problem);
                }
                let text = format!(
                    "{what}; it may come again, and goes on where it ended{}",
                    waited_for(self.return_time())
                );
                display.tell(EventName::Lost, &text);
            }
            Err(error) => self.give_up_on(number, &display, EventName::Failed, problem(&error)),
        }
    }

    /// Nothing more is sent to whoever came by this code, or to the peer that is known. People are told at once where
    /// others are waited for, and otherwise by the program's last words.
    fn give_up_on(&self, number: Option<u32>, display: &Display, event: EventName, problem: Problem) {
        let text = output::shown(&problem.to_string()).into_owned();
        if self.wanted > 1 {
            display.tell(event, &text);
            let text = "not all receivers have everything, for the reasons that were told";
            self.fail(Problem::new(problem.code(), text));
        } else {
            display.json(event, json!({ "text": text }));
            self.fail(problem);
        }
        match (number, &self.codes) {
            (Some(number), Some(codes)) => drop(codes.complete(number)),
            _ => drop(self.served.fetch_add(1, Ordering::SeqCst)),
        }
    }

    /// How long a code is valid that nobody has proved to know: one that no server keeps as long as it is waited for.
    fn validity(&self) -> Duration {
        let of_server = Duration::from_secs(TRANSFER_INVITATION_S.into());
        of_server.max(self.wait.unwrap_or_default())
    }

    /// How long somebody is waited for who came and left, where that has an end.
    fn return_time(&self) -> Option<Duration> {
        match &self.codes {
            None => self.wait,
            Some(_) => Some(TRANSFER_RETURN_TIME_MAX.max(self.wait.unwrap_or_default())),
        }
    }

    fn codes_count(&self) -> u64 {
        self.codes.as_ref().map_or(0, Codes::count)
    }

    fn unconfirmed(&self) -> MutexGuard<'_, BTreeSet<Option<u32>>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, problem: Problem) {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(problem);
    }

    /// No code is valid any more, and not all receivers have everything.
    fn why_over(&self, served: usize) -> Problem {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let are_over = |why| self.codes.as_ref().is_some_and(|codes| codes.are_over(why));
        why_over(are_over, failure, (served, self.wanted), self.validity())
    }

    /// Why nobody is waited for any longer, if so.
    fn give_up(&self, served: usize) -> Option<Problem> {
        let waited = self
            .since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .elapsed();
        let is_free = self.codes.as_ref().is_none_or(Codes::are_free);
        let unconfirmed = self.unconfirmed().len();
        let is_to_be_confirmed = unconfirmed > 0 && served + unconfirmed >= self.wanted;
        let limit = if is_to_be_confirmed {
            TRANSFER_CONFIRM_TIME_MAX.min(self.wait.unwrap_or(Duration::MAX))
        } else if is_free {
            self.wait?
        } else {
            self.return_time()?
        };
        if waited < limit {
            return None;
        }
        let seconds = limit.as_secs();
        if is_to_be_confirmed {
            return Some(Problem::unavailable(format!(
                "everything has arrived, but the receiver did not come again within {seconds} s to say that its disk has it: \
                 look there before you remove anything here, or run both commands again, which sends nothing twice"
            )));
        }
        Some(Problem::unavailable(match (is_free, served) {
            (true, 0) => format!("nobody came within {seconds} s; run the command again for a new code"),
            (true, _) => format!("nobody else came within {seconds} s"),
            (false, _) => format!(
                "the receiver did not come again within {seconds} s; run the command again: what it has is not sent twice"
            ),
        }))
    }
}

/// Why no code is left; `are_over` says whether one is over for a reason, `failure` what failed at whoever had one.
fn why_over(
    are_over: impl Fn(Over) -> bool,
    failure: Option<Problem>,
    (served, wanted): (usize, usize),
    validity: Duration,
) -> Problem {
    let served = match wanted {
        1 => String::new(),
        _ => format!(" ({served} of {wanted} receivers have everything)"),
    };
    let is_left = format!("no code is left{served}: run the command again for a new one");
    if are_over(Over::Guessed) {
        return Problem::permission(format!("a wrong code was tried, and {is_left}"));
    }
    if are_over(Over::TriedTooOften) {
        return Problem::permission(format!(
            "somebody began to try a code more than {TRANSFER_ATTEMPTS_MAX} times and never said its words, and {is_left}"
        ));
    }
    failure.unwrap_or_else(|| {
        let who = match are_over(Over::Late) {
            true => "nobody proved to know it",
            false => "nobody came",
        };
        Problem::unavailable(format!(
            "{who} within the {} s that a code is valid{served}: run the command again for a new one",
            validity.as_secs()
        ))
    })
}

/// How long somebody is waited for, as the end of a sentence.
fn waited_for(time: Option<Duration>) -> String {
    let Some(time) = time else {
        return ". It is waited for until Ctrl-C".to_owned();
    };
    match time.as_secs() {
        seconds if seconds % 60 == 0 => format!(". It is waited for {} minutes", seconds / 60),
        seconds => format!(". It is waited for {seconds} s"),
    }
}

fn shown(error: &TransferError) -> String {
    output::shown(&error.to_string()).into_owned()
}

/// The user ended it.
pub(super) fn interrupted(interrupt: &Interrupt) -> Problem {
    interrupt.problem(
        "interrupted. What has arrived stays there: send again, and receive into the same directory; only the rest is sent",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_waited_for_as_long_as_the_user_says_unless_its_server_forgets_it_before() {
        let seconds = |timeout, has_code, has_server| {
            wait(timeout, has_code, has_server).map(|wait| wait.map(|wait| wait.as_secs()))
        };
        assert_eq!(seconds(None, true, true).unwrap(), Some(600));
        assert_eq!(seconds(Some(600), true, true).unwrap(), Some(600));
        assert!(
            seconds(Some(601), true, true)
                .unwrap_err()
                .to_string()
                .contains("600 s")
        );
        assert_eq!(seconds(Some(3_600), true, false).unwrap(), Some(3_600));
        assert_eq!(seconds(Some(3_600), false, true).unwrap(), Some(3_600));
        assert_eq!(seconds(None, false, true).unwrap(), None);
    }

    #[test]
    fn the_time_for_which_somebody_is_waited_for_is_told() {
        let told = |seconds: Option<u64>| waited_for(seconds.map(Duration::from_secs));
        assert_eq!(told(Some(3_600)), ". It is waited for 60 minutes");
        assert_eq!(told(Some(75)), ". It is waited for 75 s");
        assert_eq!(told(None), ". It is waited for until Ctrl-C");
    }

    #[test]
    fn a_sender_without_a_code_says_why_none_is_left() {
        let told = |over: &[Over], failure: Option<&str>| {
            let failure = failure.map(Problem::unavailable);
            let told = why_over(
                |why| over.contains(&why),
                failure,
                (1, 3),
                Duration::from_secs(600),
            );
            told.to_string()
        };
        let expired = told(&[Over::Served, Over::Expired], None);
        assert!(expired.starts_with("nobody came within the 600 s"), "{expired}");
        assert!(expired.contains("1 of 3 receivers"), "{expired}");
        let late = told(&[Over::Served, Over::Expired, Over::Late], None);
        assert!(
            late.starts_with("nobody proved to know it within the 600 s that a code is valid"),
            "{late}"
        );
        let tried = told(&[Over::TriedTooOften, Over::Expired], None);
        assert!(tried.contains("more than 100 times"), "{tried}");
        let guessed = told(&[Over::TriedTooOften, Over::Guessed], Some("its disk is full"));
        assert!(guessed.starts_with("a wrong code was tried"), "{guessed}");
        assert_eq!(
            told(&[Over::Served], Some("its disk is full")),
            "its disk is full"
        );
    }
}
