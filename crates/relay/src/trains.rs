//! One received batch, arranged to be sent: what came as a train goes on as it is, and datagrams of one flow that came
//! one by one are put together. The order of each flow is kept.

use packet::{Ecn, Train, TrainLimits};
use packet_io::{Outgoing, ReceiveBatch};

use crate::limits::TRAIN_BYTES_MAX;

const LIMITS: TrainLimits = TrainLimits {
    segments: packet::TRAIN_SEGMENTS_MAX,
    bytes: TRAIN_BYTES_MAX,
};

/// What is sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    flow: usize,
    ecn: Ecn,
    body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// This message of the batch.
    Message(usize),
    /// This one of the trains.
    Train(usize),
}

/// See the module's text. Its memory is kept from batch to batch.
#[derive(Default)]
pub(crate) struct Trains {
    items: Vec<Item>,
    trains: Vec<Train>,
    trains_used: usize,
}

impl Trains {
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        let used = self.trains_used;
        self.trains[..used].iter_mut().for_each(Train::clear);
        self.trains_used = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds message `index` of `batch`, which belongs to `flow`.
    pub(crate) fn push(&mut self, flow: usize, batch: &ReceiveBatch, index: usize) {
        let received = batch.get(index);
        let ecn = received.meta.ecn;
        if received.meta.segments() > 1 {
            let body = Body::Message(index);
            self.items.push(Item { flow, ecn, body });
            return;
        }
        // Only the flow's last item may grow, or its order would change.
        let last = self.items.iter().rev().find(|item| item.flow == flow);
        if let Some(Item {
            body: Body::Train(train),
            ecn: of_train,
            ..
        }) = last
            && *of_train == ecn
            && self.trains[*train].push(received.payload, LIMITS).is_ok()
        {
            return;
        }
        if self.trains_used == self.trains.len() {
            self.trains.push(Train::default());
        }
        let train = self.trains_used;
        self.trains_used += 1;
        let pushed = self.trains[train].push(received.payload, LIMITS);
        debug_assert!(pushed.is_ok(), "an empty train takes any datagram");
        let body = Body::Train(train);
        self.items.push(Item { flow, ecn, body });
    }

    /// Everything in order: the flow, its datagrams and how many they are. Neither source nor destination is set.
    pub(crate) fn messages<'a>(
        &'a self,
        batch: &'a ReceiveBatch,
    ) -> impl Iterator<Item = (usize, Outgoing<'a>, u64)> {
        self.items.iter().map(|item| {
            let (payload, segment_size, count) = match item.body {
                Body::Message(index) => {
                    let received = batch.get(index);
                    (
                        received.payload,
                        received.meta.segment_size,
                        received.meta.segments(),
                    )
                }
                Body::Train(train) => {
                    let train = &self.trains[train];
                    (train.bytes(), train.segment_size(), train.len())
                }
            };
            let message = Outgoing {
                ecn: item.ecn,
                ..Outgoing::connected(payload, segment_size)
            };
            (item.flow, message, count as u64)
        })
    }
}

#[cfg(test)]
mod tests {
    use packet_io::{DatagramSocket, SocketOptions, UdpSocket};

    use super::*;

    /// What one batch of datagrams becomes: `(flow, bytes, segment size)`.
    fn arranged(datagrams: &[(usize, usize)]) -> Vec<(usize, usize, usize)> {
        let options = SocketOptions::default();
        let mut to = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let mut from = UdpSocket::connect(None, to.local_addr().unwrap(), &options).unwrap();
        let mut batch = ReceiveBatch::new(datagrams.len(), 2_000);
        for (_, bytes) in datagrams {
            from.send(&[Outgoing::connected(&vec![0; *bytes], 0)]).unwrap();
        }
        // On loopback a datagram is there when it was sent.
        assert_eq!(to.receive(&mut batch).unwrap(), datagrams.len());
        let mut trains = Trains::default();
        for (index, (flow, _)) in datagrams.iter().enumerate() {
            trains.push(*flow, &batch, index);
        }
        let messages = trains.messages(&batch);
        messages
            .map(|(flow, message, _)| (flow, message.payload.len(), message.segment_size))
            .collect()
    }

    #[test]
    fn lone_datagrams_of_a_flow_become_a_train() {
        assert_eq!(
            arranged(&[(1, 100), (1, 100), (1, 40), (1, 100)]),
            [(1, 240, 100), (1, 100, 100)]
        );
        assert_eq!(
            arranged(&[(1, 100), (2, 50), (1, 100), (2, 50)]),
            [(1, 200, 100), (2, 100, 50)]
        );
        assert_eq!(
            arranged(&[(1, 100), (1, 101), (1, 100)]),
            [(1, 100, 100), (1, 201, 101)]
        );
    }
}
