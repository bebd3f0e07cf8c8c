//! What becomes of a flow's hello: its connection is taken over, or its datagrams go to the cover like anybody's.

use std::time::Instant;

use packet::{Ecn, Path};

use super::flow::{Datagram, Deciding, Flow, Stage};
use super::{Action, Decision, Door, FlowKey, Now, Recogniser, TakeOver};
use crate::authenticator::{Binding, Recognised, open};
use crate::client_hello::ClientHello;
use crate::credentials::Users;
use crate::guard::Guard;
use crate::hello_assembly::HelloAssembly;
use crate::limits;
use crate::long_header::VERSION_1;

impl<U: Users> Recogniser<U> {
    /// Whose hello it is (QR1-7).
    pub(super) fn recognise(&self, hello: &HelloAssembly, now_unix: u32) -> Option<Recognised> {
        let message = ClientHello::parse(hello.message()).ok()?;
        let binding = Binding {
            version: VERSION_1,
            destination_id: hello.destination_id(),
        };
        let window = self.window.min(limits::CLOCK_WINDOW_MAX);
        open(&message, &binding, &self.keys, &self.users, now_unix, window)
    }
}

impl<U: Users> Door<U> {
    /// A complete hello was recognised.
    pub(super) fn decide(&mut self, now: Instant, key: FlowKey, recognised: Recognised) {
        let Some(flow) = self.flows.get_mut(key) else {
            return;
        };
        let reading = match std::mem::replace(&mut flow.stage, Stage::Relayed) {
            Stage::Reading(reading) => *reading,
            other => {
                flow.stage = other;
                return;
            }
        };
        self.counters.recognised += 1;
        self.deadlines.remove(&(reading.deadline, key));
        let deadline = now + limits::RECORD_TIME_MAX;
        self.deadlines.insert((deadline, key));
        self.actions.push_back(Action::Record {
            flow: key,
            tag: *recognised.keys.tag(),
            time: recognised.time,
        });
        flow.stage = Stage::Deciding(Box::new(Deciding {
            hello: reading.hello,
            recognised,
            flight: reading.held.len(),
            relayed: reading.relayed,
            held: reading.held,
            answers: Vec::new(),
            is_recorded: false,
            ready: now + self.cover_delay,
            deadline,
        }));
    }

    /// A datagram behind a recognised hello.
    pub(super) fn hold(&mut self, key: FlowKey, ecn: Ecn, bytes: &[u8]) -> Decision {
        let has_room = self.held_bytes + bytes.len() <= self.held_bytes_max
            && bytes.len() <= limits::HELD_DATAGRAM_BYTES_MAX;
        if let Some(Stage::Deciding(deciding)) = self.flows.get_mut(key).map(|flow| &mut flow.stage)
            && has_room
            && deciding.held.len() < limits::FLOW_DATAGRAMS_HELD_MAX
        {
            self.held_bytes += bytes.len();
            deciding.held.push(Datagram {
                ecn,
                bytes: bytes.to_vec(),
            });
            return Decision::Held;
        }
        self.counters.discarded += 1;
        Decision::Dropped
    }

    /// The deadline of a flow's hello has come.
    pub(super) fn hello_is_due(&mut self, now: Now, key: FlowKey) {
        let Some(flow) = self.flows.get_mut(key) else {
            return;
        };
        match &mut flow.stage {
            Stage::Relayed => {}
            Stage::Reading(reading) if reading.relayed == 0 => {
                // QR1-13: they wait no longer, and copies are kept for the take-over.
                for datagram in &reading.held {
                    self.actions.push_back(Action::Forward(key, datagram.clone()));
                }
                reading.relayed = reading.held.len();
                self.counters.relayed += reading.relayed as u64;
                flow.is_open = true;
                reading.deadline = now.instant + limits::HELLO_READING_TIME;
                self.deadlines.insert((reading.deadline, key));
            }
            Stage::Reading(_) => self.release(key),
            Stage::Deciding(deciding) if deciding.is_recorded => self.take_over(now, key),
            Stage::Deciding(_) => {
                self.counters.given_up += 1;
                self.release(key);
            }
        }
    }

