//! The process whose sockets a server took over: it is seen to end, so that this one knows whose segments it may
//! answer, and when nobody needs it any more.

use std::io;

use packet_io::Interest;

use super::{Server, ServerSource};
use crate::driver::Shard;
use crate::driver::sources::{NotWatched, SourceId};

impl Shard<Server> {
    pub(super) fn watch_predecessor(&mut self) -> io::Result<()> {
        let Some(predecessor) = &self.delivery.predecessor else {
            return Ok(());
        };
        let way = ServerSource::Predecessor(predecessor.way(self.neighbours.own())?);
        let watched = self
            .sources
            .insert(&self.io.poller, way, Interest::READABLE, None);
        match watched {
            Ok(_) => Ok(()),
            Err(NotWatched::Poller(error)) => Err(error),
            Err(NotWatched::NoRoom) => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// Nothing else makes the way back readable.
    pub(super) fn predecessor_has_ended(&mut self, id: SourceId) {
        drop(self.sources.remove(&self.io.poller, id));
        if let Some(predecessor) = &self.delivery.predecessor {
            predecessor.shard_has_ended(self.neighbours.own());
        }
    }
}
