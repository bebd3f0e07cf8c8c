//! Small files get their names before their bytes are known to be on the disk, so that a power cut may leave names,
//! sizes and times without the bytes. A *marker* in the destination says since when that may have happened, and after
//! which boot; a receiver of a later boot trusts no size and no time of what was changed in that span (FILE-46,
//! FILE-47).
//!
//! The span, and not the marker alone, decides: what the user has had there for long is never taken for a part of ours,
//! and what was compared is changed afterwards, and so leaves the span by itself.

use crate::journal::{self, BootId};
use crate::limits::DOUBT_TIME_MIN_NS;
use crate::wire::{Input, Malformed, put_signed};

const UNSYNCED: u8 = 6;
const DOUBTED: u8 = 7;

/// Bytes of a marker at most.
pub const MARKER_BYTES_MAX: usize = 64;

/// Times of change, in nanoseconds since 1970, of files that are in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    from_ns: i64,
    /// Not in it itself.
    until_ns: i64,
}

impl Span {
    /// Whether a file that was changed then (`st_ctime`) is in doubt.
    #[must_use]
    pub fn has(&self, changed_ns: i64) -> bool {
        (self.from_ns..self.until_ns).contains(&changed_ns)
    }

    fn with(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self {
            from_ns: self.from_ns.min(other.from_ns),
            until_ns: self.until_ns.max(other.until_ns),
        })
    }
}

/// What the marker of a destination says; nothing where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// After which boot files got names, and since when, that may not be on the disk.
    unsynced: Option<(BootId, i64)>,
    /// What earlier boots have left so.
    doubted: Option<Span>,
}

