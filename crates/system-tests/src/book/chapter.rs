//! A chapter of the book as steps. Whatever the test could not follow is an error with its line, so that no command
//! slips through.

use super::output::Expected;

/// One thing that the reader does or sees, in the order of the chapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the chapter, from 1.
    pub line: usize,
    /// The machine that it happens on.
    pub machine: String,
    /// What happens.
    pub action: Action,
}

/// What happens on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The commands of a block, one after the other.
    Run {
        /// Each as one line.
        commands: Vec<String>,
        /// How they are run.
        manner: Manner,
        /// What they print, where the book shows it.
        output: Option<Expected>,
    },
    /// A file is written.
    Write {
        /// Its path; `~/` is the user's home.
        path: String,
        /// Its text.
        text: String,
    },
    /// The user's file of another machine is copied here, to the same path.
    Copy {
        /// Its path, below `~/`.
        path: String,
        /// Where it is.
        from: String,
    },
    /// The last command that stays is ended by Ctrl-C.
    Interrupt,
    /// The last command that stays is killed.
    Kill,
    /// The last command that stays prints these lines.
    Says(Expected),
    /// It has printed a word that the reader types where the book shows another one.
    StandsFor {
        /// What the book shows.
        shown: String,
        /// What stands before the word on its line.
        before: String,
    },
}

/// How commands are run, and when they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// To their end, with exit code 0.
    Once,
    /// To their end, with another exit code.
    Fails,
    /// Again and again, until they print what the book shows.
    Until,
    /// One command, which goes on beside what follows.
    Stays,
}

/// Reads a chapter.
///
/// # Errors
/// What cannot be followed, with its line.
pub fn steps(text: &str) -> Result<Vec<Step>, String> {
    let mut reader = Reader::default();
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            reader.prose(number, line)?;
            continue;
        };
        let mut body = String::new();
        loop {
            match lines.next() {
                Some((_, line)) if line.trim() == "```" => break,
                Some((_, line)) => body = body + line + "\n",
                None => return Err(format!("line {number}: the block has no end")),
            }
        }
        reader.block(number, info.trim(), &body)?;
    }
    reader.end()
}

#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    /// The text since the last block.
    prose: String,
    /// The reason why the next block is not run, and its line.
    not_run: Option<usize>,
    /// The machine whose running command prints the next block.
    speaker: Option<String>,
    /// Whether only empty lines have come since a block of commands.
    awaits_output: bool,
}

impl Reader {
    fn prose(&mut self, number: usize, line: &str) -> Result<(), String> {
        let comment = line
            .trim()
            .strip_prefix("<!--")
            .and_then(|line| line.strip_suffix("-->"));
        let Some(comment) = comment.map(str::trim) else {
            self.awaits_output &= line.trim().is_empty();
            self.prose = std::mem::take(&mut self.prose) + line + "\n";
            return Ok(());
        };
        self.awaits_output = false;
        if let Some(reason) = comment.strip_prefix("not run:") {
            if reason.trim().is_empty() {
                return Err(format!("line {number}: a block that is not run needs a reason"));
            }
            self.not_run = Some(number);
        } else if let Some(machine) = comment.strip_prefix("Ctrl-C on ") {
            self.push(number, machine, Action::Interrupt);
        } else if let Some(machine) = comment.strip_prefix("killed on ") {
            self.push(number, machine, Action::Kill);
        } else if let Some((shown, rest)) = comment.split_once(" stands for what ") {
            let Some((machine, before)) = rest.split_once(" printed behind: ") else {
                return Err(format!("line {number}: behind which words?"));
            };
            let (shown, before) = (shown.to_owned(), format!("{before} "));
            self.push(number, machine, Action::StandsFor { shown, before });
        } else if let Some(machine) = comment.strip_suffix(" says") {
            self.speaker = Some(machine.to_owned());
        } else if let Some((path, machines)) = comment
            .strip_prefix("copied: ")
            .and_then(|rest| rest.split_once(" from "))
        {
            let Some((from, to)) = machines.split_once(" to ") else {
                return Err(format!("line {number}: copied to where?"));
            };
            let (path, from) = (path.to_owned(), from.to_owned());
            self.push(number, to, Action::Copy { path, from });
        } else {
            return Err(format!("line {number}: unknown comment \"{comment}\""));
        }
        Ok(())
    }

