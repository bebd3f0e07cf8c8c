//! Who may use a server: the question that its engine asks of an [`Authorizer`], and the answer.
//!
//! The engine asks for each credential but the one that was granted last on the same connection; the answer comes at once
//! or later. Until then the peer has no more than every stranger. [`SoleOwner`] is what a server has where nothing else is
//! given: one user, who holds its tokens.

mod line;
mod listen;
mod rate;
mod reach;
mod user;

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use aws_lc_rs::digest;

use crate::secret::Token;
pub use line::{Line, LineRates};
pub use listen::{ListenRange, ListenRights, NotAListenRange};
pub(crate) use rate::Way;
pub use reach::Reach;
pub use user::{Exclusion, User, UserId, UserLimit, UserLimits, UserSnapshot};

/// What a peer shows to be let in, as it came: any text. Secret; `Debug` shows nothing of it.
#[derive(Clone, Copy)]
pub enum Credentials<'a> {
    /// The token of `Authorization` or `Proxy-Authorization` (RFC 6750 section 2.1).
    Token(&'a str),
    /// The path segment of a URI template that is derived from a token ([`Token::path_segment`]).
    PathSegment(&'a str),
}

impl Credentials<'_> {
    /// SHA-256 of kind and text: recognises a credential without keeping it.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let (kind, text) = match self {
            Self::Token(text) => (b"token:", text),
            Self::PathSegment(text) => (b"path :", text),
        };
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(kind);
        context.update(text.as_bytes());
        let digest = context.finish();
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Token(_) => "Token(…)",
            Self::PathSegment(_) => "PathSegment(…)",
        })
    }
}

/// Names one question to an [`Authorizer`]; never used again by the same engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthorizationId(pub(crate) u64);

/// An [`Authorizer`]'s answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The decision.
    Now(Decision),
    /// The decision follows with [`crate::Engine::authorized`], within [`crate::limits::AUTHORIZATION_TIME_MAX`].
    Later,
}

/// Whether a peer is let in.
#[derive(Clone, Debug)]
pub enum Decision {
    /// As this user.
    Granted(Grant),
    /// It is answered like everybody without a valid token.
    Refused,
}

/// What a valid credential stands for. It holds for its connection from then on.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Who it is; the same [`User`] in all shards, so that limits hold for all of them together.
    pub user: User,
    /// What the user may ask for.
    pub rights: Rights,
    /// Which targets and destinations it may reach, of those that the server lets everybody reach.
    pub reach: Reach,
    /// Where it may listen at the server.
    pub listen: ListenRights,
    /// How much the user may have.
    pub limits: UserLimits,
}

/// What a user may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// UDP sessions.
    pub udp: bool,
    /// TCP connections.
    pub tcp: bool,
    /// IP sessions; only together with `udp` and `tcp`, which packets could carry.
    pub ip: bool,
    /// Services, whose providers may refuse some of them.
    pub services: bool,
}

impl Rights {
    /// Everything that the server offers.
    pub const ALL: Self = Self {
        udp: true,
        tcp: true,
        ip: true,
        services: true,
    };
}

