//! Users whom another machine knows: what a request has until the answer comes, and what the answer changes.

use super::*;

#[test]
fn before_a_late_answer_a_peer_has_what_every_stranger_has_and_after_it_everything_goes_on() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, stream, session) = asking(&mut world, &bobs_token());
    let (prefix, used) = datagram::prefix(u64::from(stream) / 4, 0);
    for _ in 0..3 {
        let payload = world.book.payload(session, 300);
        world
            .foreign(foreign)
            .datagram([&prefix[..used], &payload].concat());
    }
    world.run(SECOND / 2);
    assert_eq!(world.foreign(foreign).status(stream), None);
    assert_eq!(world.server().engine.authorizations().waiting, 1);
    assert!(
        world
            .server()
            .engine
            .peers()
            .iter()
            .all(|peer| !peer.authenticated)
    );
    let more = std::iter::from_fn(|| world.foreign(foreign).open(Direction::Bidirectional)).count();
    assert_eq!(more + 1, quic_limits::UNAUTHENTICATED_STREAMS as usize);
    // What it writes behind its request stays in QUIC, within a stranger's credit.
    let written: usize = (0..100)
        .map(|_| world.foreign(foreign).write(stream, &[0; 4_096]))
        .sum();
    assert!(
        (1..=quic_limits::UNAUTHENTICATED_CREDIT_BYTES as usize).contains(&written),
        "{written}"
    );
    assert_eq!(world.book.count(session, Way::Up), 0);
    assert_eq!(questions.answer(&mut world), 1);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    assert_eq!(world.book.count(session, Way::Up), 3);
    let more = std::iter::from_fn(|| world.foreign(foreign).open(Direction::Bidirectional)).count();
    assert!(
        more > quic_limits::AUTHENTICATED_STREAMS_AT_FIRST as usize / 2,
        "{more}"
    );
    assert_eq!(snapshot(&mut world, BOB).sessions, 1);
}

#[test]
fn a_tcp_connection_waits_for_the_answer_and_then_opens() {
    let (mut world, questions) = world(UserLimits::default());
    let foreign = world.add_foreign_client();
    world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
    let session = world.book.session();
    let scripts = &mut world.server().data.scripts;
    scripts.insert(session, Script::sending(10));
    let target = Target::new(&format!("tcp-{session}"), 7).expect("a well-formed target");
    let list = request::connect(&target, &bobs_token().reveal());
    let stream = world.foreign(foreign).request(&list);
    world.run(SECOND);
    assert_eq!(
        (world.foreign(foreign).status(stream), questions.len()),
        (None, 1)
    );
    questions.answer(&mut world);
    world.run(SECOND);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    assert_eq!(snapshot(&mut world, BOB).sessions_total, 1);
}

#[test]
fn a_service_waits_for_the_answer_and_is_one_of_its_users_sessions() {
    let (mut world, questions) = world(UserLimits {
        sessions: 1,
        ..UserLimits::default()
    });
    let (echo, _) = services::register(&mut world);
    let foreign = world.add_foreign_client();
    world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
    let list = services::request("echo", &bobs_token());
    let streams = [0; 2].map(|_| world.foreign(foreign).request(&list));
    let (header, used) = masque::data_frame_header(5);
    world.foreign(foreign).write(streams[0], &header[..used]);
    world.foreign(foreign).write(streams[0], b"lines");
    world.run(SECOND);
    assert_eq!(services::received(&echo), 0);
    assert_eq!(questions.answer(&mut world), 2);
    world.run(SECOND);
    assert_eq!(services::received(&echo), 5);
    assert_eq!(world.foreign(foreign).status(streams[0]), Some(200));
    let second = world.foreign(foreign).response(streams[1]);
    let second = second.expect("it was answered");
    let cause = response::proxy_error_of(&second);
    assert_eq!(cause, Some(ProxyError::ConnectionLimitReached));
    assert_eq!(snapshot(&mut world, BOB).sessions, 1);
}

#[test]
fn a_late_refusal_is_the_same_as_one_at_once() {
    let (mut world, questions) = world(UserLimits::default());
    let (late, late_stream, _) = asking(&mut world, &mallorys_token());
    let (at_once, stream, _) = asking(&mut world, &stranger());
    questions.answer(&mut world);
    world.run(SECOND);
    let answers = [(late, late_stream), (at_once, stream)]
        .map(|(foreign, stream)| world.foreign(foreign).response(stream));
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].as_ref().map(response::status_of), Some(Ok(401)));
    assert_eq!(world.server().engine.refused_requests()["401"], 2);
    let totals = world.server().engine.authorizations();
    assert_eq!((totals.asked, totals.refused, totals.granted), (2, 2, 0));
    assert!(world.server().engine.users().is_empty());
}

#[test]
fn without_an_answer_the_request_ends_in_time_and_a_later_one_changes_nothing() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, stream, _) = asking(&mut world, &bobs_token());
    world.run(limits::AUTHORIZATION_TIME_MAX - SECOND / 5);
    assert_eq!(world.foreign(foreign).status(stream), None);
    world.run(SECOND / 5);
    let answer = world
        .foreign(foreign)
        .response(stream)
        .expect("the request was answered");
    assert_eq!(answer, response::response(503), "a stranger hears no cause");
    assert_eq!(questions.answer(&mut world), 1);
    world.run(SECOND);
    let totals = world.server().engine.authorizations();
    assert_eq!(
        (totals.expired, totals.too_late, totals.granted, totals.waiting),
        (1, 1, 0, 0)
    );
    assert_eq!(snapshot(&mut world, BOB), UserSnapshot::default());
}

