//! Gramway's peers as a contestant.

use std::net::SocketAddr;

use bytes::Bytes;
use peer::{Builder, Delivery, Endpoint, Peer, ReceiveStream, Received, SecretKey, SendStream};

use super::trial::contestant::{Arrived, Connection, Outcome, Transport, failed};
use super::trial::{Bounds, Contact};

/// What a message costs in an endpoint's bound of bytes beside its body.
const MESSAGE_COST_BYTES: usize = 128;

/// Messages that one call takes at most.
const BATCH: usize = 256;

/// Of what shall not wait for bulk.
const URGENT: u8 = 1;

/// How an endpoint is set up for these bounds, with a thread of its own.
fn builder(bounds: Bounds) -> Outcome<Builder> {
    let key = SecretKey::generate().map_err(failed("make a key"))?;
    let bytes = bounds.bytes + bounds.messages * MESSAGE_COST_BYTES;
    Ok(Endpoint::builder(key).send_bytes_max(bytes))
}

/// Driven by the program's runtime, as the rivals are.
impl Transport for Endpoint {
    type Connection = Peer;
    type Incoming = Peer;

    async fn bind(address: SocketAddr, bounds: Bounds) -> Outcome<Self> {
        let bound = builder(bounds)?.driven_by_runtime().bind(address);
        bound.map_err(failed("bind an endpoint"))
    }

    fn contact(&self) -> Outcome<Contact> {
        Ok(Contact {
            address: self.local_addr(),
            identity: self.id().to_string(),
        })
    }

    async fn connect(&self, contact: &Contact) -> Outcome<Peer> {
        let id = contact.identity.parse().map_err(failed("read a peer ID"))?;
        let connected = Self::connect(self, id, &[contact.address]).await;
        connected.map_err(failed("connect"))
    }

    async fn accept(&self) -> Option<Peer> {
        Self::accept(self).await
    }

    async fn establish(incoming: Peer) -> Outcome<Peer> {
        Ok(incoming)
    }
}

/// An endpoint with a thread of its own, as it is unless a program asks for its runtime.
#[derive(Clone)]
pub(super) struct OnThread(Endpoint);

impl Transport for OnThread {
    type Connection = Peer;
    type Incoming = Peer;

    async fn bind(address: SocketAddr, bounds: Bounds) -> Outcome<Self> {
        let bound = builder(bounds)?.bind(address);
        bound.map(Self).map_err(failed("bind an endpoint"))
    }

    fn contact(&self) -> Outcome<Contact> {
        Transport::contact(&self.0)
    }

    async fn connect(&self, contact: &Contact) -> Outcome<Peer> {
        Transport::connect(&self.0, contact).await
    }

    async fn accept(&self) -> Option<Peer> {
        Transport::accept(&self.0).await
    }

    async fn establish(incoming: Peer) -> Outcome<Peer> {
        Ok(incoming)
    }
}

fn arrived(messages: &[Received]) -> Arrived {
    Arrived {
        messages: messages.len() as u64,
        bytes: messages.iter().map(|message| message.body.len() as u64).sum(),
    }
}

impl Connection for Peer {
    type Writer = SendStream;
    type Reader = ReceiveStream;
    type Pinger = Self;

    async fn send(&self, body: Bytes) -> Outcome<()> {
        let sent = Self::send(self, body, Delivery::unordered()).await;
        sent.map(drop).map_err(failed("send a message"))
    }

    async fn receive(&self) -> Outcome<Arrived> {
        let mut messages = Vec::with_capacity(BATCH);
        let received = self.receive_many(&mut messages, BATCH).await;
        received.map_err(failed("receive messages"))?;
        Ok(arrived(&messages))
    }

    async fn send_once(&self, body: Bytes) -> Outcome<()> {
        let sent = Self::send(self, body, Delivery::unordered().unreliable()).await;
        sent.map(drop).map_err(failed("send a message once"))
    }

    async fn receive_once(&self) -> Outcome<Arrived> {
        Connection::receive(self).await
    }

    async fn open_bulk(&self) -> Outcome<SendStream> {
        self.open_one_way(0).await.map_err(failed("open a stream"))
    }

    async fn write(writer: &mut SendStream, chunk: Bytes) -> Outcome<()> {
        writer.write_chunk(chunk).await.map_err(failed("write"))
    }

    async fn accept_bulk(&self) -> Outcome<ReceiveStream> {
        self.accept_one_way().await.map_err(failed("accept a stream"))
    }

    async fn read(reader: &mut ReceiveStream) -> Outcome<u64> {
        let chunk = reader.read_chunk(usize::MAX).await.map_err(failed("read"))?;
        chunk
            .map(|bytes| bytes.len() as u64)
            .ok_or_else(|| "the stream ended".to_owned())
    }

    async fn open_pinger(&self) -> Outcome<Self> {
        Ok(self.clone())
    }

    async fn ping(pinger: &mut Self, body: Bytes) -> Outcome<()> {
        let sent = Self::send(pinger, body, Delivery::unordered().with_priority(URGENT)).await;
        sent.map(drop).map_err(failed("send a message"))?;
        let received = Self::receive(pinger).await;
        received.map(drop).map_err(failed("receive the answer"))
    }

    async fn answer_pings(&self, _: usize) -> Outcome<()> {
        loop {
            let question = Self::receive(self).await.map_err(failed("receive a message"))?;
            let delivery = Delivery::unordered().with_priority(URGENT);
            let sent = Self::send(self, question.body, delivery).await;
            sent.map(drop).map_err(failed("answer"))?;
        }
    }

    fn close(&self) {
        Self::close(self, 0, "");
    }

    async fn closed(&self) {
        Self::closed(self).await;
    }
}
