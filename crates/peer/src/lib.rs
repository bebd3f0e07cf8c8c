//! Encrypted messages and streams between two machines that know each other by public keys.
//!
//! An [`Endpoint`] has a UDP socket and any number of peers. A [`Peer`] is one connection: [`Peer::send`] takes
//! messages, each with its own order, deadline and priority ([`Delivery`]), and [`Peer::open`] opens streams. QUIC v1
//! with TLS 1.3 carries both; keys take the place of certificates. `specs/peer.md` of the repository says what is on
//! the wire.
//!
//! ```
//! use peer::{Delivery, Endpoint, SecretKey};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Endpoint::builder(SecretKey::generate()?).bind("127.0.0.1:0".parse()?)?;
//! let (id, address) = (listener.id(), listener.local_addr());
//! let caller = Endpoint::builder(SecretKey::generate()?).bind("127.0.0.1:0".parse()?)?;
//!
//! let to_listener = caller.connect(id, &[address]).await?;
//! let from_caller = listener.accept().await.ok_or("the endpoint was closed")?;
//! assert_eq!(from_caller.id(), caller.id());
//!
//! let ticket = to_listener.send("hello", Delivery::ordered(1)).await?;
//! assert_eq!(from_caller.receive().await?.body, "hello");
//! assert_eq!(ticket.await, peer::Outcome::Acked);
//! # Ok(())
//! # }
//! ```
//!
//! # Which delivery
//!
//! | what | delivery |
//! |---|---|
//! | independent requests | [`Delivery::unordered`] |
//! | chat, commands, logs | [`Delivery::ordered`], one channel for each conversation |
//! | positions, gauges, states | [`Delivery::latest`], one key for each thing |
//! | audio, video | any of these, [`Delivery::unreliable`] or [`Delivery::with_deadline`] |
//! | files, long answers | a stream |
//!
//! # What the path does
//!
//! [`Peer::path_stats`] is the present state: round trips, rates, losses, what waits. [`Peer::events`] tells what
//! changes, so that a program can send less instead of waiting longer:
//!
//! ```
//! # use peer::{LimitedBy, Peer, PeerEvent};
//! # async fn adapt(peer: Peer, mut set_bitrate: impl FnMut(u64)) {
//! let mut events = peer.events();
//! while let Some(event) = events.next_event().await {
//!     if let PeerEvent::Congestion(congestion) = event {
//!         match congestion.limited_by {
//!             LimitedBy::Path => set_bitrate(congestion.bytes_per_second * 8 * 9 / 10),
//!             // There is room: more can be tried, step by step.
//!             LimitedBy::Program => {}
//!         }
//!     }
//! }
//! # }
//! ```
//!
//! # Runtimes
//!
//! The endpoint's thread does all network work, so that acknowledgements never wait for the program. Where its tasks
//! keep no thread busy for long, tokio's runtime can do that work ([`Builder::driven_by_runtime`]): answers come
//! sooner, and many endpoints share the runtime's threads. Futures run on any executor; [`SendStream`] and
//! [`ReceiveStream`] have tokio's `AsyncWrite` and `AsyncRead`. Programs without an executor use [`blocking`].
//!
//! # Ends
//!
//! A [`Peer`] is a handle. When the last clone of it and the last of its streams are dropped, the connection is closed,
//! and messages that wait or are under way are dropped with it, reliable ones too: a program that is about to end waits
//! for their tickets, or for the other end's last word. It then closes its endpoint and waits until its peers were told
//! ([`Endpoint::close`], [`Endpoint::ended`]): otherwise they wait for it until their idle timeout.
//!
//! The end that connects has a connection before the other one has looked at who it is. Where that refuses it
//! ([`Builder::allow`]), [`Endpoint::connect`] has succeeded, and the connection closes at once with [`code::REFUSED`]:
//!
//! ```
//! use peer::{CloseReason, Endpoint, SecretKey, code};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let friend = SecretKey::generate()?.id();
//! let listener = Endpoint::builder(SecretKey::generate()?).allow([friend]).bind("127.0.0.1:0".parse()?)?;
//! let stranger = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
//!
//! let peer = stranger.connect(listener.id(), &[listener.local_addr()]).await?;
//! let reason = peer.closed().await;
//! assert!(matches!(reason, CloseReason::ApplicationClosed { code: code::REFUSED, .. }));
//! assert_eq!(listener.stats().not_allowed, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Cancellation
//!
//! Every future of this crate may be dropped before it is ready, by `select!` or a timeout; who waits again goes on
//! where the dropped one was. Each says under *Cancellation* what becomes of what it was given, or has taken. Nothing
//! of a dropped future stays behind, however often that happens.
//!
//! # Limits
//!
//! Without a rendezvous, and outside the local network, at least one end must be reachable at
//! an address that the program gives. Linux only. One endpoint uses one processor core.
//!
//! # Behind routers
//!
//! A Gramway server that both ends reach is a rendezvous ([`Builder::rendezvous`], [`Rendezvous::from_link`]): peers
//! connect by ID alone, and the routers between them are opened ([`Endpoint::connect`]). Where these cannot be opened
//! the server relays, and the connection moves to a direct path as soon as there is one, and back where that falls
//! silent ([`Peer::path`]); no message is lost by that. The server learns who meets whom, where they are and how much
//! they say, and nothing of what they say. `specs/rendezvous.md` of the repository says how.
//!
//! ```no_run
//! # use peer::{Endpoint, PeerId, Rendezvous, SecretKey};
//! # async fn meet(link: &str, other: PeerId) -> Result<(), Box<dyn std::error::Error>> {
//! // As `gramway up` and `gramway link` print it; the other end has one of the same server.
//! let rendezvous = Rendezvous::from_link(link)?;
//! let key = SecretKey::load_or_create("peer.key")?;
//! let endpoint = Endpoint::builder(key).rendezvous(rendezvous).bind_anywhere()?;
//! let seen_at = endpoint.registered().await.ok_or("the endpoint was closed")?;
//! println!("{} may be called from here on, and is seen at {seen_at}", endpoint.id());
//!
//! let peer = endpoint.connect(other, &[]).await?;
//! println!("connected at {}", peer.path().ok_or("it has left")?);
//! # Ok(())
//! # }
//! ```
//!
//! The example `meet` is a whole program of this kind.
//!
//! # On the local network
//!
//! Peers on one network find each other without a server: who is to be found is announced by multicast DNS
//! ([`Builder::announce_on_lan`]), and who connects asks ([`Builder::find_on_lan`]). An announcement says peer ID, port
//! and addresses to everybody on that network. `specs/lan.md` of the repository says how. [`Builder::map_port`] asks
//! the routers to let others in.
//!
//! ```no_run
//! # use peer::{Endpoint, EndpointEvent, PeerId, SecretKey};
//! # async fn on_lan(other: PeerId) -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Endpoint::builder(SecretKey::generate()?).announce_on_lan().map_port().bind_anywhere()?;
//! let mut events = listener.events();
//! while let Some(event) = events.next_event().await {
//!     match event {
//!         EndpointEvent::Announced => break,
//!         EndpointEvent::NotAnnounced => println!("not yet: {:?}", listener.lan_problem()),
//!         EndpointEvent::Mapped { address } => println!("the router leads {address} here"),
//!         _ => {}
//!     }
//! }
//!
//! // On another machine of that network:
//! let caller = Endpoint::builder(SecretKey::generate()?).find_on_lan().bind_anywhere()?;
//! let peer = caller.connect(other, &[]).await?;
//! # drop(peer);
//! # Ok(())
//! # }
//! ```

