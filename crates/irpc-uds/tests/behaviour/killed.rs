//! Either side is killed, in another process, at every stage: the other one knows at once and says so.
//!
//! The other process is this test program again, told by an environment variable to play one role.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Back, Echo, Never, names, place, serve, soon};
use irpc::Client;
use irpc_uds::{ConnectError, UdsListener};
use noq::ConnectionError;

const ROLE: &str = "IRPC_UDS_TEST_ROLE";
const PATH: &str = "IRPC_UDS_TEST_PATH";

/// Far below any timeout of QUIC, far above what a busy machine needs to run a task.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A process that plays a role until it is killed.
pub(crate) struct Role(Child);

impl Role {
    /// Its process.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn start(role: &str, path: &Path) -> Self {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "killed::play_a_role", "--nocapture"])
            .env(ROLE, role)
            .env(PATH, path)
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("this program runs"))
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it has ended");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Not a test by itself: the other process.
#[test]
fn play_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = PathBuf::from(std::env::var_os(PATH).expect("set with the role"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        match &*role {
            "server" => {
                serve(UdsListener::new(&path).bind().expect("free"));
                std::future::pending::<()>().await;
            }
            "deaf server" => {
                let _endpoint = UdsListener::new(&path).bind().expect("free");
                std::thread::sleep(crate::common::PATIENCE * 2);
            }
            "hoarding server" => {
                crate::common::hoard(irpc_uds::server_endpoint(&path).expect("free")).await;
            }
            "idle client" => {
                let _connection = irpc_uds::connect(&path).await.expect("a server");
                std::future::pending::<()>().await;
            }
            "writing client" => {
                let connection = irpc_uds::connect(&path).await.expect("a server");
                let mut stream = connection.open_uni().await.expect("open");
                while stream.write_all(&[7; 50_000]).await.is_ok() {}
            }
            "calling client" => {
                let connection = irpc_uds::connect(&path).await.expect("a server");
                loop {
                    let (mut send, mut receive) = connection.open_bi().await.expect("open");
                    send.write_all(b"call").await.expect("open");
                    send.finish().expect("open");
                    receive.read_to_end(100).await.expect("an answer");
                }
            }
            "hasty client" => loop {
                let connecting = irpc_uds::connect(&path);
                tokio::time::timeout(Duration::from_micros(300), connecting)
                    .await
                    .ok();
            },
            other => panic!("no role {other}"),
        }
    });
}

pub(crate) async fn appears(path: &Path) {
    soon("a socket", async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

fn assert_gone(error: &ConnectionError) {
    let ConnectionError::ConnectionClosed(close) = error else {
        panic!("{error:?}")
    };
    let reason = String::from_utf8_lossy(&close.reason);
    assert!(
        reason.contains("the peer's end of the Unix socket is closed"),
        "{reason}"
    );
}

#[tokio::test]
async fn the_kill_of_an_idle_server_ends_its_connections_and_the_path_can_be_taken_again() {
    let (directory, path) = place();
    let mut server = Role::start("server", &path);
    appears(&path).await;
    let connection = irpc_uds::connect(&path).await.expect("a server");
    let killed = Instant::now();
    server.kill();
    assert_gone(&soon("the end", connection.closed()).await);
    assert!(killed.elapsed() < AT_ONCE);

    let error = irpc_uds::connect(&path).await.expect_err("killed");
    assert!(matches!(error, ConnectError::Stale { .. }), "{error}");
    assert_eq!(names(directory.path()), ["socket", "socket.lock"]);
    serve(UdsListener::new(&path).bind().expect("its own dead socket"));
    let client: Client<Echo> = irpc_uds::client(&path).await.expect("the new server");
    assert_eq!(
        soon("a call", client.rpc(Back(vec![3])))
            .await
            .expect("an answer"),
        [3]
    );
}

#[tokio::test]
async fn the_kill_of_a_server_fails_the_calls_under_way() {
    let (_directory, path) = place();
    let mut server = Role::start("server", &path);
    appears(&path).await;
    let client: Client<Echo> = irpc_uds::client(&path).await.expect("a server");
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.rpc(Never).await })
        })
        .collect();
    client
        .rpc(Back(vec![1]))
        .await
        .expect("the calls before are under way");
    let killed = Instant::now();
    server.kill();
    for call in calls {
        soon("the failure", call)
            .await
            .expect("no panic")
            .expect_err("killed");
    }
    assert!(killed.elapsed() < AT_ONCE);
}

#[tokio::test]
async fn the_kill_of_a_server_that_never_answered_fails_the_handshake() {
    let (_directory, path) = place();
    let mut server = Role::start("deaf server", &path);
    appears(&path).await;
    let connecting = tokio::spawn({
        let path = path.clone();
        async move { irpc_uds::connect(&path).await }
    });
    // Its first packet is in the server's queue now, or will be; both must end in the same error.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!connecting.is_finished());
    let killed = Instant::now();
    server.kill();
    let error = soon("the failure", connecting)
        .await
        .expect("no panic")
        .expect_err("killed");
    match &error {
        ConnectError::Handshake { source, .. } => assert_gone(source),
        other => panic!("{other}"),
    }
    assert!(killed.elapsed() < AT_ONCE);
}

#[tokio::test]
async fn the_kill_of_a_client_ends_its_connection_whatever_it_was_doing() {
    let (_directory, path) = place();
    let endpoint = irpc_uds::server_endpoint(&path).expect("free");
    for role in ["idle client", "writing client", "calling client"] {
        let mut client = Role::start(role, &path);
        let incoming = soon("a client", endpoint.accept()).await.expect("open");
        let connection = soon("a handshake", async { incoming.await })
            .await
            .expect("a client");
        if role == "calling client" {
            for _ in 0..100 {
                let (mut send, mut receive) = soon("a call", connection.accept_bi()).await.expect("open");
                receive.read_to_end(100).await.expect("short");
                send.write_all(b"answer").await.expect("open");
                send.finish().expect("open");
            }
        } else if role == "writing client" {
            let mut stream = soon("a stream", connection.accept_uni()).await.expect("open");
            stream.read_exact(&mut [0; 100_000]).await.expect("bytes");
        }
        let killed = Instant::now();
        client.kill();
        assert_gone(&soon("the end", connection.closed()).await);
        assert!(killed.elapsed() < AT_ONCE, "{role}");
    }
}

#[tokio::test]
async fn clients_that_vanish_during_the_handshake_leave_nothing_behind() {
    let (_directory, path) = place();
    let endpoint = UdsListener::new(&path).bind().expect("free");
    let observed = endpoint.endpoint().clone();
    serve(endpoint);
    for round in 0..20_u64 {
        let mut client = Role::start("hasty client", &path);
        tokio::time::sleep(Duration::from_millis(20 + round)).await;
        client.kill();
    }
    let client: Client<Echo> = irpc_uds::client(&path).await.expect("the server lives");
    assert_eq!(
        soon("a call", client.rpc(Back(vec![4])))
            .await
            .expect("an answer"),
        [4]
    );
    soon("the end of the others", async {
        while observed.open_connections() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
