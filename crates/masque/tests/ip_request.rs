//! CONNECT-IP requests and their acceptance: the header lists of RFC 9484, scopes, and what Gramway peers add.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use masque::ip::{
    ClientId, ConnectIp, Extensions, POOL_FIELD, Prefix, SHARED_NAME_FIELD, Scope, ScopeError, ScopeTarget,
    accepted, checksum_context, client_name, connect_ip, pools, push_pools, push_shared_name, shares_name,
};
use masque::request::{Credential, PathKind, Request, classify, split_context};
use masque::{HeaderList, response};
use proptest::prelude::*;

fn pairs(list: &HeaderList) -> Vec<(&str, &str)> {
    list.iter()
        .map(|field| (field.name(), std::str::from_utf8(field.value()).unwrap()))
        .collect()
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// RFC 9484 section 4.4 with this path, and more fields.
fn request(path: &str, more: &[(&str, &str)]) -> HeaderList {
    let list = HeaderList::new()
        .with(":method", "CONNECT")
        .with(":protocol", "connect-ip")
        .with(":scheme", "https")
        .with(":path", path)
        .with(":authority", "example.org")
        .with("capsule-protocol", "?1");
    more.iter()
        .fold(list, |list, (name, value)| list.with(name, value))
}

fn judged(list: &HeaderList) -> ConnectIp {
    match classify(list) {
        Ok(Request::ConnectIp(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// RFC 9484 section 4.4, and the token.
#[test]
fn the_request_is_the_one_of_the_rfc() {
    let ours = connect_ip("example.org", &Scope::ANY, "t0ken", &Extensions::default());
    assert_eq!(
        pairs(&ours),
        [
            (":method", "CONNECT"),
            (":protocol", "connect-ip"),
            (":scheme", "https"),
            (":path", "/.well-known/masque/ip/*/*/"),
            (":authority", "example.org"),
            ("capsule-protocol", "?1"),
            ("authorization", "Bearer t0ken"),
        ]
    );
    let expected = ConnectIp {
        scope: Ok(Scope::ANY),
        credential: Credential::Bearer("t0ken".to_owned()),
        path: PathKind::WellKnown,
        extensions: Extensions::default(),
        capsule_protocol: true,
    };
    assert_eq!(judged(&ours), expected);
}

/// RFC 9484 section 4.5.
#[test]
fn the_acceptance_is_the_one_of_the_rfc() {
    assert_eq!(
        pairs(&accepted(&Extensions::default())),
        [(":status", "200"), ("capsule-protocol", "?1")]
    );
    let agreed = Extensions {
        client: Some(ClientId([7; 16])),
        run: None,
        split: Some(2),
        checksum: Some(4),
        repair: None,
    };
    let all = accepted(&agreed);
    assert_eq!(response::status_of(&all), Ok(200));
    assert_eq!(
        (client_name(&all), split_context(&all), checksum_context(&all)),
        (agreed.client, Some(2), Some(4))
    );
}

#[test]
fn a_gramway_client_adds_its_name_and_two_contexts() {
    let extensions = Extensions {
        client: Some(ClientId(*b"0123456789abcdef")),
        run: Some(17),
        split: Some(masque::split::CONTEXT_ID),
        checksum: Some(masque::ip::CHECKSUM_CONTEXT_ID),
        repair: None,
    };
    let ours = connect_ip("example.org", &Scope::ANY, "t0ken", &extensions);
    assert_eq!(
        pairs(&ours)[7..],
        [
            ("gramway-client", "MDEyMzQ1Njc4OWFiY2RlZg;run=17"),
            ("gramway-split", "2"),
            ("gramway-checksum", "4"),
        ]
    );
    assert_eq!(judged(&ours).extensions, extensions);
}

/// SESSION-15.
#[test]
fn a_shared_name_is_told_by_one_value_and_whatever_else_stands_there_counts_as_absent() {
    let mut list = response::response(200);
    assert!(!shares_name(&list));
    push_shared_name(&mut list);
    assert_eq!(pairs(&list)[1], (SHARED_NAME_FIELD, "?1"));
    assert!(shares_name(&list));
    push_shared_name(&mut list);
    assert!(!shares_name(&list));
    for value in ["", "?0", "1", "?1;copies=2"] {
        let list = response::response(200).with(SHARED_NAME_FIELD, value);
        assert!(!shares_name(&list), "{value}");
    }
}

/// SESSION-13.
#[test]
fn the_networks_that_leases_come_from_are_told_and_whatever_else_stands_there_counts_as_absent() {
    let of = |values: &[&str]| {
        let list = values.iter().fold(response::response(200), |list, value| {
            list.with(POOL_FIELD, *value)
        });
        pools(&list)
    };
    let both = [prefix("10.9.0.0/24"), prefix("fd09::/64")];
    let mut list = response::response(200);
    push_pools(&mut list, &both);
    assert_eq!(pairs(&list)[1], (POOL_FIELD, "10.9.0.0/24, fd09::/64"));
    assert_eq!(pools(&list), both);
    assert_eq!(of(&["10.9.0.0/24,fd09::/64"]), both);
    let nine = ["10.9.0.0/24"; 9].join(",");
    assert_eq!(of(&[&nine[..nine.len() - 12]]).len(), 8);
    for values in [
        &[][..],
        &[""],
        &["10.9.0.0/24,"],
        &["10.9.0.0/33"],
        &["10.9.0.0/24 fd09::/64"],
        &["10.9.0.0/24", "fd09::/64"],
        &[&nine],
    ] {
        assert_eq!(of(values), [], "{values:?}");
    }
    let mut none = response::response(200);
    push_pools(&mut none, &[]);
    assert_eq!(pairs(&none).len(), 1);
}

/// SESSION-1.
#[test]
fn whatever_is_no_client_name_counts_as_absent() {
    let client = |values: &[&str]| {
        let fields: Vec<_> = values.iter().map(|value| ("gramway-client", *value)).collect();
        judged(&request("/.well-known/masque/ip/*/*/", &fields)).extensions
    };
    let named = |run| Extensions {
        client: Some(ClientId([0; 16])),
        run,
        ..Extensions::default()
    };
    assert_eq!(client(&["AAAAAAAAAAAAAAAAAAAAAA"]), named(None));
    assert_eq!(
        client(&["AAAAAAAAAAAAAAAAAAAAAA;run=4294967295"]),
        named(Some(u32::MAX))
    );
    assert_eq!(client(&["AAAAAAAAAAAAAAAAAAAAAA; run=0"]), named(Some(0)));
    for values in [
        &[][..],
        &[""],
        &["AAAAAAAAAAAAAAAAAAAAAA=="],
        &["AAAAAAAAAAAAAAAAAAAAAB"],
        &["AAAAAAAAAAAAAAAAAAAAAAA"],
        &["AAAAAAAAAAAAAAAAAAAA"],
        &["AAAAAAAAAAAAAAAAAAAA+/"],
        &["AAAAAAAAAAAAAAAAAAAAAA;run="],
        &["AAAAAAAAAAAAAAAAAAAAAA;run=+1"],
        &["AAAAAAAAAAAAAAAAAAAAAA;run=4294967296"],
        &["AAAAAAAAAAAAAAAAAAAAAA;other=1"],
        &[";run=1"],
        &["AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA"],
    ] {
        assert_eq!(client(values), Extensions::default(), "{values:?}");
    }
}

/// CSUM-1.
#[test]
fn a_checksum_context_is_even_and_not_the_split_context() {
    let checksum = |fields: &[(&str, &str)]| {
        judged(&request("/.well-known/masque/ip/*/*/", fields))
            .extensions
            .checksum
    };
    assert_eq!(checksum(&[("gramway-checksum", "4")]), Some(4));
    assert_eq!(
        checksum(&[("gramway-checksum", "4"), ("gramway-split", "2")]),
        Some(4)
    );
    for fields in [
        &[][..],
        &[("gramway-checksum", "0")],
        &[("gramway-checksum", "3")],
        &[("gramway-checksum", "x")],
        &[("gramway-checksum", "4"), ("gramway-checksum", "4")],
        &[("gramway-checksum", "2"), ("gramway-split", "2")],
    ] {
        assert_eq!(checksum(fields), None, "{fields:?}");
    }
}

/// RFC 9484 section 4.6.
#[test]
fn scopes_are_names_addresses_and_prefixes_percent_encoded() {
    let name = |text: &str| ScopeTarget::Name(text.to_owned());
    for (path, target, protocol) in [
        ("*/*", ScopeTarget::Any, None),
        ("*/17", ScopeTarget::Any, Some(17)),
        ("target.example.com/17", name("target.example.com"), Some(17)),
        (
            "192.0.2.42/0",
            ScopeTarget::Prefix(prefix("192.0.2.42/32")),
            Some(0),
        ),
        (
            "192.0.2.0%2F24/255",
            ScopeTarget::Prefix(prefix("192.0.2.0/24")),
            Some(255),
        ),
        ("0.0.0.0%2F0/*", ScopeTarget::Prefix(Prefix::ALL_V4), None),
        (
            "2001%3Adb8%3A%3A42/6",
            ScopeTarget::Prefix(prefix("2001:db8::42")),
            Some(6),
        ),
        (
            "2001%3Adb8%3A%3A%2F32/*",
            ScopeTarget::Prefix(prefix("2001:db8::/32")),
            None,
        ),
    ] {
        let scope = Scope { target, protocol };
        assert_eq!(scope.path(), path);
        let judged = judged(&request(&format!("/.well-known/masque/ip/{path}/"), &[]));
        assert_eq!(judged.scope, Ok(scope), "{path}");
    }
    for (path, target) in [
        ("%2A/%2a", ScopeTarget::Any),
        ("192.0.2.42%2f32/*", ScopeTarget::Prefix(prefix("192.0.2.42"))),
        ("Target.EXAMPLE/*", name("target.example")),
    ] {
        let scope = judged(&request(&format!("/.well-known/masque/ip/{path}/"), &[])).scope;
        assert_eq!(
            scope,
            Ok(Scope {
                target,
                protocol: None
            }),
            "{path}"
        );
    }
}

#[test]
fn a_scope_that_cannot_be_is_told_only_beside_the_credential() {
    for (path, error) in [
        ("192.0.2.0%2F33/*", ScopeError::Target),
        ("192.0.2.1%2F24/*", ScopeError::Target),
        ("192.0.2.0%2F/*", ScopeError::Target),
        ("192.0.2.0%2F+24/*", ScopeError::Target),
        ("2001%3Adb8%3A%3A%2F129/*", ScopeError::Target),
        ("fe80%3A%3A1%25eth0/*", ScopeError::Target),
        ("%5B%3A%3A1%5D/*", ScopeError::Target),
        ("**/*", ScopeError::Target),
        ("a%2Fb/*", ScopeError::Target),
        ("%zz/*", ScopeError::Target),
        ("*/256", ScopeError::Protocol),
        ("*/0006", ScopeError::Protocol),
        ("*/+6", ScopeError::Protocol),
        ("*/tcp", ScopeError::Protocol),
    ] {
        let judged = judged(&request(&format!("/.well-known/masque/ip/{path}/"), &[]));
        assert_eq!(
            (judged.scope, judged.credential),
            (Err(error), Credential::None),
            "{path}"
        );
    }
}

#[test]
fn a_path_segment_is_handed_to_the_caller_and_never_printed() {
    let judged = judged(&request("/s3gm-ent_/*/*/", &[]));
    assert_eq!(judged.path, PathKind::Segment("s3gm-ent_".to_owned()));
    assert_eq!(judged.scope, Ok(Scope::ANY));
    assert!(!format!("{judged:?}").contains("s3gm"));
}

#[test]
fn other_paths_are_none_of_ours() {
    for path in [
        "/",
        "/.well-known/masque/ip/",
        "/.well-known/masque/ip/*/",
        "/.well-known/masque/ip/*/*",
        "/.well-known/masque/ip//*/",
        "/.well-known/masque/ip/*/*/*/",
        "/.well-known/masque/ip/192.0.2.0/24/*/",
        "/.well-known/masque/udp/192.0.2.6/443/",
        "/.well-known/masque/ip/*/*/?x",
        "/a/*/*/b/",
    ] {
        assert_eq!(classify(&request(path, &[])), Ok(Request::Other), "{path}");
    }
}

proptest! {
    #[test]
    fn no_list_makes_the_classifier_panic(path in "[/a-z0-9%:.*-]{0,40}", extra in "[ -~]{0,30}") {
        let fields = ["gramway-client", "gramway-split", "gramway-checksum", "authorization"];
        let fields = fields.map(|name| (name, extra.as_str()));
        let _ = classify(&request(&format!("/{path}/"), &fields));
        let _ = Scope::from_path(&path, &extra);
        let _ = Scope::from_path(&extra, &path);
    }

    #[test]
    fn every_scope_survives_its_path(
        target in prop_oneof![
            Just(ScopeTarget::Any),
            "[a-z][a-z0-9-]{0,20}(\\.[a-z][a-z0-9-]{0,20}){0,3}".prop_map(ScopeTarget::Name),
            (any::<std::net::IpAddr>(), 0..=32_u8)
                .prop_map(|(address, length)| ScopeTarget::Prefix(Prefix::around(address, length).unwrap())),
        ],
        protocol in any::<Option<u8>>(),
        client in any::<Option<([u8; 16], Option<u32>)>>(),
    ) {
        let scope = Scope { target, protocol };
        let (client, run) = client.unzip();
        let extensions =
            Extensions { client: client.map(ClientId), run: run.flatten(), ..Extensions::default() };
        let judged = judged(&connect_ip("p", &scope, "t", &extensions));
        prop_assert_eq!(judged.scope, Ok(scope));
        prop_assert_eq!(judged.extensions, extensions);
    }
}
