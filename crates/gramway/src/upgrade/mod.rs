//! `gramway ctl upgrade`: another process of the program, perhaps of a newer version, takes over the sockets of a
//! running server, which then drains.
//!
//! The running process is confined and starts nothing. Its launcher (`launcher.rs`) starts the program that lies
//! where this one was started from, with the same arguments. That process is given the sockets, the listeners of
//! metrics and status page, and the lock of the state directory (`takeover.rs`). When it says that it is ready, the
//! running process lets go and says so; until then nothing has changed for anybody. If the new process ends before or
//! is too slow, the running one goes on as before, and the new one ends without its word. Afterwards the former
//! process only receives what the new one hands back, tells its clients to leave, and ends when they have left.

mod launcher;
mod message;
mod takeover;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use packet_io::Lane;
use serde_json::Value;
use tunnel::handle::Controller;

pub(crate) use launcher::{Launcher, LauncherArguments, SUBCOMMAND, run as run_launcher};
pub(crate) use takeover::Takeover;

use crate::admin::{AdminSocket, SERVER_SOCKET, own_socket};
use crate::config::Settings;
use crate::drain::{Drain, seconds};
use crate::exit::{Problem, sentence};
use crate::http::ListenerHandle;
use crate::limits::{LAUNCH_LIMIT, SERVER_PROCESSES_MAX, START_SECONDS, UPGRADE_LIMIT};
use crate::{log, service_manager};
use message::{Answer, Offer, go};

/// Why a server with these settings cannot be upgraded while it runs; `None` where it can.
pub(crate) fn hindrance(settings: &Settings) -> Option<&'static str> {
    if settings.tun.name.is_some() {
        Some("a server with a TUN device cannot hand it over; restart it")
    } else if settings.tcp.is_some() {
        Some("a server that listens in TCP's shape cannot hand that over; restart it")
    } else if settings.cover.place.is_some() {
        Some("a server with a cover cannot hand over the connections of strangers; restart it")
    } else {
        None
    }
}

/// What a process needs in order to be replaced.
pub(crate) struct Upgrade {
    controller: Controller,
    drain: Arc<Drain>,
    /// `Err`: it cannot be replaced, and why.
    launcher: Result<Launcher, String>,
    /// As the connection IDs of this process name it.
    generation: u8,
    /// Holds the state directory's lock.
    lock: OnceLock<File>,
    /// Listeners of metrics and status page.
    listeners: Vec<ListenerHandle>,
    socket: OnceLock<Weak<AdminSocket>>,
}

impl Upgrade {
    pub(crate) fn new(
        controller: Controller,
        drain: Arc<Drain>,
        launcher: Result<Launcher, String>,
        generation: u8,
        listeners: Vec<ListenerHandle>,
    ) -> Self {
        Self {
            controller,
            drain,
            launcher,
            generation,
            lock: OnceLock::new(),
            listeners,
            socket: OnceLock::new(),
        }
    }

    /// From here on the process can be replaced.
    pub(crate) fn enable(&self, lock: File, socket: &Arc<AdminSocket>) {
        self.lock.get_or_init(|| lock);
        self.socket.get_or_init(|| Arc::downgrade(socket));
    }

    /// Has a new process take over that is ready within `start_timeout_seconds` of `asked`, and drains for its
    /// `timeout_seconds`. What to tell.
    ///
    /// # Errors
    /// The new process does not get ready, and this one goes on as before.
    pub(crate) fn begin(&self, asked: &Value) -> Result<String, Problem> {
        let launcher = self.launcher.as_ref().map_err(Problem::unavailable)?;
        let limit = start_limit(asked)?;
        let (Some(lock), Some(socket)) = (self.lock.get(), self.socket.get().and_then(Weak::upgrade)) else {
            return Err(Problem::unavailable(
                "it is still starting, or it ends; try again",
            ));
        };
        let turn = self.drain.begin_upgrade(asked)?;
        if socket.others()? + 1 >= SERVER_PROCESSES_MAX {
            return Err(Problem::unavailable(format!(
                "{SERVER_PROCESSES_MAX} processes of this server run already, which wait for their clients to leave, \
                 and there can be no more; `gramway status` shows them; wait until one of them ends, or end the oldest"
            )));
        }
        let successor = self
            .prepare(launcher, lock, limit)
            .and_then(|successor| {
                // Dropped, it ends as well.
                turn.may_complete()?;
                successor.let_go(&socket)
            })
            .inspect_err(|problem| {
                self.controller.withdraw_offer();
                log::warning("upgrade", format!("the upgrade failed: {problem}"));
            })?;
        self.controller.hand_over();
        self.listeners.iter().for_each(ListenerHandle::stop);
        service_manager::succeeded_by(successor);
        let told = format!("process {successor} has taken over");
        log::info("upgrade", told.as_str());
        Ok(format!(
            "{told}; process {}: {}",
            std::process::id(),
            turn.complete()
        ))
    }

