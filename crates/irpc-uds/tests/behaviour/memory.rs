//! What a server holds for clients that it does not read, as the system counts it, in a process of its own.

use std::time::Duration;

use crate::common::{place, soon};
use crate::killed::{Role, appears};
use irpc_uds::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES, UdsConnector};

/// Clients that write without being read.
const CLIENTS: u64 = 3;

/// Resident memory of a process, in bytes.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("Linux tells");
    let kibibytes = line.trim().trim_end_matches(" kB").parse::<u64>();
    kibibytes.expect("a number") << 10
}

async fn answers(connection: &noq::Connection) {
    let (mut send, mut receive) = connection.open_bi().await.expect("within the bound");
    send.write_all(b"call").await.expect("open");
    send.finish().expect("open");
    let answer = soon("an answer", receive.read_to_end(100)).await.expect("short");
    assert_eq!(answer, b"call");
}

#[tokio::test]
async fn a_server_that_does_not_read_holds_one_window_of_each_client_and_serves_the_others() {
    let (_directory, path) = place();
    let server = Role::start("hoarding server", &path);
    appears(&path).await;
    let connector = UdsConnector::new(&path);
    let other = connector.connect().await.expect("a server");
    answers(&other).await;
    let before = resident_bytes(server.pid());
    let window = u64::from(CONNECTION_WINDOW_BYTES);
    let mut stuffed = Vec::new();
    for _ in 0..CLIENTS {
        let connection = connector.connect().await.expect("a server");
        // Twice as much as it may send, in streams that alone would stay within their windows.
        let stream_bytes = u64::from(STREAM_WINDOW_BYTES);
        for _ in 0..2 * window / stream_bytes {
            let mut stream = connection.open_uni().await.expect("within the bound");
            tokio::spawn(async move {
                let bytes = vec![7; STREAM_WINDOW_BYTES as usize];
                // Fails when the test ends.
                stream.write_all(&bytes).await.ok();
                std::future::pending::<()>().await;
            });
        }
        soon("a full window", async {
            while connection.stats().udp_tx.bytes < window {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        stuffed.push(connection);
    }
    let held = || resident_bytes(server.pid()).saturating_sub(before);
    soon("what was sent is held", async {
        while held() < CLIENTS * window * 9 / 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for _ in 0..20 {
        answers(&other).await;
    }
    let held = held();
    // One window each, and for all together one batch of datagrams (as much as a stream's window) twice: in the receive
    // buffers and copied on its way to the connections.
    let bound = CLIENTS * window + 2 * u64::from(STREAM_WINDOW_BYTES);
    // Headers, and the rest of each allocation: a hundredth.
    let bound = bound + bound / 100;
    assert!(
        held <= bound,
        "{held} bytes held for {CLIENTS} clients, {bound} allowed"
    );
}
