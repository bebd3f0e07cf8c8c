//! The capsules of CONNECT-IP, honest and hostile, in content of any chunks (RFC 9484 section 4.7).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use masque::ip::{
    AddressEntry, IpCapsule, IpCapsuleReader, IpRange, Prefix, Routes, address_assign, address_request,
    dns_assign, route_advertisement,
};
use masque::limits::{ADDRESSES_MAX, CAPSULE_BYTES_MAX, DNS_BYTES_MAX, NAME_SERVERS_MAX, ROUTES_MAX};
use masque::{Code, MessageError};
use packet::varint;
use proptest::prelude::*;

fn capsule(kind: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(kind, &mut out);
    varint::write(value.len() as u64, &mut out);
    out.extend_from_slice(value);
    out
}

/// What a reader makes of content in chunks of this size.
fn read(content: &[u8], chunk_bytes: usize) -> Result<Vec<IpCapsule>, MessageError> {
    let mut reader = IpCapsuleReader::new();
    let mut capsules = Vec::new();
    for chunk in content.chunks(chunk_bytes) {
        let mut input = Bytes::copy_from_slice(chunk);
        while let Some(capsule) = reader.next(&mut input)? {
            capsules.push(capsule);
        }
        assert!(input.is_empty(), "None means that all input is consumed");
    }
    reader.finish()?;
    Ok(capsules)
}

