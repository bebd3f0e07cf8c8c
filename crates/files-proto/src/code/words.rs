//! The 512 words of codes: four to seven letters, and no two that one letter makes the same.

use std::sync::LazyLock;

/// Bits of a word.
pub(super) const WORD_BITS: u32 = 9;

/// In alphabetical order, with spaces and line ends between them.
const TEXT: &str = include_str!("words.txt");

static WORDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| TEXT.split_ascii_whitespace().collect());

/// The word of a number.
pub(super) fn word(index: u16) -> &'static str {
    WORDS[usize::from(index)]
}

/// The number of a word.
pub(super) fn find(word: &str) -> Option<u16> {
    WORDS.binary_search(&word).ok().map(|index| index as u16)
}

/// The word that one letter more, less, another or two exchanged make of `typed`.
pub(super) fn closest(typed: &str) -> Option<&'static str> {
    WORDS
        .iter()
        .copied()
        .find(|word| one_apart(word.as_bytes(), typed.as_bytes()))
}

/// Whether one letter makes them the same, or two that were exchanged.
fn one_apart(first: &[u8], second: &[u8]) -> bool {
    let (short, long) = if first.len() <= second.len() {
        (first, second)
    } else {
        (second, first)
    };
    let same = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    let (short_rest, long_rest) = (&short[same..], &long[same..]);
    match long.len() - short.len() {
        0 => match (short_rest, long_rest) {
            ([a, b, rest @ ..], [c, d, other @ ..]) => {
                short_rest[1..] == long_rest[1..] || (a == d && b == c && rest == other)
            }
            _ => short_rest.len() <= 1,
        },
        1 => *short_rest == long_rest[1..],
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FILE-30.
    #[test]
    fn there_are_512_words_no_two_of_which_one_letter_makes_the_same() {
        assert_eq!(WORDS.len(), 1 << WORD_BITS);
        assert!(WORDS.is_sorted());
        for (place, word) in WORDS.iter().enumerate() {
            assert!((4..=7).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase()));
            for other in &WORDS[..place] {
                assert!(
                    word != other && !one_apart(word.as_bytes(), other.as_bytes()),
                    "{word} {other}"
                );
            }
        }
    }

    #[test]
    fn one_letter_is_noticed() {
        for typed in ["mapl", "mapple", "naple", "maplf", "ampel", "mpale", "maple"] {
            assert_eq!(
                one_apart(b"maple", typed.as_bytes()),
                !matches!(typed, "ampel"),
                "{typed}"
            );
        }
        assert!(!one_apart(b"maple", b"map") && !one_apart(b"maple", b"otter"));
    }
}
