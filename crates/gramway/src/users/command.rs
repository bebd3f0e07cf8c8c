//! `gramway user`: adds users, changes them, and prints their links. Root does so as the owner of the state directory.

use serde_json::{Value, json};
use store::{Rights, Sqlite, Store, StoreError, User, UserId};
use tunnel_proto::link::Link;
use tunnel_proto::{AllowedTarget, ListenRange, Token};

use super::actions::{self, Action, Terms, used};
use super::amounts::{quota_text, rate_text, time_text};
use super::register::{describe, token_digest};
use super::{FILE, copies, exclusion_of, open, problem, rights_of, unix_now};
use crate::cli::{UserAction, UserArguments};
use crate::exit::Problem;
use crate::output;
use crate::print_link;
use crate::server_state::{ServerState, random};
use crate::state::StateDirectory;
use crate::status::{Question, ask_all};

/// Runs the command.
pub(crate) fn run(arguments: &UserArguments) -> Result<(), Problem> {
    let directory = StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?;
    match &arguments.action {
        UserAction::Add {
            name,
            terms,
            no_udp,
            no_tcp,
            no_ip,
            reach,
            listen,
            qr,
        } => {
            let rights = Rights {
                udp: !no_udp,
                tcp: !no_tcp,
                // Packets carry whatever is in them.
                ip: !(*no_ip || *no_udp || *no_tcp),
            };
            let (reach, listen) = (read_reach(reach)?, read_listen(listen)?);
            if *no_tcp && !listen.is_empty() {
                return Err(Problem::usage("--listen is for TCP: leave it or --no-tcp out"));
            }
            let permissions = Permissions {
                rights,
                reach,
                listen,
            };
            let terms = Terms::parse(terms)?;
            Users::of(directory)?.add(name, &terms, permissions, *qr)
        }
        UserAction::List { json } => Users::of(directory)?.list(*json),
        UserAction::Renew { name, terms } => {
            let terms = Terms::parse(terms)?;
            if terms == Terms::default() {
                return Err(Problem::usage(
                    "nothing to renew: give --expires, --quota or --rate",
                ));
            }
            if let Some((user, used)) = Users::of(directory)?.apply(name, &Action::Renew(terms))? {
                output::note(&format!("{name}: {}", terms_line(&user, used)));
            }
            Ok(())
        }
        UserAction::Disable { name } => Users::of(directory)?.apply(name, &Action::Disable).map(drop),
        UserAction::Enable { name } => Users::of(directory)?.apply(name, &Action::Enable).map(drop),
        UserAction::Remove { name } => Users::of(directory)?.apply(name, &Action::Remove).map(drop),
        UserAction::Link { name, qr } => Users::of(directory)?.renew_link(name, *qr),
        UserAction::Backup { file } => copies::back_up(directory, file),
        UserAction::Restore { file } => copies::restore(directory, file),
    }
}

/// What a user may do.
struct Permissions {
    rights: Rights,
    reach: Vec<String>,
    listen: Vec<String>,
}

/// The users of one server.
struct Users {
    directory: StateDirectory,
    state: ServerState,
}

impl Users {
    /// As the owner of the directory, also where root asks.
    fn of(directory: StateDirectory) -> Result<Self, Problem> {
        let directory = directory.into_owners_root()?;
        let state = ServerState::existing(&directory)?;
        Ok(Self { directory, state })
    }

    fn apply(&self, name: &str, action: &Action) -> Result<Option<(User, u64)>, Problem> {
        actions::apply(&self.directory, name, action)
    }

    fn renew_link(&self, name: &str, qr: bool) -> Result<(), Problem> {
        let token = Token::from_bytes(random()?);
        // Before the former link is of no use.
        let link = self.link(token.clone())?;
        actions::change(&self.directory, name, |user| {
            (user.token_digest, user.front_door_key) = digests(&token);
        })?;
        self.tell_server();
        show(&link, qr)
    }

    fn add(&self, name: &str, terms: &Terms, permissions: Permissions, qr: bool) -> Result<(), Problem> {
        User::check_name(name).map_err(|error| self.problem(&error))?;
        let token = Token::from_bytes(random()?);
        let link = self.link(token.clone())?;
        let now = unix_now();
        let (token_digest, front_door_key) = digests(&token);
        let mut user = User {
            id: UserId(random()?),
            name: name.to_owned(),
            token_digest,
            front_door_key,
            created: now,
            expires: None,
            quota: None,
            bits_per_second: None,
            rights: permissions.rights,
            reach: permissions.reach,
            listen: permissions.listen,
            is_disabled: false,
        };
        terms.apply(&mut user, now);
        let store = match open(&self.directory)? {
            Some(store) => Ok(store),
            None => Sqlite::create(&self.directory.file(FILE)),
        };
        let added = store.and_then(|mut store| store.add(&user));
        added.map_err(|error| self.problem(&error))?;
        self.tell_server();
        show(&link, qr)
    }

