//! Who a connection's peer is: asks the [`Authorizer`], keeps requests whose answer comes later, and holds each user to its
//! limits.
//!
//! A connection belongs to the user of its first valid credential, and counts for it until it ends. The credential that was
//! granted last on a connection is not asked about again there. A request that waits for an answer has no more than before
//! its headers came: what follows them stays in QUIC, within a stranger's credit.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use masque::request::{Credential, PathKind, Request as Asked};
use masque::response::{self, ProxyError};
use quic::{ConnectionKey, Counters};
use subtle::ConstantTimeEq;

use super::Server;
use super::questions::{Applicant, OpenQuestions, Origin};
use crate::access::{
    Answer, AuthorizationId, Authorizer, Credentials, Decision, Exclusion, Grant, ListenRights, Reach,
    Rights, User, UserId, UserLimit, UserSnapshot,
};
use crate::engine::life::{Life, RequestStream};
use crate::engine::request::RequestId;
use crate::engine::{Action, Deliver, End, Engine, ServerAction, State, masque_code};
use crate::limits;
use crate::snapshot::AuthorizationCounters;

/// A server's users on this shard, and the questions about them.
pub(super) struct Access {
    authorizer: Box<dyn Authorizer>,
    open: OpenQuestions,
    grants: BTreeMap<ConnectionKey, Granted>,
    /// Users that were here, for `status`.
    users: BTreeMap<UserId, User>,
    counters: AuthorizationCounters,
}

/// What a connection's peer was granted.
struct Granted {
    digest: [u8; 32],
    grant: Grant,
    /// Where the connection came from when it was granted.
    remote: SocketAddr,
    /// Bytes of the connection that the user's account has.
    bytes_counted: u64,
}

impl Granted {
    fn count_bytes(&mut self, counters: &Counters) {
        let bytes = counters.bytes_sent + counters.bytes_received;
        self.grant
            .user
            .add_bytes(bytes.saturating_sub(self.bytes_counted));
        self.bytes_counted = bytes.max(self.bytes_counted);
    }
}

impl Access {
    pub(super) fn new(authorizer: Box<dyn Authorizer>) -> Self {
        Self {
            authorizer,
            open: OpenQuestions::of_shards(1),
            grants: BTreeMap::new(),
            users: BTreeMap::new(),
            counters: AuthorizationCounters::default(),
        }
    }

    /// One of so many shards, which has its part of the bound.
    pub(super) fn divide(&mut self, shards: u8) {
        self.open = OpenQuestions::of_shards(shards);
    }

    /// Whether the credential was the last one granted on this connection.
    fn is_granted(&self, connection: ConnectionKey, digest: &[u8; 32]) -> bool {
        let granted = self.grants.get(&connection);
        granted.is_some_and(|granted| granted.digest.ct_eq(digest).into())
    }

    fn ask(
        &mut self,
        now: Instant,
        credentials: &Credentials<'_>,
        remote: SocketAddr,
    ) -> (AuthorizationId, Answer) {
        let id = AuthorizationId(self.counters.asked);
        self.counters.asked += 1;
        (id, self.authorizer.authorize(now, id, credentials, remote))
    }

    /// Remembers a user for `status`, by its newest account; where there are too many, one who is gone makes room.
    fn remember(&mut self, user: &User) {
        if self.users.len() >= limits::USERS_SHOWN_MAX && !self.users.contains_key(&user.id()) {
            let mut users = self.users.iter();
            let Some(gone) = users.find_map(|(id, user)| (!user.is_here()).then_some(*id)) else {
                return;
            };
            self.users.remove(&gone);
        }
        self.users.insert(user.id(), user.clone());
    }

    /// A request has ended: no answer finds it any more.
    pub(super) fn forget(&mut self, request: RequestId) {
        self.open.abandon(request);
    }

    /// A session of the connection's user has ended.
    pub(super) fn session_ended(&self, connection: ConnectionKey) {
        if let Some(granted) = self.grants.get(&connection) {
            granted.grant.user.give_session_back();
        }
    }

    /// Whose it was, and where it came from.
    pub(super) fn connection_lost(
        &mut self,
        connection: ConnectionKey,
        counters: &Counters,
    ) -> Option<(User, SocketAddr)> {
        let mut granted = self.grants.remove(&connection)?;
        granted.count_bytes(counters);
        granted.grant.user.give_connection_back();
        Some((granted.grant.user, granted.remote))
    }
}

