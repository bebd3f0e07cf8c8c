//! Datagrams of SOCKS5's associations: what is read is all of the datagram, its target is found by the bytes that name
//! it, and an answer with the same header is read the same.

use tunnel_proto::{SocksAddress, SocksDatagram};

/// The datagram.
pub fn run(data: &[u8]) {
    let Ok(read) = SocksDatagram::read(data) else {
        return;
    };
    let address = SocksAddress::new(read.address).expect("the address was read");
    let answer = [&address.header(), read.payload].concat();
    // The reserved bytes may be anything on the way there, and are zeros on the way back.
    assert_eq!(answer[2..], data[2..]);
    assert_eq!(SocksDatagram::read(&answer), Ok(read));
    if let Ok(target) = address.target() {
        assert_eq!(target.to_string().parse(), Ok(target));
    }
}

/// Each kind of address, a fragment, a strange kind, a name that is none.
pub fn seeds() -> Vec<Vec<u8>> {
    let all = [
        &b"\0\0\0\x01\xc6\x33\x64\x09\x00\x35question"[..],
        b"\0\0\0\x03\x0bexample.org\x00\x35question",
        b"\0\0\0\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x09\x00\x35question",
        b"\0\0\x01\x01\xc6\x33\x64\x09\x00\x35question",
        b"\xff\xff\0\x02\xc6\x33\x64\x09\x00\x35question",
        b"\0\0\0\x03\x02\xff\xff\x00\x35",
        b"\0\0\0\x01\xc6\x33\x64\x09\x00\x00",
    ];
    all.map(<[u8]>::to_vec).to_vec()
}
