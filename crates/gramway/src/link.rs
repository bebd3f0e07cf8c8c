//! Links in what people see: each is a secret wherever it stands, and so is a part of one.

use std::ffi::OsStr;

use tunnel_proto::link::SCHEME;

use crate::limits::SECRET_CHARACTERS_MIN;

/// Whether a text is a link, or the beginning of one: it is a secret wherever it stands.
pub(crate) fn is_link(text: &OsStr) -> bool {
    let start = text.as_encoded_bytes().get(..SCHEME.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(SCHEME.as_bytes()))
}

/// The text without what stands behind each `gramway://` up to the next white space or quotation mark.
fn without_links(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.to_ascii_lowercase().find(SCHEME) {
        let secret = start + SCHEME.len();
        shown.push_str(&rest[..secret]);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
        let end = rest[secret..].find(ends).unwrap_or(rest.len() - secret);
        if end > 0 {
            shown.push('…');
        }
        rest = &rest[secret + end..];
    }
    shown + rest
}

/// The text without links, and without what looks like a token or a pin: a link that was mistyped, or a part of one.
pub(crate) fn without_secrets(text: &str) -> String {
    let is_of_secrets = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let text = without_links(text);
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(|c| !is_of_secrets(c)) {
        let word = part.trim_end_matches(|c| !is_of_secrets(c));
        // Words have no capitals in them, and other random names seldom have both.
        let is_random = word.contains(|c: char| c.is_ascii_lowercase())
            && word.contains(|c: char| c.is_ascii_uppercase());
        if word.len() >= SECRET_CHARACTERS_MIN && is_random {
            shown.push('…');
            shown.push_str(&part[word.len()..]);
        } else {
            shown.push_str(part);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use tunnel_proto::Token;

    use super::*;

    const REST: &str = "@example.org:443?pin=sha256-AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM";

    /// A token, and a link with it.
    fn example() -> (String, String) {
        let token = Token::from_bytes([9; 32]).reveal();
        let link = format!("{SCHEME}{token}{REST}");
        (token, link)
    }

    #[test]
    fn a_link_in_a_message_loses_everything_that_is_secret() {
        let (_, link) = example();
        let text = format!("unexpected argument '{link}' found; GRAMWAY://x and \"{link}\"");
        assert_eq!(
            without_links(&text),
            "unexpected argument 'gramway://…' found; GRAMWAY://… and \"gramway://…\""
        );
        let plain = "it does not start with gramway:// — ärger";
        assert_eq!(without_links(plain), plain);
        assert!(is_link(OsStr::new(&link)) && !is_link(OsStr::new("./link")));
    }

    #[test]
    fn a_mistyped_link_or_a_part_of_one_is_not_shown() {
        let (token, link) = example();
        let mistyped = link.replacen("gramway://", "gramwya:/", 1);
        for text in [
            &mistyped,
            &token,
            &token[..40],
            &format!("{token}x"),
            &format!("--{token}=1"),
        ] {
            let shown = without_secrets(&format!("unexpected argument '{text}' found"));
            assert!(!shown.contains(&token[..20]) && shown.contains('…'), "{shown}");
        }
        let plain =
            "cannot read /nix/store/l3c4aaaaaaaaaaaaaaaaaaaaaaaaaaaa-gramway/LongNameOfAFile-1.2.3: denied";
        assert_eq!(without_secrets(plain), plain);
    }
}
