//! Names that are safe at the receiver: one component each, that cannot leave its directory, and no two of a directory
//! that the receiver's file system takes for the same.
//!
//! A name that no honest sender has is refused (FILE-20). What only the receiver's file system cannot store is renamed,
//! always to the same name for the same offers, and told (FILE-21, FILE-22). On Linux's own file systems every other
//! name stays as it is, byte by byte.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

use crate::entry::EntryId;
use crate::limits::{NAME_BYTES_MAX, NAME_REPEATS_MAX, NAMES_OPEN_MAX};

/// What ends the name of a file that is not complete.
pub const PARTIAL_SUFFIX: &str = ".gramway-part";
/// What ends the name of the journal beside it.
pub const JOURNAL_SUFFIX: &str = ".gramway-state";
/// The name of a destination's marker (FILE-46): no entry has it (FILE-20), and no journal, which is of a name.
pub const MARKER_NAME: &str = JOURNAL_SUFFIX;

/// What the receiver's file system does with names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Names that differ only in upper and lower case are the same (exFAT, NTFS, APFS).
    pub ignores_case: bool,
    /// Names that differ only in Unicode's composition are the same (APFS, HFS+).
    pub ignores_composition: bool,
    /// Windows' reserved characters, device names, and dots and spaces at the end cannot be stored (FAT, NTFS).
    pub windows: bool,
}

/// A name that is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Empty, `.` or `..`.
    #[error("the name is empty, `.` or `..`: no file has it")]
    Relative,
    /// A `/` or a zero byte in it.
    #[error("the name has a `/` or a zero byte in it")]
    Separator,
    /// More than 255 bytes.
    #[error("the name has {0} bytes, where file systems take 255: rename it at the sender")]
    TooLong(usize),
    /// One of our own, for what is not complete.
    #[error("the name is one that Gramway gives files that are not complete: receive the complete file")]
    Reserved,
    /// [`NAME_REPEATS_MAX`] entries of a directory have names that are the same.
    #[error("more than {NAME_REPEATS_MAX} entries of a directory have the same name: send fewer at once")]
    Repeated,
    /// [`NAMES_OPEN_MAX`] names are remembered.
    #[error("more than {NAMES_OPEN_MAX} names in directories that are not done: send fewer at once")]
    TooMany,
}

/// Checks a name against FILE-20, whatever the file system.
///
/// # Errors
/// It is refused.
pub fn check(name: &[u8]) -> Result<(), NameError> {
    if matches!(name, b"" | b"." | b"..") {
        return Err(NameError::Relative);
    }
    if name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(NameError::Separator);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong(name.len()));
    }
    let folded = name.to_ascii_lowercase();
    if [PARTIAL_SUFFIX, JOURNAL_SUFFIX]
        .iter()
        .any(|suffix| folded.ends_with(suffix.as_bytes()))
    {
        return Err(NameError::Reserved);
    }
    Ok(())
}

/// The names of a file while it is not complete, and of its journal (FILE-24); both differ for names that differ, and
/// are within 255 bytes.
#[must_use]
pub fn partial_names(name: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut stem = name.to_vec();
    if stem.len() + 1 + JOURNAL_SUFFIX.len() > NAME_BYTES_MAX {
        let hash = blake3::hash(name).to_hex();
        stem.truncate(NAME_BYTES_MAX - 1 - JOURNAL_SUFFIX.len() - 17);
        stem.push(b'~');
        stem.extend_from_slice(&hash.as_bytes()[..16]);
    }
    let with = |suffix: &str| [b".", &stem[..], suffix.as_bytes()].concat();
    (with(PARTIAL_SUFFIX), with(JOURNAL_SUFFIX))
}

/// `name` with `number` before its extension: `notes (2).txt`.
#[must_use]
pub fn numbered(name: &[u8], number: u32) -> Vec<u8> {
    let mark = format!(" ({number})").into_bytes();
    // A dot at the start begins no extension, and what has more than 16 bytes is none.
    let dot = name
        .iter()
        .rposition(|byte| *byte == b'.')
        .filter(|dot| *dot > 0 && name.len() - dot <= 17);
    let (stem, extension) = name.split_at(dot.unwrap_or(name.len()));
    let room = NAME_BYTES_MAX - mark.len() - extension.len();
    let stem = &stem[..cut(stem, room)];
    [stem, &mark, extension].concat()
}