mod beside;
pub mod blocking;
pub mod code;
mod companion;
mod connecting;
mod driver;
mod endpoint;
mod error;
mod events;
mod face;
mod handle;
mod intake;
mod interfaces;
mod key;
mod lan;
pub mod limits;
mod mapping;
mod path;
mod rendezvous;
mod room;
mod shared;
mod stats;
mod streams;
mod ticket;
mod transmit;
mod turns;
mod wakers;

pub use bytes::Bytes;
pub use connecting::Connecting;
pub use endpoint::{Builder, Endpoint};
pub use error::{
    AskedRendezvous, BindError, Closed, ConnectError, InviteError, InviterError, KeyFileError, RelayProblem,
    RendezvousProblem, Unreached,
};
pub use events::{EndpointEvent, EndpointEvents, PeerEvent, PeerEvents};
pub use handle::Peer;
pub use key::SecretKey;
pub use mapping::MappingProblem;
pub use packet::CarrierKind;
pub use path::PeerPath;
pub use peer_proto::{
    AddressSource, Attempt, AttemptState, CloseReason, Congestion, ConnectError as AddressError, Counters,
    Delivery, DropReason, Failure, LimitedBy, Order, Outcome, ParseIdError, PathStats, PeerId,
    ReceiveCounters, Received, Reliability, SendCounters, SendError, StreamError,
};
pub use rendezvous::{Rendezvous, RendezvousCarrier};
pub use stats::EndpointStats;
pub use streams::{ReceiveStream, SendStream};
pub use ticket::Ticket;
pub use tunnel_proto::link::{EndpointError, LinkError};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
