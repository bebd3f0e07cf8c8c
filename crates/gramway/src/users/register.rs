//! The users whom a running server knows, in memory: shards ask it, the keeper fills it.
//!
//! A user is found by the digest of its token, so that the time of a look-up tells nothing of tokens that exist.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use store::User as Kept;
use tunnel::config::{KnownUsers, SID_BYTES, UserKey};
use tunnel_proto::{Credentials, Grant, ListenRights, Reach, Rights, User, UserId, UserLimits, UserSnapshot};

use super::{amounts, exclusion_of, rights_of, unix_now};

/// SHA-256 of a token's text.
pub(super) fn token_digest(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

/// A user whom the server knows.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) kept: Kept,
    /// The account that shards count in.
    pub(super) account: User,
    /// Bytes used within the period of the quota, or in all.
    pub(super) used: u64,
}

impl Member {
    /// Says in the account whether the user may do anything at present, and how fast.
    pub(super) fn judge(&self, now: u64) {
        self.account.exclude(exclusion_of(&self.kept, self.used, now));
        self.account.set_rate(self.kept.bits_per_second);
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Register {
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    members: BTreeMap<UserId, Member>,
    /// Of removed users as well, whose end is told yet.
    names: BTreeMap<UserId, String>,
    by_token: HashMap<[u8; 32], UserId>,
    keys: HashMap<[u8; SID_BYTES], UserKey>,
}

impl Register {
    /// These and no others from here on.
    pub(super) fn replace(&self, members: BTreeMap<UserId, Member>) {
        let by_token = members
            .iter()
            .map(|(id, member)| (member.kept.token_digest, *id))
            .collect();
        let keys = members.values().map(|member| {
            let key = UserKey::from_bytes(&member.kept.front_door_key);
            (key.sid, key)
        });
        let keys = keys.collect();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let names = members.iter().map(|(id, member)| (*id, member.kept.name.clone()));
        table.names.extend(names);
        (table.keys, table.by_token, table.members) = (keys, by_token, members);
    }

    /// What they have used at present.
    pub(super) fn set_used(&self, used: impl Iterator<Item = (UserId, u64)>) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for (id, used) in used {
            if let Some(member) = table.members.get_mut(&id) {
                member.used = used;
            }
        }
    }

    /// What a user is called whom the store does not know.
    pub(super) fn call(&self, id: UserId, name: &str) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.names.insert(id, name.to_owned());
    }

    /// Forgets what such a user is called.
    pub(super) fn forget(&self, id: Option<UserId>) {
        if let Some(id) = id {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            table.names.remove(&id);
        }
    }

    /// What people call a user.
    pub(crate) fn name(&self, id: UserId) -> String {
        let table = self.table();
        table.names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Adds to the counters of users what the store knows, and the users who were never here.
    pub(crate) fn complete(&self, users: &mut serde_json::Map<String, Value>) {
        let table = self.table();
        for (id, name) in &table.names {
            if let Some(Value::Object(user)) = users.get_mut(&id.to_string()) {
                user.insert("name".to_owned(), json!(name));
            }
        }
        for (id, member) in &table.members {
            let never_here = || json!(UserSnapshot::default());
            let user = users.entry(id.to_string()).or_insert_with(never_here);
            if let (Some(user), Value::Object(known)) =
                (user.as_object_mut(), describe(&member.kept, member.used))
            {
                user.extend(known);
            }
        }
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the store knows of a user who has used so many bytes, without secrets; for programs.
pub(crate) fn describe(user: &Kept, used: u64) -> Value {
    let rights: Vec<_> = rights_of(user.rights)
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect();
    json!({
        "name": user.name,
        "used_bytes": used,
        "quota_bytes": user.quota.map(|quota| quota.bytes),
        "quota_period": user.quota.map(|quota| quota.period.name()),
        "bits_per_second": user.bits_per_second,
        "expires": user.expires.map(amounts::time_text),
        "rights": rights,
        "reach": user.reach,
        "listen": user.listen,
        "excluded": exclusion_of(user, used, unix_now()).map(|exclusion| exclusion.reason()),
    })
}

/// What a user may reach. A word that is no network opens nothing.
fn reach_of(user: &Kept) -> Reach {
    if user.reach.is_empty() {
        return Reach::default();
    }
    let networks = user.reach.iter();
    Reach::only(networks.filter_map(|network| network.parse().ok()).collect())
}

/// Where a user may listen. A word that is no range opens nothing.
fn listen_rights_of(user: &Kept) -> ListenRights {
    let ranges = user.listen.iter();
    ListenRights::only(ranges.filter_map(|range| range.parse().ok()).collect())
}

impl KnownUsers for Register {
    fn grant(&self, credentials: &Credentials<'_>) -> Option<Grant> {
        let Credentials::Token(text) = credentials else {
            return None;
        };
        let table = self.table();
        let member = table.members.get(table.by_token.get(&token_digest(text))?)?;
        let rights = member.kept.rights;
        Some(Grant {
            user: member.account.clone(),
            rights: Rights {
                udp: rights.udp,
                tcp: rights.tcp,
                ip: rights.ip,
                services: true,
            },
            reach: reach_of(&member.kept),
            listen: listen_rights_of(&member.kept),
            limits: UserLimits::default(),
        })
    }

    fn key(&self, sid: &[u8; SID_BYTES]) -> Option<UserKey> {
        self.table().keys.get(sid).cloned()
    }
}

impl fmt::Debug for Register {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Register")
    }
}
