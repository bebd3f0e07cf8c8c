//! Each thing that can be wrong between a client and a server has an error of its own, and harms nobody else.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::common::{Back, Echo, names, place, serve, soon};
use irpc::Client;
use irpc_uds::{BindError, ConnectError, PATH_BYTES_MAX, PeerCred, SocketKind, UdsConnector, UdsListener};

/// An unprivileged user that exists everywhere.
const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `future` on a thread that is the user `uid`.
fn as_user<T: Send + 'static>(uid: u32, future: impl Future<Output = T> + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let (user, group) = (
            rustix::thread::Uid::from_raw(uid),
            rustix::thread::Gid::from_raw(uid),
        );
        rustix::thread::set_thread_groups(&[]).expect("root may");
        rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
        rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(future)
    });
    thread.join().expect("no panic")
}

async fn works(path: &Path) {
    let client: Client<Echo> = irpc_uds::client(path).await.expect("a server");
    assert_eq!(
        soon("a call", client.rpc(Back(vec![1, 2])))
            .await
            .expect("an answer"),
        [1, 2]
    );
}

#[tokio::test]
async fn a_missing_a_stale_and_a_foreign_path_differ() {
    let (directory, path) = place();
    let error = irpc_uds::connect(&path).await.expect_err("nothing there");
    assert!(matches!(error, ConnectError::Missing { .. }), "{error}");
    std::fs::write(&path, b"a file").expect("writable");
    let error = irpc_uds::connect(&path).await.expect_err("a file");
    assert!(matches!(error, ConnectError::Foreign { .. }), "{error}");
    std::fs::remove_file(&path).expect("there");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("free"));
    let error = irpc_uds::connect(&path).await.expect_err("dead");
    assert!(error.to_string().contains("nobody listens"), "{error}");
    std::fs::remove_file(&path).expect("there");
    if SocketKind::default() != SocketKind::Stream {
        let _alive = std::os::unix::net::UnixListener::bind(&path).expect("free");
        let error = irpc_uds::connect(&path).await.expect_err("another kind");
        assert!(matches!(error, ConnectError::Foreign { .. }), "{error}");
    }
    let error = irpc_uds::connect(directory.path().join("socket/below"))
        .await
        .expect_err("no directory");
    assert!(matches!(error, ConnectError::Missing { .. }), "{error}");
}

