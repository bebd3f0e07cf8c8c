//! Orders on the sender's side: the places of messages in their channels, and the newest value of each key.

use std::collections::BTreeMap;

use super::{Entry, Sender, Stage};
use crate::delivery::{Delivery, DropReason, Order, Outcome, Reliability};
use crate::error::SendError;
use crate::frame::{Head, Place};
use crate::limits::{CHANNELS_MAX, KEYS_MAX};

#[derive(Debug, Default)]
pub(super) struct ChannelEnd {
    position: u64,
    /// Messages that have not left yet, and the priority of the last one.
    pub(super) waiting: usize,
    priority: u8,
    /// The highest position whose message is repeated on loss.
    repeated: u64,
}

impl Entry {
    /// Whether it counts in [`ChannelEnd::waiting`] of its channel.
    pub(super) fn waits_in_channel(&self) -> Option<u32> {
        let waits = !self.is_skip
            && self.number.is_none()
            && matches!(self.stage, Stage::Queued | Stage::WantsStream);
        match self.head {
            Head::Ordered(place) if waits => Some(place.channel),
            _ => None,
        }
    }
}

impl Sender {
    /// The place of a message in its order. A value that waits makes room for a newer one.
    pub(super) fn head(&mut self, delivery: Delivery, id: u64) -> Result<Head, SendError> {
        Ok(match delivery.order {
            Order::Unordered => Head::Unordered,
            Order::Ordered(channel) => {
                if !self.channels.contains_key(&channel) && self.channels.len() >= CHANNELS_MAX {
                    return Err(SendError::TooManyChannels);
                }
                let end = self.channels.entry(channel).or_default();
                end.position += 1;
                let distance = match end.repeated {
                    0 => 0,
                    repeated => end.position - repeated,
                };
                if delivery.reliability != Reliability::Unreliable {
                    end.repeated = end.position;
                }
                Head::Ordered(Place {
                    channel,
                    position: end.position,
                    distance,
                })
            }
            Order::Latest(key) => {
                if !self.latest.contains_key(&key) && self.latest.len() >= KEYS_MAX {
                    return Err(SendError::TooManyKeys);
                }
                let former = self.latest.get(&key).copied();
                if let Some((_, former)) = former
                    && let Some(entry) = self.entries.get(former)
                    && matches!(entry.stage, Stage::Queued | Stage::WantsStream)
                {
                    self.end(former, Outcome::Dropped(DropReason::Superseded));
                }
                let version = former.map_or(0, |(version, _)| version) + 1;
                self.latest.insert(key, (version, id));
                Head::Latest { key, version }
            }
        })
    }

    /// Messages of a channel leave in its order: later ones would use up the credit that the earlier ones need.
    pub(super) fn priority(&mut self, delivery: Delivery) -> u8 {
        let Order::Ordered(channel) = delivery.order else {
            return delivery.priority;
        };
        let end = self.channels.entry(channel).or_default();
        if end.waiting == 0 {
            end.priority = delivery.priority;
        }
        end.priority = end.priority.min(delivery.priority);
        end.priority
    }

    /// An entry of this channel leaves, or ends before it does.
    pub(super) fn leave(channels: &mut BTreeMap<u32, ChannelEnd>, channel: Option<u32>) {
        if let Some(end) = channel.and_then(|channel| channels.get_mut(&channel)) {
            end.waiting -= 1;
        }
    }
}
