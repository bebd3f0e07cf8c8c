//! A UDP session that moves to another connection has two streams for a while: the one that the driver's request sends on,
//! and the other one, which is a request of this kind. Before the move it asks for the session on the new connection;
//! afterwards it takes what still arrives on the former one.

use std::collections::VecDeque;

use bytes::Bytes;
use masque::{HeaderList, MessageError};

use crate::engine::handler::{Asker, Handler};
use crate::engine::request::RequestId;
use crate::engine::udp::UdpSession;

/// The other stream of a session that moves.
#[derive(Debug)]
pub(crate) struct MovedSession {
    pub(crate) session: UdpSession,
    /// The request that the driver knows.
    pub(crate) of: RequestId,
}

impl Handler for MovedSession {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        self.session.ask(asker)
    }

    fn needs_datagrams(&self) -> bool {
        true
    }

    fn accepted(&mut self, answer: &HeaderList, output: &mut VecDeque<Bytes>) {
        self.session.accepted(answer, output);
    }

    fn check_end(&self) -> Result<(), MessageError> {
        self.session.check_end()
    }

    fn is_of_driver(&self) -> bool {
        false
    }
}