/// Why a valid credential does not help.
enum Barred {
    /// The connection is another user's.
    OtherUser,
    /// The user has as many connections as it may have, or has used up its bytes.
    Full,
    /// The user may do nothing.
    Excluded(Exclusion),
}

impl Engine<Server> {
    /// The answer to a question that was answered with [`Answer::Later`]. One that comes too late is counted and changes
    /// nothing.
    pub fn authorized(
        &mut self,
        now: Instant,
        id: AuthorizationId,
        decision: Decision,
        deliver: &mut impl Deliver,
    ) {
        let access = &mut self.state.role.access;
        let Some(applicant) = access.open.close(id) else {
            access.counters.too_late += 1;
            return;
        };
        let request = applicant.request;
        let Some(stream) = self.state.wait_no_longer(request) else {
            return;
        };
        self.decide(now, stream, applicant, decision);
        self.take_early_of_open(now, request, deliver);
        self.read_what_waited(now, request, deliver);
    }

    /// A request's headers are understood: who asks?
    pub(super) fn identify(&mut self, now: Instant, id: RequestId, stream: RequestStream, asked: Asked) {
        let Some(credentials) = shown(&asked) else {
            return self.refuse_stranger(now, id, stream.connection, &asked);
        };
        let digest = credentials.digest();
        if self.state.role.access.is_granted(stream.connection, &digest) {
            return self.admit(now, stream, id, asked);
        }
        let Some(remote) = self.remote(stream.connection) else {
            return;
        };
        let origin = Origin {
            connection: stream.connection,
            remote: remote.ip(),
        };
        let access = &mut self.state.role.access;
        if !access.open.has_room(origin) {
            access.counters.over_limit += 1;
            return self.put_off(id, stream.connection, &asked, ProxyError::ConnectionLimitReached);
        }
        let (authorization, answer) = access.ask(now, &credentials, remote);
        let applicant = Applicant {
            request: id,
            asked,
            digest,
        };
        match answer {
            Answer::Now(decision) => self.decide(now, stream, applicant, decision),
            Answer::Later => {
                let deadline = now + limits::AUTHORIZATION_TIME_MAX;
                access.open.add(authorization, origin, applicant, deadline);
                if let Some(request) = self.state.requests.get_mut(id.0) {
                    request.life = Life::Identifying(stream);
                }
            }
        }
    }

    fn decide(&mut self, now: Instant, stream: RequestStream, applicant: Applicant, decision: Decision) {
        let counters = &mut self.state.role.access.counters;
        match decision {
            Decision::Granted(grant) => {
                counters.granted += 1;
                self.let_in(now, stream, applicant, grant);
            }
            Decision::Refused => {
                counters.refused += 1;
                self.refuse_stranger(now, applicant.request, stream.connection, &applicant.asked);
            }
        }
    }

    fn let_in(&mut self, now: Instant, stream: RequestStream, applicant: Applicant, grant: Grant) {
        let Applicant {
            request,
            asked,
            digest,
        } = applicant;
        match self.enter(stream.connection, digest, grant) {
            Ok(()) => {
                self.recognise(now, stream.connection);
                self.admit(now, stream, request, asked);
            }
            Err(Barred::OtherUser) => self.turn_away(request, &response::response(403), 403),
            Err(Barred::Full) => {
                self.answer_and_end(request, &response::failure(ProxyError::ConnectionLimitReached));
            }
            Err(Barred::Excluded(exclusion)) => self.dismiss(now, stream.connection, exclusion.reason()),
        }
    }

    /// Ends a user's connection; its client shows the reason.
    fn dismiss(&mut self, now: Instant, connection: ConnectionKey, reason: &'static str) {
        let code = masque_code(masque::Code::NoError);
        self.endpoint.close(now, connection, code, reason.as_bytes());
    }

    /// Nobody says at present who asks. Whoever was let in before on this connection hears the cause, a stranger nothing.
    fn put_off(&mut self, id: RequestId, connection: ConnectionKey, asked: &Asked, cause: ProxyError) {
        if self.state.role.access.grants.contains_key(&connection) {
            return self.answer_and_end(id, &response::failure(cause));
        }
        let status = if is_hidden(asked) { 404 } else { 503 };
        self.turn_away(id, &response::response(status), status);
    }

