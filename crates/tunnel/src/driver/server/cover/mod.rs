//! The cover of a server: where it is, how it stands, and what goes on to it.

mod address;
mod flows;
mod replays;
mod standing;
mod strangers;
mod tcp;
mod watch;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use packet_io::Waker;
use reality::door::Recogniser;

use super::Server;
use super::users::FrontDoorUsers;
use crate::config::Cover;
use crate::driver::Shard;
use crate::driver::resolver::Answer;
use crate::handle::{Failure, Notice};
use crate::limits;
use crate::snapshot::CoverSnapshot;
pub(super) use address::COVER_PURPOSE;
use address::{CoverAddress, Refreshing};
pub(super) use flows::CoverFlow;
use replays::Replays;
use standing::{Look, Standing};
use strangers::Strangers;
use tcp::CoverTcp;

/// The port of plain HTTP, which web sites have beside HTTPS.
const HTTP_PORT: u16 = 80;

/// What all shards of a server with a cover share.
pub(super) struct SharedCover {
    address: Arc<CoverAddress>,
    name: String,
    tcp: Option<CoverTcp>,
    recogniser: Arc<Recogniser<FrontDoorUsers>>,
    replays: Replays,
    standing: Standing,
}

/// What one shard knows of the cover.
pub(super) struct ShardCover {
    shared: Arc<SharedCover>,
    /// Of the shard that resolves the name, and has the cover looked at, for all.
    refreshing: Option<Refreshing>,
    /// A look that is under way.
    look: Option<mpsc::Receiver<Look>>,
    strangers: Strangers,
}

impl SharedCover {
    /// The cover of a server that listens at `local`; what is wrong with the ports of TCP is told.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start(
        config: &Cover,
        users: FrontDoorUsers,
        local: SocketAddr,
        now: Instant,
    ) -> Result<(Arc<Self>, Vec<Notice>), Failure> {
        let address = Arc::new(CoverAddress::new(&config.host, config.port, local, config.met));
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
            recogniser: Arc::new(strangers::recogniser(&config.keys, users, config.window)),
            replays: Replays::start(&config.replays_file, config.is_first_run, config.window)?,
            standing: Standing::new(config, now),
        };
        Ok((Arc::new(shared), notices))
    }
}

impl ShardCover {
    /// Of one of so many shards; `waker` is this one's. The first one resolves the name for all.
    ///
    /// # Errors
    /// The cover has what we cannot have.
    pub(super) fn new(
        shared: &Arc<SharedCover>,
        shard: quic::Shard,
        waker: Waker,
        now: Instant,
    ) -> Result<Self, Failure> {
        let resolves = shard.index == 0;
        Ok(Self {
            refreshing: resolves.then(|| Refreshing::new(&shared.address, now)),
            look: None,
            strangers: Strangers::new(shared, shard.count, waker, now)?,
            shared: Arc::clone(shared),
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.strangers.poll_timeout()
    }

    /// What the process has of it, and this shard alone.
    pub(super) fn snapshot(&self) -> CoverSnapshot {
        let shared = &self.shared;
        let mut snapshot = CoverSnapshot {
            host: shared.address.host().to_owned(),
            port: shared.address.port(),
            name: shared.name.clone(),
            addresses: shared.address.all(),
            trouble: shared.address.trouble().map(str::to_owned),
            tcp: shared.tcp.as_ref().map(CoverTcp::counters),
            remembered: shared.replays.count() as u64,
            ..CoverSnapshot::default()
        };
        shared.standing.count(Instant::now(), &mut snapshot);
        self.strangers.count(&mut snapshot);
        snapshot
    }

    /// Has the cover looked at where it is time, and takes in what was found.
    fn look(&mut self, now: Instant) -> Vec<Notice> {
        let Some(look) = &self.look else {
            self.look = self.shared.standing.poll_look(now, self.shared.address.all());
            return Vec::new();
        };
        let ended = match look.try_recv() {
            Ok(look) => Some(look),
            Err(mpsc::TryRecvError::Empty) => return Vec::new(),
            Err(mpsc::TryRecvError::Disconnected) => None,
        };
        self.look = None;
        let (address, notices) = self.shared.standing.looked(now, ended);
        if let Some(address) = address {
            self.shared.address.meet(address);
        }
        notices
    }
}

impl Shard<Server> {
    /// Asks where the cover is and how it stands, when it is time.
    pub(super) fn refresh_cover(&mut self, now: Instant) {
        let Some(cover) = &mut self.role.cover else { return };
        while let Some(notice) = cover.shared.replays.poll_notice() {
            self.io.notify(notice);
        }
        if cover.refreshing.is_some() {
            cover
                .look(now)
                .into_iter()
                .for_each(|notice| self.io.notify(notice));
        }
        cover.strangers.follow(&cover.shared.standing, now);
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
