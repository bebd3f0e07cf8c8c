//! The carrier in TCP's shape below QUIC, over a router that follows connections (specs/fake-tcp.md).

mod carriers;
mod ends;

use std::io::{Read, Write};
use std::net::Shutdown;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::service::{Service, connect};
use system_tests::source::{Source, pattern};
use system_tests::topology::{ROUTED_SERVER_V4, Routed};
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;

use crate::relay::watch;
use crate::scene::{OPEN_LOOPBACK, both};

/// Where the server listens over UDP and in TCP's shape.
const LISTEN: &str = "[::]:4433";

const ENTRANCE: &str = "127.0.0.1:7000";

/// Bytes of a stream that is echoed.
const STREAM_BYTES: usize = 4 << 20;

/// A server with `--tcp` behind a router, and echoes on its machine. Processes end before their machines.
pub(crate) struct Scene {
    pub(crate) server: Server,
    _echoes: [Service; 2],
    pub(crate) net: Routed,
    directory: Directory,
}

impl Scene {
    pub(crate) fn new(options: &[&str]) -> Self {
        let (net, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
        watch(&net);
        let place = net.server.place();
        let options = [
            &OPEN_LOOPBACK[..],
            &["--public", ROUTED_SERVER_V4, "--tcp"],
            options,
        ]
        .concat();
        Self {
            server: Server::start(&place, "server", LISTEN, &options, directory.path()),
            _echoes: [
                Service::udp_echo(&net.server, ENTRANCE),
                Service::tcp_echo(&net.server, ENTRANCE),
            ],
            net,
            directory,
        }
    }

    /// A client that is being started.
    fn client(&self, options: &[&str]) -> Client {
        self.client_with(&[], options)
    }

    /// The same with more forwards.
    pub(crate) fn client_with(&self, forwards: &[&str], options: &[&str]) -> Client {
        let (place, link) = (self.net.client.place(), self.server.link());
        let forwards = [&both!(7000), forwards].concat();
        let files = self.directory.path();
        Client::start_unconnected(&place, "client", &link, &forwards, options, files)
    }

    /// Datagrams and a stream through the client's forwards come back.
    pub(crate) fn exchange(&self) {
        let mut source = Source::new(&self.net.client, ENTRANCE);
        (0..50).for_each(|number| {
            source.ask(&pattern(number, 1_200), PROGRAM_LIMIT);
        });
        let mut stream = connect(&self.net.client, ENTRANCE);
        let sent = pattern(7, STREAM_BYTES);
        let mut writer = stream.try_clone().unwrap();
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            stream.read_to_end(&mut received).unwrap();
        });
        assert!(received == sent);
    }
}

/// What carries the first stripe of a client, and why.
pub(crate) fn carrier(client: &Client) -> (String, String) {
    let status = client.status();
    let text = |key: &str| {
        status["shards"][0]["carrier"][key]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    (text("kind"), text("reason"))
}
