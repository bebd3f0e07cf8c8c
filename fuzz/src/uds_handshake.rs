//! The plaintext handshake of irpc-uds, which carries QUIC's transport parameters: no bytes make either side panic or
//! keep more than its bound, and parameters that were understood are the same after they were written and read again.

/// One byte of piece length, then handshake bytes.
pub fn run(data: &[u8]) {
    irpc_uds::fuzzing::handshake(data);
}

/// A handshake message of this content.
fn message(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes()[..], content].concat()
}

/// RFC 9000 section 18: identifier, length, value; here each of one byte.
fn parameter(id: u8, value: &[u8]) -> Vec<u8> {
    [&[id, value.len() as u8][..], value].concat()
}

/// Whole handshakes of both sides, in one piece and in many, and refused ones.
pub fn seeds() -> Vec<Vec<u8>> {
    let common = [
        parameter(0x01, &[0x80, 0, 0x75, 0x30]),
        parameter(0x03, &[0x80, 0, 0xff, 0xf7]),
        parameter(0x04, &[0x81, 0, 0, 0]),
        parameter(0x05, &[0x80, 0x10, 0, 0]),
        parameter(0x06, &[0x80, 0x10, 0, 0]),
        parameter(0x07, &[0x80, 0x10, 0, 0]),
        parameter(0x08, &[0x80, 0, 0x40, 0]),
        parameter(0x09, &[0x80, 0, 0x40, 0]),
        parameter(0x0a, &[3]),
        parameter(0x0b, &[25]),
        parameter(0x0c, &[]),
        parameter(0x0e, &[5]),
        parameter(0x0f, b"8 bytes."),
        parameter(0x20, &[0x80, 0x10, 0, 0]),
    ]
    .concat();
    let of_server = [
        parameter(0x00, b"original"),
        parameter(0x02, &[7; 16]),
        common.clone(),
    ]
    .concat();
    let preferred = [&[127, 0, 0, 1, 1, 1][..], &[0; 18], &[8], &[9; 8], &[6; 16]].concat();
    let mut all = vec![
        message(&common),
        message(&of_server),
        [message(&common), message(&[])].concat(),
        [message(&of_server), message(&[])].concat(),
        message(&[of_server, parameter(0x0d, &preferred)].concat()),
        message(&parameter(0x0e, &[1])),
        message(&[]),
        vec![0xff, 0xff, 0],
    ];
    for (seed, piece) in all.iter_mut().zip([255, 255, 1, 9, 40, 2, 1, 3]) {
        seed.insert(0, piece);
    }
    all
}
