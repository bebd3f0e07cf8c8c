//! What is known of the processes: their counters, and the rates of the last minutes of the one that is shown.

use std::collections::VecDeque;

use serde_json::Value;

use crate::limits::TOP_SAMPLES_MAX;

/// The processes, and the chosen one's rates.
#[derive(Debug, Default)]
pub(super) struct History {
    processes: Vec<Value>,
    chosen: Option<u64>,
    before: Option<Value>,
    /// Bits per second, received and sent, the oldest first.
    pub(super) received: VecDeque<u64>,
    pub(super) sent: VecDeque<u64>,
    /// Datagrams dropped per second.
    pub(super) dropped: VecDeque<u64>,
}

impl History {
    /// Takes over what all processes have answered.
    pub(super) fn add(&mut self, processes: Vec<Value>) {
        let before = self.shown().cloned();
        self.processes = processes;
        if self.shown().is_none() {
            self.choose(self.processes.first().and_then(|process| process["pid"].as_u64()));
        }
        let Some(now) = self.shown().cloned() else {
            return;
        };
        self.before = before.filter(|before| before["pid"] == now["pid"]);
        for (read, into) in [
            (bits_received as fn(&Value) -> u64, &mut self.received),
            (bits_sent, &mut self.sent),
            (dropped, &mut self.dropped),
        ] {
            if let Some(rate) = self.before.as_ref().and_then(|before| rate(before, &now, read)) {
                if into.len() == TOP_SAMPLES_MAX {
                    into.pop_front();
                }
                into.push_back(rate);
            }
        }
    }

    /// The process that is shown.
    pub(super) fn shown(&self) -> Option<&Value> {
        let is_chosen = |process: &&Value| process["pid"].as_u64() == self.chosen;
        self.processes.iter().find(is_chosen)
    }

    /// Which of how many it is, from 1 on.
    pub(super) fn place(&self) -> (usize, usize) {
        let is_chosen = |process: &Value| process["pid"].as_u64() == self.chosen;
        let index = self.processes.iter().position(is_chosen);
        (index.map_or(0, |index| index + 1), self.processes.len())
    }

    /// Shows the next process.
    pub(super) fn next(&mut self) {
        let (place, count) = self.place();
        if count > 1 {
            self.choose(self.processes[place % count]["pid"].as_u64());
        }
    }

    /// Bits per second that a user moves at present.
    pub(super) fn user_rate(&self, id: &str) -> u64 {
        let (Some(before), Some(now)) = (&self.before, self.shown()) else {
            return 0;
        };
        rate(before, now, |at| number(&at["users"][id]["bytes"]) * 8).unwrap_or(0)
    }

    fn choose(&mut self, pid: Option<u64>) {
        if pid != self.chosen {
            self.chosen = pid;
            self.before = None;
            for rates in [&mut self.received, &mut self.sent, &mut self.dropped] {
                rates.clear();
            }
        }
    }
}

/// What is no number is none.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// By reason: how many datagrams were dropped into the tunnel, and out of it.
pub(super) fn drops(now: &Value) -> Vec<(String, u64, u64)> {
    let mut reasons: Vec<_> = ["ingress", "egress"]
        .into_iter()
        .filter_map(|way| now[way]["drops"].as_object())
        .flat_map(|drops| drops.keys().cloned())
        .collect();
    reasons.sort();
    reasons.dedup();
    let of = |way: &str, reason: &str| number(&now[way]["drops"][reason]);
    let mut drops: Vec<_> = reasons
        .into_iter()
        .map(|reason| {
            let (into, out) = (of("ingress", &reason), of("egress", &reason));
            (reason, into, out)
        })
        .collect();
    drops.sort_by_key(|(_, into, out)| std::cmp::Reverse(into + out));
    drops
}

fn dropped(now: &Value) -> u64 {
    drops(now).iter().map(|(_, into, out)| into + out).sum()
}

fn bits_received(now: &Value) -> u64 {
    number(&now["outer_io"]["bytes_received"]) * 8
}

fn bits_sent(now: &Value) -> u64 {
    number(&now["outer_io"]["bytes_sent"]) * 8
}

/// How much a sum grows each second; `None` where no time has passed.
fn rate(before: &Value, now: &Value, read: impl Fn(&Value) -> u64) -> Option<u64> {
    let uptime = |at: &Value| at["uptime_seconds"].as_f64().unwrap_or(0.0);
    let seconds = uptime(now) - uptime(before);
    let grown = read(now).saturating_sub(read(before));
    (seconds > 0.0).then(|| (grown as f64 / seconds) as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn process(pid: u64, uptime: f64, bytes: u64) -> Value {
        json!({
            "pid": pid, "uptime_seconds": uptime,
            "outer_io": { "bytes_received": bytes, "bytes_sent": 0 },
            "egress": { "drops": { "target_refused": bytes / 100 } },
        })
    }

    #[test]
    fn rates_are_of_one_process_and_begin_again_with_another() {
        let mut history = History::default();
        history.add(vec![process(1, 1.0, 0), process(2, 1.0, 0)]);
        assert_eq!((history.place(), history.received.len()), ((1, 2), 0));
        history.add(vec![process(1, 3.0, 2_000), process(2, 3.0, 0)]);
        assert_eq!(
            (history.received.back(), history.dropped.back()),
            (Some(&8_000), Some(&10))
        );
        history.next();
        assert_eq!((history.place(), history.received.len()), ((2, 2), 0));
        history.add(vec![process(1, 4.0, 2_000)]);
        assert_eq!(
            (history.place(), history.received.len()),
            ((1, 1), 0),
            "the other one has ended"
        );
        for second in 0..1_000 {
            history.add(vec![process(1, 5.0 + f64::from(second), 0)]);
        }
        assert_eq!(history.sent.len(), TOP_SAMPLES_MAX);
        history.add(Vec::new());
        assert!(history.shown().is_none());
        history.next();
    }
}
