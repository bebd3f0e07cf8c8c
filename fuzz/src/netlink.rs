//! Answers and news of netlink: each message of a datagram is decoded as it is alone, whatever stands beside it.

/// A datagram of the routing or the packet filter's subsystem.
pub fn run(data: &[u8]) {
    host::fuzzing::netlink(data);
}

/// A header (length, type, flags, sequence number, port) and a payload, padded to four bytes.
fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + payload.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([2, 0]);
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + data.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Routes, one with several next hops, links, addresses, errors, ends of lists, and tables of the packet filter.
pub fn seeds() -> Vec<Vec<u8>> {
    let route = [2, 16, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    let hop = [&[16, 0, 0, 0, 3, 0, 0, 0][..], &attribute(5, &[192, 0, 2, 1])].concat();
    let routes = [
        message(
            24,
            &[
                &route[..],
                &attribute(1, &[10, 1, 0, 0]),
                &attribute(4, &[7, 0, 0, 0]),
            ]
            .concat(),
        ),
        message(24, &[&route[..], &attribute(9, &hop)].concat()),
        message(
            24,
            &[&route[..], &attribute(18, &[&[10, 0][..], &[9; 16]].concat())].concat(),
        ),
    ];
    let link = [
        &[0; 16][..],
        &attribute(3, b"eth0\0"),
        &attribute(4, &[0xdc, 5, 0, 0]),
    ]
    .concat();
    let address = [&[2, 24, 0, 0, 7, 0, 0, 0][..], &attribute(1, &[192, 0, 2, 7])].concat();
    let table = [&[2, 0, 0, 0][..], &attribute(1, b"gramway\0")].concat();
    let others = [
        message(16, &link),
        message(20, &address),
        message(2, &[&[0xef, 0xff, 0xff, 0xff][..], &[0; 16]].concat()),
        message(3, &[0; 4]),
        message(0x0a00, &table),
    ];
    let mut all: Vec<Vec<u8>> = routes.into_iter().chain(others).collect();
    all.push(all.concat());
    all
}