/// How many bytes of `name` fit `room` without cutting a character.
fn cut(name: &[u8], room: usize) -> usize {
    let mut end = room.min(name.len());
    while end > 0 && end < name.len() && name[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    end
}

/// The names of directories that are not done, so that no two are the same at the receiver.
#[derive(Debug)]
pub struct NameTable {
    rules: Rules,
    /// Of directories that have others than the top.
    own_rules: BTreeMap<EntryId, Rules>,
    /// Hashes of the names in a directory as the file system compares them, and of each the number that the next one
    /// that is the same may get; `None` is the top. Names whose hashes collide are renamed, which does no harm.
    directories: BTreeMap<Option<EntryId>, HashMap<u64, u32>>,
    names: usize,
    /// Names that were looked up, for a test.
    #[cfg(test)]
    lookups: u64,
}

/// The number of the second of several names that are the same.
const FIRST_NUMBER: u32 = 2;

/// A name that can be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeName {
    /// The name.
    pub name: Vec<u8>,
    /// Whether it differs from the one that was offered, which people are told.
    pub renamed: bool,
}

impl NameTable {
    /// No names yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            own_rules: BTreeMap::new(),
            directories: BTreeMap::new(),
            names: 0,
            #[cfg(test)]
            lookups: 0,
        }
    }

    /// The rules of a directory in which no name has come yet; without them it has those of the top.
    pub fn set_rules(&mut self, directory: EntryId, rules: Rules) {
        match rules == self.rules {
            true => self.own_rules.remove(&directory),
            false => self.own_rules.insert(directory, rules),
        };
    }

    /// The rules of a directory; `None` is the top.
    #[must_use]
    pub fn rules(&self, directory: Option<EntryId>) -> Rules {
        let own = directory.and_then(|directory| self.own_rules.get(&directory));
        own.copied().unwrap_or(self.rules)
    }

    /// The name under which `name` is stored in `directory`. The first of several that are the same keeps its own.
    ///
    /// # Errors
    /// It is not stored.
    pub fn insert(&mut self, directory: Option<EntryId>, name: &[u8]) -> Result<SafeName, NameError> {
        check(name)?;
        if self.names == NAMES_OPEN_MAX {
            return Err(NameError::TooMany);
        }
        let rules = self.rules(directory);
        let wanted = if rules.windows {
            for_windows(name)
        } else {
            name.to_vec()
        };
        let wanted_key = key(rules, &wanted);
        let mut number = match self.take(directory, wanted_key) {
            Ok(()) => {
                return Ok(SafeName {
                    renamed: wanted != name,
                    name: wanted,
                });
            }
            Err(next) => next,
        };
        // Names are never given back before their directory ends: those below were taken, and still are.
        let stored = loop {
            if number > NAME_REPEATS_MAX {
                return Err(NameError::Repeated);
            }
            let stored = numbered(&wanted, number);
            number += 1;
            if self.take(directory, key(rules, &stored)).is_ok() {
                break stored;
            }
        };
        if let Some(names) = self.directories.get_mut(&directory) {
            names.insert(wanted_key, number);
        }
        Ok(SafeName {
            renamed: true,
            name: stored,
        })
    }

    /// Takes a name by its hash; the number that the next one that is the same may get, where it is taken.
    fn take(&mut self, directory: Option<EntryId>, key: u64) -> Result<(), u32> {
        #[cfg(test)]
        {
            self.lookups += 1;
        }
        match self.directories.entry(directory).or_default().entry(key) {
            Entry::Occupied(taken) => Err(*taken.get()),
            Entry::Vacant(free) => {
                free.insert(FIRST_NUMBER);
                self.names += 1;
                Ok(())
            }
        }
    }

    /// Whether a name is one, and no entry of the directory has it.
    #[must_use]
    pub fn is_free(&self, directory: Option<EntryId>, name: &[u8]) -> bool {
        let names = self.directories.get(&directory);
        check(name).is_ok()
            && !names.is_some_and(|names| names.contains_key(&key(self.rules(directory), name)))
    }

    /// Takes exactly this name; `false` where it is taken, is none, or there is no room for it.
    pub fn reserve(&mut self, directory: Option<EntryId>, name: &[u8]) -> bool {
        check(name).is_ok()
            && self.names < NAMES_OPEN_MAX
            && self.take(directory, key(self.rules(directory), name)).is_ok()
    }

    /// The directory is done: no more names come in it.
    pub fn end(&mut self, directory: EntryId) {
        self.own_rules.remove(&directory);
        if let Some(names) = self.directories.remove(&Some(directory)) {
            self.names -= names.len();
        }
    }

    /// How many names are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names == 0
    }
}

