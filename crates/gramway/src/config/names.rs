//! Finds settings by key, and suggests a key for a misspelt one.

use super::setting::{Setting, VARIABLE_PREFIX, variable};
use super::table;
use crate::limits::{KEY_CHARACTERS_MAX, SUGGESTION_EDITS_MAX};

/// Variables that are no setting's, as keys.
const OTHER_VARIABLES: [&str; 3] = ["state", "config", "link"];

/// The setting with this key.
pub(super) fn find(key: &str) -> Option<&'static Setting> {
    table::all().find(|setting| setting.key == key)
}

/// The sentence about an unknown key, with the likely one.
pub(super) fn unknown(name: &str) -> String {
    let keys = || table::all().map(|setting| setting.key);
    match likely(name, keys()) {
        Some(likely) => format!("unknown key \"{name}\"; did you mean \"{likely}\"?"),
        None => {
            let keys: Vec<_> = keys().collect();
            format!("unknown key \"{name}\"; the keys are {}", keys.join(", "))
        }
    }
}

/// What is to be said about variables of the environment that look like a setting's and are none's; `names` are all.
pub(crate) fn misspelt_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let known = || {
        let keys = table::all().map(|setting| setting.key);
        keys.chain(OTHER_VARIABLES)
    };
    let mut found = Vec::new();
    for name in names {
        let Some(key) = name.strip_prefix(VARIABLE_PREFIX).map(str::to_lowercase) else {
            continue;
        };
        if known().any(|known| known == key) {
            continue;
        }
        if let Some(likely) = likely(&key, known()) {
            found.push(format!(
                "the environment variable {name} is not known; did you mean {}?",
                variable(likely)
            ));
        }
    }
    found.sort_unstable();
    found
}

/// The nearest of the known words; less than half of it may differ.
pub(crate) fn likely<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = |known: &str| SUGGESTION_EDITS_MAX.min((known.len() - 1) / 2);
    known
        .map(|known| (edits(word, known), known))
        .filter(|(edits, known)| *edits <= edits_max(known))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, known)| known)
}

/// Insertions, deletions and replacements that turn one word into the other (Levenshtein), `-` counting as `_`.
fn edits(from: &str, to: &str) -> usize {
    let from = from.to_lowercase().replace('-', "_");
    let from: Vec<char> = from.chars().take(KEY_CHARACTERS_MAX).collect();
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_gets_the_nearest_one_as_suggestion() {
        assert!(unknown("lisen").ends_with("did you mean \"listen\"?"));
        assert!(unknown("max-udp-payload").ends_with("did you mean \"max_udp_payload\"?"));
        assert!(unknown("forwards").ends_with("did you mean \"forward\"?"));
        assert!(unknown("colour").contains("the keys are listen, public"));
    }

    #[test]
    fn a_misspelt_variable_is_named_and_those_of_others_are_left_alone() {
        let names = [
            "GRAMWAY_LISEN",
            "GRAMWAY_LISTEN",
            "GRAMWAY_LINK",
            "GRAMWAY_LINKS",
            "GRAMWAY_RUNNER_HOME",
            "LISEN",
        ];
        let said = misspelt_variables(names.into_iter().map(str::to_owned));
        assert_eq!(
            said,
            [
                "the environment variable GRAMWAY_LINKS is not known; did you mean GRAMWAY_LINK?",
                "the environment variable GRAMWAY_LISEN is not known; did you mean GRAMWAY_LISTEN?",
            ]
        );
    }

    #[test]
    fn every_key_is_compared_whole() {
        assert!(table::all().all(|setting| setting.key.len() <= KEY_CHARACTERS_MAX));
    }

    #[test]
    fn edits_are_counted_as_usual() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "gso"), 3);
        assert_eq!(edits("gso", "gso"), 0);
        assert_eq!(edits(&"x".repeat(1 << 20), ""), KEY_CHARACTERS_MAX);
    }
}
