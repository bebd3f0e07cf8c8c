//! How much of a connection's streams QUIC keeps until it is read, at most.
//!
//! QUIC does not tell. So everything that came in packets with pieces of streams counts, less what was read: heads of
//! packets and frames, pieces that came twice and streams that were given up make it too much, and nothing too little.

/// Of one connection among peers.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Bytes of packets that came since the last look at the frames, and of the longest of them.
    packets: usize,
    longest: usize,
    /// STREAM frames that were looked at.
    frames: u64,
    /// Bytes that came at most, and that were read.
    came: u64,
    read: u64,
}

impl Unread {
    /// A packet of `length` bytes has come.
    pub(crate) fn packet(&mut self, length: usize) {
        self.packets += length;
        self.longest = self.longest.max(length);
    }

    /// So many STREAM frames have come by now, the last ones in the packets since the last look.
    pub(crate) fn look(&mut self, frames: u64) {
        let new = usize::try_from(frames - self.frames).unwrap_or(usize::MAX);
        self.came += self.packets.min(new.saturating_mul(self.longest)) as u64;
        (self.packets, self.longest, self.frames) = (0, 0, frames);
    }

    pub(crate) fn read(&mut self, bytes: usize) {
        self.read += bytes as u64;
    }

    /// Everything that came, at most.
    pub(crate) fn came(&self) -> u64 {
        self.came
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.came.saturating_sub(self.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_count_as_far_as_they_may_hold_frames_of_streams_and_until_they_are_read() {
        let mut unread = Unread::default();
        for length in [1_000, 1_200, 300] {
            unread.packet(length);
        }
        unread.look(0);
        assert_eq!(unread.bytes_max(), 0, "none was of a stream");
        for length in [1_000, 1_200, 300] {
            unread.packet(length);
        }
        unread.look(1);
        assert_eq!(unread.bytes_max(), 1_200);
        unread.packet(500);
        unread.look(9);
        assert_eq!(unread.bytes_max(), 1_700);
        unread.read(1_500);
        assert_eq!(unread.bytes_max(), 200);
    }
}
