//! The API of a running process, `/v1/…`, and its page. `docs/api.yaml` describes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::counters::Counters;
use super::guard::{Guard, LOGIN};
use super::page::page;
use super::{Stops, UsersDatabase};
use crate::cli::UserTerms;
use crate::exit::{Code, Problem};
use crate::http::{
    NO_COUNTERS, OTHER_PATH, Refusal, Request, Response, Stream, head, read_request, respond, serve_each,
    write_all,
};
use crate::limits::{ADMIN_LISTENERS_MAX, EVENT_INTERVAL, HTTP_TRANSFER_LIMIT};
use crate::link;
use crate::reload::{Asker, Reloader};
use crate::users::{Action, Terms, apply, describe};

const JSON: &str = "application/json";

const OTHER_METHOD: Refusal = Refusal {
    status: "405 Method Not Allowed",
    reason: "this path has another method",
};
const TOO_MANY: Refusal = Refusal {
    status: "503 Service Unavailable",
    reason: "too many listen already; close a page, or ask /v1/status",
};
const NO_ACTION: Refusal = Refusal {
    status: "404 Not Found",
    reason: "a user is disabled, enabled, renewed or removed by /v1/users/NAME/disable, enable, renew, remove",
};
const ONLY_BY_SOCKET: Refusal = Refusal {
    status: "403 Forbidden",
    reason: "an upgrade is asked for by gramway ctl upgrade, on the server's machine",
};
const SLOW_USERS: Refusal = Refusal {
    status: "503 Service Unavailable",
    reason: "the users' database does not answer in time; the server follows as soon as it does",
};
const BAD_BODY: Refusal = Refusal {
    status: "400 Bad Request",
    reason: "the body is a JSON object, or left out",
};
const BAD_TERMS: Refusal = Refusal {
    status: "400 Bad Request",
    reason: "the body of renew is a JSON object with expires, quota or rate, as texts",
};

/// What a process answers.
pub(super) struct Api {
    pub(super) counters: Counters,
    /// Of a server.
    pub(super) users: Option<UsersDatabase>,
    pub(super) reloader: Option<Arc<Reloader>>,
    /// Of a server.
    pub(super) stops: Option<Stops>,
    pub(super) listeners: AtomicUsize,
}

/// Who listens, as long as it lives.
struct Listening<'a>(&'a AtomicUsize);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Api {
    /// Answers one request.
    pub(super) fn converse(&self, mut stream: impl Stream, guard: &Guard) -> io::Result<()> {
        let Some(request) = read_request(&mut stream)? else {
            return Ok(());
        };
        let response = match request.and_then(|request| guard.check(&request).map(|()| request)) {
            Ok(request) if request.method == "GET" && request.path == "/v1/events" => match self.listen() {
                Ok(_listening) => return self.tell(&mut stream),
                Err(refusal) => refused(&refusal),
            },
            Ok(request) => self
                .answer(&request, guard)
                .unwrap_or_else(|refusal| refused(&refusal)),
            Err(refusal) => refused(&refusal),
        };
        respond(&mut stream, &response)
    }

    fn answer(&self, request: &Request, guard: &Guard) -> Result<Response, Refusal> {
        let parts: Vec<_> = request.path.split('/').skip(1).collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("GET", [""]) => Ok(page()),
            ("GET", ["v1", "status"]) => Ok(json(&self.counters.all().ok_or(NO_COUNTERS)?)),
            ("GET", ["v1", "users"]) if self.users.is_some() => {
                let counters = self.counters.all().ok_or(NO_COUNTERS)?;
                Ok(json(&json!({ "users": users(&counters) })))
            }
            ("POST", ["v1", "users"]) => {
                let database = self.users.as_ref().ok_or(OTHER_PATH)?;
                if database.follower.look() {
                    Ok(json(&json!({})))
                } else {
                    Err(SLOW_USERS)
                }
            }
            ("POST", ["v1", "users", name, action]) => {
                let database = self.users.as_ref().ok_or(OTHER_PATH)?;
                let action = match action_of(action, &request.body)? {
                    Ok(action) => action,
                    Err(problem) => return Ok(failed(&problem, "400 Bad Request")),
                };
                Ok(match apply(&database.directory, name, &action) {
                    Ok(user) => json(&json!({ "user": user.map(|(user, used)| describe(&user, used)) })),
                    Err(problem) => failed(&problem, "404 Not Found"),
                })
            }
            ("POST", ["v1", "reload"]) => {
                let reloader = self.reloader.as_ref().ok_or(OTHER_PATH)?;
                Ok(match reloader.reload(Asker::Program) {
                    Ok(outcome) => json(&outcome.as_json()),
                    Err(problem) => {
                        let text = link::without_secrets(&problem.to_string());
                        let mut response = json(&json!({ "error": text }));
                        response.status = "422 Unprocessable Content";
                        response
                    }
                })
            }
            ("POST", ["v1", action @ ("drain" | "upgrade")]) => {
                let stops = self.stops.as_ref().ok_or(OTHER_PATH)?;
                let asked = body_of(request)?;
                let begun = match *action {
                    "drain" => stops.drain.begin(&asked),
                    // It starts a process: that is for whoever may open the socket in the state directory.
                    _ if !matches!(guard, Guard::File) => return Err(ONLY_BY_SOCKET),
                    _ => stops.upgrade.begin(&asked),
                };
                Ok(match begun {
                    Ok(told) => json(&json!({ "told": [told] })),
                    Err(problem) => failed(&problem, "400 Bad Request"),
                })
            }
            ("POST", _) if request.path == LOGIN => {
                let mut response = json(&json!({}));
                response
                    .headers
                    .extend(guard.cookie().map(|cookie| ("set-cookie", cookie)));
                Ok(response)
            }
            (_, ["v1", "status" | "events" | "reload" | "login"]) => Err(OTHER_METHOD),
            (_, ["v1", "drain" | "upgrade"]) if self.stops.is_some() => Err(OTHER_METHOD),
            (_, ["v1", "users"] | ["v1", "users", _, _]) if self.users.is_some() => Err(OTHER_METHOD),
            _ => Err(OTHER_PATH),
        }
    }

    fn listen(&self) -> Result<Listening<'_>, Refusal> {
        let before = self.listeners.fetch_add(1, Ordering::Relaxed);
        let listening = Listening(&self.listeners);
        if before < ADMIN_LISTENERS_MAX {
            Ok(listening)
        } else {
            Err(TOO_MANY)
        }
    }

    /// Sends the counters as events of their own, until the other side goes or does not read.
    fn tell(&self, stream: &mut impl Stream) -> io::Result<()> {
        let mut text = head("200 OK", "text/event-stream", &fixed_headers());
        text.push_str("\r\n");
        loop {
            if let Some(counters) = self.counters.short(EVENT_INTERVAL / 2) {
                text.push_str(&format!("data: {counters}\n\n"));
            }
            write_all(stream, text.as_bytes(), Instant::now() + HTTP_TRANSFER_LIMIT)?;
            text.clear();
            thread::sleep(EVENT_INTERVAL);
        }
    }
}

