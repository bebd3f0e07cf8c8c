//! What a command prints, compared with what the book shows.
//!
//! In the book `…` stands for one or more characters, and a line that is `…` alone for any number of lines. All other
//! characters are compared, except spaces at the ends of lines.

/// Stands for what differs from run to run.
const ELLIPSIS: char = '…';

/// Parameters and letter of the sequence that erases the cursor's line, as progress bars do to be drawn again.
const ERASE_LINE: &str = "2K";

/// Lines that the book shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    lines: Vec<String>,
}

impl Expected {
    /// What stands in a fenced block.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let lines = text.lines().map(|line| line.trim_end().to_owned()).collect();
        Self { lines }
    }

    /// Whether these lines, all of them, are what the book shows.
    #[must_use]
    pub fn is_all_of(&self, printed: &[&str]) -> bool {
        rest_behind(&self.lines, printed).any(|rest| rest == printed.len())
    }

    /// Finds what the book shows among these lines: how many of them it ends behind.
    #[must_use]
    pub fn found_in(&self, printed: &[&str]) -> Option<usize> {
        let mut starts = 0..printed.len();
        starts.find_map(|start| Some(start + rest_behind(&self.lines, &printed[start..]).next()?))
    }

    /// Finds each line that the book shows among these lines, in any order: how many of them the last one found ends
    /// behind.
    #[must_use]
    pub fn found_in_any_order(&self, printed: &[&str]) -> Option<usize> {
        let shown = self.lines.iter().filter(|line| !is_ellipsis(line));
        let ends = shown.map(|shown| {
            let found = printed
                .iter()
                .position(|printed| is_line(shown, printed.trim_end()));
            found.map(|index| index + 1)
        });
        ends.collect::<Option<Vec<usize>>>()?.into_iter().max()
    }

    /// As the book shows it, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }
}

/// The numbers of printed lines that all the shown lines may cover, the smallest first.
fn rest_behind(shown: &[String], printed: &[&str]) -> impl Iterator<Item = usize> {
    // Whether the lines shown so far may cover the first N printed ones.
    let mut covers = vec![false; printed.len() + 1];
    covers[0] = true;
    for line in shown {
        let before = std::mem::replace(&mut covers, vec![false; printed.len() + 1]);
        if is_ellipsis(line) {
            let first = before.iter().position(|covers| *covers);
            let first = first.unwrap_or(before.len());
            covers[first..].fill(true);
            continue;
        }
        for (index, printed) in printed.iter().enumerate() {
            covers[index + 1] = before[index] && is_line(line, printed.trim_end());
        }
    }
    let covered = covers.into_iter().enumerate();
    covered.filter_map(|(count, covers)| covers.then_some(count))
}

fn is_ellipsis(line: &str) -> bool {
    line.trim().chars().eq([ELLIPSIS])
}

fn is_line(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once(ELLIPSIS) else {
        return shown == printed;
    };
    let Some(printed) = printed.strip_prefix(start) else {
        return false;
    };
    let mut ends = printed
        .char_indices()
        .map(|(at, character)| at + character.len_utf8());
    ends.any(|end| is_line(rest, &printed[end..]))
}

/// What a terminal would show: without the escape sequences that colour it (ECMA-48), without carriage returns, and
/// without what was erased from its line.
#[must_use]
pub fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\r' => {}
            '\u{1b}' => {
                // ESC [, parameters, and a final letter; any other sequence is two characters.
                if characters.next() != Some('[') {
                    continue;
                }
                let mut parameters = String::new();
                let letter = characters.by_ref().find(|next| {
                    parameters.push(*next);
                    ('@'..='~').contains(next)
                });
                if letter.is_some() && parameters == ERASE_LINE {
                    let line = plain.rfind('\n').map_or(0, |end| end + 1);
                    plain.truncate(line);
                }
            }
            _ => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_compared_but_for_what_the_book_leaves_out() {
        let shown = Expected::new("connected to …:443 in … ms\ndone");
        assert!(shown.is_all_of(&["connected to 203.0.113.10:443 in 12 ms", "done "]));
        for printed in [
            &["connected to :443 in 12 ms", "done"][..],
            &["connected to 203.0.113.10:443 in 12 s", "done"],
            &["connected to 203.0.113.10:443 in 12 ms"],
            &["connected to 203.0.113.10:443 in 12 ms", "done", "more"],
            &["connected to 203.0.113.10:443 in 12 ms", "more", "done"],
        ] {
            assert!(!shown.is_all_of(printed), "{printed:?}");
        }
    }

    #[test]
    fn a_line_that_is_left_out_stands_for_any_lines() {
        let shown = Expected::new("first\n…\nlast");
        assert!(shown.is_all_of(&["first", "last"]));
        assert!(shown.is_all_of(&["first", "last", "b", "last"]));
        assert!(!shown.is_all_of(&["first", "last", "b"]));
        assert!(!shown.is_all_of(&["a", "last"]));
    }

    #[test]
    fn a_command_that_stays_may_print_more_before_and_later() {
        let shown = Expected::new("listening\nready…");
        assert_eq!(shown.found_in(&["listening", "ready now", "more"]), Some(2));
        assert_eq!(
            shown.found_in(&["before", "listening", "ready now", "more"]),
            Some(3)
        );
        assert_eq!(shown.found_in(&["before", "listening"]), None);
    }

    #[test]
    fn lines_of_several_threads_come_in_any_order() {
        let shown = Expected::new("…\nready…\n…\nlistening");
        assert_eq!(
            shown.found_in_any_order(&["listening", "a", "ready now", "b"]),
            Some(3)
        );
        assert_eq!(shown.found_in_any_order(&["ready now", "listening"]), Some(2));
        assert_eq!(shown.found_in_any_order(&["ready now", "b"]), None);
    }

    #[test]
    fn colours_and_bars_are_not_compared() {
        assert_eq!(without_escapes("\u{1b}[1;32mdone\u{1b}[0m\r\n"), "done\n");
        assert_eq!(without_escapes("plain [text]\n"), "plain [text]\n");
        let drawn = "above\nbar 0 %\r\u{1b}[2Kbar \u{1b}[K1 %\r\u{1b}[2Kend\n";
        assert_eq!(without_escapes(drawn), "above\nend\n");
    }
}
