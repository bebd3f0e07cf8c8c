//! Doing what a chapter says, on machines, and comparing what they print.

use super::chapter::{Action, Manner, Step, steps};
use super::machine::Machine;
use super::output::Expected;
use super::world::World;
use crate::limits::PROGRAM_LIMIT;
use testbed::wait::poll;

/// Follows a chapter from its first command to its last.
///
/// # Panics
/// When it cannot be read, or something fails or prints otherwise than the book shows; with the line of the chapter.
pub fn follow(chapter: &str, text: &str, world: &mut World) {
    let steps = steps(text).unwrap_or_else(|error| panic!("docs/{chapter}: {error}"));
    assert!(!steps.is_empty(), "docs/{chapter} tells to do nothing");
    let mut words = Vec::new();
    for step in steps {
        if let Err(error) = take(&step, world, &mut words) {
            panic!("docs/{chapter}, line {}, on {}: {error}", step.line, step.machine);
        }
    }
}

/// What the book shows, and what the reader types there.
type Words = Vec<(String, String)>;

fn take(step: &Step, world: &mut World, words: &mut Words) -> Result<(), String> {
    const UNKNOWN: &str = "there is no such machine";
    if let Action::Copy { path, from } = &step.action {
        let text = world.machine(from).ok_or(UNKNOWN)?.read(path)?;
        world.machine(&step.machine).ok_or(UNKNOWN)?.write(path, &text);
        return Ok(());
    }
    let machine = world.machine(&step.machine).ok_or(UNKNOWN)?;
    match &step.action {
        Action::Copy { .. } => {}
        Action::Write { path, text } => machine.write(path, text),
        Action::Interrupt => machine.interrupt()?,
        Action::Kill => machine.kill()?,
        Action::StandsFor { shown, before } => {
            let printed = || machine.word_behind(before);
            let word = poll(PROGRAM_LIMIT, printed).ok_or_else(|| format!("no line begins with {before}"))?;
            words.push((shown.clone(), word));
        }
        Action::Says(expected) => return wait_for(expected, machine, Expected::found_in),
        Action::Run {
            commands,
            manner: Manner::Stays,
            output,
        } => {
            machine.start_staying(&typed(&commands[0], words));
            if let Some(expected) = output {
                return wait_for(expected, machine, Expected::found_in_any_order);
            }
        }
        Action::Run {
            commands,
            manner,
            output,
        } => {
            let run = || -> Result<(), String> {
                let mut printed = String::new();
                for command in commands {
                    let (has_succeeded, text) = machine.run(&typed(command, words));
                    if has_succeeded == (*manner == Manner::Fails) {
                        let end = if has_succeeded { "succeeds" } else { "fails" };
                        return Err(format!("`{command}` {end}:\n{text}"));
                    }
                    printed += &text;
                }
                let lines: Vec<&str> = printed.lines().collect();
                match output {
                    Some(expected) if !expected.is_all_of(&lines) => Err(differs(expected, &printed)),
                    _ => Ok(()),
                }
            };
            if *manner != Manner::Until {
                return run();
            }
            let mut last = Ok(());
            let mut again = || {
                last = run();
                last.is_ok().then_some(())
            };
            poll(PROGRAM_LIMIT, &mut again);
            return last;
        }
    }
    Ok(())
}

/// A command as the reader types it.
fn typed(command: &str, words: &Words) -> String {
    let mut command = command.to_owned();
    // The same may stand for something else later in a chapter.
    for (shown, word) in words.iter().rev() {
        command = command.replace(shown, word);
    }
    command
}

/// Waits until the last command that stays has printed these lines.
fn wait_for(
    expected: &Expected,
    machine: &mut Machine,
    find: fn(&Expected, &[&str]) -> Option<usize>,
) -> Result<(), String> {
    let mut printed = String::new();
    let look = || {
        let looked = machine.look(|lines| find(expected, lines));
        looked.map_err(|text| printed = text).ok()
    };
    let found = poll(PROGRAM_LIMIT, look);
    found.ok_or_else(|| differs(expected, &printed))
}

fn differs(expected: &Expected, printed: &str) -> String {
    format!(
        "the book shows\n{}\nand this is printed:\n{printed}",
        expected.text()
    )
}