    /// A process that is ready to serve.
    fn prepare(&self, launcher: &Launcher, lock: &File, limit: Duration) -> Result<Successor, Problem> {
        let cannot = |what: &str, error: &io::Error| {
            Problem::unavailable(format!("cannot {what}: {}", sentence(error)))
        };
        let sockets = self
            .controller
            .offer_sockets()
            .map_err(|error| cannot("offer the sockets", &error))?;
        let offer = Offer {
            predecessor: self.generation,
            shards: sockets.len(),
            listeners: self.listeners.len(),
        };
        let way = launcher
            .way()
            .map_err(|error| cannot("keep the way to the launcher", &error))?;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![lock.as_fd(), way.as_fd()];
        for socket in &sockets {
            descriptors.extend([socket.socket.as_fd(), socket.back.as_fd()]);
        }
        descriptors.extend(self.listeners.iter().map(AsFd::as_fd));
        let (lane, theirs) = Lane::pair(limit).map_err(|error| cannot("talk to the new process", &error))?;
        lane.send(&offer.encode(), &descriptors)
            .map_err(|error| cannot("send the sockets", &error))?;
        let process = launcher.launch(&theirs)?;
        drop(theirs);
        let answer = match lane.receive() {
            Ok(Some((bytes, _))) => Answer::decode(&bytes),
            Ok(None) => Err("it ended; it says why in its own output".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(format!(
                "it was not ready within {} s (--start-timeout gives it more)",
                limit.as_secs()
            )),
            Err(error) => Err(sentence(&error)),
        };
        match answer {
            Ok(Answer::Ready) => Ok(Successor { process, lane }),
            Ok(Answer::Failed(why)) | Err(why) => Err(does_not_serve(process, &why)),
        }
    }
}

/// A process that waits to be told to go.
struct Successor {
    process: u32,
    lane: Lane,
}

impl Successor {
    /// Lets it go, with the name of the admin `socket`. The process that serves from here on.
    ///
    /// # Errors
    /// It has ended, or the name cannot be left to it; this process has it still.
    fn let_go(self, socket: &AdminSocket) -> Result<u32, Problem> {
        socket.rename(&own_socket())?;
        self.lane.send(&go(), &[]).map_err(|error| {
            if let Err(problem) = socket.rename(SERVER_SOCKET) {
                log::warning("upgrade", problem.to_string());
            }
            does_not_serve(self.process, &sentence(&error))
        })?;
        Ok(self.process)
    }
}

fn does_not_serve(process: u32, why: &str) -> Problem {
    Problem::unavailable(format!(
        "the new process ({process}) does not serve: {why}; this one goes on"
    ))
}

/// How long the new process may take.
fn start_limit(asked: &Value) -> Result<Duration, Problem> {
    match asked.get("start_timeout_seconds") {
        None | Some(Value::Null) => Ok(UPGRADE_LIMIT),
        Some(value) => seconds("start_timeout_seconds", value, &START_SECONDS),
    }
}

/// How long whoever asks for an upgrade waits for the answer: the new process's time, and that of the launcher.
///
/// # Errors
/// The time is out of bounds.
pub(crate) fn patience(asked: &Value) -> Result<Duration, Problem> {
    Ok(start_limit(asked)? + LAUNCH_LIMIT + LAUNCH_LIMIT)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use serde_json::json;
    use tempfile::TempDir;

    use super::message::is_go;
    use super::*;
    use crate::admin::Admin;
    use crate::state::StateDirectory;
    use crate::test_support::state_directory;

    /// A server that can be replaced, whose launcher is the test.
    struct World {
        _guard: TempDir,
        directory: StateDirectory,
        _socket: Arc<AdminSocket>,
        is_stopping: Arc<AtomicBool>,
        upgrade: Upgrade,
        launcher: Lane,
    }

    impl World {
        fn new() -> Self {
            let (guard, directory) = state_directory();
            directory.create().unwrap();
            let socket = Arc::new(open(&directory, SERVER_SOCKET));
            let (ours, launcher) = Lane::pair(LAUNCH_LIMIT).unwrap();
            let is_stopping = Arc::new(AtomicBool::new(false));
            let controller = Controller::default();
            let drain = Drain::new(controller.clone(), UPGRADE_LIMIT, Arc::clone(&is_stopping));
            let launched = Ok(Launcher::over(ours));
            let upgrade = Upgrade::new(controller, Arc::new(drain), launched, 0, Vec::new());
            upgrade.enable(tempfile::tempfile().unwrap(), &socket);
            Self {
                _guard: guard,
                directory,
                _socket: socket,
                is_stopping,
                upgrade,
                launcher: Lane::from(launcher),
            }
        }

        /// What the process answers that is asked for an upgrade, and what its successor receives after its word that
        /// it is ready, before which something happens to the order to end.
        fn upgrade(&self, meanwhile: impl Fn(&AtomicBool)) -> (Result<String, Problem>, Option<Vec<u8>>) {
            thread::scope(|scope| {
                let begun = scope.spawn(|| self.upgrade.begin(&json!({})));
                let (request, descriptors) = self.launcher.receive().unwrap().unwrap();
                let mut answer: Value = serde_json::from_slice(&request).unwrap();
                answer["process"] = json!(7);
                self.launcher.send(answer.to_string().as_bytes(), &[]).unwrap();
                let successor = Lane::from(descriptors.into_iter().next().unwrap());
                successor.receive().unwrap().unwrap();
                meanwhile(&self.is_stopping);
                successor.send(&Answer::Ready.encode(), &[]).unwrap();
                let word = successor.receive().unwrap();
                (begun.join().unwrap(), word.map(|(bytes, _)| bytes))
            })
        }
    }

    fn open(directory: &StateDirectory, name: &str) -> AdminSocket {
        AdminSocket::open(directory, name, &Admin::of_text(None)).unwrap()
    }

    #[test]
    fn a_process_that_is_told_to_end_during_an_upgrade_takes_the_new_one_with_it() {
        let (told, word) = World::new().upgrade(|_| ());
        assert!(told.unwrap().contains("process 7 has taken over"));
        assert!(is_go(&word.unwrap()));

        let (told, word) = World::new().upgrade(|is_stopping| is_stopping.store(true, Ordering::Relaxed));
        let problem = told.unwrap_err().to_string();
        assert!(problem.contains("told to"), "{problem}");
        assert_eq!(word, None, "the new process ends");
    }

    #[test]
    fn no_process_comes_whose_connection_ids_would_be_those_of_one_that_lives() {
        let world = World::new();
        let names = (1..SERVER_PROCESSES_MAX).map(|number| format!("server-{number}.sock"));
        let mut others: Vec<_> = names.map(|name| open(&world.directory, &name)).collect();
        let _client = open(&world.directory, "client-1.sock");
        let problem = world.upgrade.begin(&json!({})).unwrap_err().to_string();
        assert!(
            problem.contains("16 processes of this server run already"),
            "{problem}"
        );

        // What a process leaves that was killed counts for nobody.
        others.pop();
        let dead = world.directory.file("server-99.sock");
        drop(UnixListener::bind(dead).unwrap());
        assert!(world.upgrade(|_| ()).0.is_ok());
    }
}