/// The code with which content of one capsule is refused.
fn refused(kind: u64, value: &[u8]) -> Code {
    let error = read(&capsule(kind, value), usize::MAX).unwrap_err();
    assert!(
        matches!(error, MessageError::Stream { .. }),
        "only the request fails"
    );
    error.code()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn entry(request_id: u64, text: &str) -> AddressEntry {
    AddressEntry {
        request_id,
        prefix: prefix(text),
    }
}

fn range(start: &str, end: &str, protocol: u8) -> IpRange {
    IpRange::new(start.parse().unwrap(), end.parse().unwrap(), protocol).unwrap()
}

/// RFC 9484 section 8.1, the full-tunnel example.
#[test]
fn the_exchange_of_the_rfc_has_these_bytes() {
    let asked = entry(1, "0.0.0.0/32");
    assert_eq!(address_request(&[asked]), [2, 7, 1, 4, 0, 0, 0, 0, 32]);
    let assigned = entry(1, "192.0.2.11/32");
    assert_eq!(address_assign(&[assigned]), [1, 7, 1, 4, 192, 0, 2, 11, 32]);
    let everything = Routes::of(&[Prefix::ALL_V4]);
    assert_eq!(
        route_advertisement(&everything),
        [3, 10, 4, 0, 0, 0, 0, 255, 255, 255, 255, 0]
    );
    let content = [
        address_request(&[asked]),
        address_assign(&[assigned]),
        route_advertisement(&everything),
    ];
    assert_eq!(
        read(&content.concat(), usize::MAX),
        Ok(vec![
            IpCapsule::AddressRequest(vec![asked]),
            IpCapsule::AddressAssign(vec![assigned]),
            IpCapsule::RouteAdvertisement(everything),
        ])
    );
}

#[test]
fn empty_lists_take_everything_back() {
    let content = [address_assign(&[]), route_advertisement(&Routes::none())].concat();
    assert_eq!(content, [1, 0, 3, 0]);
    let expected = vec![
        IpCapsule::AddressAssign(vec![]),
        IpCapsule::RouteAdvertisement(Routes::none()),
    ];
    assert_eq!(read(&content, 1), Ok(expected));
}

/// RFC 9484 section 4.7.2: an address that was not assigned.
#[test]
fn a_refusal_is_the_unspecified_address_in_full_length() {
    for (asked, refusal) in [("10.0.0.0/24", "0.0.0.0/32"), ("fd00::/64", "::/128")] {
        let answer = AddressEntry::refusing(&entry(9, asked));
        assert_eq!(answer, entry(9, refusal));
        assert!(answer.is_refusal());
    }
    assert!(!entry(1, "0.0.0.0/0").is_refusal() && !AddressEntry::unasked(prefix("10.0.0.1")).is_refusal());
}

#[test]
fn datagrams_are_delivered_and_unknown_capsules_skipped() {
    let content = [
        capsule(0x00, b"\0packet"),
        capsule(0x1ace_79ed, &[9; 300]),
        address_assign(&[entry(0, "10.0.0.2/32")]),
        capsule(0x00, &vec![0; CAPSULE_BYTES_MAX as usize + 1]),
    ];
    let expected = vec![
        IpCapsule::Datagram(Bytes::from_static(b"\0packet")),
        IpCapsule::AddressAssign(vec![entry(0, "10.0.0.2/32")]),
        IpCapsule::Oversized(CAPSULE_BYTES_MAX + 1),
    ];
    for chunk_bytes in [1, 7, 5000] {
        assert_eq!(read(&content.concat(), chunk_bytes), Ok(expected.clone()));
    }
}

/// RFC 9484 sections 4.7.1 and 4.7.2, RFC 9297 section 3.3.
#[test]
fn malformed_address_capsules_end_the_request() {
    for value in [
        &[1][..],
        &[0x40],
        &[1, 4],
        &[1, 4, 10, 0, 0],
        &[1, 4, 10, 0, 0, 1],
        &[1, 4, 10, 0, 0, 1, 33],
        &[1, 4, 10, 0, 0, 1, 24],
        &[1, 5, 10, 0, 0, 1, 32],
        &[1, 0, 10, 0, 0, 1, 32],
        &[1, 6, 10, 0, 0, 1, 32],
        &[1, 6, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 129],
        &[1, 6, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 64],
        &[1, 4, 10, 0, 0, 1, 32, 2],
    ] {
        assert_eq!(refused(1, value), Code::MessageError, "{value:?}");
        assert_eq!(refused(2, value), Code::MessageError, "{value:?}");
    }
    let one = [1, 4, 0, 0, 0, 0, 32];
    assert_eq!(refused(2, &[]), Code::MessageError);
    assert_eq!(refused(2, &[0, 4, 0, 0, 0, 0, 32]), Code::MessageError);
    assert_eq!(refused(2, &[one, one].concat()), Code::MessageError);
    // In an assignment the same number may come twice, and 0 too.
    assert!(read(&capsule(1, &[one, one].concat()), usize::MAX).is_ok());
}

/// RFC 9484 section 4.7.3.
#[test]
fn malformed_routes_end_the_request() {
    let v4 = |start: u8, end: u8, protocol| [4, 10, 0, 0, start, 10, 0, 0, end, protocol];
    let v6 = [&[6][..], &[0; 16], &[0xff; 16], &[0]].concat();
    for value in [
        vec![4],
        vec![9],
        v4(2, 1, 0).to_vec(),
        v4(0, 1, 0)[..9].to_vec(),
        [v4(0, 1, 0), v4(1, 2, 0)].concat(),
        [v4(3, 4, 0), v4(0, 1, 0)].concat(),
        [v4(0, 1, 6), v4(3, 4, 0)].concat(),
        [v4(0, 9, 0), v4(4, 5, 6)].concat(),
        [v4(4, 5, 0), v4(0, 9, 6)].concat(),
        [&v6[..], &v4(0, 1, 0)].concat(),
        [&v6[..], &v6].concat(),
    ] {
        assert_eq!(refused(3, &value), Code::MessageError, "{value:?}");
    }
    for value in [
        [v4(0, 1, 0), v4(2, 3, 0)].concat(),
        [v4(0, 1, 0), v4(2, 3, 6)].concat(),
        [v4(0, 1, 6), v4(0, 1, 17)].concat(),
        [&v4(0, 1, 0)[..], &v6].concat(),
    ] {
        assert!(read(&capsule(3, &value), usize::MAX).is_ok(), "{value:?}");
    }
}

#[test]
fn capsules_beyond_the_bounds_are_excessive_load() {
    let entries =
        |count: u32| -> Vec<AddressEntry> { (1..=count).map(|id| entry(id.into(), "10.0.0.1/32")).collect() };
    let longest = entries(ADDRESSES_MAX as u32);
    assert_eq!(
        read(&address_request(&longest), 100),
        Ok(vec![IpCapsule::AddressRequest(longest)])
    );
    let one_more = read(&address_assign(&entries(ADDRESSES_MAX as u32 + 1)), 100);
    assert_eq!(one_more.unwrap_err().code(), Code::ExcessiveLoad);

    let routes = |count: u32| {
        let single = |at: u32| std::net::IpAddr::V4(std::net::Ipv4Addr::from_bits(2 * at));
        let ranges = (0..count).map(|at| IpRange::new(single(at), single(at), 0).unwrap());
        Routes::checked(ranges.collect()).unwrap()
    };
    let longest = routes(ROUTES_MAX as u32);
    assert_eq!(
        read(&route_advertisement(&longest), 1000),
        Ok(vec![IpCapsule::RouteAdvertisement(longest)])
    );
    let one_more = read(&route_advertisement(&routes(ROUTES_MAX as u32 + 1)), 1000);
    assert_eq!(one_more.unwrap_err().code(), Code::ExcessiveLoad);

    // By its length alone, before anything of it comes.
    for kind in [1, 2, 3] {
        let mut endless = vec![kind];
        varint::write(varint::MAX, &mut endless);
        assert_eq!(read(&endless, 1).unwrap_err().code(), Code::ExcessiveLoad);
    }
}

#[test]
fn content_that_ends_inside_a_capsule_is_malformed() {
    let content = address_assign(&[entry(1, "10.0.0.1/32")]);
    for cut in 1..content.len() {
        assert_eq!(read(&content[..cut], 1).unwrap_err().code(), Code::MessageError);
    }
}

/// RFC 9484 section 4.7.3: 0 is every protocol, and ICMP is always allowed.
#[test]
fn routes_allow_by_address_and_protocol() {
    let routes = Routes::checked(vec![
        range("10.0.0.0", "10.0.0.255", 0),
        range("10.1.0.0", "10.1.0.255", 6),
        range("10.2.0.0", "10.2.0.255", 17),
        range("fd00::", "fd00::ff", 6),
    ])
    .unwrap();
    for (address, protocol, allowed) in [
        ("10.0.0.255", 6, true),
        ("10.0.1.0", 6, false),
        ("10.1.0.1", 6, true),
        ("10.1.0.1", 17, false),
        ("10.1.0.1", 1, true),
        ("10.2.0.1", 17, true),
        ("10.2.1.1", 1, false),
        ("fd00::1", 6, true),
        ("fd00::1", 58, true),
        ("fd00::1", 17, false),
        ("fd01::1", 58, false),
    ] {
        assert_eq!(
            routes.allows(address.parse().unwrap(), protocol),
            allowed,
            "{address} {protocol}"
        );
    }
}

#[test]
fn prefixes_of_any_order_become_ranges_without_overlap() {
    let routes = Routes::of(&[
        prefix("::/0"),
        prefix("10.0.0.128/25"),
        prefix("0.0.0.0/1"),
        prefix("10.0.0.0/8"),
        prefix("128.0.0.0/1"),
        prefix("fd00::/8"),
    ]);
    assert_eq!(
        routes.ranges(),
        [
            range("0.0.0.0", "255.255.255.255", 0),
            range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 0)
        ]
    );
    let prefixes: Vec<_> = routes.prefixes().collect();
    assert_eq!(prefixes, [Prefix::ALL_V4, Prefix::ALL_V6]);
}

