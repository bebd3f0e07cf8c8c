//! `gramway status`: asks every admin socket in the state directory, and the kernel for the kill switch, and prints a
//! table, or JSON.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::admin::{SERVER_SOCKET, connect, is_socket_name};
use crate::cli::StatusArguments;
use crate::exit::Problem;
use crate::limits::{HTTP_HEADERS_MAX, SNAPSHOT_BYTES_MAX, STATUS_READ_LIMIT};
use crate::state::StateDirectory;
use crate::{kill_switch, output, status_table};

/// Runs the command.
pub(crate) fn run(arguments: &StatusArguments) -> Result<(), Problem> {
    // Only root may ask for the kill switch, and root becomes the owner of the directory.
    let standing = kill_switch::find();
    let directory =
        StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?.into_owners()?;
    let processes = query_all(&directory, |path| {
        output::note(&format!(
            "warning: the process behind {} does not answer",
            path.display()
        ));
    })?;
    if processes.is_empty() && standing.is_none() {
        return Err(Problem::unavailable(format!(
            "no server or client is running with the state directory {}; name another with --state DIR",
            directory.shown().display()
        )));
    }
    if arguments.json {
        let kill_switch = kill_switch::as_json(standing.as_ref());
        output::data(&output::json(
            &json!({ "processes": processes, "kill_switch": kill_switch }),
        ))
    } else {
        let kill_switch = standing.as_ref().map(kill_switch::as_text);
        let kill_switch = kill_switch.map(|text| output::shown_lines(&text).into_owned());
        let blocks = [Some(as_text(processes)), kill_switch];
        let blocks: Vec<_> = blocks
            .into_iter()
            .flatten()
            .filter(|block| !block.is_empty())
            .collect();
        output::data(&blocks.join("\n"))
    }
}

/// The counters of processes as a table; what they say is shown as text.
fn as_text(processes: Vec<Value>) -> String {
    let processes: Vec<_> = processes.into_iter().map(output::shown_value).collect();
    status_table::render(&processes)
}

/// The counters of every process that answers, the server first.
pub(crate) fn query_all(directory: &StateDirectory, tell: impl Fn(&Path)) -> Result<Vec<Value>, Problem> {
    let answers = ask_all(directory, &Question::of("GET /v1/status"), |path| tell(path))?;
    let (answered, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.code == 200);
    for answer in refused {
        tell(&directory.shown_file(&answer.name));
    }
    let mut processes: Vec<_> = answered.into_iter().map(|answer| answer.body).collect();
    // Server before client, then by process ID.
    processes.sort_by_key(|process| (process["role"] != "server", process["pid"].as_u64()));
    Ok(processes)
}

/// What a process answers to a request.
pub(crate) struct Answer {
    /// Of its socket.
    pub(crate) name: String,
    /// The HTTP status.
    pub(crate) code: u16,
    pub(crate) body: Value,
}

/// What a process is asked.
pub(crate) struct Question<'a> {
    /// Method and path.
    request: &'a str,
    body: String,
    /// Only the process behind this socket is asked.
    socket: Option<&'a str>,
    /// How long the answer may take.
    limit: Duration,
}

impl<'a> Question<'a> {
    /// For every process.
    pub(crate) fn of(request: &'a str) -> Self {
        Self {
            request,
            body: String::new(),
            socket: None,
            limit: STATUS_READ_LIMIT,
        }
    }

    /// The answer may take so long.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Who is asked, for people.
    pub(crate) fn asked(&self) -> &'static str {
        match self.socket {
            None => "server or client",
            Some(_) => "server",
        }
    }

    /// For the server alone.
    pub(crate) fn of_server(request: &'a str, body: &Value) -> Self {
        Self {
            body: body.to_string(),
            socket: Some(SERVER_SOCKET),
            ..Self::of(request)
        }
    }
}

/// Asks every process of the directory that is meant; sockets of dead processes are removed. `tell`
/// hears of those who live and do not answer.
pub(crate) fn ask_all(
    directory: &StateDirectory,
    question: &Question<'_>,
    tell: impl Fn(&Path),
) -> Result<Vec<Answer>, Problem> {
    if directory.examine()?.is_none() {
        return Ok(Vec::new());
    }
    let cannot = |error: io::Error| Problem::file("list the state directory", directory.shown(), &error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.path()).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        let is_meant = question.socket.is_none_or(|socket| name == socket);
        if is_meant && is_socket_name(&name) {
            names.push(name);
        }
    }
    names.sort();
    let mut answers = Vec::new();
    for name in names {
        let path = directory.file(&name.to_string_lossy());
        let mut answer = ask(directory, &name, question);
        if is_refused(&answer) && !is_dead_and_removed(directory, &name, &path) {
            answer = ask(directory, &name, question);
        }
        match answer {
            Ok(Some((code, body))) => answers.push(Answer {
                name: name.to_string_lossy().into_owned(),
                code,
                body,
            }),
            Ok(None) => tell(&directory.shown_file(&name.to_string_lossy())),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) => {}
            Err(error) => {
                let shown = directory.shown_file(&name.to_string_lossy());
                return Err(Problem::file("query", &shown, &error));
            }
        }
    }
    Ok(answers)
}

