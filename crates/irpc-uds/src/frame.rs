//! Datagrams on a byte stream: two bytes of length, big-endian, before each. For sockets without message bounds.

use std::io;

/// Bytes before each datagram.
pub(crate) const PREFIX_BYTES: usize = 2;

/// Collects the bytes of a stream and finds the datagrams in them.
#[derive(Debug)]
pub(crate) struct Deframer {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    datagram_bytes_max: usize,
}

/// A length that no datagram may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BadLength(pub(crate) usize);

impl Deframer {
    /// For datagrams of at most `datagram_bytes_max`; room for a few of them.
    pub(crate) fn new(datagram_bytes_max: u16) -> Self {
        let datagram_bytes_max = usize::from(datagram_bytes_max);
        Self {
            buffer: vec![0; 4 * (PREFIX_BYTES + datagram_bytes_max)].into(),
            start: 0,
            end: 0,
            datagram_bytes_max,
        }
    }

    /// Calls `read` with room for at least one whole datagram; it returns how many bytes it put there.
    pub(crate) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        if self.buffer.len() - self.end < PREFIX_BYTES + self.datagram_bytes_max {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = &mut self.buffer[self.end..];
        let capacity = room.len();
        let count = read(room)?.min(capacity);
        self.end += count;
        Ok(count)
    }

    /// Takes the next whole datagram.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, BadLength> {
        let waiting = &self.buffer[self.start..self.end];
        let Some((prefix, rest)) = waiting.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes(*prefix));
        if len == 0 || len > self.datagram_bytes_max {
            return Err(BadLength(len));
        }
        if rest.len() < len {
            return Ok(None);
        }
        let start = self.start + PREFIX_BYTES;
        self.start = start + len;
        Ok(Some(&self.buffer[start..start + len]))
    }
}

/// The prefix of a datagram of `len` bytes.
pub(crate) fn prefix(len: usize) -> [u8; PREFIX_BYTES] {
    u16::try_from(len)
        .expect("QUIC sends datagrams of at most 65,527 bytes")
        .to_be_bytes()
}

/// Reads `input` as a stream that arrives in pieces whose length its first byte tells, and compares what comes out with
/// what is in it.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    const LONGEST: usize = 2_000;
    let Some((piece, stream)) = input.split_first() else {
        return;
    };
    let mut deframer = Deframer::new(LONGEST as u16);
    let mut expected = stream;
    for chunk in stream.chunks(usize::from(*piece).max(1)) {
        let copied = deframer.fill(|room| {
            room[..chunk.len()].copy_from_slice(chunk);
            Ok(chunk.len())
        });
        assert_eq!(copied.expect("a copy"), chunk.len());
        loop {
            match deframer.next() {
                Ok(Some(datagram)) => {
                    let (prefix, rest) = expected.split_at(PREFIX_BYTES);
                    let len = usize::from(u16::from_be_bytes([prefix[0], prefix[1]]));
                    assert_eq!(datagram, &rest[..len]);
                    expected = &rest[len..];
                }
                Ok(None) => break,
                Err(BadLength(len)) => {
                    assert_eq!(expected[..PREFIX_BYTES], (len as u16).to_be_bytes());
                    assert!(len == 0 || len > LONGEST, "{len} is a good length");
                    return;
                }
            }
        }
    }
    if let Some((prefix, rest)) = expected.split_first_chunk::<PREFIX_BYTES>() {
        assert!(
            rest.len() < usize::from(u16::from_be_bytes(*prefix)),
            "a whole datagram was kept back"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn datagrams_come_out_as_they_went_in_however_the_stream_is_cut(
            lengths in prop::collection::vec(1_usize..2_000, 1..12),
            cut in 1_usize..3_000,
        ) {
            let sent: Vec<Vec<u8>> = lengths.iter().zip(0_u8..).map(|(len, fill)| vec![fill; *len]).collect();
            let stream: Vec<u8> =
                sent.iter().flat_map(|datagram| [&prefix(datagram.len())[..], datagram].concat()).collect();
            let mut deframer = Deframer::new(2_000);
            let mut received = Vec::new();
            for chunk in stream.chunks(cut) {
                let mut chunk = chunk;
                while !chunk.is_empty() {
                    let taken = deframer.fill(|room| {
                        let count = room.len().min(chunk.len());
                        room[..count].copy_from_slice(&chunk[..count]);
                        Ok(count)
                    }).expect("a copy");
                    chunk = &chunk[taken..];
                    while let Some(datagram) = deframer.next().expect("good lengths") {
                        received.push(datagram.to_vec());
                    }
                }
            }
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn no_stream_panics(input in prop::collection::vec(any::<u8>(), 0..4_000)) {
            fuzz(&input);
        }
    }

    #[test]
    fn empty_and_oversized_datagrams_are_refused() {
        for len in [0_usize, 1_201] {
            let mut deframer = Deframer::new(1_200);
            deframer
                .fill(|room| {
                    room[..2].copy_from_slice(&prefix(len));
                    Ok(2)
                })
                .expect("a copy");
            assert_eq!(deframer.next(), Err(BadLength(len)));
        }
    }
}
