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
use crate::state::StateDirectory;
use crate::status::query_all;
use history::History;

/// Runs the command.
pub(crate) fn run(arguments: &TopArguments) -> Result<(), Problem> {
    let directory = StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?;
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
            history.add(processes);
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