    fn block(&mut self, number: usize, info: &str, body: &str) -> Result<(), String> {
        let error = |what: &str| Err(format!("line {number}: {what}"));
        let prose = std::mem::take(&mut self.prose).to_lowercase();
        let awaits_output = std::mem::take(&mut self.awaits_output);
        if self.not_run.take().is_some() {
            return Ok(());
        }
        let mut words = info.split_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("text"), None, ..) => {
                if let Some(machine) = self.speaker.take() {
                    self.push(number, &machine, Action::Says(Expected::new(body)));
                    return Ok(());
                }
                match self.steps.last_mut().map(|step| &mut step.action) {
                    Some(Action::Run { output, .. }) if awaits_output => *output = Some(Expected::new(body)),
                    _ => return error("output without the command that prints it directly above"),
                }
            }
            (Some("sh"), Some(machine), manner, None) => {
                let manner = match manner {
                    None => Manner::Once,
                    Some("fails") => Manner::Fails,
                    Some("until") => Manner::Until,
                    Some("stays") => Manner::Stays,
                    Some(_) => return error("unknown manner; known are stays, until, fails"),
                };
                let commands = commands(body);
                if commands.is_empty() || manner == Manner::Stays && commands.len() > 1 {
                    return error("a block has commands, and one that stays has one alone");
                }
                if !prose.contains(machine) {
                    return error(&format!("the text above does not name the machine, {machine}"));
                }
                let output = None;
                let run = Action::Run {
                    commands,
                    manner,
                    output,
                };
                self.push(number, machine, run);
                self.awaits_output = true;
            }
            (Some(_), Some(place), None, None) if place.contains(':') => {
                let (machine, path) = place.split_once(':').expect("it contains one");
                let (path, text) = (path.to_owned(), body.to_owned());
                self.push(number, machine, Action::Write { path, text });
            }
            _ => {
                return error(
                    "the block says neither where it is run (sh MACHINE) nor that it is not (<!-- not run: REASON -->)",
                );
            }
        }
        Ok(())
    }

    fn push(&mut self, line: usize, machine: &str, action: Action) {
        let machine = machine.to_owned();
        self.steps.push(Step {
            line,
            machine,
            action,
        });
    }

    fn end(self) -> Result<Vec<Step>, String> {
        if let Some(line) = self.not_run {
            return Err(format!("line {line}: no block follows"));
        }
        for step in &self.steps {
            if let Action::Run {
                manner: Manner::Until,
                output: None,
                ..
            } = step.action
            {
                return Err(format!("line {}: until what? No output is shown", step.line));
            }
        }
        Ok(self.steps)
    }
}

/// Lines of a shell, those that end in a backslash joined with the next one. Comments and empty lines are none.
fn commands(body: &str) -> Vec<String> {
    let joined = body.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim);
    let commands = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    commands.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(manner: Manner, commands: &[&str], output: Option<&str>) -> Action {
        Action::Run {
            commands: commands.iter().map(ToString::to_string).collect(),
            manner,
            output: output.map(Expected::new),
        }
    }

    #[test]
    fn a_chapter_is_read_in_its_order() {
        let text = "# Title\n\nOn the server:\n\n```sh server stays\nsudo gramway up \\\n    --nat\n```\n\n```text\nready\n```\n\n\
                    Your laptop has a file:\n\n```ini laptop:/etc/a.conf\n[A]\n```\n\nThen, on the laptop\n```sh laptop\n# first\n\
                    one\ntwo # last\n```\n\n<!-- Ctrl-C on server -->\n\n<!-- server says -->\n```text\nbye\n```\n\n\
                    <!-- not run: a window -->\n```sh laptop\nchromium\n```\n<!-- copied: ~/a from server to laptop -->\n\
                    <!-- 4711 stands for what server printed behind: ls of -->\n";
        let steps = steps(text).unwrap();
        let told: Vec<_> = steps
            .iter()
            .map(|step| (step.line, step.machine.as_str()))
            .collect();
        let expected = [
            (5, "server"),
            (16, "laptop"),
            (21, "laptop"),
            (27, "server"),
            (30, "server"),
            (38, "laptop"),
            (39, "server"),
        ];
        assert_eq!(told, expected);
        let actions: Vec<_> = steps.into_iter().map(|step| step.action).collect();
        let file = Action::Write {
            path: "/etc/a.conf".to_owned(),
            text: "[A]\n".to_owned(),
        };
        let copy = Action::Copy {
            path: "~/a".to_owned(),
            from: "server".to_owned(),
        };
        let expected = [
            run(Manner::Stays, &["sudo gramway up      --nat"], Some("ready\n")),
            file,
            run(Manner::Once, &["one", "two # last"], None),
            Action::Interrupt,
            Action::Says(Expected::new("bye")),
            copy,
            Action::StandsFor {
                shown: "4711".to_owned(),
                before: "ls of ".to_owned(),
            },
        ];
        assert_eq!(actions, expected);
    }

    #[test]
    fn what_cannot_be_followed_is_an_error_with_its_line() {
        for (text, told) in [
            ("```\nls\n```\n", "line 1: the block says neither"),
            ("```sh\nls\n```\n", "line 1: the block says neither"),
            ("```bash\nls\n```\n", "line 1: the block says neither"),
            ("server\n```sh server soon\nls\n```\n", "line 2: unknown manner"),
            (
                "server\n```sh server stays\nls\nls\n```\n",
                "line 2: a block has commands",
            ),
            ("server\n```sh server\n```\n", "line 2: a block has commands"),
            (
                "here\n```sh server\nls\n```\n",
                "line 2: the text above does not name",
            ),
            ("server\n```sh server until\nls\n```\n", "line 2: until what?"),
            ("server\n```sh server\nls\n", "line 2: the block has no end"),
            ("```text\nls\n```\n", "line 1: output without the command"),
            (
                "server\n```sh server\nls\n```\nSo\n```text\na\n```\n",
                "line 6: output without",
            ),
            ("<!-- not run: -->\n", "line 1: a block that is not run"),
            ("<!-- not run: a window -->\n", "line 1: no block follows"),
            ("<!-- note -->\n", "line 1: unknown comment"),
            ("<!-- copied: ~/a from server -->\n", "line 1: copied to where?"),
            (
                "<!-- 7 stands for what server says -->\n",
                "line 1: behind which words?",
            ),
        ] {
            let error = steps(text).unwrap_err();
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }
}
