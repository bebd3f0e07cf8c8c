//! The users whom the server lets in, each by a token of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use tunnel_proto::{
    Answer, AuthorizationId, Authorizer, Credentials, Decision, Grant, ListenRights, Reach, Rights, Token,
    User, UserId, UserLimits,
};

/// By the text of their tokens: nobody here guesses, so that the time of a look-up need not be constant.
pub(super) struct Members(HashMap<String, User>);

impl Members {
    pub(super) fn new(tokens: &[Token]) -> Self {
        let users = (1_u128..).map(|number| User::new(UserId(number.to_be_bytes())));
        Self(tokens.iter().map(Token::reveal).zip(users).collect())
    }
}

impl Authorizer for Members {
    fn authorize(
        &mut self,
        _: Instant,
        _: AuthorizationId,
        credentials: &Credentials<'_>,
        _: SocketAddr,
    ) -> Answer {
        let user = match credentials {
            Credentials::Token(text) => self.0.get(*text),
            Credentials::PathSegment(_) => None,
        };
        Answer::Now(user.map_or(Decision::Refused, |user| {
            Decision::Granted(Grant {
                user: user.clone(),
                rights: Rights::ALL,
                reach: Reach::default(),
                listen: ListenRights::default(),
                limits: UserLimits::default(),
            })
        }))
    }
}
