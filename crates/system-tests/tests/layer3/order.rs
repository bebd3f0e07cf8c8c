//! Order within a flow over several stripes under load.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use system_tests::require_root;

use super::*;
use crate::scene::load;

const FLOWS: usize = 16;
const DATAGRAMS: u32 = 4_000;

/// SESSION-7.
#[test]
fn datagrams_of_every_flow_arrive_in_order_over_two_stripes() {
    require_root!();
    let _load = load();
    let options = ["--connections", "2"];
    let tunnel = Tunnel::new(1500, &options, &options);
    let Tunnel { machines, .. } = &tunnel;
    reaches(&machines.first, SERVER_V4);
    let receiver = machines
        .server
        .inside(|| UdpSocket::bind((SERVER_V4, 9000)).unwrap());
    let senders: Vec<UdpSocket> = machines.first.inside(|| {
        (0..FLOWS)
            .map(|_| {
                let socket = UdpSocket::bind("10.9.0.2:0").unwrap();
                socket.connect((SERVER_V4, 9000)).unwrap();
                socket
            })
            .collect()
    });
    let sending = std::thread::spawn(move || {
        for number in 0..DATAGRAMS {
            for socket in &senders {
                let mut payload = [0; 600];
                payload[..4].copy_from_slice(&number.to_be_bytes());
                // A full device queue is loss, which is not what this is about.
                let _ = socket.send(&payload);
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        senders
    });
    receiver
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut last: HashMap<SocketAddr, u32> = HashMap::new();
    let (mut arrived, mut quiet_since) = (0, Instant::now());
    let mut buffer = [0; 2_048];
    while !sending.is_finished() || quiet_since.elapsed() < Duration::from_secs(1) {
        let Ok((_, source)) = receiver.recv_from(&mut buffer) else {
            continue;
        };
        quiet_since = Instant::now();
        arrived += 1;
        let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
        if let Some(before) = last.insert(source, number) {
            assert!(number > before, "{source}: {number} after {before}");
        }
    }
    sending.join().unwrap();
    assert_eq!(last.len(), FLOWS);
    assert!(arrived > FLOWS as u32 * DATAGRAMS / 2, "{arrived}");
    let status = tunnel.client.status();
    let used = status["shards"].as_array().unwrap().iter();
    assert!(
        used.filter(|shard| shard["datagrams_sent"].as_u64() > Some(1_000))
            .count()
            == 2,
        "{status}"
    );
    tunnel.check();
}
