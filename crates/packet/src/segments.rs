//! The segments of a coalesced buffer: equal strides, the last may be shorter.

/// Iterator over the datagrams of one coalesced receive or one train.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: Option<&'a [u8]>,
    stride: usize,
}

/// Splits `payload` into datagrams of `stride` bytes, the last of which may be shorter.
///
/// An empty payload is one empty datagram. A stride of zero means that the payload is one datagram.
#[must_use]
pub fn segments(payload: &[u8], stride: usize) -> Segments<'_> {
    let stride = if stride == 0 { payload.len().max(1) } else { stride };
    Segments {
        rest: Some(payload),
        stride,
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        if rest.len() <= self.stride {
            self.rest = None;
            return Some(rest);
        }
        let (segment, rest) = rest.split_at(self.stride);
        self.rest = Some(rest);
        Some(segment)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self
            .rest
            .map_or(0, |rest| rest.len().div_ceil(self.stride).max(1));
        (count, Some(count))
    }
}

impl ExactSizeIterator for Segments<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coalesced_buffer_splits_into_strides_with_a_shorter_tail() {
        let sizes: Vec<usize> = segments(&[0; 25], 10).map(<[u8]>::len).collect();
        assert_eq!(sizes, [10, 10, 5]);
        assert_eq!(segments(&[0; 25], 10).len(), 3);
        assert_eq!(segments(&[0; 20], 10).len(), 2);
    }

    #[test]
    fn an_empty_payload_is_one_empty_datagram() {
        assert_eq!(segments(&[], 0).count(), 1);
        assert_eq!(segments(&[], 7).next(), Some(&[][..]));
        assert_eq!(segments(&[1, 2], 0).count(), 1);
    }
}
