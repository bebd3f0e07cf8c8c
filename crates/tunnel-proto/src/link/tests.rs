//! Links and their text forms, broken and hostile ones.

use proptest::prelude::*;

use super::*;

fn example() -> Link {
    Link {
        token: Token::from_bytes([9; 32]),
        endpoints: vec![Endpoint {
            host: "example.org".to_owned(),
            port: 443,
        }],
        proof: Proof::Pin([3; 32]),
        tcp_port: None,
        name: String::new(),
    }
}

fn with_cover() -> Link {
    Link {
        proof: Proof::Cover {
            key: [7; 32],
            name: "www.example.net".to_owned(),
        },
        ..example()
    }
}

fn error_of(text: &str) -> LinkError {
    Link::parse(text).unwrap_err()
}

#[test]
fn a_link_survives_its_text_form() {
    let mut link = example();
    link.endpoints.push(Endpoint {
        host: "2001:db8::1".to_owned(),
        port: 8443,
    });
    link.name = "home & away, naïve #1".to_owned();
    link.tcp_port = Some(443);
    let text = link.reveal();
    assert!(
        text.contains("@example.org:443,[2001:db8::1]:8443?pin=sha256-"),
        "{text}"
    );
    assert!(
        text.ends_with("#home%20%26%20away%2C%20na%C3%AFve%20%231"),
        "{text}"
    );
    assert_eq!(Link::parse(&format!(" {text}\n")).unwrap(), link);
}

#[test]
fn a_link_to_a_server_with_a_cover_has_its_key_and_the_name_to_show() {
    let link = with_cover();
    let text = link.reveal();
    let key = BASE64URL_NOPAD.encode(&[7; 32]);
    assert!(
        text.ends_with(&format!("@example.org:443?!cover={key}&!name=www.example.net")),
        "{text}"
    );
    assert_eq!(Link::parse(&text).unwrap(), link);
    assert!(!format!("{link:?}").contains("7, 7"));
    assert_eq!(Link::parse(&text.replace('!', "")).unwrap(), link);
}

#[test]
fn broken_links_to_a_server_with_a_cover_name_the_position_and_the_cure() {
    let good = with_cover().reveal();
    let (cover, name) = (good.find("!cover").unwrap() + 1, good.find("!name").unwrap() + 1);
    let value = |of: usize, parameter: &str| of + parameter.len();
    for (text, position, part) in [
        (
            good.replace("&!name=www.example.net", ""),
            name - 1,
            "name to show is missing",
        ),
        (
            good.replace("!cover", "future"),
            name,
            "without the key behind the cover",
        ),
        (
            good[..cover + 30].to_owned(),
            value(cover, "!cover="),
            "43 characters",
        ),
        (format!("{good}&!cover=x"), good.len() + 2, "given twice"),
        (format!("{good}&!name=x"), good.len() + 2, "given twice"),
        (
            good.replace("?!", &format!("?pin=sha256-{}&!", "A".repeat(43))),
            cover + 4 + 7 + 43 + 1,
            "a server has one of them",
        ),
        (
            good.replace("www.example.net", ""),
            value(name, "!name="),
            "host is missing",
        ),
        (
            good.replace("www.example.net", "192.0.2.1"),
            value(name, "!name="),
            "is an address",
        ),
        (
            good.replace("www.example.net", "a:443"),
            value(name, "!name="),
            "has a port",
        ),
    ] {
        let error = error_of(&text);
        assert!(error.what.contains(part), "{error}");
        assert_eq!(error.position, position, "{error}");
    }
}

#[test]
fn a_slash_before_the_parameters_and_an_upper_case_scheme_are_accepted() {
    let text = example()
        .reveal()
        .replace(":443?", ":443/?")
        .replace("gramway", "GRAMWAY");
    assert_eq!(Link::parse(&text).unwrap(), example());
}

#[test]
fn unknown_parameters_are_ignored_and_unknown_critical_ones_refused() {
    let text = example().reveal();
    assert_eq!(Link::parse(&format!("{text}&color=red&x")).unwrap(), example());
    assert_eq!(Link::parse(&text.replace("?pin", "?!pin")).unwrap(), example());
    let error = error_of(&format!("{text}&!carrier=tcp"));
    assert_eq!(error.position, text.len() + 2);
    assert!(error.what.contains("update gramway"));
}

