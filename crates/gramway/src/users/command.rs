//! `gramway user`: adds users, changes them, and prints their links.

use serde_json::Value;
use store::{Rights, Sqlite, Store, StoreError, User, UserId};
use tunnel_proto::Token;

use super::actions::{self, Action, Terms, used};
use super::amounts::{quota_text, time_text};
use super::register::{describe, token_digest};
use super::{FILE, exclusion_of, open, problem, rights_of, unix_now};
use crate::cli::{UserAction, UserArguments};
use crate::exit::Problem;
use crate::link::Link;
use crate::output;
use crate::print_link;
use crate::server_state::{ServerState, random};
use crate::state::StateDirectory;

/// Runs the command.
pub(crate) fn run(arguments: &UserArguments) -> Result<(), Problem> {
    let directory = StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?;
    let state = ServerState::existing(&directory)?;
    let users = Users { directory, state };
    match &arguments.action {
        UserAction::Add {
            name,
            terms,
            no_udp,
            no_tcp,
            no_ip,
            qr,
        } => {
            let rights = Rights {
                udp: !no_udp,
                tcp: !no_tcp,
                // Packets carry whatever is in them.
                ip: !(*no_ip || *no_udp || *no_tcp),
            };
            users.add(name, &Terms::parse(terms)?, rights, *qr)
        }
        UserAction::List { json } => users.list(*json),
        UserAction::Renew { name, terms } => {
            let terms = Terms::parse(terms)?;
            if terms == Terms::default() {
                return Err(Problem::usage(
                    "nothing to renew: give --expires, --quota, or both",
                ));
            }
            if let Some((user, used)) = actions::apply(&users.directory, name, &Action::Renew(terms))? {
                output::note(&format!("{name}: {}", terms_line(&user, used)));
            }
            Ok(())
        }
        UserAction::Disable { name } => actions::apply(&users.directory, name, &Action::Disable).map(drop),
        UserAction::Enable { name } => actions::apply(&users.directory, name, &Action::Enable).map(drop),
        UserAction::Remove { name } => actions::apply(&users.directory, name, &Action::Remove).map(drop),
        UserAction::Link { name, qr } => {
            let token = Token::from_bytes(random()?);
            // Before the former link is of no use.
            let link = users.link(token.clone())?;
            actions::change(&users.directory, name, |user| {
                (user.token_digest, user.front_door_key) = digests(&token);
            })?;
            show(&link, *qr)
        }
    }
}

/// The users of one server.
struct Users {
    directory: StateDirectory,
    state: ServerState,
}

impl Users {
    fn add(&self, name: &str, terms: &Terms, rights: Rights, qr: bool) -> Result<(), Problem> {
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
            rights,
            is_disabled: false,
        };
        terms.apply(&mut user, now);
        let store = match open(&self.directory)? {
            Some(store) => Ok(store),
            None => Sqlite::create(&self.directory.file(FILE)),
        };
        let added = store.and_then(|mut store| store.add(&user));
        added.map_err(|error| self.problem(&error))?;
        show(&link, qr)
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
                self.directory.path().display(),
                self.directory.path().display()
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
    for (right, has) in rights_of(user.rights) {
        if !has {
            text.push_str(&format!(", no {right}"));
        }
    }
    if let Some(exclusion) = exclusion_of(user, used, unix_now()) {
        text.push_str(&format!("; kept out: {}", exclusion.reason()));
    }
    text
}
