//! The server's end of a registration: a request of the rendezvous' service.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;

use super::message::Reader;
use super::path::RegistrationPath;
use super::table::{Place, Rendezvous, Ticket};
use crate::engine::{NoService, RequestId, Service, ServiceProvider, ServiceRequest, ServiceStream};

/// Makes the services of one shard.
pub(super) struct Provider {
    rendezvous: Rendezvous,
    shard: usize,
}

impl Provider {
    pub(super) fn new(rendezvous: Rendezvous, shard: usize) -> Self {
        Self { rendezvous, shard }
    }
}

impl ServiceProvider for Provider {
    fn open(&mut self, now: Instant, asked: &ServiceRequest<'_>) -> Result<Box<dyn Service>, NoService> {
        let path: RegistrationPath = asked.path.parse().map_err(|_| {
            self.rendezvous.count_unproved();
            NoService::NotFound
        })?;
        let is_proved = asked.exporter.is_some_and(|exporter| path.is_proved(&exporter));
        if !is_proved {
            self.rendezvous.count_unproved();
            return Err(NoService::Forbidden);
        }
        let place = Place {
            shard: self.shard,
            request: asked.id,
        };
        let guests = self.rendezvous.guests();
        if guests.is_some_and(|guests| !guests.may_register(now, asked.user, path.peer)) {
            return Err(NoService::Forbidden);
        }
        let inviter = guests.and_then(|guests| guests.inviting_peer(asked.user));
        let ticket =
            self.rendezvous
                .register(path.peer, asked.user, place, asked.connection, asked.remote)?;
        if let Some(peer) = inviter {
            self.rendezvous.tell_inviter(ticket, peer);
        }
        Ok(Box::new(Registered {
            rendezvous: self.rendezvous.clone(),
            ticket,
            reader: Reader::default(),
            leaving: Bytes::new(),
        }))
    }

    fn poll_wake(&mut self) -> Option<RequestId> {
        self.rendezvous.poll_news(self.shard)
    }
}

/// A peer that is there as long as its request.
#[derive(Debug)]
struct Registered {
    rendezvous: Rendezvous,
    ticket: Ticket,
    reader: Reader,
    /// The rest of a message that the stream had no room for.
    leaving: Bytes,
}

impl Registered {
    /// Writes what there is to tell.
    fn tell(&mut self, stream: &mut ServiceStream<'_>) {
        while stream.send(&mut self.leaving) {
            match self.rendezvous.next_message(self.ticket) {
                Ok(Some(message)) => self.leaving = message.encode(),
                Ok(None) => return,
                Err(_) => return stream.finish(),
            }
        }
    }
}

impl Service for Registered {
    fn handle_open(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        self.tell(stream);
    }

    fn handle_content(&mut self, now: Instant, content: &mut Bytes, stream: &mut ServiceStream<'_>) {
        loop {
            let may_go_on = match self.reader.next(content) {
                Ok(Some(message)) => self.rendezvous.take(now, self.ticket, message),
                Ok(None) => return self.tell(stream),
                Err(_) => false,
            };
            if !may_go_on {
                return stream.reset();
            }
        }
    }

    fn handle_writable(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        self.tell(stream);
    }

    fn handle_wake(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        self.tell(stream);
    }

    fn handle_remote_changed(&mut self, _: Instant, remote: SocketAddr, stream: &mut ServiceStream<'_>) {
        self.rendezvous.observe(self.ticket, remote);
        self.tell(stream);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.rendezvous.leave(self.ticket);
    }
}
