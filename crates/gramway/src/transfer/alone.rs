//! One `gramway receive` of a code at a time on this machine: two would have the same key, and each would keep the
//! other one from the sender.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use peer::PeerId;

use crate::exit::Problem;

/// The only one with a key, as long as it lives, however it ends.
pub(super) struct Alone {
    /// Its name is taken; nothing is ever sent to it.
    _socket: Option<UnixDatagram>,
}

impl Alone {
    /// Of whoever receives with the key of this ID.
    ///
    /// # Errors
    /// Another one runs.
    pub(super) fn new(own: PeerId) -> Result<Self, Problem> {
        // Names of this kind are no files, and each network has its own.
        let address = SocketAddr::from_abstract_name(format!("gramway receive {own}"));
        match address.and_then(|address| UnixDatagram::bind_addr(&address)) {
            Ok(socket) => Ok(Self {
                _socket: Some(socket),
            }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Problem::unavailable(
                "another receive with this code runs on this machine: wait for its end, or end it and run this one again",
            )),
            // Then nobody looks.
            Err(_) => Ok(Self { _socket: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use peer::SecretKey;

    use super::*;

    #[test]
    fn there_is_one_at_a_time_with_a_key() {
        let key = || SecretKey::generate().unwrap().id();
        let (one, other) = (key(), key());
        let first = Alone::new(one).unwrap();
        let told = Alone::new(one).err().unwrap().to_string();
        assert!(told.starts_with("another receive with this code"), "{told}");
        Alone::new(other).unwrap();
        drop(first);
        Alone::new(one).unwrap();
    }
}
