//! What the two processes of an upgrade, perhaps of different versions, tell each other: JSON, whose keys only ever
//! become more.

use serde_json::{Value, json};

/// The version of what is offered. A process that knows only older ones refuses.
const PROTOCOL: u64 = 1;

/// What the running process offers. The descriptors with it: the state directory's lock, the way to the launcher, for
/// each shard its socket and the way back, the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Which generation offers.
    pub(super) predecessor: u8,
    pub(super) shards: usize,
    pub(super) listeners: usize,
}

impl Offer {
    pub(super) fn encode(self) -> Vec<u8> {
        let Self {
            predecessor,
            shards,
            listeners,
        } = self;
        json!({ "protocol": PROTOCOL, "predecessor": predecessor, "shards": shards, "listeners": listeners })
            .to_string()
            .into_bytes()
    }

    /// # Errors
    /// Why it cannot be used.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let offer: Value = serde_json::from_slice(bytes).map_err(|_| "what was offered is no JSON")?;
        match offer["protocol"].as_u64() {
            Some(PROTOCOL) => {}
            Some(other) => {
                return Err(format!(
                    "the running program offers its sockets by version {other} of the protocol, and this one knows \
                     version {PROTOCOL}; restart the server"
                ));
            }
            None => return Err("what was offered names no protocol".to_owned()),
        }
        let count = |key: &str| offer[key].as_u64().and_then(|count| usize::try_from(count).ok());
        let predecessor = count("predecessor").and_then(|number| u8::try_from(number).ok());
        match (predecessor, count("shards"), count("listeners")) {
            (Some(predecessor), Some(shards), Some(listeners)) if shards > 0 => Ok(Self {
                predecessor,
                shards,
                listeners,
            }),
            _ => Err("what was offered is incomplete".to_owned()),
        }
    }

    /// How many descriptors come with it.
    pub(super) fn descriptors(self) -> Option<usize> {
        2_usize
            .checked_add(self.shards.checked_mul(2)?)?
            .checked_add(self.listeners)
    }
}

/// What the new process answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is ready to serve, and waits for [`go`].
    Ready,
    /// It ends, and why.
    Failed(String),
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let answer = match self {
            Self::Ready => json!({ "ready": true }),
            Self::Failed(why) => json!({ "failed": why }),
        };
        answer.to_string().into_bytes()
    }

    /// # Errors
    /// It is no answer, in words.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let answer: Value = serde_json::from_slice(bytes).map_err(|_| "its answer is no JSON")?;
        if answer["ready"] == true {
            return Ok(Self::Ready);
        }
        let why = answer["failed"].as_str().ok_or("its answer is not known")?;
        Ok(Self::Failed(why.to_owned()))
    }
}

/// The running process's last word: the sockets are the new one's.
pub(super) fn go() -> Vec<u8> {
    json!({ "go": true }).to_string().into_bytes()
}

pub(super) fn is_go(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Value>(bytes).is_ok_and(|message| message["go"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_anything_else_is_refused_in_words() {
        let offer = Offer {
            predecessor: 15,
            shards: 2,
            listeners: 1,
        };
        assert_eq!(Offer::decode(&offer.encode()), Ok(offer));
        assert_eq!(offer.descriptors(), Some(7));
        for (text, part) in [
            ("{\"protocol\":2}", "version 2 of the protocol"),
            ("{}", "no protocol"),
            ("x", "no JSON"),
            (
                "{\"protocol\":1,\"predecessor\":1,\"shards\":0,\"listeners\":0}",
                "incomplete",
            ),
            (
                "{\"protocol\":1,\"predecessor\":256,\"shards\":1,\"listeners\":0}",
                "incomplete",
            ),
        ] {
            let refusal = Offer::decode(text.as_bytes()).unwrap_err();
            assert!(refusal.contains(part), "{text}: {refusal}");
        }
        for answer in [Answer::Ready, Answer::Failed("no room".to_owned())] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        assert!(Answer::decode(b"{}").is_err() && Answer::decode(b"x").is_err());
        assert!(is_go(&go()) && !is_go(b"{}") && !is_go(b"x"));
    }
}
