//! What a name server of a test answers.

use std::net::Ipv4Addr;

/// The answer to a question (RFC 1035 section 4.1), good for a second; `None` where that is not one.
#[must_use]
pub fn answer(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let end = 12 + question.get(12..)?.iter().position(|byte| *byte == 0)? + 5;
    let is_v4 = question.get(end - 4..end)? == [0, 1, 0, 1];
    let mut answer = question[..end].to_vec();
    // A recursive answer without an error: one question, an address or none.
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
    if is_v4 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}
