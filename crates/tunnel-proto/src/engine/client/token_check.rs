//! The token check: the first request on every connection of a client.
//!
//! It asks for a target that every server refuses after it has looked at the token: the answer is 401 for a wrong one, and
//! anything else for a good one.

use masque::{HeaderList, Target, request as request_headers};

use crate::engine::handler::{Asker, Handler};

const HOST: &str = "0.0.0.0";
const PORT: u16 = 9;

/// A CONNECT-UDP request without datagrams, no session.
#[derive(Debug)]
pub(crate) struct TokenCheck;

impl Handler for TokenCheck {
    fn ask(&self, asker: &Asker<'_>) -> Option<HeaderList> {
        let target = Target::new(HOST, PORT).expect("an address and a port");
        let list = request_headers::connect_udp(asker.authority, &target, asker.bearer, None);
        Some(list)
    }

    fn needs_datagrams(&self) -> bool {
        true
    }

    fn is_of_driver(&self) -> bool {
        false
    }
}
