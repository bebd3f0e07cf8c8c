//! What a client decides about its connections: how they are spread over the server's shards, and made again.

mod reconnection;
mod stripes;

pub use reconnection::{ConnectAction, Reconnection};
pub use stripes::{Arrival, StripeNews, Stripes};
