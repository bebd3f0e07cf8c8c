//! Questions to the authorizer that are open, bounded for each connection, for each network, and in all.
//!
//! A question stays open until it is answered or too old, also where whoever asked is gone: the authorizer is busy with it all
//! the same, so that a stranger who connects again and again gets no more of its time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use masque::request::Request as Asked;
use quic::ConnectionKey;

use crate::access::AuthorizationId;
use crate::engine::request::RequestId;
use crate::limits;

/// A request that shows a credential.
pub(super) struct Applicant {
    pub(super) request: RequestId,
    pub(super) asked: Asked,
    /// The credential's.
    pub(super) digest: [u8; 32],
}

/// Where a question comes from.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) connection: ConnectionKey,
    pub(super) remote: IpAddr,
}

impl Origin {
    fn prefix(self) -> IpAddr {
        quic::customer_prefix(self.remote)
    }
}

struct Question {
    /// `None` where its request is gone.
    applicant: Option<Applicant>,
    origin: Origin,
    deadline: Instant,
}

/// What waits for answers.
pub(super) struct OpenQuestions {
    questions: BTreeMap<AuthorizationId, Question>,
    by_request: BTreeMap<RequestId, AuthorizationId>,
    /// Requests of each connection that wait.
    by_connection: BTreeMap<ConnectionKey, usize>,
    /// Questions of each network, the abandoned ones, too.
    by_prefix: BTreeMap<IpAddr, usize>,
    questions_max: usize,
    prefix_max: usize,
}

impl OpenQuestions {
    /// Of one of so many shards, which has its part of the bound.
    pub(super) fn of_shards(shards: u8) -> Self {
        let questions_max = limits::AUTHORIZATIONS_WAITING_MAX / usize::from(shards);
        Self {
            questions: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            by_prefix: BTreeMap::new(),
            questions_max,
            prefix_max: questions_max / limits::AUTHORIZATIONS_PREFIX_PART,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.questions.len()
    }

    pub(super) fn has_room(&self, origin: Origin) -> bool {
        let count_of = |count: Option<&usize>| count.copied().unwrap_or_default();
        self.questions.len() < self.questions_max
            && count_of(self.by_connection.get(&origin.connection)) < limits::AUTHORIZATIONS_PER_CONNECTION
            && count_of(self.by_prefix.get(&origin.prefix())) < self.prefix_max
    }

    pub(super) fn add(
        &mut self,
        id: AuthorizationId,
        origin: Origin,
        applicant: Applicant,
        deadline: Instant,
    ) {
        self.by_request.insert(applicant.request, id);
        *self.by_connection.entry(origin.connection).or_default() += 1;
        *self.by_prefix.entry(origin.prefix()).or_default() += 1;
        let question = Question {
            applicant: Some(applicant),
            origin,
            deadline,
        };
        self.questions.insert(id, question);
    }

    /// The request whose answer has come, where it is still there.
    pub(super) fn close(&mut self, id: AuthorizationId) -> Option<Applicant> {
        let Question {
            applicant, origin, ..
        } = self.questions.remove(&id)?;
        take_one(&mut self.by_prefix, origin.prefix());
        if let Some(applicant) = &applicant {
            self.by_request.remove(&applicant.request);
            take_one(&mut self.by_connection, origin.connection);
        }
        applicant
    }

    /// A request has ended: no answer finds it any more.
    pub(super) fn abandon(&mut self, request: RequestId) {
        let id = self.by_request.remove(&request);
        if let Some(question) = id.and_then(|id| self.questions.get_mut(&id)) {
            question.applicant = None;
            take_one(&mut self.by_connection, question.origin.connection);
        }
    }

    /// When the next one is too old. All wait equally long, and IDs grow: the first one is the oldest.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.questions
            .first_key_value()
            .map(|(_, question)| question.deadline)
    }

    /// A question whose answer did not come in time.
    pub(super) fn poll_expired(&self, now: Instant) -> Option<AuthorizationId> {
        let (id, question) = self.questions.first_key_value()?;
        (question.deadline <= now).then_some(*id)
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
