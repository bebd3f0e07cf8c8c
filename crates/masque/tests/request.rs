//! Requests and responses: the header lists of the RFCs, and everything that must not pass for one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use masque::{
    Code, HeaderList, Target, TargetError,
    request::{self, ConnectUdp, Credential, Extended, PathKind, Request, classify},
    response,
};
use proptest::prelude::*;

fn pairs(list: &HeaderList) -> Vec<(&str, &str)> {
    list.iter()
        .map(|field| (field.name(), std::str::from_utf8(field.value()).unwrap()))
        .collect()
}

fn list(fields: &[(&str, &str)]) -> HeaderList {
    fields
        .iter()
        .fold(HeaderList::new(), |list, (name, value)| list.with(name, value))
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

/// Name and value.
type FieldText = (&'static str, &'static str);

const EXTENDED: [FieldText; 5] = [
    (":method", "CONNECT"),
    (":protocol", "connect-udp"),
    (":scheme", "https"),
    (":path", "/.well-known/masque/udp/192.0.2.6/443/"),
    (":authority", "example.org"),
];

/// [`EXTENDED`] with the value of one field replaced.
fn extended(name: &str, value: &str) -> HeaderList {
    let fields = EXTENDED.map(|field| if field.0 == name { (name, value) } else { field });
    list(&fields)
}

fn connect_udp_of(list: &HeaderList) -> ConnectUdp {
    match classify(list) {
        Ok(Request::ConnectUdp(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// RFC 9298 section 3.4, figure 5, and the token.
#[test]
fn the_connect_udp_request_is_the_one_of_the_rfc() {
    let request = request::connect_udp("example.org", &target("192.0.2.6:443"), "t0ken", Some(2));
    let expected = [
        &EXTENDED[..],
        &[
            ("capsule-protocol", "?1"),
            ("authorization", "Bearer t0ken"),
            ("gramway-split", "2"),
        ],
    ];
    assert_eq!(pairs(&request), expected.concat());
    assert_eq!(
        connect_udp_of(&request),
        ConnectUdp {
            target: Ok(target("192.0.2.6:443")),
            credential: Credential::Bearer("t0ken".to_owned()),
            path: PathKind::WellKnown,
            bind: false,
            split: Some(2),
            repair: None,
            capsule_protocol: true,
        }
    );
}

/// RFC 9298 section 3.5, figure 6.
#[test]
fn the_acceptance_of_connect_udp_is_the_one_of_the_rfc() {
    let accepted = response::connect_udp_accepted(None);
    assert_eq!(pairs(&accepted), [(":status", "200"), ("capsule-protocol", "?1")]);
    let with_split = response::connect_udp_accepted(Some(2));
    assert_eq!(response::status_of(&with_split), Ok(200));
    assert_eq!(request::split_context(&with_split), Some(2));
}

/// RFC 9114 section 4.4: `:scheme` and `:path` are omitted.
#[test]
fn the_connect_request_has_method_and_authority_only() {
    let request = request::connect(&target("[2001:db8::1]:22"), "t0ken");
    assert_eq!(
        pairs(&request),
        [
            (":method", "CONNECT"),
            (":authority", "[2001:db8::1]:22"),
            ("proxy-authorization", "Bearer t0ken")
        ]
    );
    let credential = Credential::Bearer("t0ken".to_owned());
    assert_eq!(
        classify(&request),
        Ok(Request::Connect {
            target: Ok(target("[2001:db8::1]:22")),
            credential
        })
    );
}

#[test]
fn refusals_name_the_scheme_that_they_want() {
    assert_eq!(
        pairs(&response::unauthorized()),
        [(":status", "401"), ("www-authenticate", "Bearer")]
    );
    assert_eq!(
        pairs(&response::proxy_authentication_required()),
        [(":status", "407"), ("proxy-authenticate", "Bearer")]
    );
}

#[test]
fn an_ipv6_target_travels_percent_encoded() {
    let request = request::connect_udp("proxy:443", &target("[2001:db8::42]:53"), "x", None);
    assert_eq!(
        request.only(":path"),
        Some(&b"/.well-known/masque/udp/2001%3Adb8%3A%3A42/53/"[..])
    );
    assert_eq!(connect_udp_of(&request).target, Ok(target("[2001:db8::42]:53")));
}

#[test]
fn a_path_segment_is_handed_to_the_caller_and_never_printed() {
    let request = connect_udp_of(&extended(":path", "/s3gm-ent_/example.com/53/"));
    assert_eq!(request.path, PathKind::Segment("s3gm-ent_".to_owned()));
    assert_eq!(request.target, Ok(target("example.com:53")));
    assert_eq!(request.credential, Credential::None);
    assert!(!format!("{request:?}").contains("s3gm"));
}

#[test]
fn other_paths_protocols_and_schemes_are_none_of_ours() {
    for path in [
        "/",
        "*",
        "/a",
        "/a/b/1",
        "//b/1/",
        "/a//1/",
        "/a/b//",
        "/a/b/1/c/",
        "/a/b/1/?q",
        "/a/b?/1/",
        "/.well-known/masque/udp/h/1",
        "/.well-known/masque/udp/h/1/2/",
        "/.well-known/masque/udp//1/",
        "/.well-known/masque/ip/h/1/",
        "relative/h/1/",
    ] {
        assert_eq!(classify(&extended(":path", path)), Ok(Request::Other), "{path}");
    }
    assert_eq!(classify(&extended(":scheme", "http")), Ok(Request::Other));
    let get = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", "example.org"),
    ];
    assert_eq!(classify(&list(&get)), Ok(Request::Other));
    let options = [
        (":method", "OPTIONS"),
        (":scheme", "https"),
        (":path", "*"),
        ("host", "example.org"),
    ];
    assert_eq!(classify(&list(&options)), Ok(Request::Other));
}

#[test]
fn another_protocol_is_named_with_its_path_and_the_credential() {
    let built = request::extended_connect("proxy.example:443", "line-count", "/a?b", "token");
    let expected = Request::Extended(Extended {
        protocol: "line-count".to_owned(),
        path: "/a?b".to_owned(),
        credential: Credential::Bearer("token".to_owned()),
    });
    assert_eq!(classify(&built), Ok(expected));
    let Ok(Request::Extended(asked)) = classify(&extended(":protocol", "websocket")) else {
        panic!("an extended CONNECT is one, whatever its path");
    };
    assert_eq!(asked.protocol, "websocket");
}

#[test]
fn a_target_that_cannot_be_is_told_only_beside_the_credential() {
    for (path, error) in [
        ("/.well-known/masque/udp/h/0/", TargetError::Port),
        ("/.well-known/masque/udp/h/x/", TargetError::Port),
        ("/.well-known/masque/udp/%5B::1%5D/1/", TargetError::Host),
        ("/.well-known/masque/udp/fe80%3A%3A1%25eth0/1/", TargetError::Host),
        ("/.well-known/masque/udp/%zz/1/", TargetError::Host),
    ] {
        assert_eq!(
            connect_udp_of(&extended(":path", path)).target,
            Err(error),
            "{path}"
        );
    }
    let connect = list(&[(":method", "CONNECT"), (":authority", "nonsense")]);
    let Ok(Request::Connect { target, credential }) = classify(&connect) else {
        panic!("not taken")
    };
    assert_eq!((target, credential), (Err(TargetError::Form), Credential::None));
}

/// RFC 9114 sections 4.2, 4.3 and 4.4, RFC 9220.
#[test]
fn malformed_requests_are_refused() {
    let get = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/"),
        (":authority", "example.org"),
    ];
    let with = |fields: &[FieldText], more: &[FieldText]| [fields, more].concat();
    let without = |name: &str| {
        EXTENDED
            .into_iter()
            .filter(|field| field.0 != name)
            .collect::<Vec<_>>()
    };
    for fields in [
        vec![],
        vec![("accept", "*/*")],
        get[1..].to_vec(),
        vec![get[0], get[2], get[3]],
        vec![get[0], get[1], get[3]],
        get[..3].to_vec(),
        with(&get, &[(":method", "GET")]),
        with(&get, &[(":status", "200")]),
        with(&get, &[(":unknown", "1")]),
        with(&get, &[(":protocol", "connect-udp")]),
        with(&get, &[("accept", "*/*"), (":protocol", "x")]),
        with(&get, &[("host", "example.com")]),
        with(&get[..3], &[("host", "")]),
        with(
            &[(":method", "GET"), (":scheme", "https"), (":path", "x")],
            &get[3..],
        ),
        with(&get, &[("connection", "close")]),
        with(&get, &[("transfer-encoding", "chunked")]),
        with(&get, &[("upgrade", "h2c")]),
        with(&get, &[("te", "gzip")]),
        vec![(":method", "CONNECT")],
        vec![
            (":method", "CONNECT"),
            (":authority", "h:1"),
            (":scheme", "https"),
        ],
        vec![(":method", "CONNECT"), (":authority", "h:1"), (":path", "/")],
        without(":scheme"),
        without(":path"),
        without(":authority"),
        without(":method"),
    ] {
        let result = classify(&list(&fields)).map_err(|error| error.code());
        assert_eq!(result, Err(Code::MessageError), "{fields:?}");
    }
    for name in [":scheme", ":path", ":authority"] {
        assert!(classify(&extended(name, "")).is_err(), "{name}");
    }
    assert!(classify(&list(&with(&get, &[("te", "trailers"), ("host", "example.org")]))).is_ok());
}

#[test]
fn credentials_are_bearer_tokens_in_one_field() {
    let credential = |values: &[&str]| {
        let request = values
            .iter()
            .fold(list(&EXTENDED), |list, value| list.with("authorization", value));
        connect_udp_of(&request).credential
    };
    assert_eq!(credential(&[]), Credential::None);
    for value in ["Bearer abc-._~+/=", "bearer abc-._~+/=", "BEARER   abc-._~+/= "] {
        assert_eq!(credential(&[value]), Credential::Bearer("abc-._~+/=".to_owned()));
    }
    for values in [
        &["Basic abc"][..],
        &["Bearer"],
        &["Bearer "],
        &["Bearer a b"],
        &["Bearer a", "Bearer a"],
        &[""],
    ] {
        assert_eq!(credential(values), Credential::Malformed, "{values:?}");
    }
}

/// SPLIT-1: a structured integer, even, not zero; whatever else is ignored.
#[test]
fn only_an_even_context_is_an_offer() {
    let offer = |values: &[&str]| {
        let request = values
            .iter()
            .fold(list(&EXTENDED), |list, value| list.with("gramway-split", value));
        connect_udp_of(&request).split
    };
    assert_eq!(offer(&["2"]), Some(2));
    assert_eq!(offer(&["999999999999998"]), Some(999_999_999_999_998));
    for values in [
        &[][..],
        &["0"],
        &["3"],
        &["-2"],
        &["+2"],
        &["2.0"],
        &[""],
        &["1000000000000000"],
        &["2", "2"],
    ] {
        assert_eq!(offer(values), None, "{values:?}");
    }
}

/// RFC 9297 section 3.4.
#[test]
fn the_capsule_protocol_field_is_a_structured_boolean() {
    let is_on = |value| connect_udp_of(&list(&EXTENDED).with("capsule-protocol", value)).capsule_protocol;
    assert!(is_on("?1") && is_on("?1; a=b"));
    assert!(!is_on("?0") && !is_on("1") && !is_on("?12") && !is_on(""));
}

proptest! {
    #[test]
    fn no_list_makes_the_classifier_panic(
        path in "[/a-z0-9%:.?-]{0,40}",
        authority in "[a-z0-9%:.\\[\\]-]{0,20}",
        dropped in 0..6_usize,
        extra in "[ -~]{0,20}",
    ) {
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "connect-udp"),
            (":scheme", "https"),
            (":path", path.as_str()),
            (":authority", authority.as_str()),
        ];
        let kept = fields.into_iter().enumerate().filter(|(at, _)| *at != dropped);
        let kept: Vec<_> = kept.map(|(_, field)| field).collect();
        let names = ["authorization", "gramway-split", "capsule-protocol", "proxy-status"];
        let request = names.iter().fold(list(&kept), |list, name| list.with(name, &extra));
        let _ = classify(&request);
        let _ = response::status_of(&request);
        let _ = response::proxy_error_of(&request);
    }

    #[test]
    fn every_target_survives_request_and_path(
        host in prop_oneof![
            "[a-z][a-z0-9-]{0,20}(\\.[a-z][a-z0-9-]{0,20}){0,3}",
            any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
            any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string()),
        ],
        port in 1..=u16::MAX,
    ) {
        let target = Target::new(&host, port).unwrap();
        prop_assert_eq!(connect_udp_of(&request::connect_udp("p", &target, "t", None)).target, Ok(target.clone()));
        prop_assert_eq!(target.to_string().parse(), Ok(target));
    }
}
