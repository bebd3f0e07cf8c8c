//! Whom a connection looks like, and talks to.

use std::time::Duration;

use crate::limits::WRITTEN_OPTION_BYTES_MAX;

/// What the peers of a stack are, and so what its connections look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Gramway; an observer sees the handshake of a Linux host (FTCP-4).
    #[default]
    Linux,
    /// phantun 0.8: initial sequence numbers of zero, a window scale of 14 and no other option, RST instead of FIN
    /// (FTCP-20).
    Phantun,
}

/// Options as they are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionBytes {
    bytes: [u8; WRITTEN_OPTION_BYTES_MAX],
    len: usize,
}

impl Default for OptionBytes {
    fn default() -> Self {
        Self {
            bytes: [0; WRITTEN_OPTION_BYTES_MAX],
            len: 0,
        }
    }
}

impl OptionBytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn push(&mut self, option: &[u8]) {
        self.bytes[self.len..self.len + option.len()].copy_from_slice(option);
        self.len += option.len();
    }
}

impl Profile {
    /// The scale of the windows that we announce. Linux has 10 where its receive buffers grow to 64 MiB.
    pub(crate) fn window_scale(self) -> u8 {
        match self {
            Self::Linux => 10,
            Self::Phantun => 14,
        }
    }

    /// Bytes that a peer may send ahead of our acknowledgements, by the largest window field that we write.
    pub(crate) fn window_bytes(self) -> u32 {
        u32::from(u16::MAX) << self.window_scale()
    }

    /// The window field of a SYN: ten and 1,460 times 44 bytes, as Linux starts with; for a SYN-ACK a little more.
    pub(crate) fn syn_window_field(self, is_answer: bool) -> u16 {
        match (self, is_answer) {
            (Self::Linux, false) => 64_240,
            (Self::Linux, true) => 65_160,
            (Self::Phantun, _) => u16::MAX,
        }
    }

    /// Options of a SYN in the order of Linux: MSS, SACK permitted, timestamps, window scale. `clock` is the time in
    /// milliseconds since some start. A SYN-ACK has no timestamps, so that no other segment needs any (RFC 7323
    /// section 3.2), and those options alone that were `offered`.
    pub(crate) fn syn_options(self, mss: u16, kind: SynKind) -> OptionBytes {
        let mut options = OptionBytes::default();
        let scale = self.window_scale();
        if self == Self::Phantun {
            options.push(&[1, 3, 3, scale]);
            return options;
        }
        let [high, low] = mss.to_be_bytes();
        options.push(&[2, 4, high, low]);
        match kind {
            SynKind::Request { timestamp } => {
                options.push(&[4, 2, 8, 10]);
                options.push(&timestamp.to_be_bytes());
                options.push(&[0; 4]);
                options.push(&[1, 3, 3, scale]);
            }
            SynKind::Answer { sack, scaled } => {
                if sack {
                    options.push(&[1, 1, 4, 2]);
                }
                if scaled {
                    options.push(&[1, 3, 3, scale]);
                }
            }
        }
        options
    }

    /// Whether the peer knows of lengths before datagrams (FTCP-22).
    pub(crate) fn knows_lengths(self) -> bool {
        self == Self::Linux
    }

    /// Whether silence is probed; a phantun never answers.
    pub(crate) fn probes(self) -> bool {
        self == Self::Linux
    }

    /// How long a connection may be silent before it is probed, where its user chooses nothing.
    #[must_use]
    pub fn keep_alive(self) -> Option<Duration> {
        self.probes().then_some(Duration::from_secs(30))
    }
}

/// Which of the two segments with SYN is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SynKind {
    /// The first one.
    Request { timestamp: u32 },
    /// A SYN-ACK to a peer that offered these.
    Answer { sack: bool, scaled: bool },
}