/// The JSON object of a request, which may be left out.
fn body_of(request: &Request) -> Result<Value, Refusal> {
    if request.body.is_empty() {
        return Ok(json!({}));
    }
    let body = serde_json::from_slice(&request.body).map_err(|_| BAD_BODY)?;
    Some(body).filter(Value::is_object).ok_or(BAD_BODY)
}

/// What is to be done, or why its terms cannot be read.
fn action_of(name: &str, body: &[u8]) -> Result<Result<Action, Problem>, Refusal> {
    Ok(Ok(match name {
        "disable" => Action::Disable,
        "enable" => Action::Enable,
        "remove" => Action::Remove,
        "renew" => {
            let body: Value = serde_json::from_slice(body).map_err(|_| BAD_TERMS)?;
            let term = |key: &str| match body.get(key) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(text)) => Ok(Some(text.clone())),
                Some(_) => Err(BAD_TERMS),
            };
            let terms = UserTerms {
                expires: term("expires")?,
                quota: term("quota")?,
                rate: term("rate")?,
            };
            if terms.expires.is_none() && terms.quota.is_none() && terms.rate.is_none() {
                return Err(BAD_TERMS);
            }
            match Terms::parse(&terms) {
                Ok(terms) => Action::Renew(terms),
                Err(problem) => return Ok(Err(problem)),
            }
        }
        _ => return Err(NO_ACTION),
    }))
}

/// A list of the users, by name where they have one.
fn users(counters: &Value) -> Vec<Value> {
    let users = counters["users"].as_object().into_iter().flatten();
    let mut users: Vec<_> = users
        .map(|(id, user)| {
            let mut user = user.clone();
            user["id"] = json!(id);
            user
        })
        .collect();
    users.sort_by_key(|user| user["name"].as_str().unwrap_or_default().to_owned());
    users
}

/// What browsers are told of every answer.
pub(super) fn fixed_headers() -> Vec<(&'static str, String)> {
    [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into()
}

fn json(value: &Value) -> Response {
    Response {
        status: "200 OK",
        content_type: JSON,
        headers: fixed_headers(),
        body: value.to_string(),
        has_body: true,
    }
}

fn refused(refusal: &Refusal) -> Response {
    let mut response = json(&json!({ "error": refusal.reason }));
    response.status = refusal.status;
    if refusal.status.starts_with("401") {
        response.headers.push(("www-authenticate", "Bearer".to_owned()));
    }
    response
}

/// A failed action; `of_usage` where the asker is wrong.
fn failed(problem: &Problem, of_usage: &'static str) -> Response {
    let mut response = json(&json!({ "error": problem.to_string() }));
    response.status = match problem.code() {
        Code::Usage => of_usage,
        Code::Unavailable => "503 Service Unavailable",
        _ => "500 Internal Server Error",
    };
    response
}

/// Answers for ever.
pub(super) fn serve<S: Stream + Send + 'static>(
    api: &Arc<Api>,
    guard: &Guard,
    accept: impl FnMut() -> io::Result<S>,
) -> ! {
    let (api, guard) = (Arc::clone(api), guard.clone());
    serve_each(
        "admin",
        crate::limits::ADMIN_CONNECTIONS_MAX,
        accept,
        move |stream| api.converse(stream, &guard),
    )
}
