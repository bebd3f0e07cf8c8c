//! What a rendezvous and its peers say to each other, and the path of a registration: the same is read however the
//! content is cut, what is read is read back alike after it was written, and an unfinished message stays short.

use std::net::SocketAddr;

use tunnel_proto::rendezvous::{Message, Reason, RegistrationPath};

/// The path of a registration; or a byte for the length of the pieces, and the content.
pub fn run(data: &[u8]) {
    tunnel_proto::fuzzing::rendezvous_path(data);
    tunnel_proto::fuzzing::rendezvous_message(data);
}

/// All messages in pieces of several lengths, each by itself, and a path.
pub fn seeds() -> Vec<Vec<u8>> {
    let (peer, transaction, key) = ([1; 32], [5; 12], [6; 16]);
    let addresses: Vec<SocketAddr> = vec![
        SocketAddr::from(([192, 0, 2, 1], 4_000)),
        SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 4_001)),
    ];
    let relayed = Some(SocketAddr::from(([0x100, 0, 0, 0, 0, 0, 0, 7], 1)));
    let messages = [
        Message::Observed(addresses[0]),
        Message::Addresses(addresses.clone()),
        Message::Call {
            callee: peer,
            transaction,
            key,
        },
        Message::Called {
            caller: peer,
            transaction,
            key,
            addresses: addresses.clone(),
            relayed,
        },
        Message::Answer {
            caller: peer,
            transaction,
        },
        Message::Answered {
            callee: peer,
            transaction,
            addresses,
            relayed,
        },
        Message::Unreachable {
            transaction,
            reason: Reason::Busy,
        },
        Message::Invite,
        Message::Invited { number: Some(99_999) },
        Message::Find { number: 1_000 },
        Message::Found { peer: Some(peer) },
    ];
    let encoded: Vec<Vec<u8>> = messages.iter().map(|message| message.encode().to_vec()).collect();
    let all = encoded.concat();
    let mut seeds: Vec<Vec<u8>> = [1, 3, 255].map(|piece| [&[piece], &all[..]].concat()).to_vec();
    seeds.extend(encoded.iter().map(|message| [&[9], &message[..]].concat()));
    let signature = [7; 64];
    seeds.push(RegistrationPath { peer, signature }.to_string().into_bytes());
    seeds
}
