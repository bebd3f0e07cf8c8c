//! What becomes of received datagrams that are not QUIC's: a shard's [`Door`] decides, and this carries it out. Hellos
//! of clients are noted in the replay window and handed to the engine, everything else goes to the cover and back.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use packet::Ecn;
use packet_io::{DatagramSocket, Outgoing, Waker};
use quic::{CoverTls, FrontDoorIdentity, Path};
use reality::credentials::ServerKey;
use reality::door::{Action, Datagram, Decision, Door, FlowKey, Now, Recogniser, TakeOver};
use reality::examination::verdict::Profile;
use reality::replay::Tag;

use super::SharedCover;
use super::address::AddressInUse;
use super::flows::Flows;
use super::replays::unix_seconds;
use super::standing::Standing;
use crate::driver::delivery::Stranger;
use crate::driver::server::Server;
use crate::driver::server::ServerSource;
use crate::driver::server::users::FrontDoorUsers;
use crate::driver::sources::SourceId;
use crate::driver::{Shard, aead};
use crate::handle::Failure;
use crate::limits;
use crate::snapshot::CoverSnapshot;

/// A shard's door, and what it decides about.
pub(super) struct Strangers {
    door: Door<FrontDoorUsers>,
    flows: Flows,
    address: AddressInUse,
    /// What `identity` and `door` have of the cover.
    profile: Profile,
    identity: FrontDoorIdentity,
    identity_due: Instant,
    /// Since when the cover owes an answer.
    owed_since: Option<Instant>,
    /// Datagrams for which there was no way to the cover.
    unsent: u64,
    /// Hellos of which the host's thread has written, and whether it could.
    recorded: mpsc::Receiver<Recorded>,
    recorder: mpsc::Sender<Recorded>,
    waker: Waker,
}

/// What became of a hello's tag.
struct Recorded {
    flow: FlowKey,
    tag: Tag,
    is_written: bool,
}

/// By what hellos are recognised.
pub(super) fn recogniser(
    keys: &[[u8; 32]],
    users: FrontDoorUsers,
    window: std::time::Duration,
) -> Recogniser<FrontDoorUsers> {
    Recogniser {
        keys: keys.iter().map(ServerKey::from_bytes).collect(),
        users,
        window,
    }
}

