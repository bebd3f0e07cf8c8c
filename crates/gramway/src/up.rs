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
use tunnel::qlog::Qlog;
use tunnel_proto::link::{Link, Proof};

use crate::admin::{Admin, AdminListener, AdminSocket, SERVER_SOCKET, Stops, UsersDatabase, own_socket};
use crate::certificate::CertificateFiles;
use crate::cli::UpArguments;
use crate::config::Settings;
use crate::cover::{Cover, CoverSettings, Imitated};
use crate::drain::Drain;
use crate::exit::{Problem, sentence};
use crate::http::ListenerHandle;
use crate::limits::LISTENING_LIMIT;
use crate::metrics::MetricsListener;
use crate::reload::{Reloader, Source};
use crate::run::{Entrances, Patience};
use crate::sandbox::{Needs, Sandbox};
use crate::server_state::{CoverKeys, ServerState};
use crate::upgrade::{Launcher, Takeover, Upgrade};
use crate::users::{Hook, Keeper};
use crate::{
    addresses, authorities, kill_switch, log, output, print_link, run, service, service_manager, startup,
    tcp_shape, upgrade,
};

/// Runs the command.
pub(crate) fn run(arguments: &UpArguments) -> Result<(), Problem> {
    let takeover = arguments.takeover.then(Takeover::receive).transpose()?;
    let ended = serve(arguments, takeover.as_ref());
    if let (Some(takeover), Err(problem)) = (&takeover, &ended) {
        takeover.fail(problem);
    }
    ended
}