#[test]
fn an_awkward_range_takes_as_many_prefixes_as_the_docs_say() {
    let worst = range("0.0.0.1", "255.255.255.254", 0);
    assert_eq!(worst.prefixes().count(), 62);
    let worst = range("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", 0);
    assert_eq!(worst.prefixes().count(), 254);
}

#[test]
fn text_that_is_no_prefix_is_refused() {
    for text in [
        "",
        "/",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0.0/33",
        "10.0.0.1/8",
        "::/129",
        "a/8",
        "10.0.0.0/0008",
    ] {
        assert!(text.parse::<Prefix>().is_err(), "{text}");
    }
    assert_eq!(prefix("fd00::/8").to_string(), "fd00::/8");
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    (any::<std::net::IpAddr>(), any::<u8>()).prop_map(|(address, length)| {
        let bits = if address.is_ipv4() { 33 } else { 129 };
        Prefix::around(address, (u16::from(length) % bits) as u8).unwrap()
    })
}

/// Small addresses, so that ranges meet.
fn any_routes() -> impl Strategy<Value = Routes> {
    let one = (any::<bool>(), 0..300_u32, 0..40_u32);
    prop::collection::vec(one, 0..20).prop_map(|parts| {
        let address = |is_ipv6: bool, at: u32| -> std::net::IpAddr {
            if is_ipv6 {
                std::net::Ipv6Addr::from_bits(at.into()).into()
            } else {
                std::net::Ipv4Addr::from_bits(at).into()
            }
        };
        let prefixes: Vec<Prefix> = parts
            .into_iter()
            .flat_map(|(is_ipv6, start, length)| {
                let range =
                    IpRange::new(address(is_ipv6, start), address(is_ipv6, start + length), 0).unwrap();
                range.prefixes().collect::<Vec<_>>()
            })
            .collect();
        Routes::of(&prefixes)
    })
}

