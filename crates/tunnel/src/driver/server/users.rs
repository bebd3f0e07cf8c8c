//! Who may use a server: its owner, by the link of the first start, and the users whom the program knows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use reality::credentials::{SID_BYTES, UserKey, Users};
use tunnel_proto::rendezvous::Guests;
use tunnel_proto::{Answer, AuthorizationId, Authorizer, Credentials, Decision, SoleOwner, Token};

use crate::config::KnownUsers;
use crate::hook::{AuthenticationHook, Replies};

/// One shard's authorizer; a clone is for another.
#[derive(Clone)]
pub(super) struct OwnerAndUsers {
    owner: SoleOwner,
    users: Option<Arc<dyn KnownUsers>>,
    guests: Option<Guests>,
    /// Who decides on everybody else, and the way of its answers to this shard.
    hook: Option<(Arc<dyn AuthenticationHook>, Replies)>,
}

impl OwnerAndUsers {
    pub(super) fn new(tokens: Vec<Token>, users: Option<Arc<dyn KnownUsers>>) -> Self {
        Self {
            owner: SoleOwner::new(tokens),
            users,
            guests: None,
            hook: None,
        }
    }

    /// Lets in guests of users, too.
    pub(super) fn with_guests(self, guests: Option<Guests>) -> Self {
        Self { guests, ..self }
    }

    /// One shard's, which asks a hook besides.
    pub(super) fn with_hook(self, hook: Arc<dyn AuthenticationHook>, replies: Replies) -> Self {
        Self {
            hook: Some((hook, replies)),
            ..self
        }
    }
}

impl Authorizer for OwnerAndUsers {
    fn authorize(
        &mut self,
        now: Instant,
        id: AuthorizationId,
        credentials: &Credentials<'_>,
        remote: SocketAddr,
    ) -> Answer {
        let answer = self.owner.authorize(now, id, credentials, remote);
        if matches!(answer, Answer::Now(Decision::Granted(_))) {
            return answer;
        }
        if let Some(grant) = self.users.as_ref().and_then(|users| users.grant(credentials)) {
            return Answer::Now(Decision::Granted(grant));
        }
        let guests = self.guests.as_ref();
        if let Some(decision) = guests.and_then(|guests| guests.authorize(now, credentials, remote)) {
            return Answer::Now(decision);
        }
        // Of what is derived from a token nobody elsewhere has heard.
        match (&self.hook, credentials) {
            (Some((hook, replies)), Credentials::Token(token)) => {
                hook.ask(replies.question(id, token, remote));
                Answer::Later
            }
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