impl Strangers {
    pub(super) fn new(shared: &SharedCover, shards: u8, waker: Waker, now: Instant) -> Result<Self, Failure> {
        let (recorder, recorded) = mpsc::channel();
        let profile = shared.standing.profile();
        let mut door = Door::new(Arc::clone(&shared.recogniser), shards);
        door.set_cover_delay(profile.answer_delay);
        Ok(Self {
            door,
            flows: Flows::default(),
            address: AddressInUse::default(),
            identity: identity(&profile)?,
            profile,
            identity_due: now + quic::limits::CERTIFICATE_KEY_TIME,
            owed_since: None,
            unsent: 0,
            recorded,
            recorder,
            waker,
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.door.poll_timeout()
    }

    pub(super) fn count(&self, snapshot: &mut CoverSnapshot) {
        snapshot.flows = self.flows.gauge();
        snapshot.unsent = self.unsent;
        snapshot.relay = *self.door.counters();
    }

    /// Looks as the cover does since it was last looked at, and has it looked at where it owes an answer.
    pub(super) fn follow(&mut self, standing: &Standing, now: Instant) {
        let profile = standing.profile();
        if profile != self.profile {
            self.door.set_cover_delay(profile.answer_delay);
            self.profile = profile;
            self.renew_identity(now);
        }
        let is_overdue = |since: &mut Instant| *since + limits::COVER_UNANSWERED_TIME <= now;
        if self.owed_since.take_if(is_overdue).is_some() {
            standing.doubt(now);
        }
    }

    /// Makes a new key for certificates. Where that fails the old one serves on.
    fn renew_identity(&mut self, now: Instant) {
        self.identity_due = now + quic::limits::CERTIFICATE_KEY_TIME;
        if let Ok(new) = identity(&self.profile) {
            self.identity = new;
        }
    }
}

fn identity(profile: &Profile) -> Result<FrontDoorIdentity, Failure> {
    let visible = CoverTls {
        cipher_suite: profile.suite,
        group: profile.group,
        certificate_message_bytes: profile.certificate_bytes,
        is_version_first: profile.is_version_first,
    };
    FrontDoorIdentity::generate(aead::fastest(), &visible)
        .map_err(|error| Failure::Configuration(error.to_string()))
}

fn at(now: Instant) -> Now {
    Now {
        instant: now,
        unix: unix_seconds(),
    }
}

impl Shard<Server> {
    fn strangers(&mut self) -> Option<&mut Strangers> {
        Some(&mut self.role.cover.as_mut()?.strangers)
    }

    /// Datagrams of which QUIC reads nothing.
    pub(in crate::driver::server) fn receive_strangers(&mut self, now: Instant) {
        if self.delivery.strangers.is_empty() {
            return;
        }
        let mut received = std::mem::take(&mut self.delivery.strangers);
        for Stranger {
            path,
            ecn,
            datagrams,
            segment_size,
        } in received.drain(..)
        {
            for datagram in packet::segments(&datagrams, segment_size) {
                self.receive_stranger(now, path, ecn, datagram);
            }
        }
        received.append(&mut self.delivery.strangers);
        received.clear();
        self.delivery.strangers = received;
    }

    fn receive_stranger(&mut self, now: Instant, path: Path, ecn: Ecn, datagram: &[u8]) {
        let Some(strangers) = self.strangers() else { return };
        let decision = strangers.door.handle_datagram(at(now), path, ecn, datagram);
        self.carry_out_door_actions(now);
        match decision {
            Decision::Forward(flow) => self.forward(now, flow, ecn, datagram),
            Decision::Pass => self.admit_datagram(now, path, ecn, datagram),
            Decision::Held | Decision::Dropped => {}
        }
    }

    /// What is due at the door, and what the host's thread has written.
    pub(in crate::driver::server) fn strangers_turn(&mut self, now: Instant) {
        let Some(strangers) = self.strangers() else { return };
        while let Ok(Recorded {
            flow,
            tag,
            is_written,
        }) = strangers.recorded.try_recv()
        {
            strangers.door.handle_recorded(at(now), flow, &tag, is_written);
        }
        if strangers.door.poll_timeout().is_some_and(|due| due <= now) {
            strangers.door.handle_timeout(at(now));
        }
        self.carry_out_door_actions(now);
    }

    /// Makes a new key for certificates, where it is time (QR1-15).
    pub(in crate::driver::server) fn renew_identity(&mut self, now: Instant) {
        if let Some(strangers) = self.strangers()
            && strangers.identity_due <= now
        {
            strangers.renew_identity(now);
        }
    }

    fn carry_out_door_actions(&mut self, now: Instant) {
        while let Some(strangers) = self.strangers()
            && let Some(action) = strangers.door.poll_action()
        {
            match action {
                Action::Forward(flow, datagram) => self.forward(now, flow, datagram.ecn, &datagram.bytes),
                Action::Answer(path, datagram) => self.answer(path, &datagram),
                Action::Close(flow) => self.close_flow(flow),
                Action::Record { flow, tag, time } => self.record(now, flow, tag, time),
                Action::TakeOver(connection) => self.take_over(now, *connection),
            }
        }
    }

    /// Sends a stranger's datagram to the cover. Where it cannot be found, it is silent (QR1-26).
    fn forward(&mut self, now: Instant, key: FlowKey, ecn: Ecn, datagram: &[u8]) {
        let Some(cover) = &mut self.role.cover else { return };
        let strangers = &mut cover.strangers;
        if !strangers.flows.has(key) {
            let (sources, poller) = (&mut self.sources, &self.io.poller);
            let address = strangers.address.get(&cover.shared.address);
            let opened = address.map(|address| {
                let flows = &mut strangers.flows;
                flows.open(key, address, &self.io.common, sources, poller)
            });
            if !matches!(opened, Some(Ok(()))) {
                strangers.unsent += 1;
                return;
            }
        }
        if is_answered_by_any(datagram) {
            strangers.owed_since.get_or_insert(now);
        }
        strangers.flows.send(key, ecn, datagram, &mut self.sources);
    }

    fn close_flow(&mut self, key: FlowKey) {
        if let Some(cover) = &mut self.role.cover {
            let (sources, poller) = (&mut self.sources, &self.io.poller);
            cover.strangers.flows.close(key, sources, poller);
        }
    }

    /// Sends a stranger what the cover answered.
    fn answer(&mut self, path: Path, datagram: &Datagram) {
        self.io
            .outer
            .send_apart(&[to_stranger(path, datagram.ecn, &datagram.bytes)]);
    }

    /// The cover has answered on a flow.
    pub(in crate::driver::server) fn receive_cover(&mut self, now: Instant, id: SourceId) {
        let Some(ServerSource::Flow(flow)) = self.sources.get_mut(id) else {
            return;
        };
        let key = flow.key;
        let received = flow.socket.receive(&mut self.inner_batch);
        let (Some(cover), batch) = (&mut self.role.cover, &self.inner_batch) else {
            return;
        };
        let Ok(count) = received else {
            // What ICMP reports about an earlier datagram is no answer, and may be forged.
            return cover.shared.standing.doubt(now);
        };
        if count > 0 {
            cover.strangers.owed_since = None;
            cover.shared.standing.hear(now);
        }
        let time = at(now);
        for index in 0..count {
            let received = batch.get(index);
            if received.meta.truncated {
                continue;
            }
            for datagram in received.segments() {
                let door = &mut cover.strangers.door;
                if let Some(path) = door.handle_answer(time, key, received.meta.ecn, datagram) {
                    self.io
                        .outer
                        .send_apart(&[to_stranger(path, received.meta.ecn, datagram)]);
                }
            }
        }
        self.carry_out_door_actions(now);
    }

    /// A hello is one of ours: the replay window is asked.
    fn record(&mut self, now: Instant, flow: FlowKey, tag: Tag, time: u32) {
        let Some(cover) = &mut self.role.cover else { return };
        let strangers = &mut cover.strangers;
        let (recorder, waker) = (strangers.recorder.clone(), strangers.waker.clone());
        let asked = cover.shared.replays.accept(&tag, time, move |is_written| {
            let recorded = Recorded {
                flow,
                tag,
                is_written,
            };
            // A shard that has ended answers nobody.
            if recorder.send(recorded).is_ok() {
                waker.wake();
            }
        });
        if asked.is_err() {
            strangers.door.handle_recorded(at(now), flow, &tag, false);
        }
    }

    /// A client was recognised: its datagrams are the engine's from here on.
    fn take_over(&mut self, now: Instant, connection: TakeOver) {
        let Some(cover) = &mut self.role.cover else { return };
        let TakeOver {
            path,
            destination_id,
            recognised,
            datagrams,
        } = connection;
        let identity = cover.strangers.identity.for_client(recognised.keys);
        let id = Bytes::copy_from_slice(&destination_id);
        self.engine.expect_connection(path.remote, id, identity);
        for Datagram { ecn, bytes } in datagrams {
            self.admit_datagram(now, path, ecn, &bytes);
        }
    }

    /// QUIC reads a datagram of a handshake that was taken over. If it knows it no longer, the datagram is nobody's.
    fn admit_datagram(&mut self, now: Instant, path: Path, ecn: Ecn, datagram: &[u8]) {
        let (delivery, outbox) = (&mut self.delivery, self.io.outer.outbox());
        let others = delivery.strangers.len();
        let bytes = BytesMut::from(datagram);
        self.engine
            .handle_admitted(now, path, ecn, bytes, delivery, outbox);
        delivery.strangers.truncate(others);
    }

    /// Packets are about to leave: the guards of handshakes hear of them (QR1-22).
    pub(in crate::driver::server) fn note_sent(&mut self) {
        let Some(cover) = &mut self.role.cover else { return };
        let handshakes = cover.strangers.door.handshakes();
        if handshakes.is_empty() {
            return;
        }
        for train in self.io.outer.outbox().trains() {
            let path = Path {
                remote: train.destination,
                local: train.source,
            };
            for datagram in packet::segments(&train.bytes, train.segment_size) {
                if reality::long_header::is_long(datagram) {
                    handshakes.handle_sent(path, datagram);
                }
            }
        }
    }
}

/// Whether every server that speaks QUIC answers this, unless it is the last of many: a long header in a datagram as
/// long as a client's first is (RFC 9000 sections 6.1 and 14.1).
fn is_answered_by_any(datagram: &[u8]) -> bool {
    reality::long_header::is_long(datagram) && datagram.len() >= reality::limits::INITIAL_DATAGRAM_BYTES_MIN
}

fn to_stranger(path: Path, ecn: Ecn, datagram: &[u8]) -> Outgoing<'_> {
    Outgoing {
        destination: Some(path.remote),
        source: path.local,
        ecn,
        segment_size: datagram.len(),
        payload: datagram,
    }
}
