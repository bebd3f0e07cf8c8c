//! `gramway top`: the counters of the running processes on the whole terminal, each second, by the admin sockets.
//!
//! A thread asks; this one draws and listens to the keys. The terminal is given back at the end, also after a signal or
//! a panic, whose hook ratatui sets.

mod history;
mod view;

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::TopArguments;
use crate::exit::{Problem, sentence};
use crate::limits::{EVENT_INTERVAL, TOP_KEY_WAIT};
use crate::output;
use crate::state::StateDirectory;
use crate::status::query_all;
use history::History;

/// Runs the command.
pub(crate) fn run(arguments: &TopArguments) -> Result<(), Problem> {
    let directory =
        StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?.into_owners()?;
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Problem::usage(
            "gramway top needs a terminal; gramway status prints the same counters",
        ));
    }
    let cannot =
        |error: io::Error| Problem::unavailable(format!("cannot use the terminal: {}", sentence(&error)));
    let is_ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_ending)).map_err(cannot)?;
    }
    // What fails at once is told on the terminal as it was.
    let first = query_all(&directory, |_| ())?;
    let answers = ask(directory, first).map_err(cannot)?;
    let mut terminal = ratatui::try_init().map_err(cannot)?;
    let ended = watch(&mut terminal, &answers, &is_ending);
    ratatui::restore();
    ended.map_err(cannot)
}

/// Asks each second, as long as somebody receives.
fn ask(directory: StateDirectory, first: Vec<Value>) -> io::Result<mpsc::Receiver<Vec<Value>>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let work = move || {
        let mut processes = first;
        while sender.send(processes).is_ok() {
            thread::sleep(EVENT_INTERVAL);
            // Whoever cannot be asked is shown as gone.
            processes = query_all(&directory, |_| ()).unwrap_or_default();
        }
    };
    thread::Builder::new().name("ask".to_owned()).spawn(work)?;
    Ok(receiver)
}

fn watch(
    terminal: &mut DefaultTerminal,
    answers: &mpsc::Receiver<Vec<Value>>,
    is_ending: &AtomicBool,
) -> io::Result<()> {
    let mut history = History::default();
    while !is_ending.load(Ordering::Relaxed) {
        if let Ok(processes) = answers.try_recv() {
            history.add(processes.into_iter().map(output::shown_value).collect());
        }
        terminal.draw(|frame| view::draw(frame, &history))?;
        if !event::poll(TOP_KEY_WAIT)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Tab => history.next(),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::tcgetattr;

    /// Set in the process that panics.
    const PANICS: &str = "GRAMWAY_TEST_PANICS";

    /// A terminal of its own needs a process of its own.
    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            let _terminal = ratatui::try_init().unwrap();
            panic!("as the test wants");
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let before = format!("{:?}", tcgetattr(&theirs).unwrap());
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "top::tests::a_panic_gives_the_terminal_back",
                "--nocapture",
            ])
            .env(PANICS, "1")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut reader = File::from(ours);
        let shown = std::thread::spawn(move || {
            let mut shown = Vec::new();
            // It ends with an error when nobody has the other end any more.
            let _ = reader.read_to_end(&mut shown);
            (shown, reader)
        });
        assert!(!child.wait().unwrap().success());
        assert_eq!(format!("{:?}", tcgetattr(&theirs).unwrap()), before);
        drop(theirs);
        let shown = String::from_utf8_lossy(&shown.join().unwrap().0).into_owned();
        let (left, told) = (shown.rfind("\u{1b}[?1049l"), shown.rfind("as the test wants"));
        assert!(left.is_some() && left < told, "{shown}");
    }
}
