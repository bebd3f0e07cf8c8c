//! iroh as its users have it, with relays, discovery and port mapping off: a uni stream for each reliable message,
//! datagrams for those that are sent once, one stream of high priority for round trips.

use std::net::SocketAddr;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use iroh::endpoint::{
    Connection as IrohConnection, Incoming, PortmapperConfig, QuicTransportConfig, RecvStream, SendStream,
    VarInt, presets,
};
use iroh::{Endpoint, EndpointAddr, EndpointId, RelayMode};

use crate::trial::contestant::{Arrived, Connection, Outcome, Transport, failed};
use crate::trial::{Bounds, Contact};

/// Application protocol of the trial.
const PROTOCOL: &[u8] = b"trial";

/// Datagrams that one call takes at most.
const BATCH: usize = 256;

/// Above streams with bulk.
const URGENT: i32 = 1;

#[derive(Clone)]
pub(crate) struct Iroh(Endpoint);

#[derive(Clone)]
pub(crate) struct Carried(IrohConnection);

impl Transport for Iroh {
    type Connection = Carried;
    type Incoming = Incoming;

    async fn bind(address: SocketAddr, bounds: Bounds) -> Outcome<Self> {
        let window = VarInt::try_from(bounds.bytes as u64).map_err(failed("set a window"))?;
        let messages = VarInt::try_from(bounds.messages as u64).map_err(failed("bound messages"))?;
        let transport = QuicTransportConfig::builder()
            .max_concurrent_uni_streams(messages)
            .stream_receive_window(window)
            .send_window(bounds.bytes as u64)
            .datagram_receive_buffer_size(Some(bounds.bytes))
            .datagram_send_buffer_size(bounds.bytes)
            .build();
        let builder = Endpoint::builder(presets::Minimal)
            .relay_mode(RelayMode::Disabled)
            .portmapper_config(PortmapperConfig::Disabled)
            .alpns(vec![PROTOCOL.to_vec()])
            // Strangers have no tickets: every handshake is a whole one.
            .max_tls_tickets(0)
            .transport_config(transport)
            .clear_ip_transports()
            .bind_addr(address)
            .map_err(failed("bind an address"))?;
        Ok(Self(builder.bind().await.map_err(failed("bind an endpoint"))?))
    }

    fn contact(&self) -> Outcome<Contact> {
        let address = self.0.bound_sockets().into_iter().next();
        Ok(Contact {
            address: address.ok_or_else(|| "the endpoint has no socket".to_owned())?,
            identity: HEXLOWER.encode(self.0.id().as_bytes()),
        })
    }

    async fn connect(&self, contact: &Contact) -> Outcome<Carried> {
        let id: EndpointId = contact
            .identity
            .parse()
            .map_err(failed("read an endpoint's ID"))?;
        let address = EndpointAddr::new(id).with_ip_addr(contact.address);
        let connected = self.0.connect(address, PROTOCOL).await;
        connected.map(Carried).map_err(failed("connect"))
    }

    async fn accept(&self) -> Option<Incoming> {
        self.0.accept().await
    }

    async fn establish(incoming: Incoming) -> Outcome<Carried> {
        incoming.await.map(Carried).map_err(failed("accept"))
    }
}

impl Connection for Carried {
    type Writer = SendStream;
    type Reader = RecvStream;
    type Pinger = (SendStream, RecvStream);

    async fn send(&self, body: Bytes) -> Outcome<()> {
        let mut stream = self.0.open_uni().await.map_err(failed("open a stream"))?;
        stream
            .write_chunk(body)
            .await
            .map_err(failed("write a message"))?;
        stream.finish().map_err(failed("finish a message"))
    }

    async fn receive(&self) -> Outcome<Arrived> {
        let mut stream = self.0.accept_uni().await.map_err(failed("accept a stream"))?;
        let body = stream
            .read_to_end(usize::MAX)
            .await
            .map_err(failed("read a message"))?;
        Ok(Arrived {
            messages: 1,
            bytes: body.len() as u64,
        })
    }

    async fn send_once(&self, body: Bytes) -> Outcome<()> {
        self.0
            .send_datagram_wait(body)
            .await
            .map_err(failed("send a datagram"))
    }

    async fn receive_once(&self) -> Outcome<Arrived> {
        let mut datagrams = [const { Bytes::new() }; BATCH];
        let received = self.0.read_many_datagrams(&mut datagrams).await;
        let count = received.map_err(failed("receive datagrams"))?;
        Ok(Arrived {
            messages: count as u64,
            bytes: datagrams[..count]
                .iter()
                .map(|datagram| datagram.len() as u64)
                .sum(),
        })
    }

    async fn open_bulk(&self) -> Outcome<SendStream> {
        self.0.open_uni().await.map_err(failed("open a stream"))
    }

    async fn write(writer: &mut SendStream, chunk: Bytes) -> Outcome<()> {
        writer.write_chunk(chunk).await.map_err(failed("write"))
    }

    async fn accept_bulk(&self) -> Outcome<RecvStream> {
        self.0.accept_uni().await.map_err(failed("accept a stream"))
    }

    async fn read(reader: &mut RecvStream) -> Outcome<u64> {
        let chunk = reader.read_chunk(usize::MAX).await.map_err(failed("read"))?;
        chunk
            .map(|bytes| bytes.len() as u64)
            .ok_or_else(|| "the stream ended".to_owned())
    }

    async fn open_pinger(&self) -> Outcome<Self::Pinger> {
        let (sender, receiver) = self.0.open_bi().await.map_err(failed("open a stream"))?;
        sender.set_priority(URGENT).map_err(failed("set a priority"))?;
        Ok((sender, receiver))
    }

    async fn ping((sender, receiver): &mut Self::Pinger, body: Bytes) -> Outcome<()> {
        let mut answer = vec![0; body.len()];
        sender.write_chunk(body).await.map_err(failed("ask"))?;
        receiver
            .read_exact(&mut answer)
            .await
            .map_err(failed("read the answer"))
    }

    async fn answer_pings(&self, bytes: usize) -> Outcome<()> {
        let (mut sender, mut receiver) = self.0.accept_bi().await.map_err(failed("accept a stream"))?;
        sender.set_priority(URGENT).map_err(failed("set a priority"))?;
        let mut question = vec![0; bytes];
        loop {
            receiver
                .read_exact(&mut question)
                .await
                .map_err(failed("read a question"))?;
            sender.write_all(&question).await.map_err(failed("answer"))?;
        }
    }

    fn close(&self) {
        self.0.close(VarInt::from_u32(0), b"");
    }

    async fn closed(&self) {
        self.0.closed().await;
    }
}
