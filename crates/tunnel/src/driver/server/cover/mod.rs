//! The cover of a server: where it is, and what goes on to it.

mod address;
mod tcp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Server;
use crate::config::Cover;
use crate::driver::Shard;
use crate::driver::resolver::Answer;
use crate::handle::{Failure, Notice};
use crate::limits;
use crate::snapshot::CoverSnapshot;
pub(super) use address::COVER_PURPOSE;
use address::{CoverAddress, Refreshing};
use tcp::CoverTcp;

/// The port of plain HTTP, which web sites have beside HTTPS.
const HTTP_PORT: u16 = 80;

/// What all shards of a server with a cover share.
pub(super) struct SharedCover {
    address: Arc<CoverAddress>,
    name: String,
    tcp: Option<CoverTcp>,
}

/// What one shard knows of the cover.
pub(super) struct ShardCover {
    shared: Arc<SharedCover>,
    /// Of the shard that resolves the name for all.
    refreshing: Option<Refreshing>,
}

impl SharedCover {
    /// The cover of a server that listens at `local`; what is wrong with the ports of TCP is told.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start(config: &Cover, local: SocketAddr) -> Result<(Arc<Self>, Vec<Notice>), Failure> {
        let address = Arc::new(CoverAddress::new(&config.host, config.port, local));
        let (mut tcp, mut notices) = (None, Vec::new());
        if config.tcp {
            let ports = [(local.port(), config.port), (HTTP_PORT, HTTP_PORT)];
            let (splice, _, warnings) = CoverTcp::start(
                Arc::clone(&address),
                local.ip(),
                &ports,
                limits::COVER_STREAM_IDLE,
            )
            .map_err(|error| Failure::Unavailable(format!("no thread for the cover: {error}")))?;
            tcp = Some(splice);
            notices.extend(warnings.into_iter().map(|text| Notice::Warning { text }));
        }
        if let Some(trouble) = address.trouble() {
            let text = format!("the cover {} cannot be used: {trouble}", config.host);
            notices.push(Notice::Warning { text });
        }
        let shared = Self {
            address,
            name: config.name.clone(),
            tcp,
        };
        Ok((Arc::new(shared), notices))
    }
}

impl ShardCover {
    pub(super) fn new(shared: &Arc<SharedCover>, resolves: bool, now: Instant) -> Self {
        Self {
            refreshing: resolves.then(|| Refreshing::new(&shared.address, now)),
            shared: Arc::clone(shared),
        }
    }

    /// What the whole process has of it; told by the one shard that resolves.
    pub(super) fn snapshot(&self) -> Option<CoverSnapshot> {
        self.refreshing.as_ref()?;
        let shared = &self.shared;
        Some(CoverSnapshot {
            host: shared.address.host().to_owned(),
            port: shared.address.port(),
            name: shared.name.clone(),
            addresses: shared.address.all(),
            trouble: shared.address.trouble().map(str::to_owned),
            tcp: shared.tcp.as_ref().map(CoverTcp::counters),
        })
    }
}

impl Shard<Server> {
    /// Asks where the cover is, when it is time.
    pub(super) fn refresh_cover(&mut self, now: Instant) {
        let Some(cover) = &mut self.role.cover else { return };
        if let Some(refreshing) = &mut cover.refreshing
            && refreshing.poll(now)
        {
            let address = &cover.shared.address;
            self.io
                .resolver
                .ask(COVER_PURPOSE, address.host(), address.port());
        }
    }

    /// The resolver has answered where the cover is.
    pub(super) fn cover_resolved(&mut self, now: Instant, answer: Answer) {
        let Some(cover) = &mut self.role.cover else { return };
        let address = &cover.shared.address;
        if let Some(refreshing) = &mut cover.refreshing
            && let Some(text) = refreshing.resolved(now, address, answer.found)
        {
            self.io.notify(Notice::Warning { text });
        }
    }
}