/// Decides who may use a server. Each shard has one of its own.
///
/// ```
/// use std::net::SocketAddr;
/// use std::time::Instant;
/// use tunnel_proto::{
///     Answer, AuthorizationId, Authorizer, Credentials, Decision, Grant, ListenRights, Reach, Rights, Token, User,
///     UserId, UserLimits,
/// };
///
/// struct Guest {
///     token: Token,
///     user: User,
/// }
///
/// impl Authorizer for Guest {
///     fn authorize(&mut self, _: Instant, _: AuthorizationId, credentials: &Credentials<'_>, _: SocketAddr) -> Answer {
///         let Credentials::Token(text) = credentials else {
///             return Answer::Now(Decision::Refused);
///         };
///         Answer::Now(if self.token.matches(text) {
///             Decision::Granted(Grant {
///                 user: self.user.clone(),
///                 rights: Rights { ip: false, ..Rights::ALL },
///                 reach: Reach::only(vec!["10.0.0.0/8".parse().unwrap()]),
///                 listen: ListenRights::default(),
///                 limits: UserLimits { sessions: 10, ..UserLimits::default() },
///             })
///         } else {
///             Decision::Refused
///         })
///     }
/// }
///
/// let guest = Guest { token: Token::from_bytes([7; 32]), user: User::new(UserId([1; 16])) };
/// # let _: Box<dyn Authorizer> = Box::new(guest);
/// ```
pub trait Authorizer: Send {
    /// Whose `credentials` are, which came from `remote`. Text is compared in constant time ([`Token::matches`]) or by its
    /// hash.
    fn authorize(
        &mut self,
        now: Instant,
        id: AuthorizationId,
        credentials: &Credentials<'_>,
        remote: SocketAddr,
    ) -> Answer;
}

/// Lets in whoever holds one of a server's tokens, as its only user; a clone is for another shard.
#[derive(Clone)]
pub struct SoleOwner {
    tokens: Vec<Token>,
    user: User,
}

impl SoleOwner {
    /// The owner of `tokens`.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Self {
        Self {
            tokens,
            user: User::new(UserId::OWNER),
        }
    }

    /// Looks at every token, so that the time does not tell which one matched.
    fn holds(&self, matches: impl Fn(&Token) -> bool) -> bool {
        self.tokens
            .iter()
            .fold(false, |found, token| found | matches(token))
    }
}

impl Authorizer for SoleOwner {
    fn authorize(
        &mut self,
        _: Instant,
        _: AuthorizationId,
        credentials: &Credentials<'_>,
        _: SocketAddr,
    ) -> Answer {
        let is_owner = match credentials {
            Credentials::Token(text) => self.holds(|token| token.matches(text)),
            Credentials::PathSegment(segment) => self.holds(|token| token.matches_path_segment(segment)),
        };
        Answer::Now(if is_owner {
            Decision::Granted(Grant {
                user: self.user.clone(),
                rights: Rights::ALL,
                reach: Reach::default(),
                listen: ListenRights::ALL,
                limits: UserLimits::default(),
            })
        } else {
            Decision::Refused
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_granted(owner: &mut SoleOwner, credentials: Credentials<'_>) -> bool {
        let remote = "192.0.2.1:4000".parse().unwrap();
        // tidy-allow(pure): first instant of virtual time
        let answer = owner.authorize(Instant::now(), AuthorizationId(0), &credentials, remote);
        matches!(answer, Answer::Now(Decision::Granted(grant)) if grant.user.id() == UserId::OWNER)
    }

    #[test]
    fn any_token_of_the_owner_opens_and_nothing_else_does() {
        let [one, two, three] = [1, 2, 3].map(|byte| Token::from_bytes([byte; 32]));
        let mut owner = SoleOwner::new(vec![one.clone(), two.clone()]);
        for token in [&one, &two] {
            assert!(is_granted(&mut owner, Credentials::Token(&token.reveal())));
            let segment = token.path_segment();
            assert!(is_granted(&mut owner, Credentials::PathSegment(&segment)));
            // Neither stands for the other.
            assert!(!is_granted(&mut owner, Credentials::Token(&segment)));
            assert!(!is_granted(&mut owner, Credentials::PathSegment(&token.reveal())));
        }
        assert!(!is_granted(&mut owner, Credentials::Token(&three.reveal())));
        assert!(!is_granted(&mut owner, Credentials::Token("")));
    }

    #[test]
    fn credentials_show_nothing_and_their_digest_tells_kind_and_text_apart() {
        let token = Credentials::Token("secret");
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert_eq!(token.digest(), Credentials::Token("secret").digest());
        assert_ne!(token.digest(), Credentials::Token("secres").digest());
        assert_ne!(token.digest(), Credentials::PathSegment("secret").digest());
    }
}