/// What the file system compares of a name.
fn key(rules: Rules, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    match str::from_utf8(name) {
        Ok(text) if rules.ignores_case || rules.ignores_composition => {
            let mut folded = text.to_owned();
            if rules.ignores_composition {
                folded = folded.nfd().collect();
            }
            if rules.ignores_case {
                // Through upper case, as ß and ss, or ſ and s, are the same to some of them.
                folded = folded.to_uppercase().to_lowercase();
            }
            if rules.ignores_composition {
                folded = folded.nfd().collect();
            }
            folded.as_bytes().hash(&mut hasher);
        }
        _ => name.hash(&mut hasher),
    }
    hasher.finish()
}

/// A name that Windows and its file systems can store: reserved characters become `_`, names of devices and dots and
/// spaces at the end get one.
fn for_windows(name: &[u8]) -> Vec<u8> {
    let reserved = |byte: u8| byte < 0x20 || byte == 0x7f || b"<>:\"\\|?*".contains(&byte);
    let mut safe: Vec<u8> = name
        .iter()
        .map(|byte| if reserved(*byte) { b'_' } else { *byte })
        .collect();
    if let Some(last) = safe.last_mut().filter(|last| matches!(last, b'.' | b' ')) {
        *last = b'_';
    }
    let stem_end = safe.iter().position(|byte| *byte == b'.').unwrap_or(safe.len());
    if is_device(&safe[..stem_end]) {
        safe.insert(stem_end, b'_');
        safe.truncate(cut(&safe, NAME_BYTES_MAX));
    }
    safe
}

/// `CON`, `COM1` and their kind, also with superscript digits and spaces behind them.
fn is_device(stem: &[u8]) -> bool {
    let stem = String::from_utf8_lossy(stem).trim_end().to_ascii_uppercase();
    if matches!(
        stem.as_str(),
        "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$" | "CLOCK$"
    ) {
        return true;
    }
    ["COM", "LPT"]
        .iter()
        .filter_map(|port| stem.strip_prefix(port))
        .any(|digit| {
            matches!(
                digit,
                "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³"
            )
        })
}

