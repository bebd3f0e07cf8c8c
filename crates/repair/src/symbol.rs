//! Payloads as the code sees them: a length, the bytes, zeros (REPAIR-7).
//!
//! On the wire an element of the field is two neighbouring bytes. The SIMD engine wants the low bytes of 32 elements
//! and then their high bytes, so a symbol is sorted once when it comes, and back once when it leaves.

/// Bytes of the length in front of a payload.
pub(crate) const LENGTH_BYTES: usize = 2;

/// A symbol in chunks of 32 elements.
#[derive(Debug, Default)]
pub(crate) struct Symbol {
    chunks: Vec<[u8; 64]>,
}

impl Symbol {
    pub(crate) fn chunks(&self) -> &[[u8; 64]] {
        &self.chunks
    }

    pub(crate) fn chunks_mut(&mut self) -> &mut [[u8; 64]] {
        &mut self.chunks
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.chunks.capacity() * 64
    }

    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
    }

    /// Appends zeros up to so many chunks.
    pub(crate) fn lengthen(&mut self, chunks: usize) {
        if self.chunks.len() < chunks {
            self.chunks.resize(chunks, [0; 64]);
        }
    }

    /// Holds a payload with its length.
    pub(crate) fn hold_payload(&mut self, payload: &[u8]) {
        debug_assert!(payload.len() <= usize::from(u16::MAX), "a datagram is shorter");
        let length = (payload.len() as u16).to_be_bytes();
        self.chunks.clear();
        let (head, rest) = payload.split_at(payload.len().min(64 - LENGTH_BYTES));
        let mut first = [0; 64];
        first[..LENGTH_BYTES].copy_from_slice(&length);
        first[LENGTH_BYTES..LENGTH_BYTES + head.len()].copy_from_slice(head);
        self.chunks.push(sorted(&first));
        self.push_all(rest);
    }

    /// Holds a symbol as it is on the wire.
    pub(crate) fn hold(&mut self, bytes: &[u8]) {
        self.chunks.clear();
        self.push_all(bytes);
    }

    fn push_all(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<64>();
        self.chunks.extend(whole.iter().map(sorted));
        if !rest.is_empty() {
            let mut last = [0; 64];
            last[..rest.len()].copy_from_slice(rest);
            self.chunks.push(sorted(&last));
        }
    }

    /// Appends its first `bytes` bytes, as on the wire, to `out`; zeros where it is shorter.
    pub(crate) fn write(&self, bytes: usize, out: &mut Vec<u8>) {
        let end = out.len() + bytes;
        for chunk in &self.chunks[..self.chunks.len().min(bytes.div_ceil(64))] {
            out.extend_from_slice(&merged(chunk));
        }
        out.resize(end, 0);
    }

    /// Puts its payload into `out`; false where its length cannot be.
    pub(crate) fn payload(&self, out: &mut Vec<u8>) -> bool {
        out.clear();
        self.write(self.chunks.len() * 64, out);
        let Some((length, rest)) = out.split_first_chunk::<LENGTH_BYTES>() else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes(*length));
        if length > rest.len() {
            return false;
        }
        out.copy_within(LENGTH_BYTES..LENGTH_BYTES + length, 0);
        out.truncate(length);
        true
    }
}

/// Low bytes of all pairs, then high bytes.
fn sorted(pairs: &[u8; 64]) -> [u8; 64] {
    let mut chunk = [0; 64];
    for at in 0..32 {
        chunk[at] = pairs[2 * at];
        chunk[32 + at] = pairs[2 * at + 1];
    }
    chunk
}

fn merged(chunk: &[u8; 64]) -> [u8; 64] {
    let mut pairs = [0; 64];
    for at in 0..32 {
        pairs[2 * at] = chunk[at];
        pairs[2 * at + 1] = chunk[32 + at];
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REPAIR-7.
    #[test]
    fn payloads_of_every_size_come_back() {
        let mut symbol = Symbol::default();
        let mut out = Vec::new();
        for size in [0, 1, 61, 62, 63, 64, 125, 126, 127, 1_500, 65_507] {
            let payload: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            symbol.hold_payload(&payload);
            assert!(symbol.payload(&mut out));
            assert_eq!(out, payload);
            let mut wire = Vec::new();
            symbol.write(2 + size + size % 2, &mut wire);
            assert_eq!(wire[..2], (size as u16).to_be_bytes());
            assert_eq!(&wire[2..2 + size], payload);
            let mut again = Symbol::default();
            again.hold(&wire);
            assert!(again.payload(&mut out));
            assert_eq!(out, payload);
        }
    }

    #[test]
    fn a_length_beyond_the_symbol_is_no_payload() {
        let mut symbol = Symbol::default();
        assert!(!symbol.payload(&mut Vec::new()));
        symbol.hold(&[0, 63, 1, 1]);
        assert!(!symbol.payload(&mut Vec::new()));
    }
}
