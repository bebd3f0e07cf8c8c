//! The response field `gramway-shard`: which shard of the server answers, so that a client with several connections can
//! spread them over shards. An Item of RFC 8941 section 3.3: an integer with the parameter `of`, `1;of=2`.

use crate::HeaderList;

const FIELD: &str = "gramway-shard";

/// One shard of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerShard {
    /// Its number, below `count`.
    pub index: u8,
    /// Shards of the server, at least 1.
    pub count: u8,
}

impl ServerShard {
    /// Adds the field to a response.
    pub fn push_to(self, list: &mut HeaderList) {
        list.push(FIELD, format!("{};of={}", self.index, self.count));
    }

    /// What a response says; `None` where it says nothing, or what cannot be.
    #[must_use]
    pub fn of(list: &HeaderList) -> Option<Self> {
        let (index, rest) = std::str::from_utf8(list.only(FIELD)?).ok()?.split_once(';')?;
        let shard = Self {
            index: number(index)?,
            count: number(rest.trim_start_matches(' ').strip_prefix("of=")?)?,
        };
        (shard.index < shard.count).then_some(shard)
    }
}

fn number(digits: &str) -> Option<u8> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_survives_its_field() {
        let shard = ServerShard { index: 1, count: 16 };
        let mut list = HeaderList::new().with(":status", "502");
        assert_eq!(ServerShard::of(&list), None);
        shard.push_to(&mut list);
        assert_eq!(ServerShard::of(&list), Some(shard));
    }

    /// SESSION-10.
    #[test]
    fn what_cannot_be_is_no_shard() {
        for value in [
            "",
            "1",
            "1;of=",
            ";of=2",
            "2;of=2",
            "0;of=0",
            "+0;of=2",
            "0;of=+2",
            "0;of=256",
            "-1;of=2",
            "0;to=2",
            "0;of=2;of=3",
            "\u{e9};of=2",
        ] {
            let list = HeaderList::new().with(":status", "200").with(FIELD, value);
            assert_eq!(ServerShard::of(&list), None, "{value}");
        }
    }
}