proptest! {
    #[test]
    fn every_list_of_addresses_survives(
        entries in prop::collection::btree_map(1..=varint::MAX, any_prefix(), 1..ADDRESSES_MAX),
        chunk_bytes in 1..100_usize,
    ) {
        let entries: Vec<_> =
            entries.into_iter().map(|(request_id, prefix)| AddressEntry { request_id, prefix }).collect();
        let content = [address_request(&entries), address_assign(&entries)].concat();
        prop_assert_eq!(
            read(&content, chunk_bytes),
            Ok(vec![IpCapsule::AddressRequest(entries.clone()), IpCapsule::AddressAssign(entries)])
        );
    }

    #[test]
    fn routes_of_prefixes_are_in_order_and_cover_the_same(
        routes in any_routes(),
        probe in 0..400_u32,
        chunk_bytes in 1..100_usize,
    ) {
        prop_assert_eq!(Routes::checked(routes.ranges().to_vec()), Ok(routes.clone()));
        let prefixes: Vec<_> = routes.prefixes().collect();
        prop_assert_eq!(Routes::of(&prefixes), routes.clone());
        for address in [
            std::net::IpAddr::V4(std::net::Ipv4Addr::from_bits(probe)),
            std::net::IpAddr::V6(std::net::Ipv6Addr::from_bits(probe.into())),
        ] {
            let covering = prefixes.iter().filter(|prefix| prefix.contains(address)).count();
            prop_assert_eq!(covering, usize::from(routes.allows(address, 6)));
        }
        prop_assert_eq!(
            read(&route_advertisement(&routes), chunk_bytes),
            Ok(vec![IpCapsule::RouteAdvertisement(routes)])
        );
    }

    #[test]
    fn any_chunking_of_any_content_gives_the_same(
        parts in prop::collection::vec((0..5_u64, prop::collection::vec(any::<u8>(), 0..80)), 0..6),
        junk in prop::collection::vec(any::<u8>(), 0..20),
        chunk_bytes in 1..50_usize,
    ) {
        let mut content: Vec<u8> = parts.iter().flat_map(|(kind, value)| capsule(*kind, value)).collect();
        content.extend(junk);
        prop_assert_eq!(read(&content, chunk_bytes), read(&content, usize::MAX));
    }

    /// Entries that nearly hold: a byte of an honest capsule is changed.
    #[test]
    fn a_capsule_with_a_changed_byte_never_panics(
        routes in any_routes(),
        entries in prop::collection::vec((1..100_u64, any_prefix()), 1..5),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let entries: Vec<_> =
            entries.into_iter().map(|(request_id, prefix)| AddressEntry { request_id, prefix }).collect();
        for mut content in [address_request(&entries), address_assign(&entries), route_advertisement(&routes)] {
            let at = at.index(content.len());
            content[at] = byte;
            if let Ok(capsules) = read(&content, usize::MAX) {
                for capsule in capsules {
                    if let IpCapsule::RouteAdvertisement(routes) = capsule {
                        prop_assert_eq!(Routes::checked(routes.ranges().to_vec()), Ok(routes));
                    }
                }
            }
        }
    }
}

