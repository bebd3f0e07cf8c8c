//! Clients of one name that run at the same time, because a state directory was copied (specs/ip-session.md, SESSION-14).
//!
//! A new run ends the sessions of the one before, which is dead as a rule (SESSION-6). If that one asks again, both live,
//! and would take the addresses from each other for ever. Then the older one has them back, and the newer one goes by a
//! name of its own from there on.

use std::collections::HashMap;

use super::ClientIdentity;
use crate::engine::Owner;
use crate::limits;

/// By which name a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Who holds the session's lease.
    pub owner: Owner,
    /// It was found just now that two use the name.
    pub is_news: bool,
    /// Another client asked by the name of this one, which keeps it.
    pub is_shared: bool,
}

/// The runs of named clients.
#[derive(Debug, Default)]
pub struct Runs {
    by_client: HashMap<ClientIdentity, Seen>,
}

#[derive(Debug)]
struct Seen {
    present: u32,
    /// The run whose sessions the present one ended.
    former: Option<u32>,
    /// The run that took the name back from a copy.
    returned: Option<u32>,
    /// Runs that go by names of their own, the latest last.
    copies: Vec<u32>,
}

impl Runs {
    /// A session of `owner` begins.
    pub fn judge(&mut self, owner: Owner) -> Judged {
        let unchanged = Judged {
            owner,
            is_news: false,
            is_shared: false,
        };
        let (ClientIdentity::Named(user, name), Some(run)) = (owner.client, owner.run) else {
            return unchanged;
        };
        if self.by_client.len() >= limits::LEASES_MAX && !self.by_client.contains_key(&owner.client) {
            // Who shares a name is found again.
            self.by_client.clear();
        }
        let seen = self.by_client.entry(owner.client).or_insert(Seen {
            present: run,
            former: None,
            returned: None,
            copies: Vec::new(),
        });
        if seen.copies.contains(&run) {
            let client = ClientIdentity::Named(user, name_of_copy(name, run));
            let owner = Owner { client, ..owner };
            return Judged { owner, ..unchanged };
        }
        if seen.present == run {
            let is_shared = seen.returned == Some(run);
            return Judged {
                is_shared,
                ..unchanged
            };
        }
        let before = std::mem::replace(&mut seen.present, run);
        let is_news = seen.former.replace(before) == Some(run);
        if is_news {
            seen.former = None;
            seen.returned = Some(run);
            if seen.copies.len() >= limits::NAME_COPIES_MAX {
                seen.copies.remove(0);
            }
            seen.copies.push(before);
        }
        Judged {
            owner,
            is_news,
            is_shared: is_news,
        }
    }
}

/// Another name for each run, the same each time.
fn name_of_copy(mut name: [u8; 16], run: u32) -> [u8; 16] {
    // Never the name itself, whatever the run.
    name[0] ^= 0x80;
    for (byte, other) in name[1..].iter_mut().zip(run.to_be_bytes()) {
        *byte ^= other;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::UserId;

    fn owner(run: u32) -> Owner {
        Owner {
            client: ClientIdentity::Named(UserId::OWNER, [7; 16]),
            run: Some(run),
        }
    }

    fn keeps_name(run: u32) -> Judged {
        Judged {
            owner: owner(run),
            is_news: false,
            is_shared: false,
        }
    }

    /// SESSION-6: a client that is started again and again is one client.
    #[test]
    fn runs_that_follow_each_other_keep_the_name() {
        let mut runs = Runs::default();
        for run in [1, 1, 2, 2, 3, 4] {
            assert_eq!(runs.judge(owner(run)), keeps_name(run));
        }
    }

    /// SESSION-14, SESSION-15.
    #[test]
    fn of_two_that_live_the_older_one_keeps_the_name_and_the_newer_one_has_its_own_for_good() {
        let mut runs = Runs::default();
        runs.judge(owner(1));
        runs.judge(owner(2));
        let shared = Judged {
            is_shared: true,
            ..keeps_name(1)
        };
        let found = Judged {
            is_news: true,
            ..shared
        };
        assert_eq!(runs.judge(owner(1)), found);
        let own = runs.judge(owner(2));
        assert!(
            !own.is_news && !own.is_shared && own.owner.client != owner(2).client,
            "{own:?}"
        );
        assert_eq!(own.owner.run, Some(2));
        for _ in 0..2 {
            assert_eq!(runs.judge(owner(2)), own);
            assert_eq!(runs.judge(owner(1)), shared);
        }
        // The first is started again: it hears nothing of a copy that may be gone. Then a third one comes.
        assert_eq!(runs.judge(owner(3)), keeps_name(3));
        assert!(!runs.judge(owner(4)).is_news && runs.judge(owner(3)).is_news);
        let third = runs.judge(owner(4)).owner.client;
        assert!(third != own.owner.client && third != owner(4).client);
        assert_eq!(runs.judge(owner(2)), own);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut runs = Runs::default();
        for run in 0..2 * limits::NAME_COPIES_MAX as u32 {
            runs.judge(owner(0));
            runs.judge(owner(run + 1));
            runs.judge(owner(0));
        }
        let seen = &runs.by_client[&owner(0).client];
        assert!(seen.copies.len() <= limits::NAME_COPIES_MAX, "{seen:?}");
        for number in 0..=limits::LEASES_MAX as u64 {
            let name = u128::from(number).to_be_bytes();
            let client = ClientIdentity::Named(UserId::OWNER, name);
            runs.judge(Owner { client, run: Some(1) });
        }
        assert!(runs.by_client.len() <= limits::LEASES_MAX);
    }
}
