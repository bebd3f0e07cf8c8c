//! What may reach QUIC of a handshake that was taken over (QR1-22).
//!
//! The keys of Initial packets are public, so that whoever sees a handshake can forge some, and each QUIC
//! implementation answers bad ones in its own way. A guard opens a copy of each Initial and lets through what a client
//! of ours may send: its hello again, acknowledgements of what was sent to it, PING and PADDING. Nobody can forge
//! Handshake and 1-RTT packets.

use crate::frames::{Frame, frames};
use crate::hello_assembly::HelloAssembly;
use crate::initial::{InitialKeys, Opened, Sender};
use crate::long_header::{Kind, LongPacket, Part, parts};

/// The filter of one handshake.
#[derive(Debug)]
pub struct Guard {
    keys: InitialKeys,
    hello: Vec<u8>,
    /// The highest packet number that came and was let through.
    largest: Option<u64>,
    /// The highest packet number that was sent.
    sent: Option<u64>,
    space: Vec<u8>,
}

impl Guard {
    /// For the handshake that begins with this hello, whose datagrams QUIC gets unfiltered: the assembly took nothing
    /// else.
    #[must_use]
    pub fn new(hello: HelloAssembly) -> Self {
        let (keys, hello, largest) = hello.into_parts();
        Self {
            keys,
            hello,
            largest,
            sent: None,
            space: Vec::new(),
        }
    }

    /// Takes note of a datagram that leaves towards the client. Without it no acknowledgement passes.
    pub fn handle_sent(&mut self, datagram: &[u8]) {
        for part in parts(datagram) {
            if let Part::Long(packet) = part {
                let number = self
                    .keys
                    .number(Sender::Server, &packet, self.sent, &mut self.space);
                self.sent = self.sent.max(number);
            }
        }
    }

    /// Whether QUIC may read a datagram of the client.
    #[must_use]
    pub fn passes(&mut self, datagram: &[u8]) -> bool {
        let before = self.largest;
        let passes = parts(datagram).all(|part| match part {
            Part::Long(packet) => match packet.kind {
                Kind::Initial => self.initial_passes(&packet).is_some(),
                Kind::Handshake => true,
                Kind::ZeroRtt | Kind::Retry => false,
            },
            Part::Short(_) => true,
            Part::Unreadable(_) => false,
        });
        if !passes {
            // QUIC does not hear of it either.
            self.largest = before;
        }
        passes
    }

    fn initial_passes(&mut self, packet: &LongPacket<'_>) -> Option<()> {
        if !packet.token.is_empty() {
            return None;
        }
        let Opened { number, payload } =
            self.keys
                .open(Sender::Client, packet, self.largest, &mut self.space)?;
        let is_allowed = |frame| match frame {
            Ok(Frame::Padding | Frame::Ping) => true,
            Ok(Frame::Ack { largest }) => self.sent.is_some_and(|sent| largest <= sent),
            Ok(Frame::Crypto { offset, data }) => {
                let known = usize::try_from(offset)
                    .ok()
                    .and_then(|offset| self.hello.get(offset..));
                known.is_some_and(|known| known.starts_with(data))
            }
            Err(_) => false,
        };
        if payload.is_empty() || !frames(payload).all(is_allowed) {
            return None;
        }
        self.largest = self.largest.max(Some(number));
        Some(())
    }
}

#[cfg(test)]
mod tests;