    /// Waits until a running server knows what was changed, so that a new link works as soon as it is printed. A server
    /// that does not answer follows by itself.
    fn tell_server(&self) {
        let question = Question::of_server("POST /v1/users", &json!({}));
        let _ = ask_all(&self.directory, &question, |_| ());
    }

    fn list(&self, as_json: bool) -> Result<(), Problem> {
        let mut list = Vec::new();
        if let Some(mut store) = open(&self.directory)? {
            for user in store.users().map_err(|error| self.problem(&error))? {
                let used = used(&mut store, &user).map_err(|error| self.problem(&error))?;
                list.push((user, used));
            }
        }
        if as_json {
            let list = list.iter().map(|(user, used)| describe(user, *used)).collect();
            return output::data(&Value::Array(list).to_string());
        }
        if list.is_empty() {
            output::note("there are no users besides the owner; add one with: gramway user add NAME");
            return Ok(());
        }
        let width = list
            .iter()
            .map(|(user, _)| user.name.len())
            .max()
            .unwrap_or_default();
        let lines: Vec<_> = list
            .iter()
            .map(|(user, used)| format!("{:width$}  {}", user.name, terms_line(user, *used)))
            .collect();
        output::data(&lines.join("\n"))
    }

    /// The link of this token, as the server's last start has it.
    fn link(&self, token: Token) -> Result<Link, Problem> {
        let (endpoints, tcp_port) = self.state.endpoints()?;
        if endpoints.is_empty() {
            return Err(Problem::configuration(format!(
                "no server has run with the state directory {}; start one with: gramway up --state {}",
                self.directory.shown().display(),
                self.directory.shown().display()
            )));
        }
        Ok(Link {
            token,
            endpoints,
            proof: self.state.last_proof()?,
            tcp_port,
            name: String::new(),
        })
    }

    fn problem(&self, error: &StoreError) -> Problem {
        problem(&self.directory, error)
    }
}

/// Networks as people write them, in the form that is kept.
fn read_reach(networks: &[String]) -> Result<Vec<String>, Problem> {
    let read = |text: &String| match text.parse::<AllowedTarget>() {
        Ok(network) => Ok(network.to_string()),
        Err(error) => Err(Problem::usage(format!("--reach: {error}"))),
    };
    networks.iter().map(read).collect()
}

/// Ports as people write them, in the form that is kept.
fn read_listen(ranges: &[String]) -> Result<Vec<String>, Problem> {
    let read = |text: &String| match text.parse::<ListenRange>() {
        Ok(range) => Ok(range.to_string()),
        Err(error) => Err(Problem::usage(format!("--listen: {error}"))),
    };
    ranges.iter().map(read).collect()
}

/// What of a token is kept.
fn digests(token: &Token) -> ([u8; 32], [u8; 40]) {
    (token_digest(&token.reveal()), token.user_key().to_bytes())
}

fn show(link: &Link, qr: bool) -> Result<(), Problem> {
    if qr {
        print_link::show_with_code(link)
    } else {
        output::data(&link.reveal())
    }
}

/// A user on one line.
fn terms_line(user: &User, used: u64) -> String {
    let mut parts = vec![format!("{} used", crate::units::bytes(used))];
    if let Some(quota) = user.quota {
        parts.push(format!("of {}", quota_text(quota)));
    }
    let mut text = parts.join(" ");
    match user.expires {
        Some(expires) => text.push_str(&format!(", until {} UTC", time_text(expires))),
        None => text.push_str(", without an end"),
    }
    if let Some(rate) = user.bits_per_second {
        text.push_str(&format!(", at most {}", rate_text(rate)));
    }
    for (right, has) in rights_of(user.rights) {
        if !has {
            text.push_str(&format!(", no {right}"));
        }
    }
    if !user.reach.is_empty() {
        text.push_str(&format!(", only {}", user.reach.join(" ")));
    }
    if !user.listen.is_empty() {
        text.push_str(&format!(", listens on {}", user.listen.join(" ")));
    }
    if let Some(exclusion) = exclusion_of(user, used, unix_now()) {
        text.push_str(&format!("; kept out: {}", exclusion.reason()));
    }
    text
}
