//! What a client decides about its connections: how they are made again, spread over the
//! server's shards, and what the TUN device follows of them. How local programs name their targets.

mod acceptance;
mod address_move;
mod carrier_watch;
mod holders;
mod known_server;
mod negotiation;
mod path_watch;
mod proxies;
mod reconnection;
mod refusals;
mod resting;
mod stripes;
mod tun_plan;

pub use acceptance::{Acceptance, LocalNetworks};
pub use address_move::AddressMove;
pub use carrier_watch::Carried;
pub use known_server::{KnownServer, ServerProof};
pub use negotiation::{Negotiation, NotOpened, Progress};
pub use path_watch::{PathActivity, PathNews, PathWatch};
pub use proxies::{Http, Socks, SocksAddress, SocksDatagram, SocksOrHttp};
pub use reconnection::{AttemptId, CarrierChoice, CarrierNews, ConnectAction, Reconnection};
pub use resting::Resting;
pub use stripes::{Arrival, StripeNews, Stripes, Welcome};
pub use tun_plan::TunPlan;
