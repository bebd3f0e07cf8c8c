//! Questions by TCP (RFC 7766): one after the other on each connection, which ends when it is idle for a while.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Shared, exchange};
use crate::limits;

pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { serve_client(&shared, stream, client).await });
            }
            // No descriptor, or a connection that has ended already.
            Err(_) => tokio::time::sleep(limits::NAME_SOCKET_PAUSE).await,
        }
    }
}

/// Until the client is done, silent, or does not take its answers.
async fn serve_client(shared: &Shared, mut stream: TcpStream, client: SocketAddr) {
    let Some(_place) = shared.streams.admit(client.ip()) else {
        shared.counters().streams_over_limit += 1;
        return;
    };
    let idle = limits::NAME_STREAM_IDLE;
    while let Ok(Ok(message)) = timeout(idle, exchange::read_message(&mut stream)).await {
        let answer = {
            let Some((question, _guest)) = shared.admit(client.ip(), &message) else {
                return;
            };
            let answer = exchange::ask_by_tcp(&question, &shared.upstreams()).await;
            shared.settle(&question, answer)
        };
        let written = timeout(idle, exchange::write_message(&mut stream, &answer)).await;
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}
