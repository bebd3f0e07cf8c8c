//! The web site that a server looks like, and who was sent there.

use std::time::Duration;

use serde_json::Value;

use super::block::Block;
use crate::tls_names::{group_name, suite_name};
use crate::units::{count, milliseconds, span};

impl Block<'_> {
    pub(super) fn cover(&self) -> String {
        let place = match self.texts("/cover/addresses") {
            nowhere if nowhere.is_empty() => String::new(),
            addresses => format!(" at {addresses}"),
        };
        let silence = self.0.pointer("/cover/silent_seconds").and_then(Value::as_f64);
        format!(
            "{} port {}{place}, shown as {}{}{}{}",
            self.text("/cover/host"),
            self.number("/cover/port"),
            self.text("/cover/name"),
            self.if_told("; not found: ", "/cover/trouble"),
            silence.map_or(String::new(), |seconds| format!(
                "; no answer for {}",
                span(seconds)
            )),
            self.looks(),
        )
    }

    /// Looks at it since the start.
    fn looks(&self) -> String {
        match self.number("/cover/looks/total") {
            0 => String::new(),
            total => format!(
                "; looked at {} {}{}",
                count(total),
                if total == 1 { "time" } else { "times" },
                self.unless_zero("{} of them in vain", "/cover/looks/unanswered"),
            ),
        }
    }

    fn if_told(&self, words: &str, pointer: &str) -> String {
        let told = self.0.pointer(pointer).and_then(Value::as_str);
        told.map_or(String::new(), |told| format!("{words}{told}"))
    }

    /// What handshakes have in common with the cover's.
    pub(super) fn cover_profile(&self) -> String {
        let number = |name: &str| {
            let number = self
                .0
                .pointer(&format!("/cover/profile/{name}"))
                .and_then(Value::as_u64);
            number.and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
        };
        let delay = self
            .0
            .pointer("/cover/profile/answer_delay_ms")
            .and_then(Value::as_f64);
        let after_restart = match self.number("/cover/id_bytes_after_restart") {
            0 => String::new(),
            bytes => format!("; connection IDs of {bytes} bytes after a restart"),
        };
        let delay = delay.and_then(|delay| Duration::try_from_secs_f64(delay / 1_000.0).ok());
        format!(
            "{}, {}; connection IDs of {} bytes, Certificate of {}; answers after {}{}{after_restart}",
            suite_name(number("suite")),
            group_name(number("group")),
            self.number("/cover/profile/id_bytes"),
            self.bytes("/cover/profile/certificate_bytes"),
            milliseconds(delay.unwrap_or_default()),
            self.if_told("; it cannot be imitated any more: ", "/cover/unfit"),
        )
    }

    pub(super) fn strangers(&self) -> String {
        format!(
            "{} flows to the cover open, {} in all; {} hellos remembered{}{}",
            self.count("/cover/flows/open"),
            self.count("/cover/flows/total"),
            self.count("/cover/remembered"),
            self.unless_zero("{} datagrams had no way there", "/cover/unsent"),
            self.reasons("datagrams and hellos", "/cover/relay"),
        )
    }

    pub(super) fn cover_tcp(&self) -> String {
        format!(
            "{} open, {} in all; {} to it, {} from it{}{}{}",
            self.count("/cover/tcp/open"),
            self.count("/cover/tcp/total"),
            self.bytes("/cover/tcp/bytes_to_cover"),
            self.bytes("/cover/tcp/bytes_from_cover"),
            self.unless_zero("{} did not reach it", "/cover/tcp/failed"),
            self.unless_zero("{} reset", "/cover/tcp/reset"),
            self.unless_zero("{} over the limit", "/cover/tcp/over_limit"),
        )
    }
}
