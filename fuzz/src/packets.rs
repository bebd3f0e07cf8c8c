//! Well-formed packets to start from.

use packet::checksum;
use packet::ip::IpView;

/// What a packet carries.
pub enum Transport {
    /// TCP: sequence number and flags.
    Tcp(u32, u8),
    /// UDP.
    Udp,
}

/// A TCP or UDP packet from port 1000 + `flow` to port 443 with right checksums.
pub fn packet(is_ipv6: bool, transport: &Transport, flow: u16, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend((1000 + flow).to_be_bytes());
    segment.extend(443_u16.to_be_bytes());
    let protocol = match transport {
        Transport::Tcp(sequence, flags) => {
            segment.extend(sequence.to_be_bytes());
            segment.extend([0, 0, 0, 77, 0x50, *flags, 1, 0, 0, 0, 0, 0]);
            6
        }
        Transport::Udp => {
            segment.extend((8 + payload.len() as u16).to_be_bytes());
            segment.extend([0, 0]);
            17
        }
    };
    segment.extend_from_slice(payload);
    ip(is_ipv6, protocol, &segment)
}

/// A packet of `protocol`; the checksum of TCP and UDP is made right.
pub fn ip(is_ipv6: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let length = transport.len() as u16;
    let mut packet = if is_ipv6 {
        let mut header = vec![0x60, 0, 0, 0];
        header.extend(length.to_be_bytes());
        header.extend([protocol, 64]);
        header.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        header.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        header
    } else {
        let mut header = vec![0x45, 0];
        header.extend((20 + length).to_be_bytes());
        header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !checksum::sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    };
    packet.extend_from_slice(transport);
    make_partial(&mut packet);
    // What has no checksum field needs none.
    let _ = checksum::complete(&mut packet);
    packet
}

/// Puts the sum of the pseudo-header into the checksum field of a TCP or UDP packet.
pub fn make_partial(packet: &mut [u8]) {
    let Ok(view) = IpView::parse(packet) else { return };
    let field = view.transport_offset
        + match view.protocol {
            6 => 16,
            17 => 6,
            _ => return,
        };
    if view.fragment || field + 2 > view.total_bytes {
        return;
    }
    let length = view.total_bytes - view.transport_offset;
    let pseudo = checksum::pseudo_header(view.source, view.destination, view.protocol, length);
    packet[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
}

/// Packets of every kind that the crate tells apart.
pub fn kinds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for is_ipv6 in [false, true] {
        all.push(packet(is_ipv6, &Transport::Tcp(1, 0x18), 1, b"tcp payload"));
        all.push(packet(is_ipv6, &Transport::Udp, 1, b"udp payload"));
        let mut syn = vec![0; 20];
        (syn[12], syn[13]) = (0x70, 0x02);
        syn.extend([2, 4, 0x05, 0xb4, 1, 3, 3, 7]);
        all.push(ip(is_ipv6, 6, &syn));
        let echo = if is_ipv6 { (58, 128) } else { (1, 8) };
        all.push(ip(is_ipv6, echo.0, &[echo.1, 0, 0, 0, 0, 1, 0, 1]));
        all.push(ip(is_ipv6, 50, &[0; 16]));
    }
    let mut fragment = all[1].clone();
    fragment[6] = 0x20;
    all.push(fragment);
    let mut options = all[1].clone();
    (options[0], options[3]) = (0x46, options[3] + 4);
    options.splice(20..20, [131, 3, 4, 0]);
    all.push(options);
    // Hop-by-hop, routing and fragment header before UDP.
    let mut chain = vec![43, 0, 0, 0, 0, 0, 0, 0];
    chain.extend([44, 0, 4, 1, 0, 0, 0, 0]);
    chain.extend([17, 0, 0, 1, 0, 0, 0, 9]);
    chain.extend([3, 232, 1, 187, 0, 8, 0, 0]);
    all.push(ip(true, 0, &chain));
    all
}
