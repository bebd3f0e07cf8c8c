//! Where TCP and UDP keep the fields that we patch (RFC 9293 section 3.1, RFC 768).

/// IP protocol numbers that this crate knows.
pub(crate) mod protocol {
    pub(crate) const ICMP_V4: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const DCCP: u8 = 33;
    pub(crate) const ICMP_V6: u8 = 58;
    pub(crate) const SCTP: u8 = 132;
    pub(crate) const UDP_LITE: u8 = 136;
}

/// Offsets and flags within a TCP header.
pub(crate) mod tcp {
    pub(crate) const SEQUENCE: usize = 4;
    pub(crate) const ACKNOWLEDGEMENT: usize = 8;
    pub(crate) const DATA_OFFSET: usize = 12;
    pub(crate) const FLAGS: usize = 13;
    pub(crate) const WINDOW: usize = 14;
    pub(crate) const CHECKSUM: usize = 16;
    pub(crate) const URGENT_POINTER: usize = 18;
    pub(crate) const OPTIONS: usize = 20;
    /// Bytes of the header without options.
    pub(crate) const HEADER_BYTES: usize = 20;

    pub(crate) const FIN: u8 = 0x01;
    pub(crate) const SYN: u8 = 0x02;
    pub(crate) const PSH: u8 = 0x08;
    pub(crate) const ACK: u8 = 0x10;
    pub(crate) const CWR: u8 = 0x80;

    /// Bytes of the header that starts `segment`, or `None` where it is cut short or says less than 20.
    pub(crate) fn header_bytes(segment: &[u8]) -> Option<usize> {
        let bytes = usize::from(segment.get(DATA_OFFSET)? >> 4) * 4;
        (bytes >= HEADER_BYTES && bytes <= segment.len()).then_some(bytes)
    }
}

/// Offsets within a UDP header.
pub(crate) mod udp {
    pub(crate) const LENGTH: usize = 4;
    pub(crate) const CHECKSUM: usize = 6;
    /// Bytes of the header.
    pub(crate) const HEADER_BYTES: usize = 8;
}

/// Offset of the checksum within the header of TCP or UDP; `None` for other protocols.
pub(crate) fn checksum_offset(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(tcp::CHECKSUM),
        protocol::UDP => Some(udp::CHECKSUM),
        _ => None,
    }
}
