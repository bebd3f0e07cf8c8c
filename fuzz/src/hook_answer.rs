//! Answers of an authentication hook: only a status of 200 and a body that says so let anybody in, by a name that
//! changes nothing on a terminal.

use serde_json::Value;

use crate::answer::{Verdict, read};
use crate::input::Input;

/// The status, then the body.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let status = input.u16();
    let body = input.0;
    let read = || read(status, || Ok(body.to_vec()));
    let verdict = read();
    assert_eq!(verdict, read());
    if let Ok(Verdict::Granted(name)) = &verdict {
        assert_eq!(status, 200);
        assert!(
            !name.is_empty() && !name.chars().any(char::is_control),
            "{name:?}"
        );
        let said: Value = serde_json::from_slice(body).expect("it was read");
        let (ok, id) = (said["ok"].as_bool(), said["id"].as_str());
        assert_eq!((ok, id), (Some(true), Some(name.as_str())));
    }
}

/// A yes, a no, names that are none, and each kind of status.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |status: u16, body: &[u8]| [&status.to_be_bytes()[..], body].concat();
    vec![
        seed(200, br#"{"ok": true, "id": "alice"}"#),
        seed(200, br#"{"ok": false, "id": ""}"#),
        seed(
            200,
            br#"{"id": "\u001b[2J", "ok": true, "more": {"a": [1, null]}}"#,
        ),
        seed(200, br#"[true, "alice"]"#),
        seed(200, br#"{"ok": true, "ok": true, "id": "a"}"#),
        seed(200, b"{\"ok\": true, \"id\": \"a\", \"\xa5\": 1}"),
        seed(200, b"\xff"),
        seed(403, b"no"),
        seed(500, b""),
    ]
}
