//! A UDP session: CONNECT-UDP at either end (RFC 9298).

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use masque::capsule::{self, Capsule, CapsuleReader};
use masque::repair::RepairOffer;
use masque::split::Splitter;
use masque::{HeaderList, MessageError, request as request_headers, response};

use super::egress::receiver_of;
use super::handler::{Asker, Handler};
use super::life::Life;
use super::offer::{ContextOffer, Offer};
use super::repair::Repair;
use super::request::{Kind, Request, RequestId};
use super::{Deliver, Role, State};
use crate::drops::DropReason;

#[derive(Debug)]
pub(crate) struct UdpSession {
    capsules: CapsuleReader,
    pub(crate) splitter: Splitter,
    /// The context of split payloads.
    pub(crate) split: ContextOffer,
    pub(crate) repair: Repair,
}

/// Extensions that a client offers with a UDP session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offers {
    /// The context of split payloads.
    pub(crate) split: Option<u64>,
    pub(crate) repair: Option<RepairOffer>,
}

impl UdpSession {
    pub(crate) fn new(offers: Offers) -> Self {
        Self {
            capsules: CapsuleReader::new(),
            splitter: Splitter::new(),
            split: Offer::offered(offers.split),
            repair: Repair::offered(offers.repair),
        }
    }
}

impl Handler for UdpSession {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        let split = self.split.any();
        let mut list = request_headers::connect_udp(asker.authority, asker.target?, asker.bearer, split);
        if let Some(offer) = self.repair.offer() {
            offer.push_to(&mut list);
        }
        Some(list)
    }

    fn needs_datagrams(&self) -> bool {
        true
    }

    fn accepted(&mut self, answer: &HeaderList, _: &mut VecDeque<Bytes>) {
        self.split.answered(request_headers::split_context(answer));
    }

    fn accept(&mut self) -> HeaderList {
        let mut list = response::connect_udp_accepted(self.split.accept());
        // REPAIR-2
        if let Some(offer) = self.repair.offer() {
            offer.push_to(&mut list);
        }
        list
    }

    /// A capsule that is cut is malformed (RFC 9297 section 3.3).
    fn check_end(&self) -> Result<(), MessageError> {
        self.capsules.finish()
    }

    fn is_of_driver(&self) -> bool {
        true
    }
}

impl<R: Role> State<R> {
    /// Content of a UDP session's stream: datagrams in capsules (RFC 9297 section 3.5), others skipped.
    pub(super) fn take_udp_content(
        &mut self,
        now: Instant,
        id: RequestId,
        mut bytes: Bytes,
        deliver: &mut impl Deliver,
    ) {
        while let Some(Request { kind, .. }) = self.requests.get_mut(id.0) {
            let receiver = receiver_of(kind, id);
            let session = match kind {
                Kind::Udp(session) => session,
                Kind::Moved(moved) => &mut moved.session,
                _ => return,
            };
            let Some(found) = session.capsules.next(&mut bytes) else {
                return;
            };
            self.ledger.egress.accepted += 1;
            let Capsule::Datagram(datagram) = found else {
                self.ledger.egress.drop(DropReason::TargetTooLarge, 1);
                continue;
            };
            if !self.admits_capsule(now, id, datagram.len()) {
                continue;
            }
            let Some(Request {
                life, last_active, ..
            }) = self.requests.get_mut(id.0)
            else {
                return;
            };
            let egress = &mut self.ledger.egress;
            match capsule::split_context(datagram) {
                None => egress.drop(DropReason::Malformed, 1),
                Some((0, _)) if !matches!(life, Life::Open(_)) => egress.drop(DropReason::UnknownSession, 1),
                Some((0, payload)) if payload.len() > packet::UDP_PAYLOAD_MAX => {
                    egress.drop(DropReason::TargetTooLarge, 1);
                }
                Some((0, payload)) => {
                    *last_active = now;
                    deliver.deliver(receiver, &payload);
                }
                Some(_) => egress.drop(DropReason::UnknownContext, 1),
            }
        }
    }
}
