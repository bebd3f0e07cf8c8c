//! From a flow's datagrams to the hello in them.

use std::time::Instant;

use packet::{Ecn, Path};

use super::flow::{Datagram, Reading, Stage};
use super::{Decision, Door, FlowKey, Now};
use crate::credentials::Users;
use crate::hello_assembly::{HelloAssembly, Progress, first_initial};
use crate::limits;

impl<U: Users> Door<U> {
    /// Whether a hello may begin with this datagram, and is to be read.
    pub(super) fn begins(&mut self, now: Instant, key: FlowKey, path: Path, bytes: &[u8]) -> bool {
        let Some(initial) = first_initial(bytes) else {
            return false;
        };
        if !self.hellos.take(now, path.remote.ip()) {
            self.counters.unread += 1;
            return false;
        }
        self.counters.read += 1;
        let deadline = now + limits::HELLO_HOLD_TIME;
        if let Some(flow) = self.flows.get_mut(key) {
            flow.stage = Stage::Reading(Box::new(Reading {
                hello: HelloAssembly::new(&initial),
                held: Vec::new(),
                relayed: 0,
                deadline,
            }));
            self.deadlines.insert((deadline, key));
        }
        true
    }

    /// The next datagram of a flow whose hello is incomplete.
    pub(super) fn read(&mut self, now: Now, key: FlowKey, ecn: Ecn, bytes: &[u8]) -> Decision {
        let Some(Stage::Reading(reading)) = self.flows.get_mut(key).map(|flow| &mut flow.stage) else {
            return Decision::Dropped;
        };
        let progress = reading.hello.push(bytes, &mut self.space);
        let has_room = self.held_bytes + bytes.len() <= self.held_bytes_max
            && bytes.len() <= limits::HELD_DATAGRAM_BYTES_MAX;
        let recognised = match progress {
            Progress::Complete => self.recogniser.recognise(&reading.hello, now.unix),
            Progress::Incomplete | Progress::Refused => None,
        };
        let may_be_ours = progress == Progress::Incomplete || recognised.is_some();
        if !may_be_ours || !has_room {
            self.release(key);
            return self.forward(key);
        }
        self.held_bytes += bytes.len();
        reading.held.push(Datagram {
            ecn,
            bytes: bytes.to_vec(),
        });
        if let Some(recognised) = recognised {
            self.decide(now.instant, key, recognised);
            return Decision::Held;
        }
        if reading.relayed > 0 {
            reading.relayed += 1;
            return self.forward(key);
        }
        Decision::Held
    }
}
