//! What each kind of request does in its own way, as the engine asks it.
//!
//! Datagrams do not come this way: `egress.rs` and `ingress.rs` tell kinds apart themselves, where a call through a table
//! would cost every packet.

use std::collections::VecDeque;

use bytes::Bytes;
use masque::response::{self, ProxyError};
use masque::{HeaderList, MessageError, Target};

use super::{ClientAction, Ending};

/// What a client says of itself and its server in every request.
pub(crate) struct Asker<'a> {
    /// The server as requests name it.
    pub(crate) authority: &'a str,
    /// What we show.
    pub(crate) bearer: &'a str,
    /// Where the request leads, where it leads to a target.
    pub(crate) target: Option<&'a Target>,
}

/// One kind of request.
pub(crate) trait Handler {
    /// Client: the headers that ask for it; `None` where there is nothing to ask for.
    fn ask(&self, _: &Asker<'_>) -> Option<HeaderList> {
        None
    }

    /// Client: it is of no use where the server takes no HTTP Datagrams.
    fn needs_datagrams(&self) -> bool {
        false
    }

    /// Client: the server has accepted it. What follows at once goes to `output`, framed.
    fn accepted(&mut self, _answer: &HeaderList, _output: &mut VecDeque<Bytes>) {}

    /// Client: what the driver hears where the server refuses it, besides its end.
    fn refusal(&self, _status: u16, _error: Option<ProxyError>) -> Option<ClientAction> {
        None
    }

    /// Server: the answer that accepts it.
    fn accept(&mut self) -> HeaderList {
        response::response(200)
    }

    /// Whether the driver reads its content, with [`super::Engine::read_body`], and not the engine.
    fn is_read_by_driver(&self) -> bool {
        false
    }

    /// Whether more content may be read at present.
    fn takes_content(&self) -> bool {
        true
    }

    /// The peer has ended its side: whether it may end here.
    fn check_end(&self) -> Result<(), MessageError> {
        Ok(())
    }

    /// Whether the driver knows of it and hears of its end.
    fn is_of_driver(&self) -> bool;

    /// It has ended, and not because the driver said so.
    fn ended(&mut self, _ending: &Ending) {}
}

/// Server: a request whose headers have not been judged.
#[derive(Debug)]
pub(crate) struct Undecided;

impl Handler for Undecided {
    fn is_of_driver(&self) -> bool {
        false
    }
}
