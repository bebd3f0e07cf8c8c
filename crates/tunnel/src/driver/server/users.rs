//! Who may use a server: its owner, by the link of the first start, and the users whom the program knows.

use std::sync::Arc;
use std::time::Instant;

use reality::credentials::{SID_BYTES, UserKey, Users};
use tunnel_proto::{Answer, AuthorizationId, Authorizer, Credentials, Decision, SoleOwner, Token};

use crate::config::KnownUsers;

/// One shard's authorizer; a clone is for another.
#[derive(Clone)]
pub(super) struct OwnerAndUsers {
    owner: SoleOwner,
    users: Option<Arc<dyn KnownUsers>>,
}

impl OwnerAndUsers {
    pub(super) fn new(tokens: Vec<Token>, users: Option<Arc<dyn KnownUsers>>) -> Self {
        Self {
            owner: SoleOwner::new(tokens),
            users,
        }
    }
}

impl Authorizer for OwnerAndUsers {
    fn authorize(&mut self, now: Instant, id: AuthorizationId, credentials: &Credentials<'_>) -> Answer {
        let answer = self.owner.authorize(now, id, credentials);
        match (&answer, &self.users) {
            (Answer::Now(Decision::Refused), Some(users)) => users
                .grant(credentials)
                .map_or(answer, |grant| Answer::Now(Decision::Granted(grant))),
            _ => answer,
        }
    }
}

/// Whose hellos the front door knows.
pub(super) struct FrontDoorUsers {
    owner: UserKey,
    users: Option<Arc<dyn KnownUsers>>,
}

impl FrontDoorUsers {
    pub(super) fn new(owner: UserKey, users: Option<Arc<dyn KnownUsers>>) -> Self {
        Self { owner, users }
    }
}

impl Users for FrontDoorUsers {
    fn user(&self, sid: &[u8; SID_BYTES]) -> Option<UserKey> {
        let owner = self.owner.user(sid);
        owner.or_else(|| self.users.as_ref()?.key(sid))
    }
}
