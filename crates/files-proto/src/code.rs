//! Codes by which two people meet: `7341-maple-otter@files.example.org`, a number and two words.
//!
//! The number is public: by it the server, or the local network, finds who waits. The words are the secret, 18 bits of
//! it; `exchange` makes sure that whoever has no words gets one guess (FILE-31 to FILE-34).

mod exchange;
mod words;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub use exchange::{ExchangeError, Guest, Host, Parties, Progress, number_of};

use crate::limits::{CODE_NUMBER_MAX, CODE_NUMBER_MIN};
use words::{WORD_BITS, closest, word};

/// A code (FILE-30). Its words are secret: `Debug` does not show them.
///
/// ```
/// use files_proto::code::Code;
///
/// let code: Code = "7341-maple-otter@files.example.org:4433".parse()?;
/// assert_eq!(code.number(), 7341);
/// assert_eq!(code.host(), Some("files.example.org:4433"));
/// # Ok::<(), files_proto::code::ParseCodeError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    number: u32,
    words: [u16; 2],
    host: Option<String>,
}

/// A text that is no code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseCodeError {
    /// Not a number and two words.
    #[error(
        "a code is a number and two words, such as `7341-maple-otter`, with `@HOST` behind it or without"
    )]
    Shape,
    /// The number is not one of a code.
    #[error("`{0}` is not the number of a code: from {CODE_NUMBER_MIN} to {CODE_NUMBER_MAX}")]
    Number(String),
    /// A word that is in no code.
    #[error("no code has the word `{word}`{}", suggestion(*.closest))]
    Word {
        /// What was typed.
        word: String,
        /// What it may have meant.
        closest: Option<&'static str>,
    },
    /// The host cannot be one.
    #[error("`{0}` is no host: a name or an address, with `:PORT` behind it or without")]
    Host(String),
}

