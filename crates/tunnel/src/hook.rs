//! Asks elsewhere who may use a server: whom neither the owner's link nor the users of the program let in.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, mpsc};

use packet_io::Waker;
use tunnel_proto::{AuthorizationId, Decision};

/// Decides who may use a server, in its own time.
pub trait AuthenticationHook: Send + Sync {
    /// Takes a question, without blocking: it is answered from any thread. Who asks is told to try again where there is
    /// no answer within [`tunnel_proto::limits::AUTHORIZATION_TIME_MAX`], or the question is dropped.
    fn ask(&self, question: Question);
}

/// Whether whoever shows this token is let in. No `Debug`: the token is secret.
///
/// ```
/// use tunnel::hook::Question;
/// use tunnel_proto::Decision;
///
/// let question = Question::new("token", "192.0.2.1:4433".parse().unwrap(), |decision| {
///     assert!(matches!(decision, Decision::Refused));
/// });
/// assert_eq!(question.token(), "token");
/// question.answer(Decision::Refused);
/// ```
pub struct Question {
    token: String,
    remote: SocketAddr,
    answer: Box<dyn FnOnce(Decision) + Send>,
}

impl Question {
    /// Of whoever shows `token` and comes from `remote`; `answer` takes the decision.
    pub fn new(token: &str, remote: SocketAddr, answer: impl FnOnce(Decision) + Send + 'static) -> Self {
        Self {
            token: token.to_owned(),
            remote,
            answer: Box::new(answer),
        }
    }

    /// The token, any text.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Where it came from.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Answers.
    pub fn answer(self, decision: Decision) {
        (self.answer)(decision);
    }
}

/// The way of answers to one shard, which may not be there yet.
#[derive(Clone)]
pub(crate) struct Replies {
    sender: mpsc::Sender<(AuthorizationId, Decision)>,
    waker: Arc<OnceLock<Waker>>,
}

impl Replies {
    /// Also their end.
    pub(crate) fn new() -> (Self, mpsc::Receiver<(AuthorizationId, Decision)>) {
        let (sender, receiver) = mpsc::channel();
        let waker = Arc::default();
        (Self { sender, waker }, receiver)
    }

    /// What wakes the shard, once it is there.
    pub(crate) fn wake_by(&self, waker: Waker) {
        // There is one.
        let _ = self.waker.set(waker);
    }

    pub(crate) fn question(&self, id: AuthorizationId, token: &str, remote: SocketAddr) -> Question {
        let Self { sender, waker } = self.clone();
        Question::new(token, remote, move |decision| {
            // A server that has ended needs no answer.
            if sender.send((id, decision)).is_ok()
                && let Some(waker) = waker.get()
            {
                waker.wake();
            }
        })
    }
}
