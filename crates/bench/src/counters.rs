//! The counters of a gramway process, read from `gramway status --json`. The only place that knows their names.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Counters at one moment, or the difference of two.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Counters(Value);

impl Counters {
    /// Picks the process with this ID out of the answer of `gramway status --json`.
    pub(crate) fn of_process(status: &Value, pid: u32) -> Option<Self> {
        let processes = status.get("processes")?.as_array()?;
        processes
            .iter()
            .find(|process| process["pid"] == pid)
            .cloned()
            .map(Self)
    }

    /// What happened since `before`. Numbers are subtracted (those that fell stay as they are); all else is as in
    /// `self`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self(difference(&self.0, &before.0))
    }

    fn number(&self, path: &str) -> u64 {
        self.0.pointer(path).and_then(Value::as_u64).unwrap_or(0)
    }

    /// QUIC packets sent.
    pub(crate) fn packets_sent(&self) -> u64 {
        self.number("/quic/packets_sent")
    }

    /// DATAGRAM frames sent.
    pub(crate) fn datagrams_sent(&self) -> u64 {
        self.number("/quic/datagrams_sent")
    }

    /// ACK frames sent.
    pub(crate) fn acks_sent(&self) -> u64 {
        self.number("/quic/acks_sent")
    }

    /// QUIC packets declared lost.
    pub(crate) fn packets_lost(&self) -> u64 {
        self.number("/quic/packets_lost")
    }

    /// Congestion events.
    pub(crate) fn window_cuts(&self) -> u64 {
        self.number("/quic/window_cuts")
    }

    /// QUIC packets per train handed to the kernel.
    pub(crate) fn segments_per_send(&self) -> f64 {
        self.number("/quic/train_segments_sent") as f64 / self.number("/quic/trains_sent").max(1) as f64
    }

    /// Send calls on inner sockets: upstream at the server, towards local programs at the client.
    pub(crate) fn inner_sends(&self) -> u64 {
        self.number("/inner_io/sends")
    }

    /// Datagrams sent on inner sockets.
    pub(crate) fn inner_segments_sent(&self) -> u64 {
        self.number("/inner_io/segments_sent")
    }

    /// Of the datagrams that this process took for QUIC, those that it gave up.
    #[cfg(feature = "rivals")]
    pub(crate) fn share_given_up(&self) -> f64 {
        let drops = self.0.pointer("/ingress/drops").and_then(Value::as_object);
        let given_up: u64 = drops
            .into_iter()
            .flatten()
            .filter_map(|(_, count)| count.as_u64())
            .sum();
        given_up as f64 / self.number("/ingress/accepted").max(1) as f64
    }

    /// Datagrams lost in this process or in front of it, by reason: both directions, and the kernel's receive
    /// drops of inner and outer sockets.
    pub(crate) fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for direction in ["ingress", "egress"] {
            let reasons = self
                .0
                .pointer(&format!("/{direction}/drops"))
                .and_then(Value::as_object);
            for (reason, count) in reasons.into_iter().flatten() {
                *drops.entry(reason.clone()).or_insert(0) += count.as_u64().unwrap_or(0);
            }
        }
        drops.insert("kernel_inner".to_owned(), self.number("/inner_io/kernel_drops"));
        drops.insert("kernel_outer".to_owned(), self.number("/outer_io/kernel_drops"));
        drops.retain(|_, count| *count > 0);
        drops
    }

    /// Largest payload that the first living connection carries unsplit, in bytes.
    pub(crate) fn payload_unsplit(&self) -> Option<usize> {
        let bytes = self.0.pointer("/peers/0/payload_unsplit")?.as_u64()?;
        usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
    }
}

fn difference(after: &Value, before: &Value) -> Value {
    match (after, before) {
        (Value::Object(after), Value::Object(before)) => {
            let part = |(name, value): (&String, &Value)| {
                (
                    name.clone(),
                    before
                        .get(name)
                        .map_or_else(|| value.clone(), |old| difference(value, old)),
                )
            };
            Value::Object(after.iter().map(part).collect())
        }
        (Value::Number(after), Value::Number(before)) => match (after.as_u64(), before.as_u64()) {
            (Some(new), Some(old)) => Value::from(new.checked_sub(old).unwrap_or(new)),
            _ => Value::Number(after.clone()),
        },
        _ => after.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(sent: u64, drops: &Value) -> Value {
        json!({"processes": [
            {"pid": 1, "role": "server"},
            {"pid": 7, "role": "client", "uptime_seconds": 1.5,
             "quic": {"packets_sent": sent, "trains_sent": sent / 10, "train_segments_sent": sent},
             "ingress": {"drops": drops}, "egress": {"drops": {"queue_full": 1}},
             "inner_io": {"kernel_drops": 3}, "peers": [{"payload_unsplit": 1400}]}]})
    }

    #[test]
    fn a_difference_has_only_what_happened_between() {
        let before = Counters::of_process(&status(100, &json!({})), 7).unwrap();
        let after = Counters::of_process(&status(300, &json!({"queue_full": 4, "too_large": 2})), 7).unwrap();
        let between = after.since(&before);
        assert_eq!((between.packets_sent(), between.segments_per_send()), (200, 10.0));
        let drops = [("queue_full".to_owned(), 4), ("too_large".to_owned(), 2)];
        assert_eq!(between.drops(), BTreeMap::from(drops));
        assert_eq!(between.payload_unsplit(), Some(1_400));
    }

    #[test]
    fn missing_counters_read_as_zero_and_a_missing_process_as_none() {
        let server = Counters::of_process(&status(1, &json!({})), 1).unwrap();
        assert_eq!(
            (server.acks_sent(), server.drops().len(), server.payload_unsplit()),
            (0, 0, None)
        );
        assert_eq!(Counters::of_process(&status(1, &json!({})), 9), None);
        assert_eq!(Counters::of_process(&json!({}), 9), None);
    }
}
