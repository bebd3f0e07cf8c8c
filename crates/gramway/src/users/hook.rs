//! Asks an HTTP server who may use this one (`--auth-hook`), in Hysteria's words, so that panels that know these serve
//! here too.
//!
//! The request is a POST of `{"addr": "ADDRESS:PORT", "auth": TOKEN, "tx": 0}`; `hook/answer.rs` reads the answer. A
//! few threads ask. What was answered holds for a minute; where the hook does not answer, or too many questions wait,
//! a user who was let in within the last hour is let in again.

pub(crate) mod answer;
mod memory;
mod trouble;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use serde_json::json;
use tunnel::hook::{AuthenticationHook, Question};
use tunnel_proto::Decision;
use tunnel_proto::limits::AUTHORIZATION_TIME_MAX;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use self::answer::Verdict;
use self::memory::{Known, Memory};
use self::trouble::Trouble;
use super::register::{Register, token_digest};
use crate::exit::Problem;
use crate::hook_url::HookUrl;
use crate::limits::{HOOK_ANSWER_BYTES_MAX, HOOK_ASKERS, HOOK_QUESTIONS_MAX, HOOK_TIME_MAX};
use crate::log;

/// The hook of a running server.
pub(crate) struct Hook {
    shared: Arc<Shared>,
    questions: SyncSender<Waiting>,
}

/// A question, and since when it waits.
struct Waiting {
    question: Question,
    since: Instant,
}

struct Shared {
    url: Uri,
    agent: ureq::Agent,
    memory: Mutex<Memory>,
    register: Arc<Register>,
    trouble: Mutex<Trouble>,
}