const DNS_ASSIGN: u64 = 0x1ace_79ec;

/// What a DNS_ASSIGN capsule with this value names.
fn name_servers(value: &[u8]) -> Vec<String> {
    match &read(&capsule(DNS_ASSIGN, value), usize::MAX).unwrap()[..] {
        [IpCapsule::DnsAssign(servers)] => servers.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

/// SESSION-16: two plain servers, one internal domain, the root, and no search domain.
#[test]
fn name_servers_for_all_names_have_these_bytes() {
    let servers = ["10.9.0.1".parse().unwrap(), "fd09::1".parse().unwrap()];
    let mut value = vec![2, 0, 1, 1, 10, 9, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0xfd, 9];
    value.extend([0; 13]);
    value.extend([1, 0, 0, 1, 0, 0]);
    assert_eq!(dns_assign(&servers), capsule(DNS_ASSIGN, &value));
    assert_eq!(name_servers(&value), ["10.9.0.1", "fd09::1"]);
    assert_eq!(name_servers(&[0, 0, 0]), Vec::<String>::new());
}

/// SESSION-17.
#[test]
fn what_is_no_plain_name_server_for_all_names_is_read_past() {
    let server = |head: &[u8], tail: &[u8]| [&[1][..], head, &[1, 10, 9, 0, 1, 0], tail].concat();
    let with_domains = |entry: Vec<u8>, domains: &[u8]| name_servers(&[&entry[..], domains].concat());
    let plain = || server(&[0, 1], &[0, 0]);
    assert_eq!(with_domains(plain(), &[0, 0]), ["10.9.0.1"]);
    assert_eq!(with_domains(plain(), &[2, 1, b'a', 0, 1, 1, b'b']), ["10.9.0.1"]);
    // Some names only.
    assert!(with_domains(plain(), &[1, 1, b'a', 0]).is_empty());
    // An alias, one to be authenticated by a name, one with parameters.
    assert!(with_domains(server(&[0, 0], &[0, 0]), &[0, 0]).is_empty());
    assert!(with_domains(server(&[0, 1], &[1, b'a', 0]), &[0, 0]).is_empty());
    assert!(with_domains(server(&[0, 1], &[0, 1, 7]), &[0, 0]).is_empty());
    // More than are asked, in one entry or several.
    let many = [&[1, 0, 1, 5][..], &[10; 20], &[0, 0, 0, 0, 0]].concat();
    assert_eq!(name_servers(&many).len(), NAME_SERVERS_MAX);
    let each = [0, 1, 1, 10, 9, 0, 1, 0, 0, 0].repeat(5);
    assert_eq!(
        name_servers(&[&[5][..], &each, &[0, 0]].concat()).len(),
        NAME_SERVERS_MAX
    );
    // Longer than is read.
    let long = vec![0; DNS_BYTES_MAX as usize + 1];
    assert_eq!(read(&capsule(DNS_ASSIGN, &long), 64).unwrap(), []);
}

#[test]
fn malformed_name_servers_end_the_request() {
    let whole = [1, 0, 1, 1, 10, 9, 0, 1, 0, 0, 0, 1, 0, 0];
    for length in 0..whole.len() {
        assert_eq!(
            refused(DNS_ASSIGN, &whole[..length]),
            Code::MessageError,
            "{length}"
        );
    }
    assert_eq!(
        refused(DNS_ASSIGN, &[&whole[..], &[0]].concat()),
        Code::MessageError
    );
    // A number of entries that no capsule holds.
    assert_eq!(refused(DNS_ASSIGN, &[0xff; 8]), Code::MessageError);
}
