//! A client's stripes as its shards share them, and their news as people read it.
//!
//! No stripe's packets pass here: it is asked when a connection comes or goes, and by shards whose own stripe is down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packet::CarrierKind;
use tunnel_proto::{StripeNews, Stripes};

use crate::handle::Notice;

/// All stripes, shared by the shards of a client.
#[derive(Clone)]
pub(in crate::driver) struct SharedStripes(Arc<Mutex<Stripes>>);

impl SharedStripes {
    pub(in crate::driver) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(Stripes::new(count))))
    }

    pub(in crate::driver) fn lock(&self) -> MutexGuard<'_, Stripes> {
        // Each call leaves it whole; a shard that panicked ends the process anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<StripeNews> for Notice {
    fn from(news: StripeNews) -> Self {
        match news {
            StripeNews::Connected { server, rtt } => Self::Connected {
                server: CarrierKind::unmark(server),
                carrier: CarrierKind::of(server),
                rtt,
            },
            StripeNews::Joined { up, of } => Self::Stripes { up, of },
            StripeNews::Lost { up, of, reason } => Self::StripeLost { up, of, reason },
            StripeNews::Down { reason } => Self::Reconnecting { reason },
            StripeNews::Stranger { server } => Self::Warning {
                text: format!(
                    "another server answers at {}: its public key does not match the link's pin, so it gets nothing; \
                     seeking the right one",
                    CarrierKind::unmark(server)
                ),
            },
            StripeNews::Unreachable { reason } => Self::Unreachable { reason },
            StripeNews::Carrier { carrier, reason } => Self::Carrier { carrier, reason },
            StripeNews::Path { mtu, up, of } => Self::Path { mtu, up, of },
        }
    }
}
