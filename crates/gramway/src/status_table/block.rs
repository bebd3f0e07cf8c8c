//! A JSON object with counters at known places, and the ways in which counters are told.

use serde_json::Value;

use crate::units::{bytes, count};

/// A JSON object with counters at known places.
pub(super) struct Block<'a>(pub(super) &'a Value);

impl Block<'_> {
    pub(super) fn number(&self, pointer: &str) -> u64 {
        self.0.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    pub(super) fn count(&self, pointer: &str) -> String {
        count(self.number(pointer))
    }

    pub(super) fn bytes(&self, pointer: &str) -> String {
        bytes(self.number(pointer))
    }

    pub(super) fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or("?")
    }

    /// The texts of the list at this place.
    pub(super) fn texts(&self, pointer: &str) -> String {
        let listed = self.0.pointer(pointer).and_then(Value::as_array);
        let texts: Vec<_> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
        texts.join(", ")
    }

    pub(super) fn unless_zero(&self, words: &str, pointer: &str) -> String {
        match self.number(pointer) {
            0 => String::new(),
            number => format!(", {}", words.replace("{}", &count(number))),
        }
    }

    /// The counters at these places that are not zero, each before its words.
    pub(super) fn list<'a>(&self, counters: impl IntoIterator<Item = (String, &'a str)>) -> Option<String> {
        let counters = counters.into_iter();
        let shown = counters.filter(|(pointer, _)| self.number(pointer) != 0);
        let shown: Vec<_> = shown
            .map(|(pointer, words)| format!("{} {words}", self.count(&pointer)))
            .collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }

    pub(super) fn reasons(&self, title: &str, pointer: &str) -> String {
        let Some(reasons) = self.0.pointer(pointer).and_then(Value::as_object) else {
            return String::new();
        };
        let reasons: Vec<_> = reasons
            .iter()
            .map(|(reason, number)| format!("{reason} {}", count(number.as_u64().unwrap_or(0))))
            .collect();
        if reasons.is_empty() {
            String::new()
        } else {
            format!("; {title}: {}", reasons.join(", "))
        }
    }
}
