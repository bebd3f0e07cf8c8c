//! Names become addresses on a few threads of their own, because the system's resolver blocks.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use packet_io::Waker;

use crate::limits;

/// What a question was asked for: the driver's own number.
pub(super) type Purpose = u64;

struct Question {
    purpose: Purpose,
    host: String,
    port: u16,
}

/// The answer: addresses in the system's order of preference, none where the name has none.
pub(super) struct Answer {
    pub(super) purpose: Purpose,
    pub(super) addresses: Vec<SocketAddr>,
}

/// A bounded pool of resolving threads.
pub(super) struct Resolver {
    questions: mpsc::SyncSender<Question>,
    answers: mpsc::Receiver<Answer>,
}

impl Resolver {
    pub(super) fn new(waker: &Waker) -> std::io::Result<Self> {
        let (questions, asked) = mpsc::sync_channel::<Question>(limits::RESOLUTIONS_MAX);
        let (answer, answers) = mpsc::channel();
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..limits::RESOLVER_THREADS {
            let (asked, answer, waker) = (Arc::clone(&asked), answer.clone(), waker.clone());
            thread::Builder::new()
                .name("resolver".to_owned())
                .spawn(move || {
                    loop {
                        let question = match asked.lock() {
                            Ok(asked) => asked.recv(),
                            Err(_) => return,
                        };
                        // The shard has ended.
                        let Ok(question) = question else { return };
                        let addresses = resolve(&question.host, question.port);
                        if answer
                            .send(Answer {
                                purpose: question.purpose,
                                addresses,
                            })
                            .is_err()
                        {
                            return;
                        }
                        waker.wake();
                    }
                })?;
        }
        Ok(Self { questions, answers })
    }

    /// Asks; false where too many questions are open.
    pub(super) fn ask(&self, purpose: Purpose, host: &str, port: u16) -> bool {
        self.questions
            .try_send(Question {
                purpose,
                host: host.to_owned(),
                port,
            })
            .is_ok()
    }

    pub(super) fn poll(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    let Ok(found) = (host, port).to_socket_addrs() else {
        return Vec::new();
    };
    found.take(limits::ADDRESSES_PER_NAME).collect()
}