    /// The flow is the cover's: what waits in it goes there, and the cover's answers to the client.
    pub(super) fn release(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.get_mut(key) else {
            return;
        };
        let (waited, deadline) = (flow.held_bytes(), flow.deadline());
        let (held, relayed, answers) = match std::mem::replace(&mut flow.stage, Stage::Relayed) {
            Stage::Relayed => return,
            Stage::Reading(reading) => (reading.held, reading.relayed, Vec::new()),
            Stage::Deciding(deciding) => (deciding.held, deciding.relayed, deciding.answers),
        };
        self.held_bytes -= waited;
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, key));
        }
        for datagram in held.into_iter().skip(relayed) {
            flow.is_open = true;
            self.counters.relayed += 1;
            self.actions.push_back(Action::Forward(key, datagram));
        }
        for answer in answers {
            if flow.may_send(answer.bytes.len()) {
                self.counters.answered += 1;
                self.actions.push_back(Action::Answer(flow.path, answer));
            } else {
                self.counters.clamped += 1;
            }
        }
    }

    /// The connection is ours (QR1-7, QR1-14).
    fn take_over(&mut self, now: Now, key: FlowKey) {
        let Some(flow) = self.flows.remove(key) else {
            return;
        };
        self.held_bytes -= flow.held_bytes();
        let Flow {
            path, is_open, stage, ..
        } = flow;
        let Stage::Deciding(deciding) = stage else { return };
        let mut deciding = *deciding;
        if is_open {
            self.actions.push_back(Action::Close(key));
        }
        self.counters.taken_over += 1;
        self.counters.late += deciding.answers.len() as u64;
        let behind = deciding.held.split_off(deciding.flight);
        self.counters.taken += (deciding.held.len() - deciding.relayed) as u64;
        let hello = deciding.hello;
        let (destination_id, source_id) = (*hello.destination_id(), *hello.source_id());
        let guard = Guard::new(hello);
        self.handshakes
            .begin(now.instant, path, (&destination_id, &source_id), guard);
        let mut datagrams = deciding.held;
        let mut others = Vec::new();
        for datagram in behind {
            self.sort(now, path, datagram, &mut datagrams, &mut others);
        }
        self.actions.push_back(Action::TakeOver(Box::new(TakeOver {
            path,
            destination_id,
            recognised: deciding.recognised,
            datagrams,
        })));
        self.actions.extend(others);
    }

    /// A datagram that came while its path's connection was decided on: it may be of that connection, or a stranger's.
    fn sort(
        &mut self,
        now: Now,
        path: Path,
        datagram: Datagram,
        ours: &mut Vec<Datagram>,
        others: &mut Vec<Action>,
    ) {
        match self.handle_datagram(now, path, datagram.ecn, &datagram.bytes) {
            Decision::Pass => ours.push(datagram),
            Decision::Forward(key) => others.push(Action::Forward(key, datagram)),
            Decision::Held | Decision::Dropped => {}
        }
    }

    /// The flow ends, with what waits in it.
    pub(super) fn end(&mut self, key: FlowKey) {
        let Some(flow) = self.flows.remove(key) else {
            return;
        };
        self.held_bytes -= flow.held_bytes();
        if let Some(deadline) = flow.deadline() {
            self.deadlines.remove(&(deadline, key));
        }
        match &flow.stage {
            Stage::Relayed => {}
            Stage::Reading(reading) => {
                self.counters.discarded += (reading.held.len() - reading.relayed) as u64;
            }
            Stage::Deciding(deciding) => {
                self.counters.given_up += 1;
                self.counters.discarded += (deciding.held.len() - deciding.relayed) as u64;
                self.counters.late += deciding.answers.len() as u64;
            }
        }
        if flow.is_open {
            self.actions.push_back(Action::Close(key));
        }
    }
}