#[test]
fn an_answer_for_a_connection_that_is_gone_changes_nothing() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, _, _) = asking(&mut world, &bobs_token());
    let now = world.now();
    world.foreign(foreign).close(now, 0x100);
    world.run(SECOND);
    // The authorizer is still at it.
    assert_eq!(world.server().engine.authorizations().waiting, 1);
    // Another one may have the request's place.
    let (other, other_stream, _) = asking(&mut world, &bobs_token());
    let gone = questions.0.lock().expect("nobody panicked with it").remove(0);
    let now = world.now();
    world.server().authorized(now, gone.0, gone.1);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(other).status(other_stream), None);
    assert_eq!(world.server().engine.authorizations().too_late, 1);
    questions.answer(&mut world);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(other).status(other_stream), Some(200));
}

#[test]
fn no_more_requests_wait_for_an_answer_than_the_named_limit() {
    let mut world = World::with_server(Setup::default());
    let (register, questions) = Register::new(Rights::ALL, UserLimits::default());
    // So many shards that each has room for 64 questions, and each network for eight of them.
    let shards = 16;
    world.start_server_for(Box::new(register), shards);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (foreign, stream, _) = asking(&mut world, &bobs_token());
        streams.push((foreign, stream));
        for _ in 1..quic_limits::UNAUTHENTICATED_STREAMS {
            let session = world.book.session();
            let list = udp_request(session, &bobs_token());
            streams.push((foreign, world.foreign(foreign).request(&list)));
        }
    }
    world.run(SECOND / 2);
    let waiting_max = (limits::AUTHORIZATIONS_WAITING_MAX
        / usize::from(shards)
        / limits::AUTHORIZATIONS_PREFIX_PART) as u64;
    let totals = world.server().engine.authorizations();
    assert_eq!(
        (totals.waiting, totals.over_limit),
        (waiting_max, 12 - waiting_max)
    );
    questions.answer(&mut world);
    world.run(SECOND / 2);
    let mut statuses: Vec<_> = streams
        .iter()
        .map(|(foreign, stream)| world.foreign(*foreign).status(*stream))
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[Some(200); 8].as_slice(), &[Some(503); 4]].concat());
    let put_off = streams.iter().filter_map(|(foreign, stream)| {
        let answer = world.foreign(*foreign).response(*stream);
        answer.filter(|answer| response::status_of(answer) == Ok(503))
    });
    let put_off: Vec<HeaderList> = put_off.collect();
    assert_eq!(
        put_off,
        vec![response::response(503); 4],
        "strangers hear no cause"
    );
}

#[test]
fn a_stranger_who_connects_again_and_again_has_no_more_open_questions_than_the_named_limit() {
    let (mut world, questions) = world(UserLimits::default());
    // The server has one shard.
    let most = limits::AUTHORIZATIONS_WAITING_MAX / limits::AUTHORIZATIONS_PREFIX_PART;
    let rounds = most / quic_limits::UNAUTHENTICATED_STREAMS as usize + 3;
    let started = world.now();
    for _ in 0..rounds {
        let foreign = world.add_foreign_client();
        world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
        for _ in 0..quic_limits::UNAUTHENTICATED_STREAMS {
            let session = world.book.session();
            let list = udp_request(session, &bobs_token());
            world.foreign(foreign).request(&list);
        }
        world.run(2 * DELAY);
        let now = world.now();
        world.foreign(foreign).close(now, 0x100);
    }
    assert!(
        world.now() - started < limits::AUTHORIZATION_TIME_MAX,
        "none is too old"
    );
    assert_eq!(questions.len(), most);
    let totals = world.server().engine.authorizations();
    let over_limit = rounds as u64 * u64::from(quic_limits::UNAUTHENTICATED_STREAMS) - questions.len() as u64;
    assert_eq!(
        (totals.waiting, totals.over_limit),
        (questions.len() as u64, over_limit)
    );
    world.run(limits::AUTHORIZATION_TIME_MAX);
    let totals = world.server().engine.authorizations();
    assert_eq!((totals.waiting, totals.expired), (0, questions.len() as u64));
    let (foreign, stream, _) = asking(&mut world, &bobs_token());
    questions.answer(&mut world);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
}

#[test]
fn a_user_who_is_let_in_hears_why_another_credential_has_to_wait() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, _, _) = asking(&mut world, &user());
    let streams = [0; limits::AUTHORIZATIONS_PER_CONNECTION + 1].map(|_| {
        let list = udp_request(world.book.session(), &bobs_token());
        world.foreign(foreign).request(&list)
    });
    world.run(SECOND / 10);
    assert_eq!(questions.len(), limits::AUTHORIZATIONS_PER_CONNECTION);
    let last = streams[limits::AUTHORIZATIONS_PER_CONNECTION];
    let answer = world.foreign(foreign).response(last);
    let answer = answer.expect("it was answered at once");
    let cause = response::proxy_error_of(&answer);
    assert_eq!(cause, Some(ProxyError::ConnectionLimitReached));
}

#[test]
fn a_client_whose_answer_does_not_come_in_time_tries_again() {
    let (mut world, questions) = world(UserLimits::default());
    let bob = world.add_client(&bobs_token());
    world.run(limits::AUTHORIZATION_TIME_MAX + 6 * DELAY);
    let told = reason(&mut world, bob);
    assert!(told.contains("no new connections at present"), "{told}");
    world.run_until(5 * SECOND, |world| {
        questions.answer(world);
        world.client_at(bob).data.is_up()
    });
}
