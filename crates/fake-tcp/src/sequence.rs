//! Sequence numbers, which wrap at 2^32 (RFC 9293 section 3.4).

/// A position in one direction's stream of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence(pub u32);

impl Sequence {
    /// The position `bytes` further on.
    #[must_use]
    pub fn plus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// How far this position is behind (above zero) or before `other`, for positions less than 2^31 apart.
    #[must_use]
    pub fn from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Bytes from `other` up to here.
    #[must_use]
    pub fn since(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0)
    }

    /// The later one of both.
    #[must_use]
    pub fn latest(self, other: Self) -> Self {
        if other.from(self) > 0 { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FTCP-8.
    #[test]
    fn positions_are_compared_across_the_wrap() {
        let before = Sequence(u32::MAX - 9);
        let after = before.plus(20);
        assert_eq!(after, Sequence(10));
        assert_eq!((after.from(before), before.from(after)), (20, -20));
        assert_eq!(after.since(before), 20);
        assert_eq!((before.latest(after), after.latest(before)), (after, after));
    }
}