fn is_refused<T>(result: &io::Result<T>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Looks again at a socket that has refused, when nobody is about to open one, and removes it if it still refuses.
fn is_dead_and_removed(directory: &StateDirectory, name: &OsStr, path: &Path) -> bool {
    // What cannot be locked is not ours to remove; then it is skipped again the next time.
    let Ok(_lock) = directory.lock_sockets() else {
        return true;
    };
    let is_dead = is_refused(&connect(directory, name));
    if is_dead {
        let _ = std::fs::remove_file(path);
    }
    is_dead
}

/// One process's answer; `None` where it sends nothing that can be read within the limit.
fn ask(
    directory: &StateDirectory,
    name: &OsStr,
    question: &Question<'_>,
) -> io::Result<Option<(u16, Value)>> {
    let mut stream = connect(directory, name)?;
    let deadline = Instant::now() + question.limit;
    stream.set_write_timeout(Some(STATUS_READ_LIMIT))?;
    let Question { request, body, .. } = question;
    let length = body.len();
    let message = format!("{request} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    if stream.write_all(message.as_bytes()).is_err() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || bytes.len() as u64 > SNAPSHOT_BYTES_MAX {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(parse(&bytes))
}

/// Status and body of an answer.
fn parse(answer: &[u8]) -> Option<(u16, Value)> {
    let mut headers = [httparse::EMPTY_HEADER; HTTP_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(answer) {
        Ok(httparse::Status::Complete(length)) => {
            let body: Value = serde_json::from_slice(answer.get(length..)?).ok()?;
            Some((response.code?, body)).filter(|(_, body)| body.is_object())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::admin::{Admin, AdminSocket, SERVER_SOCKET, client_socket};
    use crate::test_support::{mode, state_directory};

    #[test]
    fn running_processes_answer_and_dead_ones_are_pruned() {
        let (_guard, directory) = state_directory();
        assert!(query_all(&directory, |_| ()).unwrap().is_empty());
        directory.create().unwrap();
        drop(UnixListener::bind(directory.file("client-1.sock")).unwrap());
        std::fs::write(directory.file("other.sock"), "").unwrap();
        let client = r#"{"role":"client","pid":7}"#;
        let _client = AdminSocket::open(&directory, &client_socket(), &Admin::of_text(Some(client))).unwrap();
        let server = r#"{"role":"server","pid":9}"#;
        let held = AdminSocket::open(&directory, SERVER_SOCKET, &Admin::of_text(Some(server))).unwrap();
        assert_eq!(mode(&directory.file(SERVER_SOCKET)), 0o600);
        let processes = query_all(&directory, |_| ()).unwrap();
        assert_eq!(processes.len(), 2);
        assert_eq!(processes[0]["pid"], 9);
        assert!(!directory.file("client-1.sock").exists());
        assert!(directory.file("other.sock").exists());
        drop(held);
        assert_eq!(query_all(&directory, |_| ()).unwrap().len(), 1);
    }

    #[test]
    fn a_look_at_a_socket_that_is_just_being_opened_leaves_it_there() {
        let (_guard, directory) = state_directory();
        directory.create().unwrap();
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    query_all(&directory, |_| ()).unwrap();
                }
            });
            // All of them live on: each takes the place of the one before.
            let opened: Vec<_> = (0..200)
                .map(|_| AdminSocket::open(&directory, SERVER_SOCKET, &Admin::of_text(Some("{}"))))
                .collect();
            has_ended.store(true, Ordering::Relaxed);
            let errors: Vec<_> = opened.iter().filter_map(|opened| opened.as_ref().err()).collect();
            assert!(errors.is_empty(), "{errors:?}");
        });
    }

    #[test]
    fn what_a_process_says_does_not_reach_the_terminal_as_a_command() {
        let (_guard, directory) = state_directory();
        directory.create().unwrap();
        let hostile = "\u{1b}]0;title\u{7}\u{9b}2J";
        let text = json!({
            "role": hostile, "pid": 7, "state": hostile, "local": hostile,
            "users": { hostile: { "name": hostile, "excluded": hostile } },
            "warnings": [{ "what": hostile, "advice": hostile }],
            "listeners": [{ "address": hostile, "target": hostile }],
        })
        .to_string();
        let _socket =
            AdminSocket::open(&directory, SERVER_SOCKET, &Admin::of_text(Some(text.leak()))).unwrap();
        let shown = as_text(query_all(&directory, |_| ()).unwrap());
        assert!(shown.contains(r"\u{1b}]0;title\u{7}\u{9b}2J"), "{shown:?}");
        assert!(!shown.replace('\n', "").contains(char::is_control), "{shown:?}");
    }

    #[test]
    fn a_process_that_cannot_answer_is_left_out_and_keeps_its_socket() {
        let (_guard, directory) = state_directory();
        directory.create().unwrap();
        let _mute = AdminSocket::open(&directory, SERVER_SOCKET, &Admin::of_text(None)).unwrap();
        assert!(query_all(&directory, |_| ()).unwrap().is_empty());
        assert!(directory.file(SERVER_SOCKET).exists());
    }

    #[test]
    fn a_state_directory_with_a_very_long_name_works() {
        let guard = tempfile::tempdir().unwrap();
        let path = guard.path().join("x".repeat(120)).join("y".repeat(120));
        let directory = StateDirectory::locate(Some(&path), |_| None).unwrap();
        directory.create().unwrap();
        let _socket = AdminSocket::open(&directory, SERVER_SOCKET, &Admin::of_text(Some("{}"))).unwrap();
        assert_eq!(query_all(&directory, |_| ()).unwrap().len(), 1);
    }
}
