//! What a contestant must be able to do. Each does it as its users would; what it lacks is made of what it has.

use std::fmt::Display;
use std::net::SocketAddr;

use bytes::Bytes;

use super::{Bounds, Contact};

/// A reason for people.
pub(crate) type Outcome<T> = Result<T, String>;

/// Says what was tried when a library's own error came up.
pub(crate) fn failed<E: Display>(what: &'static str) -> impl FnOnce(E) -> String {
    move |error| format!("cannot {what}: {error:#}")
}

/// What came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// A socket with a key.
pub(crate) trait Transport: Clone + Send + Sync + 'static {
    type Connection: Connection;
    /// A connection whose handshake may not be complete.
    type Incoming: Send + 'static;

    fn bind(address: SocketAddr, bounds: Bounds) -> impl Future<Output = Outcome<Self>> + Send;

    fn contact(&self) -> Outcome<Contact>;

    /// A connection to whoever has this identity, which knows ours.
    fn connect(&self, contact: &Contact) -> impl Future<Output = Outcome<Self::Connection>> + Send;

    /// `None` where there will be no more.
    fn accept(&self) -> impl Future<Output = Option<Self::Incoming>> + Send;

    fn establish(incoming: Self::Incoming) -> impl Future<Output = Outcome<Self::Connection>> + Send;
}

/// A connection. A clone is the same one.
pub(crate) trait Connection: Clone + Send + Sync + 'static {
    type Writer: Send;
    type Reader: Send;
    /// What exchanges short messages.
    type Pinger: Send;

    /// Sends a reliable message; waits while too much is under way.
    fn send(&self, body: Bytes) -> impl Future<Output = Outcome<()>> + Send;

    /// Waits for reliable messages.
    fn receive(&self) -> impl Future<Output = Outcome<Arrived>> + Send;

    /// Sends a message once; waits while too much is under way.
    fn send_once(&self, body: Bytes) -> impl Future<Output = Outcome<()>> + Send;

    /// Waits for messages that were sent once.
    fn receive_once(&self) -> impl Future<Output = Outcome<Arrived>> + Send;

    fn open_bulk(&self) -> impl Future<Output = Outcome<Self::Writer>> + Send;

    fn write(writer: &mut Self::Writer, chunk: Bytes) -> impl Future<Output = Outcome<()>> + Send;

    fn accept_bulk(&self) -> impl Future<Output = Outcome<Self::Reader>> + Send;

    /// Bytes that came.
    fn read(reader: &mut Self::Reader) -> impl Future<Output = Outcome<u64>> + Send;

    /// What it sends goes before everything else.
    fn open_pinger(&self) -> impl Future<Output = Outcome<Self::Pinger>> + Send;

    /// A message there and one back.
    fn ping(pinger: &mut Self::Pinger, body: Bytes) -> impl Future<Output = Outcome<()>> + Send;

    /// Answers messages of this length until the connection ends.
    fn answer_pings(&self, bytes: usize) -> impl Future<Output = Outcome<()>> + Send;

    fn close(&self);

    fn closed(&self) -> impl Future<Output = ()> + Send;
}