impl Hook {
    /// Starts the threads that ask. With `roots` (DER) a server with `https://` is known by these authorities alone,
    /// without by those that browsers trust.
    pub(crate) fn start(url: &HookUrl, roots: &[Vec<u8>], register: Arc<Register>) -> Result<Self, Problem> {
        let shared = Arc::new(Shared::new(url, roots, register)?);
        let (questions, waiting) = mpsc::sync_channel(HOOK_QUESTIONS_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..HOOK_ASKERS {
            let (shared, waiting) = (Arc::clone(&shared), Arc::clone(&waiting));
            thread::Builder::new()
                .name(format!("hook-{number}"))
                .spawn(move || shared.run(&waiting))
                .map_err(|error| Problem::unavailable(format!("no thread for the hook: {error}")))?;
        }
        Ok(Self { shared, questions })
    }
}

impl AuthenticationHook for Hook {
    fn ask(&self, question: Question) {
        let now = Instant::now();
        let known = self.shared.memory().recall(&token_digest(question.token()), now);
        if let Known::Fresh(decision) = known {
            return question.answer(decision);
        }
        let waiting = Waiting { question, since: now };
        // Strangers may have filled the queue: a known user does not need it. All others try again.
        if let Err(TrySendError::Full(waiting)) = self.questions.try_send(waiting)
            && let Known::Stale(decision) = known
        {
            waiting.question.answer(decision);
        }
    }
}

impl Shared {
    fn new(url: &HookUrl, roots: &[Vec<u8>], register: Arc<Register>) -> Result<Self, Problem> {
        let url: Uri = url
            .as_str()
            .parse()
            .map_err(|error| Problem::usage(format!("--auth-hook {}: {error}", url.as_str())))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let roots = match roots {
            [] => RootCerts::WebPki,
            roots => RootCerts::from(roots.iter().map(|root| Certificate::from_der(root).to_owned())),
        };
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(roots);
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(HOOK_TIME_MAX))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(tls.build())
            .build()
            .into();
        Ok(Self {
            url,
            agent,
            memory: Mutex::default(),
            register,
            trouble: Mutex::default(),
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers questions until the server is gone.
    fn run(&self, waiting: &Mutex<Receiver<Waiting>>) {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(next) = next else { return };
            // ureq panics where the system has no thread for a look-up of names: that costs this question alone.
            let _ = catch_unwind(AssertUnwindSafe(|| self.decide(next)));
        }
    }

    fn decide(&self, Waiting { question, since }: Waiting) {
        let digest = token_digest(question.token());
        let (known, waited) = (self.memory().recall(&digest, Instant::now()), since.elapsed());
        match known {
            // Another connection of the same client may have been answered meanwhile.
            Known::Fresh(decision) => return question.answer(decision),
            // Of a hook that takes its time the answer would come too late.
            Known::Stale(decision) if waited > AUTHORIZATION_TIME_MAX - HOOK_TIME_MAX => {
                return question.answer(decision);
            }
            // Whoever asked has given up. To ask nevertheless would make all others wait too long as well.
            _ if waited >= AUTHORIZATION_TIME_MAX => return,
            Known::Stale(_) | Known::Nothing => {}
        }
        match self.ask(question.token(), question.remote()) {
            Ok(verdict) => {
                self.tell(None);
                let name = match &verdict {
                    Verdict::Granted(name) => Some(name.as_str()),
                    Verdict::Refused => None,
                };
                let (decision, forgotten) = self.memory().remember(digest, Instant::now(), name);
                self.register.forget(forgotten);
                if let (Some(Decision::Granted(grant)), Some(name)) = (&decision, name) {
                    self.register.call(grant.user.id(), name);
                }
                // Without a decision there is no room for the user, who tries again.
                if let Some(decision) = decision {
                    question.answer(decision);
                }
            }
            Err(error) => {
                self.tell(Some(error));
                if let Known::Stale(decision) = self.memory().recall(&digest, Instant::now()) {
                    question.answer(decision);
                }
            }
        }
    }

    fn ask(&self, token: &str, remote: SocketAddr) -> Result<Verdict, String> {
        let body = json!({ "addr": remote.to_string(), "auth": token, "tx": 0 }).to_string();
        let request = self.agent.post(&self.url).content_type("application/json");
        // Errors name neither body nor token.
        let mut response = request.send(body).map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        answer::read(status, || {
            let read = response.body_mut().with_config().limit(HOOK_ANSWER_BYTES_MAX);
            read.read_to_vec().map_err(|error| error.to_string())
        })
    }

    /// Says what is wrong, and that it is over.
    fn tell(&self, trouble: Option<String>) {
        let mut told = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = told.line(Instant::now(), trouble) {
            log::line("auth_hook", &line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::TryRecvError;
    use std::time::Duration;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use rustls_pki_types::PrivatePkcs8KeyDer;

    use super::*;

    const TOKEN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    /// Nobody listens at its URL.
    fn shared() -> Shared {
        let url = HookUrl::parse("http://127.0.0.1:9/").unwrap();
        Shared::new(&url, &[], Arc::default()).unwrap()
    }

    /// A question, and where its answer comes: whether the user is let in.
    fn question() -> (Question, Receiver<bool>) {
        let (sender, receiver) = mpsc::channel();
        let question = Question::new(TOKEN, "192.0.2.1:4433".parse().unwrap(), move |decision| {
            sender.send(matches!(decision, Decision::Granted(_))).unwrap();
        });
        (question, receiver)
    }

    #[test]
    fn a_question_that_nobody_waits_for_any_more_is_not_asked() {
        let shared = shared();
        let (first, answer) = question();
        let since = Instant::now() - AUTHORIZATION_TIME_MAX;
        shared.decide(Waiting {
            question: first,
            since,
        });
        assert_eq!(answer.try_recv(), Err(TryRecvError::Disconnected));
        assert!(!shared.trouble.lock().unwrap().is_told(), "it was not asked");
        let (second, answer) = question();
        let since = Instant::now();
        shared.decide(Waiting {
            question: second,
            since,
        });
        assert_eq!(answer.try_recv(), Err(TryRecvError::Disconnected));
        assert!(shared.trouble.lock().unwrap().is_told());
    }

    #[test]
    fn strangers_who_fill_the_queue_keep_no_known_user_out() {
        let shared = Arc::new(shared());
        // Nobody takes questions.
        let (questions, _waiting) = mpsc::sync_channel(0);
        let hook = Hook {
            shared: Arc::clone(&shared),
            questions,
        };
        let (stranger, answer) = question();
        hook.ask(stranger);
        assert_eq!(answer.try_recv(), Err(TryRecvError::Disconnected));
        let long_ago = Instant::now() - Duration::from_secs(600);
        let (decision, _) = shared
            .memory()
            .remember(token_digest(TOKEN), long_ago, Some("alice"));
        assert!(decision.is_some());
        let (known, answer) = question();
        hook.ask(known);
        assert_eq!(answer.try_recv(), Ok(true));
        // Nor where a hook that hangs has made it wait.
        let (known, answer) = question();
        let since = Instant::now() - (AUTHORIZATION_TIME_MAX - HOOK_TIME_MAX) - Duration::from_millis(1);
        shared.decide(Waiting {
            question: known,
            since,
        });
        assert_eq!(answer.try_recv(), Ok(true));
        assert!(!shared.trouble.lock().unwrap().is_told(), "it was not asked");
    }

    /// Answers everybody who trusts its certificate (DER) that this is Alice.
    fn panel_with_https() -> (HookUrl, Vec<u8>) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let tls = Arc::new(tls);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}/auth", listener.local_addr().unwrap().port());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = ServerConnection::new(Arc::clone(&tls)).unwrap();
                // Who does not trust it says nothing.
                let _ = answer_alice(StreamOwned::new(connection, stream));
            }
        });
        (HookUrl::parse(&url).unwrap(), cert.der().to_vec())
    }

    fn answer_alice(stream: impl Read + Write) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let (mut line, mut bytes) = (String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                bytes = length.trim().parse().unwrap();
            }
            line.clear();
        }
        reader.read_exact(&mut vec![0; bytes])?;
        let body = r#"{"ok": true, "id": "alice"}"#;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        reader.get_mut().write_all((head + body).as_bytes())?;
        reader.get_mut().flush()
    }

    #[test]
    fn a_panel_with_https_is_asked_where_an_authority_vouches_for_it() {
        let (url, certificate) = panel_with_https();
        let remote = "192.0.2.1:4433".parse().unwrap();
        let by_browsers = Shared::new(&url, &[], Arc::default()).unwrap();
        let told = by_browsers.ask(TOKEN, remote).unwrap_err();
        assert!(!told.contains(TOKEN), "{told}");
        let by_file = Shared::new(&url, &[certificate], Arc::default()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let verdict = loop {
            match by_file.ask(TOKEN, remote) {
                Ok(verdict) => break verdict,
                // On a busy machine a handshake may take longer than a hook has.
                Err(told) => assert!(Instant::now() < deadline, "{told}"),
            }
        };
        assert_eq!(verdict, Verdict::Granted("alice".to_owned()));
    }
}