    /// The connection is the user's from here on.
    fn enter(&mut self, connection: ConnectionKey, digest: [u8; 32], grant: Grant) -> Result<(), Barred> {
        let Some(remote) = self.remote(connection) else {
            return Err(Barred::Full);
        };
        if let Some(exclusion) = grant.user.exclusion() {
            return Err(Barred::Excluded(exclusion));
        }
        let access = &mut self.state.role.access;
        if let Some(granted) = access.grants.get_mut(&connection) {
            if granted.grant.user.id() != grant.user.id() {
                return Err(Barred::OtherUser);
            }
            // Places were taken from the account that is there, and are given back to it.
            granted.digest = digest;
            granted.grant = Grant {
                user: granted.grant.user.clone(),
                ..grant
            };
            return Ok(());
        }
        access.remember(&grant.user);
        if !grant.user.has_bytes_left(&grant.limits) || !grant.user.take_connection(&grant.limits) {
            return Err(Barred::Full);
        }
        let (user, account) = (grant.user.id(), grant.user.clone());
        access.grants.insert(
            connection,
            Granted {
                digest,
                grant,
                remote,
                bytes_counted: 0,
            },
        );
        self.state.pacing.user_came(&account);
        if let Some(peer) = self.state.peer(connection) {
            peer.user = Some(account);
        }
        self.endpoint.set_owner(connection, user.0);
        self.endpoint.trace_belongs_to(connection, user.0);
        let came = ServerAction::Came { user, remote };
        self.state.actions.push_back(Action::Role(came));
        Ok(())
    }

    /// Takes a place for a session of the connection's user, who needs a right for it. Where that cannot be, the request is
    /// answered.
    pub(in crate::engine) fn take_user_session(
        &mut self,
        id: RequestId,
        connection: ConnectionKey,
        right: impl Fn(&Rights) -> bool,
    ) -> bool {
        if !self.has_user_right(id, connection, right) {
            return false;
        }
        let is_taken = self.count_session(id, connection);
        if !is_taken {
            self.answer_and_end(id, &response::failure(ProxyError::ConnectionLimitReached));
        }
        is_taken
    }

    /// Whether the connection's user has a right for a request, which is that user's then. Where not, it is answered.
    pub(in crate::engine) fn has_user_right(
        &mut self,
        id: RequestId,
        connection: ConnectionKey,
        right: impl Fn(&Rights) -> bool,
    ) -> bool {
        let Some(granted) = self.state.role.access.grants.get(&connection) else {
            return false;
        };
        if !right(&granted.grant.rights) {
            self.turn_away(id, &response::response(403), 403);
            return false;
        }
        if let Some(request) = self.state.requests.get_mut(id.0) {
            request.user = Some(granted.grant.user.id());
        }
        true
    }

    /// Takes a place for a session of the connection's user, until the request ends. Whether there was one.
    pub(in crate::engine) fn count_session(&mut self, id: RequestId, connection: ConnectionKey) -> bool {
        let granted = self.state.role.access.grants.get(&connection);
        let (Some(granted), Some(request)) = (granted, self.state.requests.get_mut(id.0)) else {
            return false;
        };
        let Grant { user, limits, .. } = &granted.grant;
        request.is_counted = user.has_bytes_left(limits) && user.take_session(limits);
        request.is_counted
    }

    /// Whose the connection is.
    pub(in crate::engine) fn user_of(&self, connection: ConnectionKey) -> Option<UserId> {
        let granted = self.state.role.access.grants.get(&connection)?;
        Some(granted.grant.user.id())
    }

    /// Its user's account.
    pub(in crate::engine) fn account_of(&self, connection: ConnectionKey) -> Option<User> {
        let granted = self.state.role.access.grants.get(&connection)?;
        Some(granted.grant.user.clone())
    }

    /// What the connection's user may reach; nothing where nobody was let in.
    pub(super) fn reach_of(&self, connection: ConnectionKey) -> Reach {
        let granted = self.state.role.access.grants.get(&connection);
        granted.map_or_else(|| Reach::only(Vec::new()), |granted| granted.grant.reach.clone())
    }

    /// Where the connection's user may listen; nowhere where nobody was let in.
    pub(in crate::engine) fn listen_rights_of(&self, connection: ConnectionKey) -> ListenRights {
        let granted = self.state.role.access.grants.get(&connection);
        granted.map_or_else(ListenRights::default, |granted| granted.grant.listen.clone())
    }

