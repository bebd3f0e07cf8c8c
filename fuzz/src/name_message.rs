//! Questions for names that clients ask, and what name servers answer: only what answers the question is passed on.

/// Two bytes of a number, one of the question's length, a question, an answer.
pub fn run(data: &[u8]) {
    tunnel::fuzzing::name_message(data);
}

/// Questions with their answers, a refusal, one with another name, and a name that does not end.
pub fn seeds() -> Vec<Vec<u8>> {
    let question = |name: &[u8]| {
        let header = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        [&header[..], name, &[0, 1, 0, 1]].concat()
    };
    let answer = |name: &[u8], flags: u8| {
        let mut answer = question(name);
        answer[..4].copy_from_slice(&[1, 2, 0x81, flags]);
        answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01");
        answer
    };
    let exchange =
        |question: &[u8], answer: &[u8]| [&[1, 2, question.len() as u8][..], question, answer].concat();
    vec![
        exchange(&question(b"\x01a\x02bc\0"), &answer(b"\x01A\x02bC\0", 0x80)),
        exchange(&question(b"\x01a\x02bc\0"), &answer(b"\x01a\x02bc\0", 0x85)),
        exchange(&question(b"\x01a\x02bc\0"), &answer(b"\x01x\x02bc\0", 0x80)),
        exchange(&question(b"\0"), &answer(b"\0", 0x82)),
        exchange(&question(b"\x3faaa"), b""),
        exchange(&question(b"\xc0\x0c"), &answer(b"\xc0\x0c", 0)),
    ]
}
