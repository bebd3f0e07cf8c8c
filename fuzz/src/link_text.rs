//! A server's link: what is understood of any text comes back from its text form, an error never repeats the token, and
//! what is shown of a text has no more of a link than its beginning.

use tunnel_proto::link::Link;

use crate::link::without_secrets;

/// Shortest text in the place of the token whose repetition is none by chance, in bytes.
const TOKEN_BYTES_MIN: usize = 32;

/// The text.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Link::parse(text) {
        Ok(link) => assert_eq!(Link::parse(&link.reveal()).as_ref(), Ok(&link)),
        Err(error) => {
            let token = text
                .trim()
                .strip_prefix("gramway://")
                .and_then(|rest| rest.split_once('@'));
            if let Some((token, _)) = token.filter(|(token, _)| token.len() >= TOKEN_BYTES_MIN) {
                assert!(!error.to_string().contains(token), "the token is repeated");
            }
        }
    }
    let shown = without_secrets(text);
    assert_eq!(without_secrets(&shown), shown);
}

/// Links with everything that they may have, and broken ones.
pub fn seeds() -> Vec<Vec<u8>> {
    let token = "A".repeat(43);
    let good = format!("gramway://{token}@example.org:443,[2001:db8::1]:4433?pin=sha256-{token}#a%20name");
    let cover = good
        .replace("pin=sha256-", "!cover=")
        .replace('#', "&!name=www.example.org#");
    let all = [
        good.clone(),
        cover.clone(),
        cover.replace("www.", "%77ww."),
        cover.replace("www.example.org", "192.0.2.1"),
        cover.replace("!cover", "pin=x&cover"),
        good.replace("?pin", "?later=1&!must=2&pin"),
        good.replace("%20", "%zz"),
        good.replace(":443,", ","),
        good.replace("sha256", "sha1"),
        format!("'{good}' and GRAMWAY://x {good}"),
        good[..60].to_owned(),
    ];
    all.map(String::into_bytes).to_vec()
}
