//! The client's end of a registration: what it says and hears.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::message::{Message, Reader};
use crate::engine::{Service, ServiceStream};
use crate::limits::RENDEZVOUS_WAITING_MAX;

/// A client's registration, for [`crate::Engine::open_service`]. What its owner changes takes effect with
/// [`crate::Engine::wake_service`].
#[derive(Debug, Default)]
pub struct Membership {
    reader: Reader,
    outgoing: VecDeque<Message>,
    leaving: Bytes,
    incoming: VecDeque<Message>,
}

impl Membership {
    /// Says something to the server. Whether there was room.
    pub fn say(&mut self, message: Message) -> bool {
        let has_room = self.outgoing.len() < RENDEZVOUS_WAITING_MAX;
        if has_room {
            self.outgoing.push_back(message);
        }
        has_room
    }

    /// What the server has said next.
    pub fn hear(&mut self) -> Option<Message> {
        self.incoming.pop_front()
    }
}

impl Service for Membership {
    fn handle_open(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        self.tell(stream);
    }

    fn handle_content(&mut self, _: Instant, content: &mut Bytes, stream: &mut ServiceStream<'_>) {
        self.read(content, stream);
    }

    fn handle_writable(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        self.tell(stream);
    }

    fn handle_wake(&mut self, _: Instant, stream: &mut ServiceStream<'_>) {
        self.read(&mut Bytes::new(), stream);
        self.tell(stream);
    }
}

impl Membership {
    fn read(&mut self, content: &mut Bytes, stream: &mut ServiceStream<'_>) {
        // A server that says more at once waits until its messages were heard, and nothing is read meanwhile.
        while self.incoming.len() < RENDEZVOUS_WAITING_MAX {
            match self.reader.next(content) {
                Ok(Some(message)) => self.incoming.push_back(message),
                Ok(None) => return,
                Err(_) => return stream.reset(),
            }
        }
    }

    fn tell(&mut self, stream: &mut ServiceStream<'_>) {
        while stream.send(&mut self.leaving) {
            let Some(message) = self.outgoing.pop_front() else {
                return;
            };
            self.leaving = message.encode();
        }
    }
}
