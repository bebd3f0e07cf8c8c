//! What test programs share.

use peer::blocking::wait;
use peer::{Endpoint, Peer, SecretKey};

/// Two ends of a connection: of the sender, and of the receiver. The endpoints live as long as they do.
pub(crate) fn pair() -> (Peer, Peer) {
    let bind = || Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (sender, receiver) = (bind(), bind());
    let to_sender = wait(receiver.connect(sender.id(), &[sender.local_addr()])).unwrap();
    let to_receiver = wait(sender.accept()).unwrap();
    (to_receiver, to_sender)
}
