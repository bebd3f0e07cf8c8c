//! Datagrams of strangers: their packets, Initials with the keys that everybody knows, and the hello put together from
//! them.

use packet::varint;
use reality::hello_assembly::{HelloAssembly, Progress, first_initial};
use reality::initial::{InitialKeys, Sender};
use reality::long_header::{Part, destination_id, parts};

use crate::input::Input;

const IDS: (&[u8], &[u8]) = (&[0xd1; 8], &[0xc1; 5]);

/// A byte says whether the rest is a datagram, or the frames of Initials: each has a length of two bytes before it.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.byte() & 1 == 0 {
        datagram(input.0);
    } else {
        flight(&mut input);
    }
}

/// The parts are all of the datagram; none opens, because nobody guesses the tag.
fn datagram(bytes: &[u8]) {
    let mut space = Vec::new();
    let mut length = 0;
    for part in parts(bytes) {
        length += match part {
            Part::Long(packet) => {
                assert!(packet.number_offset <= packet.bytes.len());
                assert_eq!(destination_id(packet.bytes), Some(packet.destination_id));
                let keys = InitialKeys::new(packet.destination_id);
                for sender in [Sender::Client, Sender::Server] {
                    let _ = keys.open(sender, &packet, Some(9), &mut space);
                }
                packet.bytes.len()
            }
            Part::Short(rest) | Part::Unreadable(rest) => rest.len(),
        };
    }
    assert_eq!(length, bytes.len());
    if let Some(initial) = first_initial(bytes) {
        let _ = HelloAssembly::new(&initial).push(bytes, &mut space);
    }
}

/// What is sealed opens again, and what is put together is what was sent.
fn flight(input: &mut Input<'_>) {
    let keys = InitialKeys::new(IDS.0);
    let mut space = Vec::new();
    let mut assembly: Option<HelloAssembly> = None;
    let mut number = 0;
    while !input.is_empty() && number < 6 {
        let bytes = usize::from(input.u16() % 1_300);
        let mut frames = input.take(bytes).to_vec();
        frames.resize(frames.len().max(1_180), 0);
        let datagram = keys.seal(Sender::Client, IDS, &[], number, 1, &frames);
        number += 1;
        let packet = first_initial(&datagram).expect("as a client sends it");
        let opened = keys.open(Sender::Client, &packet, None, &mut space);
        assert_eq!(opened.expect("sealed with these keys").payload, frames);
        let assembly = assembly.get_or_insert_with(|| HelloAssembly::new(&packet));
        match assembly.push(&datagram, &mut space) {
            Progress::Incomplete => {}
            Progress::Refused => return,
            Progress::Complete => {
                let message = assembly.message();
                assert_eq!(
                    message.len(),
                    4 + usize::from(message[1]) * 65_536 + length(message)
                );
                assert!(reality::client_hello::ClientHello::parse(message).is_ok());
                return;
            }
        }
    }
}

/// The low 16 bits of a message's length.
fn length(message: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([message[2], message[3]]))
}

/// A hello in one, two and three pieces; coalesced packets; the first bytes of packets of all kinds.
pub fn seeds() -> Vec<Vec<u8>> {
    let hello = crate::client_hello::seeds().swap_remove(0);
    let crypto = |part: std::ops::Range<usize>| {
        let mut frame = vec![6];
        varint::write(part.start as u64, &mut frame);
        varint::write(part.len() as u64, &mut frame);
        frame.extend_from_slice(&hello[part]);
        [&(frame.len() as u16).to_be_bytes()[..], &frame].concat()
    };
    let end = hello.len();
    let keys = InitialKeys::new(IDS.0);
    let sealed = keys.seal(Sender::Client, IDS, b"token", 300, 2, &[1; 40]);
    vec![
        [&[1][..], &crypto(0..end)].concat(),
        [&[1][..], &crypto(50..end), &crypto(0..50)].concat(),
        [&[1][..], &crypto(100..end), &crypto(0..20), &crypto(10..110)].concat(),
        [&[0][..], &sealed, &sealed, &[0x41; 30]].concat(),
        b"\0\xe3\0\0\0\x01\x02ab\x01c\x05\x01\x02\x03\x04\x05\xf0\0\0\0\x01\0\0retry".to_vec(),
        b"\0\xc3\x1a\x2a\x3a\x4a\x20other version".to_vec(),
    ]
}