fn serve(arguments: &UpArguments, takeover: Option<&Takeover>) -> Result<(), Problem> {
    let directory = startup::state_directory(&arguments.places)?;
    let source = Source::new(&directory, &arguments.places, &arguments.flags, check);
    let (settings, effective) = source.read()?;
    log::start(settings.log_format, arguments.verbose, settings.verbose)?;
    let listen = listen(&settings);
    let files = CertificateFiles::of(&settings)?;
    let certificate = files.as_ref().map(CertificateFiles::read).transpose()?;
    let public = match &certificate {
        Some(certificate) if settings.public.is_empty() => certificate.hosts(),
        _ => settings.public.clone(),
    };
    let hosts: Vec<_> = addresses::announced(listen, &public)
        .into_iter()
        .map(|endpoint| endpoint.host)
        .collect();
    let cover = settings.cover.for_server()?;
    log::conceal(hosts.iter().cloned().chain(cover.iter().flat_map(Cover::names)));
    let hook_roots = authorities::read(settings.auth_hook_roots.as_deref())?;
    let mut state = match takeover {
        Some(takeover) => ServerState::open_locked(&directory, &hosts, takeover.lock()?)?,
        None => ServerState::open(&directory, &hosts)?,
    };

    if takeover.is_none() {
        startup::undo_leftovers(&directory);
    }
    kill_switch::warn_of_one_left();
    let config = startup::named_config(&arguments.places);
    let certificate_directories = files.iter().flat_map(CertificateFiles::directories).collect();
    let needs = Needs::of_server(&directory, &settings)
        .with_config(config.as_deref())
        .reading(certificate_directories);
    let mut host = needs.host_access(settings.has_no_sandbox)?;
    let tun = settings
        .tun
        .for_server(&directory, state.identity.pin(), host.changes());
    startup::raise_file_limit();
    settings.qlog.prepare()?;
    let open = takeover.map(Takeover::listeners).transpose()?.unwrap_or_default();
    let metrics = settings.metrics.open(&open)?;
    let page = settings.admin.open(&directory, &open)?;
    drop(open);
    service_manager::connect()?;
    let made = needs.make_directories(settings.has_no_sandbox)?;
    let launcher = match upgrade::hindrance(&settings) {
        Some(why) => Err(why.to_owned()),
        // A server that is never upgraded does not need it.
        None => match takeover {
            Some(takeover) => takeover.launcher(),
            None => Launcher::start(&needs, settings.has_no_sandbox),
        }
        .map_err(|problem| format!("it was started without what upgrades need ({problem}); restart it")),
    };
    let sandbox = Sandbox::enter(&needs, &host, settings.has_no_sandbox, made);
    let users = Keeper::load(&directory)?;
    let register = users.register();
    let (front, proof) = match (&cover, files.as_ref().zip(certificate.as_ref())) {
        (Some(cover), _) => {
            let (front, proof) = Front::of(cover, &mut state)?;
            (Some(front), proof)
        }
        (None, Some((files, certificate))) => (None, certificate.proof(files)?),
        (None, None) => (None, Proof::Pin(state.identity.pin())),
    };
    let shown = match &certificate {
        Some(certificate) => certificate.shown.clone(),
        None => state.identity.shown()?,
    };
    let hook = settings.auth_hook.as_ref().map(|url| {
        if let Some(warning) = url.warning() {
            log::warning("auth_hook", warning);
        }
        Hook::start(url, &hook_roots, Arc::clone(&register))
    });
    let qlog = settings.qlog.of_server(&register)?;
    let handle = tunnel::server::start(ServerConfig {
        listen,
        tcp: settings.tcp,
        certificates: shown,
        tokens: vec![state.token.clone()],
        users: Some(register.clone()),
        hook: hook.transpose()?.map(|hook| Arc::new(hook) as _),
        reset_key: state.reset_key,
        token_key: state.token_key,
        allowed_targets: settings.allow_target.clone(),
        public: public.iter().map(|(host, _)| host.clone()).collect(),
        cover: front.as_ref().map(|front| front.config(&settings.cover, &state)),
        has_rendezvous: !settings.has_no_rendezvous,
        tun,
        takeover: takeover.map(Takeover::sockets),
        qlog: qlog.as_ref().map(Qlog::tracing),
        common: settings.common.clone(),
    })?;
    let controller = handle.controller();
    let reloader = Arc::new(Reloader::new(source, controller.clone(), &settings, effective));
    let is_stopping = run::follow_signals(controller.clone(), Arc::clone(&reloader))?;
    host.watch(controller.clone())?;
    let entrances = Entrances {
        users: Some(&register),
        ..Entrances::default()
    };
    let deadline = Instant::now() + LISTENING_LIMIT;
    let local = match listening_address(&handle, deadline) {
        Some(local) => local,
        None if Instant::now() < deadline => {
            let ended = run::until_end(
                handle,
                &Entrances::default(),
                &mut Patience::default(),
                &is_stopping,
            );
            return ended.map(drop);
        }
        None => return Err(Problem::bug("the server does not say where it listens")),
    };
    let endpoints = addresses::announced(local, &public);
    let tcp_port = tcp_shape::announced(settings.tcp, &endpoints);
    if takeover.is_none()
        && let Some(warning) = state.commit(&endpoints, tcp_port, &proof)?
    {
        log::warning("link", warning);
    }
    if let Some(front) = &front {
        front.keep(&state)?;
    }
    let users = users.start()?;
    if let Some(warning) = certificate
        .as_ref()
        .and_then(|certificate| certificate.warning(&endpoints, &proof))
    {
        log::warning("certificate", warning);
    }
    let watch = files
        .zip(certificate)
        .map(|(files, certificate)| files.watch(certificate));
    let _watch = watch.transpose()?;
    let drain = Arc::new(Drain::new(
        controller.clone(),
        settings.drain_time.0,
        Arc::clone(&is_stopping),
    ));
    let upgrade = Arc::new(Upgrade::new(
        controller.clone(),
        Arc::clone(&drain),
        launcher,
        takeover.map_or(0, Takeover::generation),
        handles(metrics.as_ref(), page.as_ref())?,
    ));
    let database = UsersDatabase {
        directory: directory.clone(),
        follower: users.follower(),
    };
    let admin = Admin::new(
        controller.clone(),
        sandbox.report(),
        Some((Arc::clone(&register), database)),
        Arc::clone(&reloader),
        Some(Stops {
            drain,
            upgrade: Arc::clone(&upgrade),
        }),
    );
    let lock = state.lock()?;
    let beside = takeover.map(|takeover| {
        let socket = AdminSocket::open(&directory, &own_socket(), &admin)?;
        takeover.complete()?;
        controller.take_over();
        Ok::<_, Problem>(socket)
    });
    let beside = beside.transpose()?;
    users.set_damaged_aside();
    // Once the former process has let go, nobody serves but this one, whatever fails.
    let bearable = |done: Result<(), Problem>| match done {
        Err(problem) if takeover.is_some() => {
            log::warning("upgrade", problem.to_string());
            Ok(())
        }
        done => done,
    };
    if takeover.is_some() {
        let told = state.commit(&endpoints, tcp_port, &proof);
        bearable(told.map(|warning| {
            warning
                .iter()
                .for_each(|warning| log::warning("link", warning.as_str()))
        }))?;
    }
    if let Some(metrics) = metrics {
        bearable(metrics.serve(controller.clone(), Some(register.clone()), reloader))?;
    }
    if let Some(page) = page {
        bearable(page.serve(&admin, &directory))?;
    }
    let socket = match beside {
        Some(socket) => {
            bearable(socket.rename(SERVER_SOCKET))?;
            socket
        }
        None => AdminSocket::open(&directory, SERVER_SOCKET, &admin)?,
    };
    let socket = Arc::new(socket);
    upgrade.enable(lock, &socket);
    bearable(service_manager::ready(controller))?;

    if let Some(warning) = addresses::reach_warning(&endpoints) {
        log::warning("reachability", warning);
    }
    if std::io::stdout().is_terminal() {
        let given: Vec<_> = std::env::args().skip_while(|word| word != "up").skip(1).collect();
        if let Some(offer) = service::offer(&arguments.places, &given) {
            output::note(&offer);
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
        log::info(
            "ready",
            format!(
                "print the link with: gramway link --state {}",
                directory.path().display()
            ),
        );
    }
    let ended = run::until_end(handle, &entrances, &mut Patience::default(), &is_stopping);
    host.judge(ended.map(drop))
}

/// The listeners for a process that takes over.
fn handles(
    metrics: Option<&MetricsListener>,
    page: Option<&AdminListener>,
) -> Result<Vec<ListenerHandle>, Problem> {
    let handles = [
        metrics.map(MetricsListener::handle),
        page.map(AdminListener::handle),
    ];
    let handles: std::io::Result<Vec<_>> = handles.into_iter().flatten().collect();
    handles.map_err(|error| Problem::unavailable(format!("cannot keep a listener: {}", sentence(&error))))
}

/// What no single setting can judge.
fn check(settings: &Settings) -> Result<(), Problem> {
    CertificateFiles::of(settings)?;
    if settings.auth_hook.is_some() && settings.cover.place.is_some() {
        return Err(Problem::usage(
            "a cover recognises users by keys that no hook has; leave out --auth-hook or --cover",
        ));
    }
    tcp_shape::check_server(settings, listen(settings))
}

fn listen(settings: &Settings) -> SocketAddr {
    settings.listen.unwrap_or_else(addresses::default_listen)
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
        run::tell(&notice, &Entrances::default());
        if let Notice::Listening { local, .. } = notice {
            return Some(local);
        }
    }
}
