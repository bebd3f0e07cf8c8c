//! The two ECN bits of the IP header.

/// Explicit Congestion Notification codepoint (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable transport, `00`.
    #[default]
    NotEct = 0b00,
    /// ECN-capable transport (1), `01`.
    Ect1 = 0b01,
    /// ECN-capable transport (0), `10`.
    Ect0 = 0b10,
    /// Congestion experienced, `11`.
    Ce = 0b11,
}

impl Ecn {
    /// Reads the codepoint from the low two bits of a TOS or traffic-class byte; the other bits are ignored.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            0b11 => Self::Ce,
            _ => Self::NotEct,
        }
    }

    /// The two bits as they stand in a TOS or traffic-class byte.
    #[must_use]
    pub fn bits(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codepoint_survives_a_round_trip_and_the_dscp_is_ignored() {
        for bits in 0..=255_u8 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits & 0b11);
        }
    }
}