/// Whether a symbolic link with this target, in a directory `depth` below the destination, leads to a place inside it
/// by its text alone (FILE-23). Receiving follows no links, so that the text is what counts.
#[must_use]
pub fn target_stays_inside(depth: usize, target: &[u8]) -> bool {
    if target.is_empty() || target[0] == b'/' || target.contains(&0) {
        return false;
    }
    let (mut below, mut descended) = (depth, false);
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            // Behind a name, which may be a link that leads elsewhere, nobody knows where it is.
            b".." => match below.checked_sub(1).filter(|_| !descended) {
                Some(above) => below = above,
                None => return false,
            },
            _ => descended = true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const WINDOWS: Rules = Rules {
        ignores_case: true,
        ignores_composition: false,
        windows: true,
    };
    const APPLE: Rules = Rules {
        ignores_case: true,
        ignores_composition: true,
        windows: false,
    };

    fn stored(rules: Rules, names: &[&str]) -> Vec<String> {
        let mut table = NameTable::new(rules);
        names
            .iter()
            .map(|name| {
                let safe = table.insert(None, name.as_bytes()).unwrap();
                assert_eq!(safe.renamed, safe.name != name.as_bytes());
                String::from_utf8(safe.name).unwrap()
            })
            .collect()
    }

    /// FILE-20.
    #[test]
    fn names_that_leave_their_directory_are_refused() {
        for name in ["", ".", ".."] {
            assert_eq!(check(name.as_bytes()), Err(NameError::Relative));
        }
        for name in ["/", "/etc", "a/b", "../a", "a\0b", "a/"] {
            assert_eq!(check(name.as_bytes()), Err(NameError::Separator));
        }
        assert_eq!(check(&[b'a'; 255]), Ok(()));
        assert_eq!(check(&[b'a'; 256]), Err(NameError::TooLong(256)));
        for name in ["...", "..a", "a..", "C:", "a\\..\\b", "-rf", "~", "a\nb", " "] {
            assert_eq!(check(name.as_bytes()), Ok(()));
        }
        assert_eq!(check(b"\xff\xfe"), Ok(()));
    }

    /// FILE-20: what is offered never touches what is not complete.
    #[test]
    fn names_of_partial_files_are_refused() {
        let (partial, journal) = partial_names(b"file.iso");
        assert_eq!(partial, b".file.iso.gramway-part");
        assert_eq!(journal, b".file.iso.gramway-state");
        for name in [
            &partial[..],
            &journal,
            b".FILE.ISO.GRAMWAY-PART",
            b"x.gramway-state",
        ] {
            assert_eq!(check(name), Err(NameError::Reserved));
        }
    }

    /// FILE-24.
    #[test]
    fn partial_names_of_the_longest_names_fit_and_differ() {
        let mut seen = HashSet::new();
        for length in 1..=NAME_BYTES_MAX {
            for last in [b'a', b'b'] {
                let mut name = vec![b'n'; length];
                name[length - 1] = last;
                let (partial, journal) = partial_names(&name);
                assert!(partial.len() <= NAME_BYTES_MAX && journal.len() <= NAME_BYTES_MAX);
                assert!(seen.insert(partial) && seen.insert(journal));
            }
        }
    }

    /// FILE-21: on Linux's own file systems, nothing else is changed.
    #[test]
    fn names_of_linux_stay_as_they_are() {
        let names = [
            "README", "readme", "a:b", "CON", "ends.", "nul.txt", "é", "e\u{301}", "a\\b", "tab\t",
        ];
        assert_eq!(stored(Rules::default(), &names), names);
    }

    /// FILE-21.
    #[test]
    fn names_that_windows_cannot_store_are_changed() {
        let names = [
            "a:b",
            "CON",
            "con.tar.gz",
            "com1",
            "LPT9.x",
            "COM¹",
            "ends.",
            "space ",
            "a\\..\\b",
            "tab\t",
            "CONSOLE",
            "COM10",
            "nul .txt",
        ];
        let safe = [
            "a_b",
            "CON_",
            "con_.tar.gz",
            "com1_",
            "LPT9_.x",
            "COM¹_",
            "ends_",
            "space_",
            "a_.._b",
            "tab_",
            "CONSOLE",
            "COM10",
            "nul _.txt",
        ];
        assert_eq!(stored(WINDOWS, &names), safe);
    }

    /// FILE-22.
    #[test]
    fn names_that_are_the_same_at_the_receiver_get_numbers_in_the_order_of_offers() {
        assert_eq!(
            stored(
                WINDOWS,
                &[
                    "Readme.md",
                    "README.md",
                    "readme (2).md",
                    "readme.MD",
                    "a:b",
                    "a?b"
                ]
            ),
            [
                "Readme.md",
                "README (2).md",
                "readme (2) (2).md",
                "readme (3).MD",
                "a_b",
                "a_b (2)"
            ]
        );
        assert_eq!(
            stored(APPLE, &["é", "e\u{301}", "É", "straße", "STRASSE", "ſ", "s"]),
            [
                "é",
                "e\u{301} (2)",
                "É (3)",
                "straße",
                "STRASSE (2)",
                "ſ",
                "s (2)"
            ]
        );
        assert_eq!(
            stored(Rules::default(), &["x", "x", ".x", ".x"]),
            ["x", "x (2)", ".x", ".x (2)"]
        );
    }

    /// FILE-22: ext4 folds the names of single directories.
    #[test]
    fn a_directory_may_fold_names_in_a_tree_that_does_not() {
        let mut table = NameTable::new(Rules::default());
        table.set_rules(7, APPLE);
        let mut insert = |directory, name: &str| {
            let safe = table.insert(directory, name.as_bytes()).unwrap();
            String::from_utf8(safe.name).unwrap()
        };
        for (name, folded) in [
            ("a", "a"),
            ("A", "A (2)"),
            ("\u{e9}", "\u{e9}"),
            ("e\u{301}", "e\u{301} (2)"),
        ] {
            assert_eq!(insert(Some(7), name), folded);
            assert_eq!(insert(Some(8), name), name);
            assert_eq!(insert(None, name), name);
        }
        assert!(!table.is_free(Some(7), b"a (2)") && table.is_free(Some(8), b"a (2)"));
        table.end(7);
        assert_eq!(table.rules(Some(7)), Rules::default());
    }

    /// FILE-22: a million names are bounded.
    #[test]
    fn names_are_forgotten_with_their_directory_and_bounded() {
        let mut table = NameTable::new(Rules::default());
        for number in 0..1_000_u32 {
            table
                .insert(Some(7), &number.to_be_bytes().map(|byte| byte | 0x40))
                .unwrap();
        }
        table.insert(None, b"top").unwrap();
        assert_eq!(table.len(), 1_001);
        table.end(7);
        assert_eq!(table.len(), 1);
        table.names = NAMES_OPEN_MAX;
        assert_eq!(table.insert(None, b"one more"), Err(NameError::TooMany));
    }

    /// FILE-23.
    #[test]
    fn a_links_target_stays_inside_or_not() {
        for (depth, target) in [
            (0, "a"),
            (1, ".."),
            (1, "../a"),
            (2, "../../a"),
            (0, "./a//b"),
            (2, "./../a/b"),
        ] {
            assert!(
                target_stays_inside(depth, target.as_bytes()),
                "{target} at {depth}"
            );
        }
        for (depth, target) in [
            (0, ".."),
            (0, "/etc/passwd"),
            (1, "../.."),
            (0, "a/../../b"),
            (3, "../../../.."),
            (0, ""),
            (0, "a\0"),
            // Inside by its text, and not where `a` is a link to `..`.
            (1, "a/../b"),
        ] {
            assert!(
                !target_stays_inside(depth, target.as_bytes()),
                "{target} at {depth}"
            );
        }
    }

    /// FILE-22: what is found out about a name once is not looked for again.
    #[test]
    fn thousands_of_names_that_are_the_same_cost_a_few_lookups_each() {
        let mut table = NameTable::new(WINDOWS);
        let names = 20_000_u32;
        for number in 0..names {
            // Each name comes in two cases.
            let name = format!("Name {}.txt", number % 40);
            let name = if number % 2 == 0 {
                name
            } else {
                name.to_uppercase()
            };
            table.insert(Some(7), name.as_bytes()).unwrap();
        }
        assert_eq!(table.len(), names as usize);
        assert!(table.lookups <= 2 * u64::from(names), "{}", table.lookups);
    }

    /// FILE-22: a million entries of one name take no time.
    #[test]
    fn entries_of_one_name_are_bounded() {
        let mut table = NameTable::new(Rules::default());
        for _ in 0..NAME_REPEATS_MAX {
            table.insert(None, b"a").unwrap();
        }
        assert_eq!(table.insert(None, b"a"), Err(NameError::Repeated));
        table.insert(None, b"b").unwrap();
    }

    proptest! {
        /// FILE-20 to FILE-22.
        #[test]
        fn whatever_is_offered_is_stored_once_and_inside(names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..40), rules in 0..3_usize) {
            let rules = [Rules::default(), WINDOWS, APPLE][rules];
            let mut table = NameTable::new(rules);
            let mut seen = HashSet::new();
            for name in &names {
                let Ok(safe) = table.insert(None, name) else { continue };
                prop_assert_eq!(check(&safe.name), Ok(()));
                prop_assert!(seen.insert(key(rules, &safe.name)));
                if rules.windows {
                    prop_assert_eq!(for_windows(&safe.name), safe.name.clone());
                }
                prop_assert_eq!(check(&numbered(&safe.name, 12)), Ok(()));
            }
        }
    }
}
