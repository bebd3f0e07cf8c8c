//! The frames of an Initial: what is read is what stands there, in order, and the walk ends.

use packet::varint;
use reality::frames::{Frame, frames};

/// The payload of a packet.
pub fn run(data: &[u8]) {
    let mut last = None;
    let mut crypto = 0;
    for (count, frame) in frames(data).enumerate() {
        assert!(count < data.len(), "each frame takes a byte at least");
        assert!(!matches!(last, Some(Err(_))), "an error is the last");
        if let Ok(Frame::Crypto { offset, data: piece }) = frame {
            crypto += 1 + varint::len(offset) + varint::len(piece.len() as u64) + piece.len();
            let start = piece.as_ptr() as usize - data.as_ptr() as usize;
            assert!(start + piece.len() <= data.len());
            // Written again it is the same frame.
            let mut again = vec![6];
            varint::write(offset, &mut again);
            varint::write(piece.len() as u64, &mut again);
            again.extend_from_slice(piece);
            assert_eq!(frames(&again).collect::<Vec<_>>(), [frame]);
        }
        last = Some(frame);
    }
    assert!(crypto <= data.len());
}

/// All four frames; an ACK with ranges and marks; one that reaches below 0; another frame.
pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        b"\x06\x02\x03abc\0\0\0\x01\x02\x09\x40\x00\x01\x02\x03\x01\x06\0\0\0".to_vec(),
        b"\x03\x09\x40\x00\x01\x02\x03\x01\x01\x02\x03".to_vec(),
        b"\x02\x05\0\x01\x02\x02\0".to_vec(),
        b"\x06\x7f\xff\x40\x02hi\x1c\0\0\0".to_vec(),
    ]
}