fn suggestion(closest: Option<&str>) -> String {
    closest.map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

impl Code {
    /// A new code with this number; `seed` is random and secret.
    ///
    /// # Panics
    /// When the number is none of a code.
    #[must_use]
    pub fn new(number: u32, host: Option<String>, seed: &[u8; 32]) -> Self {
        assert!(
            (CODE_NUMBER_MIN..=CODE_NUMBER_MAX).contains(&number),
            "guests have numbers of codes"
        );
        let bits = u32::from_be_bytes(
            blake3::derive_key("gramway files 1 words of a code", seed)[..4]
                .try_into()
                .expect("4 bytes"),
        );
        let mask = (1 << WORD_BITS) - 1;
        Self {
            number,
            words: [bits & mask, bits >> WORD_BITS & mask].map(|index| index as u16),
            host,
        }
    }

    /// By which number the one who waits is found.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The Gramway server that both use, `HOST` or `HOST:PORT`; `None` on the local network.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// What both must know: the words.
    fn password(&self) -> String {
        format!("{}-{}", word(self.words[0]), word(self.words[1]))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.number, self.password())?;
        match &self.host {
            Some(host) => write!(formatter, "@{host}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Code({}-…)", self.number)
    }
}

impl FromStr for Code {
    type Err = ParseCodeError;

    /// Takes what people type: upper case, and spaces or several dashes between the parts, are the same.
    fn from_str(text: &str) -> Result<Self, ParseCodeError> {
        let text = text.trim();
        let (parts, host) = match text.split_once('@') {
            Some((parts, host)) => (parts, Some(parse_host(host.trim())?)),
            None => (text, None),
        };
        let parts: Vec<&str> = parts
            .split(|character: char| character == '-' || character.is_whitespace())
            .filter(|part| !part.is_empty())
            .collect();
        let [number, first, second] = parts[..] else {
            return Err(ParseCodeError::Shape);
        };
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        let number = number
            .parse()
            .ok()
            .filter(|number| is_number && (CODE_NUMBER_MIN..=CODE_NUMBER_MAX).contains(number))
            .ok_or_else(|| ParseCodeError::Number(shown(number)))?;
        let find = |typed: &str| {
            let lower = typed.to_lowercase();
            words::find(&lower).ok_or_else(|| ParseCodeError::Word {
                closest: closest(&lower),
                word: shown(typed),
            })
        };
        Ok(Self {
            number,
            words: [find(first)?, find(second)?],
            host,
        })
    }
}

/// What of a text that was typed is repeated in an error.
fn shown(text: &str) -> String {
    text.chars().take(32).flat_map(char::escape_debug).collect()
}

/// `NAME`, `NAME:PORT`, an address, or one in brackets with a port.
fn parse_host(text: &str) -> Result<String, ParseCodeError> {
    let error = || ParseCodeError::Host(shown(text));
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or_else(error)?;
        address.parse::<std::net::Ipv6Addr>().map_err(|_| error())?;
        let port = if port.is_empty() {
            None
        } else {
            Some(port.strip_prefix(':').ok_or_else(error)?)
        };
        (None, port)
    } else if text.parse::<std::net::Ipv6Addr>().is_ok() {
        (None, None)
    } else {
        match text.split_once(':') {
            Some((name, port)) => (Some(name), Some(port)),
            None => (Some(text), None),
        }
    };
    let is_name = |name: &str| {
        let part = |character: char| character.is_alphanumeric() || matches!(character, '-' | '_');
        name.len() <= 253
            && name
                .split('.')
                .all(|label| !label.is_empty() && label.chars().all(part))
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    // A dot at the end is a name's own.
    if name.is_none_or(|name| is_name(name.strip_suffix('.').unwrap_or(name))) && port.is_none_or(is_port) {
        Ok(text.to_owned())
    } else {
        Err(error())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// FILE-30.
    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code: Code = "7341-maple-otter".parse().unwrap();
        for text in [" 7341-MAPLE-Otter\n", "7341 maple otter", "7341 - maple--otter"] {
            assert_eq!(text.parse(), Ok(code.clone()), "{text}");
        }
        for host in [
            "example.org",
            "example.org.",
            "host_1:1",
            "192.0.2.1:65535",
            "2001:db8::1",
            "[2001:db8::1]",
            "[::1]:443",
            "müller.example",
        ] {
            let with_host: Code = format!("7341-maple-otter@{host}").parse().unwrap();
            assert_eq!(with_host.host(), Some(host));
            assert_eq!(with_host.to_string(), format!("7341-maple-otter@{host}"));
        }
    }

    /// FILE-30: a typing error is found before anybody is asked, as a guess would use up the code.
    #[test]
    fn what_is_no_code_is_refused_with_what_it_may_have_meant() {
        let error = |text: &str| text.parse::<Code>().unwrap_err();
        for text in ["", "7341", "7341-maple", "7341-maple-otter-otter", "maple-otter"] {
            assert_eq!(error(text), ParseCodeError::Shape, "{text}");
        }
        for number in ["999", "100000", "x", "07341", "+7341", "99999999999999999999"] {
            assert_eq!(
                error(&format!("{number}-maple-otter")),
                ParseCodeError::Number(number.to_owned())
            );
        }
        assert_eq!(
            error("7341-mapel-otter").to_string(),
            "no code has the word `mapel`; did you mean `maple`?"
        );
        assert_eq!(
            error("7341-maple-qqqqqqqqqq").to_string(),
            "no code has the word `qqqqqqqqqq`"
        );
        for host in [
            "",
            "a b",
            "a..b",
            "host:",
            "host:0",
            "host:65536",
            "host:1:2",
            "[::1",
            "[::1]1",
            "[x]:1",
            "a/b",
            "-:+1",
        ] {
            assert!(
                matches!(
                    error(&format!("7341-maple-otter@{host}")),
                    ParseCodeError::Host(_)
                ),
                "{host}"
            );
        }
    }

    /// FILE-30.
    #[test]
    fn words_are_not_shown_by_debug_and_differ_with_the_seed() {
        let codes: std::collections::BTreeSet<String> = (0..200_u8)
            .map(|byte| Code::new(1_000, None, &[byte; 32]).to_string())
            .collect();
        assert!(codes.len() > 195);
        let code: Code = "7341-maple-otter@example.org".parse().unwrap();
        assert_eq!(format!("{code:?}"), "Code(7341-…)");
    }

    proptest! {
        /// FILE-30.
        #[test]
        fn every_code_is_read_as_it_is_shown(number in CODE_NUMBER_MIN..=CODE_NUMBER_MAX, seed: [u8; 32], host: bool) {
            let code = Code::new(number, host.then(|| "example.org:443".to_owned()), &seed);
            prop_assert_eq!(code.to_string().parse(), Ok(code));
        }

        #[test]
        fn any_text_is_a_code_or_an_error(text in ".{0,60}") {
            if let Ok(code) = text.parse::<Code>() {
                prop_assert_eq!(code.to_string().parse(), Ok(code));
            }
        }
    }
}
