//! The options of a SYN (RFC 9293 section 3.2, RFC 7323, RFC 2018).

use crate::limits::WINDOW_SCALE_MAX;

/// Options that we know; others are stepped over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Most bytes of payload that the sender takes in one segment.
    pub mss: Option<u16>,
    /// Scale of the sender's windows, at most 14.
    pub window_scale: Option<u8>,
    /// Whether the sender takes selective acknowledgements.
    pub sack_permitted: bool,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
}

impl Options {
    /// Reads all options; `None` where a length is wrong.
    pub(super) fn parse(mut bytes: &[u8]) -> Option<Self> {
        const END: u8 = 0;
        const NO_OPERATION: u8 = 1;
        let mut options = Self::default();
        loop {
            match *bytes {
                [] | [END, ..] => return Some(options),
                [NO_OPERATION, ref rest @ ..] => bytes = rest,
                [kind, length, ..] => {
                    let value = bytes.get(2..length.into())?;
                    options.set(kind, value)?;
                    bytes = &bytes[length.into()..];
                }
                [_] => return None,
            }
        }
    }

    fn set(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        match (kind, value) {
            (2, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (3, &[scale]) => self.window_scale = Some(scale.min(WINDOW_SCALE_MAX)),
            (4, []) => self.sack_permitted = true,
            (8, value) => {
                let (first, rest) = value.split_first_chunk()?;
                let echo = <[u8; 4]>::try_from(rest).ok()?;
                self.timestamps = Some((u32::from_be_bytes(*first), u32::from_be_bytes(echo)));
            }
            (2..=4, _) => return None,
            _ => {}
        }
        Some(())
    }
}
