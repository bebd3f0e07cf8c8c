//! Leases as a server's state keeps them over restarts.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{ClientIdentity, Entry, Lease, Leases};
use crate::access::UserId;
use crate::limits;

/// One lease as the server's state keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLease {
    /// The user's name in hexadecimal digits; none for the owner.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<String>,
    /// The client's name in hexadecimal digits.
    pub client: String,
    /// Its IPv4 address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub v6: Option<Ipv6Addr>,
}

/// Sixteen bytes in hexadecimal digits.
fn sixteen_bytes(text: &str) -> Option<[u8; 16]> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

impl Leases {
    /// Takes up what [`Leases::stored`] gave, longest free first; what the pools do not offer any more is forgotten.
    pub fn restore(&mut self, stored: impl IntoIterator<Item = StoredLease>) {
        for one in stored.into_iter().take(limits::LEASES_MAX) {
            let user = one
                .user
                .as_deref()
                .map_or(Some(UserId::OWNER.0), sixteen_bytes)
                .map(UserId);
            let client = user
                .zip(sixteen_bytes(&one.client))
                .map(|(user, name)| ClientIdentity::Named(user, name));
            let Some(client) = client.filter(|client| !self.entries.contains_key(client)) else {
                continue;
            };
            let lease = Lease {
                v4: one.v4.filter(|address| self.v4.take_this(*address)),
                v6: one.v6.filter(|address| self.v6.take_this(*address)),
            };
            if lease == Lease::default() {
                continue;
            }
            self.order += 1;
            self.free.insert((self.order, client));
            let entry = Entry {
                lease,
                holders: 0,
                freed: self.order,
            };
            self.insert(client, entry);
        }
    }

    /// What should outlive the process, longest free first, those that are held last.
    #[must_use]
    pub fn stored(&self) -> Vec<StoredLease> {
        let mut named: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(client, entry)| match client {
                ClientIdentity::Named(user, name) => {
                    Some((entry.holders > 0, entry.freed, (*user, *name), entry.lease))
                }
                ClientIdentity::Nameless(..) => None,
            })
            .collect();
        named.sort_unstable_by_key(|(is_held, freed, client, _)| (*is_held, *freed, *client));
        named
            .into_iter()
            .map(|(_, _, (user, name), lease)| StoredLease {
                user: (user != UserId::OWNER).then(|| data_encoding::HEXLOWER.encode(&user.0)),
                client: data_encoding::HEXLOWER.encode(&name),
                v4: lease.v4,
                v6: lease.v6,
            })
            .collect()
    }
}
