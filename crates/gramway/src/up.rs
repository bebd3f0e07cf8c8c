//! `gramway up`: runs a server.
//!
//! The order leaves the disk unchanged if the start fails: settings, secrets in memory, the server itself, and only
//! then files, admin socket and link.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tunnel::config::ServerConfig;
use tunnel::examination::Profile;
use tunnel::handle::{Handle, Notice};

use crate::admin::{Admin, AdminSocket, SERVER_SOCKET};
use crate::cli::UpArguments;
use crate::cover::{Cover, CoverSettings, Imitated};
use crate::exit::Problem;
use crate::limits::LISTENING_LIMIT;
use crate::link::{Link, Proof};
use crate::run::{Detail, Entrances};
use crate::sandbox::{Needs, Sandbox};
use crate::server_state::{CoverKeys, ServerState};
use crate::users::Keeper;
use crate::{addresses, kill_switch, output, print_link, run, service, service_manager, startup, tcp_shape};

/// Runs the command.
pub(crate) fn run(arguments: &UpArguments) -> Result<(), Problem> {
    let (directory, settings) = startup::settings(&arguments.places, &arguments.flags)?;
    let listen = settings.listen.unwrap_or_else(addresses::default_listen);
    let hosts: Vec<_> = addresses::announced(listen, &settings.public)
        .into_iter()
        .map(|endpoint| endpoint.host)
        .collect();
    let cover = settings.cover.for_server()?;
    tcp_shape::check_server(&settings, listen)?;
    let mut state = ServerState::open(&directory, &hosts)?;

    startup::undo_leftovers(&directory);
    kill_switch::warn_of_one_left();
    let needs = Needs::of_server(&directory, &settings);
    let mut host = needs.host_access(settings.has_no_sandbox)?;
    let tun = settings
        .tun
        .for_server(&directory, state.identity.pin(), host.changes());
    startup::raise_file_limit();
    let metrics = settings.metrics.open()?;
    let page = settings.admin.open(&directory)?;
    service_manager::connect()?;
    let sandbox = Sandbox::enter(&needs, &host, settings.has_no_sandbox)?;
    let (users, warning) = Keeper::load(&directory)?;
    let register = users.register();
    if let Some(warning) = warning {
        output::event(&format!("warning: {warning}"));
    }
    let (front, proof) = match &cover {
        Some(cover) => {
            let (front, proof) = Front::of(cover, &mut state)?;
            (Some(front), proof)
        }
        None => (None, Proof::Pin(state.identity.pin())),
    };
    let handle = tunnel::server::start(ServerConfig {
        listen,
        tcp: settings.tcp,
        certificate_chain: state.identity.chain().to_vec(),
        private_key: state.identity.key_der(),
        tokens: vec![state.token.clone()],
        users: Some(register.clone()),
        reset_key: state.reset_key,
        token_key: state.token_key,
        allowed_targets: settings.allow_target.clone(),
        public: settings.public.iter().map(|(host, _)| host.clone()).collect(),
        cover: front.as_ref().map(|front| front.config(&settings.cover, &state)),
        tun,
        common: settings.common.clone(),
    })?;
    let controller = handle.controller();
    let is_stopping = run::end_on_signals(controller.clone())?;
    host.watch(controller.clone())?;
    let detail = Detail::of_flags(arguments.verbose);
    let entrances = Entrances {
        users: Some(&register),
        ..Entrances::default()
    };
    let deadline = Instant::now() + LISTENING_LIMIT;
    let local = match listening_address(&handle, deadline) {
        Some(local) => local,
        None if Instant::now() < deadline => {
            return run::until_end(handle, &Entrances::default(), detail, None, &is_stopping);
        }
        None => return Err(Problem::bug("the server does not say where it listens")),
    };
    let endpoints = addresses::announced(local, &settings.public);
    let tcp_port = tcp_shape::announced(settings.tcp, &endpoints);
    if let Some(warning) = state.commit(&endpoints, tcp_port, &proof)? {
        output::event(&format!("warning: {warning}"));
    }
    if let Some(front) = &front {
        front.keep(&state)?;
    }
    let _users = users.start()?;
    if let Some(metrics) = metrics {
        metrics.serve(controller.clone(), Some(Arc::clone(&register)))?;
    }
    let users = Some((Arc::clone(&register), directory.clone()));
    let admin = Admin::new(controller.clone(), sandbox.report(), users);
    if let Some(page) = page {
        page.serve(&admin, &directory)?;
    }
    let _admin = AdminSocket::open(&directory, SERVER_SOCKET, &admin)?;
    service_manager::ready(controller)?;

    if let Some(warning) = addresses::reach_warning(&endpoints) {
        output::note(&format!("warning: {warning}"));
    }
    if std::io::stdout().is_terminal() {
        if let Some(hint) = service::hint() {
            output::note(hint);
        }
        let link = Link {
            token: state.token.clone(),
            endpoints,
            proof,
            tcp_port,
            name: String::new(),
        };
        print_link::show_with_code(&link)?;
    } else {
        output::note(&format!(
            "print the link with: gramway link --state {}",
            directory.path().display()
        ));
    }
    let ended = run::until_end(handle, &entrances, detail, None, &is_stopping);
    host.judge(ended)
}

/// What a server needs in front of its cover.
struct Front<'a> {
    cover: &'a Cover,
    keys: CoverKeys,
    imitated: Imitated,
}

impl<'a> Front<'a> {
    /// Examines the cover. Also what clients know the server by.
    fn of(cover: &'a Cover, state: &mut ServerState) -> Result<(Self, Proof), Problem> {
        let keys = state.cover_keys()?;
        let proof = state.proof_behind(cover.name.clone(), &keys)?;
        let imitated = cover.examine(state.profile_file(cover).read()?)?;
        let front = Self {
            cover,
            keys,
            imitated,
        };
        Ok((front, proof))
    }

    fn config(&self, settings: &CoverSettings, state: &ServerState) -> tunnel::config::Cover {
        let file = state.profile_file(self.cover);
        let keep_profile =
            Arc::new(move |profile: &Profile| file.keep(profile).map_err(|problem| problem.to_string()));
        let replays_file = state.replays_file();
        let cover = self.cover.clone();
        cover.with(settings, &self.keys, replays_file, &self.imitated, keep_profile)
    }

    /// Keeps what was measured for the next start.
    fn keep(&self, state: &ServerState) -> Result<(), Problem> {
        match &self.imitated {
            Imitated::Measured(profile, _) => state.profile_file(self.cover).keep(profile),
            Imitated::Kept(_) => Ok(()),
        }
    }
}

/// Waits for the server to say where it listens; `None` if it ends first or the deadline passes.
fn listening_address(handle: &Handle, deadline: Instant) -> Option<SocketAddr> {
    loop {
        let notice = handle.next_notice(deadline.saturating_duration_since(Instant::now()))?;
        run::tell(&notice, &Entrances::default(), Detail::Normal);
        if let Notice::Listening { local, .. } = notice {
            return Some(local);
        }
    }
}
