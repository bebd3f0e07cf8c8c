//! From QUIC to the TUN: packets of a session's datagrams are held against the rules of this end and delivered.

use std::time::Instant;

use packet::checksum::ChecksumState;
use packet::ip::{IpVersion, IpView};
use packet::mss::clamp_mss;

use super::{is_confined, is_syn};
use crate::drops::DropReason;
use crate::engine::request::{Kind, RequestId};
use crate::engine::{Deliver, Role, State};

impl<R: Role> State<R> {
    /// One packet of the session `id`; it is counted as accepted already.
    pub(in crate::engine) fn take_packet(
        &mut self,
        now: Instant,
        id: RequestId,
        packet: &[u8],
        checksum: ChecksumState,
        deliver: &mut impl Deliver,
    ) {
        let Ok(view) = IpView::parse(packet) else {
            return self.ledger.egress.drop(DropReason::Malformed, 1);
        };
        if checksum == ChecksumState::Partial && !can_be_partial(&view, packet) {
            return self.ledger.egress.drop(DropReason::Malformed, 1);
        }
        // What follows the packet is padding of an inner link (RFC 9484 section 6).
        let packet = &packet[..view.total_bytes];
        if let Err(reason) = self.may_leave(id, &view, packet) {
            self.ledger.egress.drop(reason, 1);
            return R::packet_refused(self, now, id, packet, reason);
        }
        if is_syn(&view, packet) {
            let mtu = self.packet_max(id);
            let mut copy = std::mem::take(&mut self.ip.scratch);
            copy.clear();
            copy.extend_from_slice(packet);
            let _ = clamp_mss(&mut copy, mtu, checksum);
            deliver.deliver_packet(&copy, checksum);
            self.ip.scratch = copy;
        } else {
            deliver.deliver_packet(packet, checksum);
        }
    }

    /// Whether a packet of the peer may go on: at both ends both addresses are looked at.
    fn may_leave(&mut self, id: RequestId, view: &IpView, packet: &[u8]) -> Result<(), DropReason> {
        let Some(Kind::Ip(session)) = self.requests.get_mut(id.0).map(|request| &mut request.kind) else {
            return Err(DropReason::UnknownSession);
        };
        if is_confined(view.destination) || view.source_routed {
            return Err(DropReason::PolicyDenied);
        }
        self.role.may_leave(session, view, packet)
    }
}

/// Whether a payload can have an unfinished checksum: one whole packet and nothing behind it, TCP or UDP, not a fragment,
/// with room for the field, and UDP of the length that it says (CSUM-5).
fn can_be_partial(view: &IpView, payload: &[u8]) -> bool {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let transport = view.transport(payload);
    view.total_bytes == payload.len()
        && !view.fragment
        && match (view.protocol, transport) {
            (TCP, _) => transport.len() >= 20,
            (UDP, [_, _, _, _, high, low, _, _, ..]) => {
                usize::from(u16::from_be_bytes([*high, *low])) == transport.len()
            }
            _ => false,
        }
        && (view.version == IpVersion::V4 || view.transport_offset >= 40)
}