#[test]
fn a_link_to_a_server_with_an_ordinary_certificate_says_so_and_has_nothing_else() {
    let link = Link {
        proof: Proof::WebPki,
        ..example()
    };
    let text = link.reveal();
    assert!(text.ends_with("@example.org:443?!trust=web"), "{text}");
    assert!(
        error_of(text.split('?').next().unwrap())
            .what
            .contains("pin is missing")
    );
    assert!(
        error_of(&format!("{text}&!trust=web"))
            .what
            .contains("given twice")
    );
    assert!(
        error_of(&text.replace("web", "own"))
            .what
            .contains("update gramway")
    );
    let pinned = example().reveal();
    assert!(
        error_of(&format!("{pinned}&!trust=web"))
            .what
            .contains("has one of them")
    );
}

#[test]
fn broken_links_name_the_position_and_the_cure() {
    let good = example().reveal();
    let token = example().token.reveal();
    for (text, position, part) in [
        (String::new(), 1, "does not start with gramway://"),
        (
            "https://example.org".to_owned(),
            1,
            "does not start with gramway://",
        ),
        ("gramway://".to_owned(), 11, "has no @"),
        ("gramway://short@example.org:443".to_owned(), 11, "the token"),
        (good.replace(":443", ""), 55, "has no port"),
        (good.replace(":443", ":443,"), 71, "host is missing"),
        (good.replace("example.org", "exam ple.org"), 59, "without spaces"),
        (
            good.replace("?pin", "?pen"),
            54 + 16 + 4 + 7 + 43 + 1,
            "pin is missing",
        ),
        (good[..good.len() - 1].to_owned(), 75, "the pin is not"),
        (good.replace("sha256-", "sha1-"), 75, "the pin is not"),
        (format!("{good}&pin=x"), good.len() + 2, "given twice"),
        (format!("{good}#%zz"), good.len() + 2, "two hexadecimal digits"),
        (format!("{good}#%ff"), good.len() + 2, "not UTF-8"),
        (format!("{good}#a%1b[2J"), good.len() + 2, "control characters"),
        (
            format!("{good}#{}", "x".repeat(65)),
            good.len() + 2,
            "more than 64",
        ),
        ("x".repeat(LINK_BYTES_MAX + 1), LINK_BYTES_MAX + 1, "at most"),
    ] {
        let error = error_of(&text);
        assert!(error.what.contains(part), "{error}");
        assert_eq!(error.position, position, "{error}");
        assert!(!error.to_string().contains(&token), "{error}");
    }
    let many = vec!["a:1"; LINK_ENDPOINTS_MAX + 1].join(",");
    assert!(
        error_of(&good.replace("example.org:443", &many))
            .what
            .contains("at most 16 servers")
    );
}

#[test]
fn debug_output_does_not_show_the_token() {
    assert!(!format!("{:?}", example()).contains(&example().token.reveal()));
}

proptest! {
    #[test]
    fn every_link_survives_its_text_form(
        token: [u8; 32], pin: [u8; 32], name in "[^\\p{C}\\p{Zl}\\p{Zp}]{0,64}",
        hosts in prop::collection::vec(("[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,9}){0,3}", 1u16..), 1..5),
        v6: u128, tcp_port in prop::option::of(1u16..), shown in "[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,9}){0,3}",
    ) {
        let mut endpoints: Vec<_> = hosts.into_iter().map(|(host, port)| Endpoint { host, port }).collect();
        endpoints.push(Endpoint { host: std::net::Ipv6Addr::from(v6).to_string(), port: 1 });
        for proof in [Proof::Pin(pin), Proof::WebPki, Proof::Cover { key: pin, name: shown.clone() }] {
            let (endpoints, name) = (endpoints.clone(), name.clone());
            let link = Link { token: Token::from_bytes(token), endpoints, proof, tcp_port, name };
            prop_assert_eq!(Link::parse(&link.reveal()), Ok(link));
        }
    }

    #[test]
    fn hostile_text_is_an_error_and_never_a_panic(text in "\\PC*", cut in 0usize..150) {
        let _ = Link::parse(&text);
        let _ = Link::parse(&format!("gramway://{text}"));
        let good = example().reveal();
        let cut = cut.min(good.len());
        let _ = Link::parse(&format!("{}{text}{}", &good[..cut], &good[cut..]));
    }
}