#[tokio::test]
async fn paths_of_the_longest_length_work_and_longer_ones_say_so() {
    let (directory, _) = place();
    let room = PATH_BYTES_MAX - directory.path().as_os_str().as_bytes().len() - 1;
    let longest = directory.path().join("p".repeat(room));
    serve(UdsListener::new(&longest).bind().expect("just short enough"));
    works(&longest).await;
    let too_long = directory.path().join("p".repeat(room + 1));
    let error = UdsListener::new(&too_long).bind().expect_err("too long");
    assert!(error.to_string().contains(&format!(
        "{} bytes, this one has {}",
        PATH_BYTES_MAX,
        PATH_BYTES_MAX + 1
    )));
    let error = irpc_uds::connect(&too_long).await.expect_err("too long");
    assert!(
        matches!(error, ConnectError::PathTooLong { bytes, .. } if bytes == PATH_BYTES_MAX + 1),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_leaves_nothing_and_shuts_a_second_one_out() {
    let (directory, path) = place();
    let endpoint = UdsListener::new(&path).bind().expect("free");
    let error = UdsListener::new(&path).bind().expect_err("taken");
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
    let clone = endpoint.endpoint().clone();
    serve(endpoint);
    works(&path).await;
    assert_eq!(
        names(directory.path()),
        ["socket", "socket.lock"],
        "clients leave nothing"
    );
    clone.close(0_u32.into(), b"");
    soon("the end of its connections", clone.wait_idle()).await;
    drop(clone);
    soon("the end of the server", async {
        while !names(directory.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    serve(UdsListener::new(&path).bind().expect("free again"));
    works(&path).await;
}

#[tokio::test]
async fn the_files_mode_and_the_policy_keep_another_user_out() {
    if !is_root() {
        eprintln!("needs root to be another user");
        return;
    }
    let (directory, path) = place();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("its own directory");
    serve(UdsListener::new(&path).bind().expect("free"));
    let theirs = path.clone();
    let connecting =
        tokio::task::spawn_blocking(move || as_user(NOBODY, async { irpc_uds::connect(theirs).await }));
    let error = soon("an answer", connecting)
        .await
        .expect("no panic")
        .expect_err("mode 0600");
    assert!(matches!(error, ConnectError::Denied { .. }), "{error}");

    let path = directory.path().join("policy");
    serve(
        UdsListener::new(&path)
            .mode(0o666)
            .allow(|peer: &PeerCred| peer.uid == 0)
            .bind()
            .expect("free"),
    );
    let theirs = path.clone();
    let connecting =
        tokio::task::spawn_blocking(move || as_user(NOBODY, async { irpc_uds::connect(theirs).await }));
    let error = soon("an answer", connecting)
        .await
        .expect("no panic")
        .expect_err("the wrong user");
    assert!(
        matches!(&error, ConnectError::Refused { reason, .. } if reason.contains("uid 65534")),
        "{error}"
    );
    works(&path).await;

    let path = directory.path().join("given");
    let given = UdsListener::new(&path)
        .owner(Some(NOBODY), None)
        .bind()
        .expect("root may");
    serve(given);
    let theirs = path.clone();
    let connecting = tokio::task::spawn_blocking(move || {
        as_user(NOBODY, async {
            irpc_uds::connect(theirs)
                .await
                .map(|connection| irpc_uds::peer_cred(&connection))
        })
    });
    let server = soon("an answer", connecting)
        .await
        .expect("no panic")
        .expect("its owner");
    assert_eq!(
        server.map(|server| server.uid),
        Some(0),
        "the client sees who serves"
    );
}

#[tokio::test]
async fn a_refused_client_is_told_why_over_both_kinds() {
    for kind in [SocketKind::default(), SocketKind::Stream] {
        let (_directory, path) = place();
        serve(
            UdsListener::new(&path)
                .kind(kind)
                .allow(|_| false)
                .bind()
                .expect("free"),
        );
        let error = soon("an answer", UdsConnector::new(&path).kind(kind).connect())
            .await
            .expect_err("refused");
        assert!(
            matches!(&error, ConnectError::Refused { reason, .. } if reason.contains("policy")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn one_client_too_many_is_refused_until_another_leaves() {
    let (_directory, path) = place();
    serve(UdsListener::new(&path).peers_max(2).bind().expect("free"));
    let first = irpc_uds::connect(&path).await.expect("the first");
    let _second = irpc_uds::connect(&path).await.expect("the second");
    let error = soon("an answer", irpc_uds::connect(&path))
        .await
        .expect_err("the third");
    assert!(
        matches!(&error, ConnectError::Refused { reason, .. } if reason.contains("at most 2")),
        "{error}"
    );
    first.close(0_u32.into(), b"");
    drop(first);
    soon("room", async {
        while irpc_uds::connect(&path).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn abstract_sockets_need_a_policy() {
    let name = format!("irpc-uds-test-{}", std::process::id());
    let error = UdsListener::abstract_name(&name).bind().expect_err("no policy");
    assert!(matches!(error, BindError::NoPolicy { .. }), "{error}");
    let own = rustix::process::geteuid().as_raw();
    serve(
        UdsListener::abstract_name(&name)
            .allow(move |peer| peer.uid == own)
            .bind()
            .expect("free"),
    );
    let error = UdsListener::abstract_name(&name)
        .allow(|_| true)
        .bind()
        .expect_err("taken");
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
    let client: Client<Echo> = UdsConnector::abstract_name(&name)
        .client()
        .await
        .expect("a server");
    assert_eq!(
        soon("a call", client.rpc(Back(vec![9])))
            .await
            .expect("an answer"),
        [9]
    );
    let error = UdsConnector::abstract_name("irpc-uds-nobody")
        .connect()
        .await
        .expect_err("no server");
    assert!(matches!(error, ConnectError::Missing { .. }), "{error}");
}

#[tokio::test]
async fn an_endpoint_cannot_be_moved_to_the_network() {
    let (_directory, path) = place();
    let endpoint = irpc_uds::server_endpoint(&path).expect("free");
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let error = endpoint.rebind(udp).expect_err("it does not encrypt");
    assert!(error.to_string().contains("does not encrypt"), "{error}");
    let connecting = endpoint.connect("127.0.0.1:9".parse().expect("an address"), "localhost");
    assert!(connecting.is_err(), "a server has no way to connect");
}

#[tokio::test]
async fn garbage_and_silence_on_the_socket_disturb_nobody() {
    let (_directory, path) = place();
    serve(
        UdsListener::new(&path)
            .kind(SocketKind::Stream)
            .bind()
            .expect("free"),
    );
    let connector = UdsConnector::new(&path).kind(SocketKind::Stream);
    let client: Client<Echo> = connector.client().await.expect("a server");
    let _silent = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
    for garbage in [
        &[0, 0][..],
        &[0xff; 70_000],
        &[0, 3, 1, 2, 3],
        &[0, 1],
        &[0, 30, 0xc0, b'u', b'd', b's', 1, 200],
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        stream.write_all(garbage).ok();
        assert_eq!(
            soon("a call", client.rpc(Back(vec![5])))
                .await
                .expect("an answer"),
            [5]
        );
    }
}

#[tokio::test]
async fn a_server_that_hangs_times_its_clients_out() {
    let (_directory, path) = place();
    let socket = std::os::unix::net::UnixListener::bind(&path).expect("free");
    let error = UdsConnector::new(&path)
        .kind(SocketKind::Stream)
        .timeout(Duration::from_millis(100))
        .connect()
        .await
        .expect_err("nobody answers");
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    drop(socket);
}
