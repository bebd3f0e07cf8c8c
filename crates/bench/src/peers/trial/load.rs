//! The loads, as tasks of both ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use super::contestant::{Arrived, Connection, Outcome, Transport, failed};
use super::counts::Counts;
use super::{Contact, Direction, Load, Options};

/// Bytes that one call writes to a stream.
const CHUNK_BYTES: usize = 64 << 10;

/// Between two round trips, so that each finds an idle path.
const PAUSE: Duration = Duration::from_millis(1);

/// Length of the message that follows a new connection, in bytes.
const GREETING_BYTES: usize = 64;

/// Handshakes at a time of clients that make many connections to keep them.
const HANDSHAKES_AT_A_TIME: usize = 16;

/// Accepts connections, and does the server's part of `load` on each.
pub(super) async fn serve<T: Transport>(transport: T, load: Load, counts: Arc<Counts>) {
    while let Some(incoming) = transport.accept().await {
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            // A connection that failed or ended is its client's affair.
            if let Ok(connection) = T::establish(incoming).await {
                counts.connected();
                let _ = serve_connection(&connection, load, &counts).await;
            }
        });
    }
}

async fn serve_connection<C: Connection>(connection: &C, load: Load, counts: &Counts) -> Outcome<()> {
    match load {
        Load::Messages { .. } => receive(connection, counts).await,
        Load::Unreliable { .. } => receive_once(connection, counts).await,
        Load::Bulk => read(connection, counts).await,
        Load::RoundTrips { bytes, beside_bulk } => {
            if beside_bulk {
                tokio::try_join!(connection.answer_pings(bytes), read(connection, counts)).map(drop)
            } else {
                connection.answer_pings(bytes).await
            }
        }
        Load::Fan { bytes, direction, .. } => match direction {
            Direction::In => receive(connection, counts).await,
            Direction::Out => send(connection, bytes).await,
            Direction::Both => {
                tokio::try_join!(send(connection, bytes), receive(connection, counts)).map(drop)
            }
        },
        Load::Connections { .. } => {
            connection.send(Bytes::from_static(&[0; GREETING_BYTES])).await?;
            connection.closed().await;
            Ok(())
        }
        Load::Idle { .. } => {
            connection.closed().await;
            Ok(())
        }
    }
}

/// Makes the client's connections and starts its part of the load; failures later on go to `end`.
pub(super) async fn call<T: Transport>(
    options: &Options,
    contact: &Contact,
    counts: &Arc<Counts>,
    end: &mpsc::UnboundedSender<Outcome<()>>,
) -> Outcome<()> {
    let bind = || T::bind(options.address, options.bounds);
    match options.load {
        Load::Connections { parallel } => {
            let transport = bind().await?;
            for _ in 0..parallel {
                let (transport, contact) = (transport.clone(), contact.clone());
                let (counts, end) = (Arc::clone(counts), end.clone());
                tokio::spawn(async move {
                    let failure = connect_again_and_again(&transport, &contact, &counts).await;
                    let _ = end.send(failure);
                });
            }
        }
        Load::Idle { connections } => {
            let (transport, permits) = (bind().await?, Arc::new(Semaphore::new(HANDSHAKES_AT_A_TIME)));
            let mut tasks = Vec::new();
            for _ in 0..connections {
                let permit = Arc::clone(&permits).acquire_owned().await;
                let permit = permit.map_err(failed("wait for a handshake"))?;
                let (transport, contact) = (transport.clone(), contact.clone());
                let connect = async move {
                    let connection = transport.connect(&contact).await;
                    drop(permit);
                    connection
                };
                tasks.push(tokio::spawn(connect));
            }
            for task in tasks {
                keep(task.await.map_err(failed("connect"))??);
            }
        }
        load => {
            let clients = match load {
                Load::Fan { clients, .. } => clients,
                _ => 1,
            };
            for _ in 0..clients {
                let transport = bind().await?;
                let connection = transport.connect(contact).await?;
                let (counts, end) = (Arc::clone(counts), end.clone());
                tokio::spawn(async move {
                    let failure = call_connection(&connection, load, &counts).await;
                    let _ = end.send(failure);
                    drop(transport);
                });
            }
        }
    }
    Ok(())
}

/// Keeps a connection as long as the process.
fn keep<C: Connection>(connection: C) {
    tokio::spawn(async move { connection.closed().await });
}

async fn connect_again_and_again<T: Transport>(
    transport: &T,
    contact: &Contact,
    counts: &Counts,
) -> Outcome<()> {
    loop {
        let connection = transport.connect(contact).await?;
        connection.receive().await?;
        counts.connected();
        connection.close();
    }
}

async fn call_connection<C: Connection>(connection: &C, load: Load, counts: &Counts) -> Outcome<()> {
    match load {
        Load::Messages { bytes } => send(connection, bytes).await,
        Load::Unreliable { bytes } => {
            let body = Bytes::from(vec![0; bytes]);
            loop {
                connection.send_once(body.clone()).await?;
            }
        }
        Load::Bulk => write(connection).await,
        Load::RoundTrips { bytes, beside_bulk } => {
            if beside_bulk {
                tokio::try_join!(ping(connection, bytes, counts), write(connection)).map(drop)
            } else {
                ping(connection, bytes, counts).await
            }
        }
        Load::Fan { bytes, direction, .. } => match direction {
            Direction::In => send(connection, bytes).await,
            Direction::Out => receive(connection, counts).await,
            Direction::Both => {
                tokio::try_join!(send(connection, bytes), receive(connection, counts)).map(drop)
            }
        },
        Load::Connections { .. } | Load::Idle { .. } => Ok(()),
    }
}

async fn send<C: Connection>(connection: &C, bytes: usize) -> Outcome<()> {
    let body = Bytes::from(vec![0; bytes]);
    loop {
        connection.send(body.clone()).await?;
    }
}

async fn receive<C: Connection>(connection: &C, counts: &Counts) -> Outcome<()> {
    loop {
        counts.arrived(connection.receive().await?);
    }
}

async fn receive_once<C: Connection>(connection: &C, counts: &Counts) -> Outcome<()> {
    loop {
        counts.arrived(connection.receive_once().await?);
    }
}

async fn write<C: Connection>(connection: &C) -> Outcome<()> {
    let chunk = Bytes::from(vec![0; CHUNK_BYTES]);
    let mut writer = connection.open_bulk().await?;
    loop {
        C::write(&mut writer, chunk.clone()).await?;
    }
}

async fn read<C: Connection>(connection: &C, counts: &Counts) -> Outcome<()> {
    let mut reader = connection.accept_bulk().await?;
    loop {
        let bytes = C::read(&mut reader).await?;
        counts.arrived(Arrived { messages: 0, bytes });
    }
}

async fn ping<C: Connection>(connection: &C, bytes: usize, counts: &Counts) -> Outcome<()> {
    let body = Bytes::from(vec![0; bytes]);
    let mut pinger = connection.open_pinger().await?;
    loop {
        let start = Instant::now();
        C::ping(&mut pinger, body.clone()).await?;
        counts.answered(start.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
}
