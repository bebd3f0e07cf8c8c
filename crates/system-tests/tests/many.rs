//! Many at once: UDP sources behind one listener, TCP connections with data of their own.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use system_tests::require_root;
use system_tests::service::{Service, connect};
use system_tests::source::{Source, pattern};
use testbed::wait::wait_until;

use crate::scene::{Scene, load};

/// For a thousand of anything, on a busy machine.
const MANY_LIMIT: Duration = Duration::from_secs(60);

/// When sources that have no answer ask again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

const SOURCES: usize = 1000;
const CONNECTIONS: usize = 200;

/// Bytes that each connection sends and gets back: more than socket buffers and one QUIC packet hold.
const TRANSFER_BYTES: usize = 256 << 10;

/// Every source and connection needs a descriptor of this process too.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit everybody may");
}

#[test]
fn a_thousand_udp_sources_behind_one_listener_each_get_their_own_answer() {
    require_root!();
    let _load = load();
    raise_file_limit();
    let mut scene = Scene::new(&["udp:7000=127.0.0.1:7000"]);
    let _echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let mut sources: Vec<(Vec<u8>, Source)> = (0..SOURCES)
        .map(|number| {
            let payload = pattern(number as u64, 100 + number % 900);
            let source = Source::new(&scene.pair.client, "127.0.0.1:7000");
            source.socket().set_nonblocking(true).unwrap();
            (payload, source)
        })
        .collect();
    for round in 0..2_u8 {
        for (payload, _) in &mut sources {
            payload[0] = round;
        }
        // All ask before anybody listens to an answer, so that all sessions are open at the same time.
        let mut unanswered: Vec<&mut (Vec<u8>, Source)> = sources.iter_mut().collect();
        let mut asked: Option<Instant> = None;
        wait_until("an answer for every source", MANY_LIMIT, || {
            if asked.is_none_or(|asked| asked.elapsed() > AGAIN_AFTER) {
                asked = Some(Instant::now());
                for (payload, source) in &unanswered {
                    source.send(payload);
                }
            }
            unanswered.retain_mut(|(payload, source)| !source.has_answer(payload));
            unanswered.is_empty()
        });
    }
    for status in [scene.client.status(), scene.server.status()] {
        assert_eq!(status["udp_sessions"]["open"], SOURCES, "{}", status["role"]);
        assert_eq!(status["udp_sessions"]["total"], SOURCES, "{}", status["role"]);
    }
    scene.check();
}

#[test]
fn two_hundred_tcp_connections_at_once_carry_data_of_their_own() {
    require_root!();
    let _load = load();
    raise_file_limit();
    let mut scene = Scene::new(&["tcp:7000=127.0.0.1:7000"]);
    let _echo = Service::tcp_echo(&scene.pair.server, "127.0.0.1:7000");
    let (greeted, seen) = (Barrier::new(CONNECTIONS + 1), Barrier::new(CONNECTIONS + 1));
    let namespace = &scene.pair.client;
    let transfer = |number: usize| {
        let mut stream = connect(namespace, "127.0.0.1:7000");
        let data = pattern(number as u64, TRANSFER_BYTES);
        let mut answer = vec![0; 1];
        stream.write_all(&data[..1]).unwrap();
        stream.read_exact(&mut answer).unwrap();
        greeted.wait();
        seen.wait();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (&stream).write_all(&data[1..]).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            (&stream).read_to_end(&mut answer).unwrap();
        });
        assert!(
            answer == data,
            "connection {number} got other bytes, {} of them",
            answer.len()
        );
    };
    std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let transfer = &transfer;
            scope.spawn(move || transfer(number));
        }
        greeted.wait();
        let open = [scene.client.status(), scene.server.status()].map(|status| status["tcp"]["open"].clone());
        seen.wait();
        assert_eq!(open, [CONNECTIONS, CONNECTIONS]);
    });
    wait_until("the end of all connections at both ends", MANY_LIMIT, || {
        [scene.client.status(), scene.server.status()]
            .iter()
            .all(|status| status["tcp"]["open"] == 0)
    });
    let client = scene.client.status();
    assert_eq!(client["tcp"]["failed"], 0);
    let bytes = (CONNECTIONS * TRANSFER_BYTES) as u64;
    assert_eq!(client["tcp"]["bytes_in"], bytes);
    assert_eq!(client["tcp"]["bytes_out"], bytes);
    scene.check();
}
