//! A machine without a link meets a user's peer at the server, by a number.

use std::task::{Context, Waker};
use std::time::Duration;

use peer::blocking::{wait, wait_for};
use peer::limits::FINDS_MAX;
use peer::{Delivery, Endpoint, InviteError, InviterError, Rendezvous, RendezvousProblem, SecretKey};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use system_tests::tunnel::Server;
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

use crate::scene::LISTEN;

fn endpoint(machine: &Namespace, rendezvous: Rendezvous) -> Endpoint {
    machine.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).rendezvous(rendezvous);
        builder.bind("[::]:0".parse().unwrap()).unwrap()
    })
}

/// Whether it is registered in time; else why not.
fn registered(endpoint: &Endpoint, limit: Duration) -> Result<(), Option<RendezvousProblem>> {
    let seen_at = wait_for(limit, endpoint.registered()).flatten();
    seen_at.map(drop).ok_or_else(|| endpoint.rendezvous_problem())
}

/// RDV-14, RDV-15, RDV-16, RDV-17.
#[test]
fn a_guest_meets_who_invited_it_by_a_number_and_only_one_guest_does() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let server = Server::start(&pair.server.place(), "server", LISTEN, &[], directory.path());
    let address = format!("{PAIR_SERVER_V4}:{}", LISTEN.rsplit_once(':').unwrap().1);
    let host = endpoint(&pair.server, Rendezvous::from_link(&server.link()).unwrap());
    assert_eq!(registered(&host, PROGRAM_LIMIT), Ok(()));
    let number = wait(host.invite()).unwrap();
    let as_guest = |number| Rendezvous::as_guest(&address, number).unwrap();

    let guest = endpoint(&pair.client, as_guest(number));
    assert_eq!(registered(&guest, PROGRAM_LIMIT), Ok(()));
    let inviter = wait_for(PROGRAM_LIMIT, guest.inviter()).flatten();
    assert_eq!(inviter, Some(host.id()));
    let to_host = wait_for(PROGRAM_LIMIT, guest.connect(host.id(), &[]));
    let to_host = to_host.unwrap().unwrap();
    drop(wait(to_host.send("from a guest", Delivery::unordered())).unwrap());
    let from_guest = wait_for(PROGRAM_LIMIT, host.accept()).flatten().unwrap();
    assert_eq!(from_guest.id(), guest.id());
    assert_eq!(wait(from_guest.receive()).unwrap().body, "from a guest");
    // A guest invites nobody.
    assert_eq!(wait(guest.invite()), Err(InviteError::Refused));

    let wrong = if number == 1_000 { 1_001 } else { 1_000 };
    for (number, problem) in [
        (wrong, RendezvousProblem::TokenRefused { status: 401 }),
        (number, RendezvousProblem::Forbidden),
    ] {
        let other = endpoint(&pair.client, as_guest(number));
        wait_until("the other guest is refused", PROGRAM_LIMIT, || {
            other.rendezvous_problem().as_ref() == Some(&problem)
        });
        assert_eq!(wait_for(Duration::ZERO, other.registered()), None);
    }
}

#[test]
fn a_question_whose_a_number_is_beyond_those_that_may_be_open_is_told_from_a_refusal() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let server = Server::start(&pair.server.place(), "server", LISTEN, &[], directory.path());
    let user = endpoint(&pair.client, Rendezvous::from_link(&server.link()).unwrap());
    assert_eq!(registered(&user, PROGRAM_LIMIT), Ok(()));
    let silence = "table inet silence { chain input { type filter hook input priority 0; policy drop; }; }";
    pair.server.nft(silence).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut open: Vec<_> = (0..FINDS_MAX).map(|_| Box::pin(user.inviter_of(1_000))).collect();
    for question in &mut open {
        assert!(question.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(wait(user.inviter_of(1_000)), Err(InviterError::TooMany));
}
