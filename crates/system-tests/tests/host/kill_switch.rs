//! The kill switch: what it lets out, how it is replaced, and when it goes.

use std::net::SocketAddr;

use ::host::OUTER_MARK;
use ::host::kill_switch::{Exception, KillSwitch, Reason, release, standing};
use packet_io::SocketOptions;
use rustix::net::{SendFlags, send};
use system_tests::topology::{ROUTED_SERVER_V4, ROUTED_SERVER_V6};
use system_tests::underlay::{Flow, Underlay};

use super::*;

/// Nobody is there; what counts is that the packet leaves.
const TUN: u32 = 4_711;

fn excepted(text: &str, reason: Reason) -> Exception {
    let prefix = prefix(text);
    Exception { prefix, reason }
}

fn excluded(text: &str) -> Exception {
    excepted(text, Reason::Excluded)
}

/// Where nothing of the kind is, as the address of the tunnel's server.
fn nowhere() -> SocketAddr {
    "192.0.2.254:1".parse().unwrap()
}

/// Sends one packet, which the kernel may refuse.
fn try_send(to: SocketAddr, mark: Option<u32>) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let _ = match mark {
        None => UdpSocket::bind(any).unwrap().send_to(b"in clear", to),
        Some(_) => {
            let options = SocketOptions {
                mark,
                ..SocketOptions::default()
            };
            let socket = packet_io::UdpSocket::connect(None, to, &options).unwrap();
            send(&socket, b"in clear", SendFlags::empty()).map_err(Into::into)
        }
    };
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address(ip), port)
}

#[test]
fn only_marked_packets_and_exceptions_leave_and_local_programs_are_refused_at_once() {
    require_root!();
    require_program!("ip");
    let routed = Routed::new(1500);
    let underlay = Underlay::capture(&routed.router, (&routed.client, "eth0"), nowhere());
    let seen = |to| underlay.in_clear().contains_key(&Flow::udp(to));
    routed.client.inside(|| {
        let mut switch = KillSwitch::start(TUN, vec![excluded("10.78.0.0/24")], false).unwrap();
        // Refused at once, not after the many seconds of a connection without an answer.
        let refused = std::net::TcpStream::connect(at(ROUTED_SERVER_V6, 9)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
        try_send(at("10.79.0.1", 9), None);
        try_send(at(ROUTED_SERVER_V6, 9), None);
        try_send(at(ROUTED_SERVER_V4, 9), None);
        try_send(at("10.79.0.1", 10), Some(OUTER_MARK));
        // The neighbours are found although all else is closed; on one cable the order holds.
        wait_until("what is let out", PROGRAM_LIMIT, || {
            seen(at(ROUTED_SERVER_V4, 9)) && seen(at("10.79.0.1", 10))
        });
        assert_eq!(underlay.in_clear().len(), 2, "{:?}", underlay.in_clear());

        // Others take their place.
        let server = excepted(ROUTED_SERVER_V6, Reason::Server);
        switch
            .set_exceptions(vec![excluded("10.78.0.0/24"), server])
            .unwrap();
        let standing = standing().unwrap().unwrap();
        assert_eq!(standing.client, Some(std::process::id()));
        let last_two = &standing.lets_out[standing.lets_out.len() - 2..];
        assert_eq!(last_two, ["10.78.0.0/24 (excluded)", "fd78::1/128 (the server)"]);
        switch.set_exceptions(vec![server]).unwrap();
        underlay.forget();
        try_send(at(ROUTED_SERVER_V4, 9), None);
        try_send(at(ROUTED_SERVER_V6, 9), None);
        wait_until("the server's address", PROGRAM_LIMIT, || {
            seen(at(ROUTED_SERVER_V6, 9))
        });
        assert_eq!(underlay.in_clear().len(), 1, "{:?}", underlay.in_clear());
    });
}

#[test]
fn packets_on_their_way_through_leave_only_by_the_tunnel_and_to_exceptions() {
    require_root!();
    require_program!("ip");
    let routed = Routed::new(1500);
    let underlay = Underlay::capture(&routed.server, (&routed.router, "outside"), nowhere());
    let pass = |port| {
        routed
            .client
            .inside(|| try_send(at(ROUTED_SERVER_V4, port), None));
        wait_until("a packet on its way through", PROGRAM_LIMIT, || {
            let seen = underlay.in_clear();
            seen.contains_key(&Flow::udp(at(ROUTED_SERVER_V4, port)))
        });
    };
    pass(1);
    routed.router.inside(|| {
        let outside = Network::open().unwrap().index_of("outside").unwrap();
        let switch = KillSwitch::start(TUN, Vec::new(), true).unwrap();
        routed.client.inside(|| try_send(at(ROUTED_SERVER_V4, 2), None));
        drop(switch);
        let switch = KillSwitch::start(TUN, vec![excluded("10.78.0.0/24")], true).unwrap();
        pass(3);
        drop(switch);
        // That interface stands for the tunnel.
        let _switch = KillSwitch::start(outside, Vec::new(), true).unwrap();
        pass(4);
    });
    let ports: Vec<u16> = underlay.in_clear().keys().map(|flow| flow.to.port()).collect();
    assert_eq!(ports, [1, 3, 4]);
}

#[test]
fn it_goes_and_stays_as_the_end_of_its_client_says() {
    require_root!();
    let machine = Namespace::create().unwrap();
    let stands = || standing().unwrap().is_some();
    machine.inside(|| {
        let start = |is_kept| KillSwitch::start(TUN, Vec::new(), is_kept).unwrap();
        // A first start that fails leaves nothing.
        drop(start(false));
        assert!(!stands());
        // One that had carried traffic fails closed.
        let mut switch = start(false);
        switch.set_through();
        drop(switch);
        assert!(stands());
        // What stood stands after a start that fails, asked for or not.
        assert!(start(false).end(true).unwrap() && stands());
        drop(start(false));
        assert!(stands());
        // The end of a client that had taken over and carried traffic gives the network back.
        let mut switch = start(false);
        switch.set_through();
        assert!(!switch.end(true).unwrap() && !stands());
        // Unless it is kept.
        let mut switch = start(true);
        switch.set_through();
        assert!(switch.end(true).unwrap() && stands());
        drop(switch);
        assert!(stands());
    });
}

#[test]
fn many_exceptions_fit_and_too_many_change_nothing() {
    require_root!();
    let machine = Namespace::create().unwrap();
    machine.inside(|| {
        let networks = (0..257_u32).map(|number| excluded(&format!("fd00:{number:x}::/32")));
        let many: Vec<Exception> = networks.collect();
        let mut switch = KillSwitch::start(TUN, Vec::new(), false).unwrap();
        switch.set_exceptions(many[..256].to_vec()).unwrap();
        let listed = || standing().unwrap().unwrap().lets_out.len();
        let before = listed();
        assert!(before > 256);
        let error = switch.set_exceptions(many.clone()).unwrap_err();
        assert!(error.to_string().contains("257 networks"), "{error}");
        assert_eq!(listed(), before);
        drop(switch);
        let error = KillSwitch::start(TUN, many, false).unwrap_err();
        assert!(error.to_string().contains("at most 256"), "{error}");
        assert!(standing().unwrap().is_none() && !release().unwrap());
    });
}
