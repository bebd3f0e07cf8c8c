//! Streams with priorities: a question on an urgent stream is answered while a bulk stream fills the connection.
//!
//! ```text
//! cargo run -p peer --example priorities
//! cargo run -p peer --example priorities -- MEBIBYTES
//! ```

use std::error::Error;
use std::time::Instant;

use peer::{Bytes, Endpoint, Peer, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Length of the bulk stream, in MiB, unless another one is given.
const BULK_MEBIBYTES: usize = 256;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mebibytes = match std::env::args().nth(1) {
        Some(given) => given.parse()?,
        None => BULK_MEBIBYTES,
    };
    let server = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let client = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let to_server = client.connect(server.id(), &[server.local_addr()]).await?;
    let from_client = server.accept().await.ok_or("the endpoint was closed")?;
    tokio::spawn(serve(from_client));

    let mut bulk = to_server.open_one_way(0).await?;
    let start = Instant::now();
    let sending = tokio::spawn(async move {
        let chunk = Bytes::from(vec![0; 1 << 20]);
        for _ in 0..mebibytes {
            bulk.write_chunk(chunk.clone()).await?;
        }
        bulk.finished().await
    });
    for _ in 0..5 {
        let asked = Instant::now();
        let (mut question, mut answer) = to_server.open(9).await?;
        question.write_all(b"how late is it?").await?;
        question.shutdown().await?;
        let mut text = String::new();
        answer.read_to_string(&mut text).await?;
        let when = if sending.is_finished() { "after" } else { "beside" };
        println!("{text} ({:?} {when} the bulk stream)", asked.elapsed());
    }
    sending.await??;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "bulk: {:.0} Mbit/s",
        (mebibytes << 20) as f64 * 8.0 / seconds / 1e6
    );
    Ok(())
}

/// Reads the bulk stream, and answers questions.
async fn serve(peer: Peer) -> Result<(), Box<dyn Error + Send + Sync>> {
    let reader = peer.clone();
    tokio::spawn(async move {
        let mut bulk = reader.accept_one_way().await?;
        while bulk.read_chunk(usize::MAX).await?.is_some() {}
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    });
    loop {
        let (mut answer, mut question) = peer.accept().await?;
        let mut text = Vec::new();
        question.read_to_end(&mut text).await?;
        answer.write_all(b"early enough").await?;
        answer.finish();
    }
}