    /// Whose the connection is, and how many leases that user may keep.
    pub(super) fn lease_holder(&self, connection: ConnectionKey) -> Option<(UserId, usize)> {
        let granted = self.state.role.access.grants.get(&connection)?;
        Some((granted.grant.user.id(), granted.grant.limits.leases))
    }

    /// The driver has no lease for an IP session, because its user has as many as it may have.
    pub fn refuse_lease(&mut self, id: RequestId) {
        let stream = self.state.requests.get(id.0).and_then(|request| request.stream());
        let grants = &self.state.role.access.grants;
        if let Some(granted) = stream.and_then(|stream| grants.get(&stream.connection)) {
            granted.grant.user.count_refused(UserLimit::Leases);
        }
        self.end(id, End::Refused(ProxyError::ConnectionLimitReached));
    }

    /// Counts a connection's bytes, and closes it where its user may do nothing more or has used up what it may have.
    pub(super) fn count_bytes(&mut self, now: Instant, connection: ConnectionKey, counters: &Counters) {
        let Some(granted) = self.state.role.access.grants.get_mut(&connection) else {
            return;
        };
        granted.count_bytes(counters);
        let Grant { user, limits, .. } = &granted.grant;
        if let Some(exclusion) = user.exclusion() {
            self.dismiss(now, connection, exclusion.reason());
        } else if !user.has_bytes_left(limits) {
            self.dismiss(now, connection, "the user's bytes are used up");
        }
    }

    /// When an answer has to be there.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.state.role.access.open.next_deadline()
    }

    /// Gives up answers that do not come.
    pub(super) fn put_off_unanswered(&mut self, now: Instant) {
        while let Some(id) = self.state.role.access.open.poll_expired(now) {
            let access = &mut self.state.role.access;
            access.counters.expired += 1;
            let Some(Applicant { request, asked, .. }) = access.open.close(id) else {
                continue;
            };
            if let Some(stream) = self.state.wait_no_longer(request) {
                self.put_off(request, stream.connection, &asked, ProxyError::ProxyInternalError);
            }
        }
    }

    /// Users that were here, with the numbers of all shards; how many leases each has, only the driver knows.
    #[must_use]
    pub fn users(&self) -> BTreeMap<UserId, UserSnapshot> {
        let users = &self.state.role.access.users;
        users.iter().map(|(id, user)| (*id, user.snapshot())).collect()
    }

    /// What became of the questions who a peer is.
    #[must_use]
    pub fn authorizations(&self) -> AuthorizationCounters {
        let access = &self.state.role.access;
        AuthorizationCounters {
            waiting: access.open.len() as u64,
            ..access.counters
        }
    }
}

impl State<Server> {
    /// A request goes on after its wait for an answer; its stream, where it is still there.
    fn wait_no_longer(&mut self, id: RequestId) -> Option<RequestStream> {
        let request = self.requests.get_mut(id.0)?;
        let Life::Identifying(stream) = request.life else {
            return None;
        };
        request.life = Life::Headers(stream);
        Some(stream)
    }
}

/// Whether strangers are not to know that there is something at this path.
fn is_hidden(asked: &Asked) -> bool {
    match asked {
        Asked::ConnectUdp(asked) => asked.path != PathKind::WellKnown,
        Asked::ConnectIp(asked) => asked.path != PathKind::WellKnown,
        Asked::Extended(_) | Asked::Other => true,
        Asked::Connect { .. } => false,
    }
}

/// The credential that a request shows, where it shows one.
fn shown(asked: &Asked) -> Option<Credentials<'_>> {
    let (path, credential) = match asked {
        Asked::Connect { credential, .. } => (None, credential),
        Asked::ConnectUdp(asked) => (Some(&asked.path), &asked.credential),
        Asked::ConnectIp(asked) => (Some(&asked.path), &asked.credential),
        Asked::Extended(asked) => (None, &asked.credential),
        Asked::Other => return None,
    };
    match (path, credential) {
        (Some(PathKind::Segment(segment)), _) => Some(Credentials::PathSegment(segment)),
        (_, Credential::Bearer(text)) => Some(Credentials::Token(text)),
        (_, Credential::None | Credential::Malformed) => None,
    }
}
