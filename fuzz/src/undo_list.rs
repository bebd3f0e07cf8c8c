//! The list of changes that a start or the guardian undoes: what is understood of any text is the same after it was
//! written and read again.

/// The text of a list.
pub fn run(data: &[u8]) {
    host::fuzzing::undo_list(data);
}

/// A list with every kind of change, and lists that are none.
pub fn seeds() -> Vec<Vec<u8>> {
    let holder = r#""holder":{"id":7,"started_ticks":42,"boot":"b","network":1}"#;
    let changes = [
        r#"{"parameter":{"name":"net/ipv4/ip_forward","before":"0","after":"1"}}"#,
        r#"{"route":{"destination":"2001:db8::1","index":3,"gateway":"fe80::1","source":null}}"#,
        r#""nat""#,
    ];
    let list = |changes: &str| format!(r#"{{"version":1,{holder},"changes":[{changes}]}}"#).into_bytes();
    let mut all: Vec<Vec<u8>> = changes.iter().map(|change| list(change)).collect();
    all.extend([
        list(&changes.join(",")),
        list(""),
        b"{\"version\":9}".to_vec(),
        b"[]".to_vec(),
    ]);
    all
}
