//! Rust source reduced to its code: comments and the contents of strings and characters become spaces, so that a word
//! found is a word used. Line breaks stay, so positions hold.

/// The source with everything blanked that is not code.
pub(super) fn code_only(source: &str) -> String {
    let mut output = source.as_bytes().to_vec();
    let mut position = 0;
    while position < source.len() {
        let rest = &source[position..];
        let length = match literal_or_comment(source, position) {
            Some(length) => {
                for byte in &mut output[position..position + length] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                length
            }
            None => rest.chars().next().map_or(1, char::len_utf8),
        };
        position += length;
    }
    String::from_utf8(output).expect("whole tokens were replaced by ASCII")
}

/// Lines (from 1) of `code` where `word` stands by itself; `::` and `_` do not end a word on their side.
pub(super) fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let mut lines: Vec<usize> = positions_of(code, word)
        .map(|start| line_at(code, start))
        .collect();
    lines.dedup();
    lines
}

/// Where `word` stands by itself, in bytes from the beginning of `code`.
pub(super) fn positions_of<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(start, _)| start)
        .filter(move |start| {
            let before = code[..*start].chars().next_back();
            let after = code[start + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

/// The line (from 1) of a position.
pub(super) fn line_at(code: &str, position: usize) -> usize {
    1 + code.as_bytes()[..position]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

/// The position from `start` on where one of `ends` stands outside brackets, or where the brackets around `start`
/// close, or the end of `code`. Angle brackets count where they pair, so `ends` are found in items and types, not in
/// expressions.
pub(super) fn end_of(code: &str, start: usize, ends: &[u8]) -> usize {
    let bytes = code.as_bytes();
    let mut open = Vec::new();
    for (index, &byte) in bytes.iter().enumerate().skip(start) {
        if open.is_empty() && ends.contains(&byte) {
            return index;
        }
        match byte {
            b'(' | b'[' | b'{' | b'<' => open.push(byte),
            // The head of an arrow closes nothing; nor does a shift inside an array's length.
            b'>' if index > 0 && matches!(bytes[index - 1], b'-' | b'=') => {}
            b'>' => {
                open.pop_if(|bracket| *bracket == b'<');
            }
            b')' | b']' | b'}' => {
                while open.pop_if(|bracket| *bracket == b'<').is_some() {}
                if open.pop().is_none() {
                    return index;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Length in bytes of the comment, string or character literal that starts at `position`, if one does.
fn literal_or_comment(source: &str, position: usize) -> Option<usize> {
    let rest = &source[position..];
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if let Some(content) = rest.strip_prefix('"') {
        return Some(1 + quoted(content));
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    let in_word = source[..position].chars().next_back().is_some_and(is_word);
    if in_word { None } else { raw_string(rest) }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut position = 0;
    while position < rest.len() {
        let here = &rest.as_bytes()[position..];
        if here.starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                break;
            }
        } else {
            position += 1;
        }
    }
    position
}

/// Length up to and with the closing quote.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut following = rest[1..].chars();
    let first = following.next()?;
    if first == '\\' {
        // The escaped character itself may be a quote.
        let escape = 2 + following.next()?.len_utf8();
        return rest.get(escape..)?.find('\'').map(|end| escape + end + 1);
    }
    (following.next() == Some('\'')).then_some(2 + first.len_utf8())
}

/// `r"…"`, `br#"…"#`, `cr"…"` and so on.
fn raw_string(rest: &str) -> Option<usize> {
    let after_prefix = ["r", "br", "cr"]
        .iter()
        .find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = after_prefix.bytes().take_while(|byte| *byte == b'#').count();
    let content = after_prefix[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = content
        .find(&close)
        .map_or(content.len(), |end| end + close.len());
    Some(rest.len() - content.len() + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_literals_are_no_code() {
        let source = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe /* unsafe */ unsafe */ let b = r#\"unsafe \" \
                      unsafe\"#;\nlet c = b\"unsafe\"; unsafe { }";
        assert_eq!(lines_with(&code_only(source), "unsafe"), [3]);
    }

    #[test]
    fn lifetimes_are_code_and_characters_are_not() {
        let code = code_only(
            "fn a<'unsafe_a>(b: &'static str) { let c = ['\"', '\\'', '\\u{41}', 'é']; unsafe {} }",
        );
        assert_eq!(lines_with(&code, "unsafe").len(), 1);
        assert!(code.contains("'static str") && !code.contains("u{41}") && !code.contains('é'));
    }

    #[test]
    fn a_word_is_whole() {
        assert!(lines_with("#[expect(unsafe_code)] my_unsafe", "unsafe").is_empty());
        assert_eq!(
            lines_with("std::time::Instant::now()\nInstant::nowhere", "Instant::now"),
            [1]
        );
    }

    #[test]
    fn an_end_is_outside_all_brackets_and_not_behind_those_around() {
        let end = |code: &str, ends: &[u8]| end_of(code, 0, ends);
        assert_eq!(end("a(b, c), d", b","), 7);
        assert_eq!(end("A<B, [C; 2]>; d", b",;"), 12);
        assert_eq!(end("Fn(A) -> B<C> => D, e", b","), 18);
        assert_eq!(end("[A; 1 << 2], b", b","), 11);
        assert_eq!(end("a), b", b","), 1);
        assert_eq!(end("{ a < b }, c", b","), 9);
        assert_eq!((end("a(b,", b","), end(">", b""), end("", b"")), (4, 1, 0));
        assert_eq!(
            [0, 1, 2, 3].map(|position| line_at("a\nb\n", position)),
            [1, 1, 2, 2]
        );
    }

    #[test]
    fn raw_identifiers_and_unfinished_literals_do_not_confuse() {
        assert_eq!(code_only("let r#type = bar\"x\";"), "let r#type = bar   ;");
        for source in ["\"open", "/* open", "r##\"open", "'", "'\\", "'\\u"] {
            assert_eq!(code_only(source).len(), source.len());
        }
    }
}
