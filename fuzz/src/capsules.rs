//! Capsules of CONNECT-UDP streams, of bound ones, too, and of CONNECT-IP streams: the same ones come out however the
//! stream is cut, and what is understood is the same after it was written and read again.

use bytes::Bytes;
use masque::bind::{BindCapsule, BindCapsuleReader};
use masque::capsule::{CapsuleReader, split_context};
use masque::ip::{self, AddressEntry, IpCapsule, IpCapsuleReader, Prefix, Routes};

use crate::input::Input;

/// One byte of chunk length, then the stream.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let chunk = usize::from(input.byte()).max(1);
    let stream = input.0;

    let whole = udp(&[stream]);
    assert_eq!(whole, udp(&stream.chunks(chunk).collect::<Vec<_>>()));
    let whole = bind_capsules(&[stream]);
    assert_eq!(whole, bind_capsules(&stream.chunks(chunk).collect::<Vec<_>>()));
    for capsule in whole.0 {
        if let Some(written) = capsule.encode() {
            assert_eq!(bind_capsules(&[&written]), (vec![capsule], true, true));
        }
    }
    let whole = ip_capsules(&[stream]);
    assert_eq!(whole, ip_capsules(&stream.chunks(chunk).collect::<Vec<_>>()));

    for capsule in whole.0 {
        let written = match &capsule {
            IpCapsule::Datagram(datagram) => {
                let _ = split_context(datagram.clone());
                continue;
            }
            IpCapsule::Oversized(_) => continue,
            IpCapsule::AddressAssign(entries) => ip::address_assign(entries),
            IpCapsule::AddressRequest(entries) => ip::address_request(entries),
            IpCapsule::RouteAdvertisement(routes) => {
                let _ = routes.prefixes().take(1000).count();
                ip::route_advertisement(routes)
            }
            IpCapsule::DnsAssign(servers) => ip::dns_assign(servers),
        };
        assert_eq!(ip_capsules(&[&written]), (vec![capsule], true, true));
    }
}

fn udp(chunks: &[&[u8]]) -> (Vec<masque::capsule::Capsule>, bool) {
    let mut reader = CapsuleReader::new();
    let mut capsules = Vec::new();
    for chunk in chunks {
        let mut input = Bytes::copy_from_slice(chunk);
        while let Some(capsule) = reader.next(&mut input) {
            capsules.push(capsule);
        }
        assert!(input.is_empty());
    }
    (capsules, reader.finish().is_ok())
}

/// The capsules, whether none was refused, and whether the stream may end here.
fn bind_capsules(chunks: &[&[u8]]) -> (Vec<BindCapsule>, bool, bool) {
    let mut reader = BindCapsuleReader::default();
    let (capsules, is_taken) = read_all(chunks, |input| reader.next(input));
    (capsules, is_taken, is_taken && reader.finish().is_ok())
}

/// The same of CONNECT-IP.
fn ip_capsules(chunks: &[&[u8]]) -> (Vec<IpCapsule>, bool, bool) {
    let mut reader = IpCapsuleReader::new();
    let (capsules, is_taken) = read_all(chunks, |input| reader.next(input));
    (capsules, is_taken, is_taken && reader.finish().is_ok())
}

/// The capsules up to the first that is refused, and whether none is.
fn read_all<C, E>(
    chunks: &[&[u8]],
    mut next: impl FnMut(&mut Bytes) -> Result<Option<C>, E>,
) -> (Vec<C>, bool) {
    let mut capsules = Vec::new();
    for chunk in chunks {
        let mut input = Bytes::copy_from_slice(chunk);
        loop {
            match next(&mut input) {
                Ok(Some(capsule)) => capsules.push(capsule),
                Ok(None) => break,
                Err(_) => return (capsules, false),
            }
        }
        assert!(input.is_empty());
    }
    (capsules, true)
}

/// One of each capsule, and a row of them.
pub fn seeds() -> Vec<Vec<u8>> {
    let prefixes: Vec<Prefix> = [("10.77.0.2", 32), ("10.77.0.0", 24), ("fd00:77::", 64)]
        .into_iter()
        .filter_map(|(address, length)| Prefix::new(address.parse().ok()?, length).ok())
        .collect();
    let entries: Vec<AddressEntry> = prefixes
        .iter()
        .zip(1..)
        .map(|(prefix, request_id)| AddressEntry {
            request_id,
            prefix: *prefix,
        })
        .collect();
    let mut all = vec![
        ip::address_assign(&entries),
        ip::address_request(&entries),
        ip::route_advertisement(&Routes::of(&prefixes)),
        ip::dns_assign(&prefixes.iter().map(Prefix::address).collect::<Vec<_>>()),
        vec![0x00, 0x05, 0x00, 1, 2, 3, 4],
        vec![0x40, 0x52, 0x02, 1, 2],
        vec![0x11, 0x08, 0x0a, 4, 192, 0, 2, 1, 0, 80],
        vec![0x11, 0x02, 0x0c, 0],
        vec![0x12, 0x01, 0x0a],
        vec![0x13, 0x01, 0x0a],
    ];
    all.push(all.concat());
    for seed in &mut all {
        seed.insert(0, 3);
    }
    all
}
