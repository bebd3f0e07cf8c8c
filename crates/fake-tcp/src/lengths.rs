//! Lengths before datagrams, for paths that join segments without a word about where one ends (FTCP-21 to FTCP-23).
//!
//! Who receives a joined segment asks for lengths by the window that it announces, and who writes them says so by its
//! own: each segment tells of itself what it is, so that nothing has to be agreed on, repeated or kept in order. What
//! rewrites windows makes smaller ones, which say nothing.

use packet::{Train, TrainLimits};

use crate::limits::{DATAGRAMS_OF_SEGMENT_MAX, LENGTH_BYTES};

/// Missing from the window of whoever puts lengths before datagrams.
const WRITES: u16 = 1;

/// Missing from the window of whoever wants to receive lengths.
const ASKS: u16 = 2;

/// What the two ends of a connection say to each other about lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// They stand before the sender's datagrams.
    pub(crate) writes: bool,
    /// The sender wants to receive them.
    pub(crate) asks: bool,
}

impl Lengths {
    /// The window field that says so.
    pub(crate) fn window(self) -> u16 {
        u16::MAX - WRITES * u16::from(self.writes) - ASKS * u16::from(self.asks)
    }

    /// What the window field of a segment without SYN says.
    pub(crate) fn of(window: u16) -> Self {
        let missing = u16::MAX - window;
        let says = |bit| missing <= WRITES + ASKS && missing & bit != 0;
        Self {
            writes: says(WRITES),
            asks: says(ASKS),
        }
    }
}

/// Appends the length of what follows.
pub(crate) fn write(length: usize, framed: &mut Vec<u8>) {
    framed.extend((length as u16).to_be_bytes());
}

/// What follows each length of a payload, and where it begins; `None` where the lengths do not lead to the end, or are
/// too many.
pub(crate) fn read(payload: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < payload.len() {
        let length = payload[at..].first_chunk::<LENGTH_BYTES>()?;
        let begin = at + LENGTH_BYTES;
        let end = begin + usize::from(u16::from_be_bytes(*length));
        let datagram = payload.get(begin..end).filter(|datagram| !datagram.is_empty())?;
        if found.len() == DATAGRAMS_OF_SEGMENT_MAX {
            return None;
        }
        found.push((begin, datagram));
        at = end;
    }
    Some(found)
}

/// Adds a datagram to the last train, or to another one behind it.
pub(crate) fn append(trains: &mut Vec<Train>, datagram: &[u8]) {
    let last = trains.last_mut();
    if last.is_none_or(|train| train.push(datagram, TrainLimits::default()).is_err()) {
        let mut train = Train::default();
        let pushed = train.push(datagram, TrainLimits::default());
        debug_assert!(pushed.is_ok(), "an empty train takes any datagram");
        trains.push(train);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// FTCP-22.
    #[test]
    fn a_window_says_four_things_and_smaller_ones_nothing() {
        for window in 0..=u16::MAX {
            let said = Lengths::of(window);
            if window >= u16::MAX - 3 {
                assert_eq!(said.window(), window);
            } else {
                assert_eq!(said, Lengths::default());
            }
        }
    }

    proptest! {
        /// FTCP-21.
        #[test]
        fn datagrams_are_found_again_and_other_bytes_are_not_misread(
            sizes in prop::collection::vec(1_usize..2_000, 1..40),
            cut in 1_usize..100,
        ) {
            let datagrams: Vec<_> = sizes.iter().map(|size| vec![7; *size]).collect();
            let mut framed = Vec::new();
            for datagram in &datagrams {
                write(datagram.len(), &mut framed);
                framed.extend(datagram);
            }
            let found = read(&framed).unwrap();
            for (begin, datagram) in &found {
                prop_assert_eq!(&framed[*begin..begin + datagram.len()], *datagram);
            }
            let mut trains = Vec::new();
            found.iter().for_each(|(_, datagram)| append(&mut trains, datagram));
            let again: Vec<_> = trains.iter().flat_map(Train::datagrams).collect();
            prop_assert_eq!(again, datagrams);
            // Cut short within the last datagram or before it.
            let last = sizes.last().unwrap();
            if cut < LENGTH_BYTES + last {
                prop_assert_eq!(read(&framed[..framed.len() - cut]), None);
            }
        }

        /// FTCP-21.
        #[test]
        fn a_segment_is_few_datagrams(more in 0_usize..10) {
            let framed = [0, 1, 7].repeat(DATAGRAMS_OF_SEGMENT_MAX + more);
            prop_assert_eq!(read(&framed).is_some(), more == 0);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(found) = read(&bytes) {
                prop_assert!(found.iter().all(|(_, datagram)| !datagram.is_empty()));
            }
        }
    }
}