impl Marker {
    /// Reads one; what is none says nothing, because no file gets a name before the disk has the whole marker.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        let mut marker = Self::default();
        for (kind, fields) in journal::frames(bytes) {
            if marker.take(kind, Input(fields)).is_err() {
                return Self::default();
            }
        }
        marker
    }

    fn take(&mut self, kind: u8, mut input: Input<'_>) -> Result<(), Malformed> {
        match kind {
            UNSYNCED => self.unsynced = Some((input.array()?, input.signed()?)),
            DOUBTED => {
                self.doubted = Some(Span {
                    from_ns: input.signed()?,
                    until_ns: input.signed()?,
                });
            }
            // Of a later version.
            _ => {}
        }
        Ok(())
    }

    /// What is to be in its file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some((boot, since_ns)) = self.unsynced {
            journal::put_frame(UNSYNCED, &mut out, |out| {
                out.extend_from_slice(&boot);
                put_signed(since_ns, out);
            });
        }
        if let Some(span) = self.doubted {
            journal::put_frame(DOUBTED, &mut out, |out| {
                put_signed(span.from_ns, out);
                put_signed(span.until_ns, out);
            });
        }
        out
    }

    /// When that boot was over that left this marker, for a receiver that begins at `now_ns` after a boot at
    /// `booted_ns`: what was changed since is on the disk. Of a clock that was set meanwhile that is not known.
    #[must_use]
    pub fn over_by(&self, boot: BootId, now_ns: i64, booted_ns: i64) -> i64 {
        match self.unsynced {
            Some((other, since_ns)) if other != boot && since_ns < booted_ns => now_ns.min(booted_ns),
            _ => now_ns,
        }
    }

    /// What is in doubt for a receiver that begins at `now_ns`, after this boot.
    #[must_use]
    pub fn doubted(&self, boot: BootId, now_ns: i64) -> Option<Span> {
        match self.unsynced {
            Some((other, since_ns)) if other != boot => {
                // A clock that was set back says nothing of when that boot ended.
                let until_ns = match now_ns > since_ns {
                    true => now_ns,
                    false => since_ns.saturating_add(DOUBT_TIME_MIN_NS),
                };
                let span = Span {
                    from_ns: since_ns,
                    until_ns,
                };
                Some(span.with(self.doubted))
            }
            _ => self.doubted,
        }
    }

    /// Whether another boot than this one left files that may not be on the disk.
    #[must_use]
    pub fn is_of_other(&self, boot: BootId) -> bool {
        self.unsynced.is_some_and(|(other, _)| other != boot)
    }

    /// The marker that is to be on the disk before a receiver gives a small file its name, for the first time; it began
    /// at `began_ns`, and a file that is changed from here on has `changed_ns` or later.
    #[must_use]
    pub fn begin(&self, boot: BootId, began_ns: i64, changed_ns: i64) -> Self {
        let since_ns = match self.unsynced {
            // Of another transfer, which may be under way.
            Some((same, since_ns)) if same == boot => since_ns.min(changed_ns),
            _ => changed_ns,
        };
        Self {
            unsynced: Some((boot, since_ns)),
            doubted: self.doubted(boot, began_ns),
        }
    }

    /// The marker once the disk has everything of this boot; `None` where it is to be removed. `is_left`: whether
    /// something in doubt is there still.
    #[must_use]
    pub fn end(&self, boot: BootId, now_ns: i64, is_left: impl FnOnce(Span) -> bool) -> Option<Self> {
        let doubted = self.doubted(boot, now_ns).filter(|span| is_left(*span))?;
        Some(Self {
            unsynced: None,
            doubted: Some(doubted),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIS: BootId = [1; 16];
    const NEXT: BootId = [2; 16];

    fn span(from_ns: i64, until_ns: i64) -> Option<Span> {
        Some(Span { from_ns, until_ns })
    }

    /// FILE-46.
    #[test]
    fn what_was_changed_between_the_first_small_file_and_the_next_boots_transfer_is_in_doubt() {
        let marker = Marker::default().begin(THIS, 99, 100);
        assert_eq!(marker.doubted(THIS, 300), None, "a kill takes no written bytes");
        let doubted = marker.doubted(NEXT, 300).unwrap();
        assert_eq!(
            [99, 100, 299, 300].map(|changed| doubted.has(changed)),
            [false, true, true, false]
        );
        // Another transfer of the same boot, and one after another power cut.
        let marker = marker.begin(THIS, 110, 120);
        assert_eq!(marker.doubted(NEXT, 300), span(100, 300));
        let marker = marker.begin(NEXT, 300, 310);
        assert_eq!(marker.doubted(NEXT, 400), span(100, 300));
        assert_eq!(marker.doubted(THIS, 500), span(100, 500));
    }

    /// FILE-46.
    #[test]
    fn what_was_changed_after_the_next_boot_is_not_in_doubt_where_the_clock_tells() {
        let marker = Marker::default().begin(THIS, 99, 100);
        let doubted = |now, booted| marker.doubted(NEXT, marker.over_by(NEXT, now, booted));
        assert_eq!(doubted(900, 300), span(100, 300));
        assert_eq!(doubted(250, 300), span(100, 250));
        // The clock was set back, so that the boot seems to have been before the marker.
        assert_eq!(doubted(900, 50), span(100, 900));
        assert_eq!(marker.over_by(THIS, 900, 300), 900);
    }

    /// FILE-46.
    #[test]
    fn a_marker_goes_once_the_disk_has_everything_and_nothing_in_doubt_is_left() {
        let marker = Marker::default().begin(THIS, 99, 100);
        assert_eq!(marker.end(THIS, 200, |_| panic!("nothing is in doubt")), None);
        assert_eq!(marker.end(NEXT, 200, |_| false), None);
        let left = marker.end(NEXT, 200, |_| true).unwrap();
        assert_eq!(left.doubted(NEXT, 300), span(100, 200));
        assert_eq!(
            left.doubted(THIS, 400),
            span(100, 200),
            "what came later is on the disk"
        );
        let begun = left.begin(NEXT, 290, 300);
        assert_eq!(begun.end(NEXT, 400, |_| true), Some(left));
    }

    #[test]
    fn where_the_clock_was_set_back_a_day_is_in_doubt() {
        let marker = Marker::default().begin(THIS, 1_000, 1_000);
        assert_eq!(marker.doubted(NEXT, 7), span(1_000, 1_000 + DOUBT_TIME_MIN_NS));
    }

    #[test]
    fn a_marker_is_read_as_it_was_written_and_what_is_none_says_nothing() {
        let marker = Marker::default().begin(THIS, -7, -5).begin(NEXT, 3, 4);
        let bytes = marker.encode();
        assert!(bytes.len() <= MARKER_BYTES_MAX);
        assert_eq!(Marker::decode(&bytes), marker);
        for length in 0..bytes.len() {
            // What is torn has the records before.
            let torn = Marker::decode(&bytes[..length]);
            assert!(torn.unsynced.is_none() || torn.unsynced == marker.unsynced);
        }
        for bytes in [&[0; MARKER_BYTES_MAX][..], b"not of ours", &[0xff; 7]] {
            assert_eq!(Marker::decode(bytes), Marker::default());
        }
    }
}
