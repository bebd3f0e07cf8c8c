//! `gramway connect`: runs a client. The link comes from exactly one place; the disk is touched only once the client
//! runs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tunnel::config::ClientConfig;
use tunnel::qlog::Qlog;
use tunnel_proto::limits::LINK_BYTES_MAX;
use tunnel_proto::link::Link;

use crate::admin::{Admin, AdminSocket, client_socket};
use crate::cli::ConnectArguments;
use crate::config::Settings;
use crate::exit::{Code, Problem};
use crate::failover::{Server, Turn};
use crate::limits::{FAILOVER_AFTER, FIRST_CONNECTION_LIMIT};
use crate::profiles::Profile;
use crate::reload::{Reloader, Source};
use crate::run::{Entrances, Patience};
use crate::sandbox::{Needs, Sandbox};
use crate::tun::AUTOMATIC;
use crate::{failover, kill_switch, log, profiles, run, service_manager, startup};

const LINK_VARIABLE: &str = "GRAMWAY_LINK";

/// Runs the command.
pub(crate) fn run(mut arguments: ConnectArguments) -> Result<(), Problem> {
    take_link_from_tun(&mut arguments);
    let directory = startup::state_directory(&arguments.places)?;
    if let Some(name) = arguments.link.take_if(|text| profiles::is_name(text)) {
        arguments.places.profile = Some(Profile::find(&directory, &name)?);
    }
    let source = Source::new(&directory, &arguments.places, &arguments.flags, check);
    let (settings, effective) = source.read()?;
    log::start(settings.log_format, arguments.verbose, settings.verbose)?;
    let link = find_link(&arguments, &settings)?;
    let mut links = vec![link];
    for path in &settings.fallback {
        links.push(read_file(path)?);
    }
    let mut servers = Vec::with_capacity(links.len());
    for link in links {
        servers.push(Server::of(link, &settings)?);
    }
    let servers_hosts = servers.iter().flat_map(|server| &server.addresses);
    log::conceal(servers_hosts.map(|(host, _)| host.clone()));
    if let Some(warning) = settings.proxies.warning() {
        log::warning("proxy", warning);
    }

    startup::undo_leftovers(&directory);
    if !settings.tun.default_route {
        kill_switch::warn_of_one_left();
    }
    let config = startup::named_config(&arguments.places);
    let needs = Needs::of_client(&directory, &settings, failover::needed_carriers(&servers))
        .with_config(config.as_deref());
    let mut host = needs.host_access(settings.has_no_sandbox)?;
    let tun_changes = host.changes().filter(|_| settings.tun.name.is_some());
    let (tun, _name_lock) = settings.tun.for_client(&directory, tun_changes)?.unzip();
    startup::raise_file_limit();
    settings.qlog.prepare()?;
    let metrics = settings.metrics.open(&[])?;
    let page = settings.admin.open(&directory, &[])?;
    service_manager::connect()?;
    let made = needs.make_directories(settings.has_no_sandbox)?;
    let sandbox = Sandbox::enter(&needs, &host, settings.has_no_sandbox, made);
    let qlog = settings.qlog.of_client()?;
    let config_of = |server: &Server| ClientConfig {
        servers: server.addresses.clone(),
        carriers: server.carriers,
        proof: server.proof.clone(),
        token: server.token.clone(),
        forwards: settings.forward.clone(),
        remote_forwards: settings.remote_forward.clone(),
        proxies: settings.proxies.of_client(),
        transparent_port: settings.tproxy.port,
        bind: settings.bind,
        tun: tun.clone(),
        qlog: qlog.as_ref().map(Qlog::tracing),
        common: settings.common.clone(),
    };
    let mut handle = tunnel::client::start(config_of(&servers[0]))?;
    settings.tproxy.start(host.changes())?;
    let controller = handle.controller();
    let reloader = Arc::new(Reloader::new(source, controller.clone(), &settings, effective));
    let is_stopping = run::follow_signals(controller.clone(), Arc::clone(&reloader))?;
    host.watch(controller.clone())?;
    directory.create()?;
    if let Some(metrics) = metrics {
        metrics.serve(controller.clone(), None, Arc::clone(&reloader))?;
    }
    let admin = Admin::new(
        controller.clone(),
        sandbox.report(),
        None,
        Arc::clone(&reloader),
        None,
    );
    if let Some(page) = page {
        page.serve(&admin, &directory)?;
    }
    let _admin = AdminSocket::open(&directory, &client_socket(), &admin)?;
    service_manager::ready(controller)?;
    let mut patience = Patience {
        first_due: settings
            .exit_on_failure
            .then(|| Instant::now() + FIRST_CONNECTION_LIMIT),
        without: (servers.len() > 1).then_some(FAILOVER_AFTER),
    };
    let kill_switch = handle.kill_switch();
    let entrances = Entrances {
        forwards: &settings.forward,
        remote_forwards: &settings.remote_forward,
        proxies: settings.proxies,
        tproxy: Some(&settings.tproxy),
        users: None,
    };
    let mut turn = Turn::of(servers.len());
    let ended = loop {
        let ended = run::until_end(handle, &entrances, &mut patience, &is_stopping);
        let Some(next) = turn.after(&ended) else {
            break ended.map(drop);
        };
        let why = match &ended {
            Err(problem) => problem.to_string(),
            Ok(_) => "there is no connection".to_owned(),
        };
        let (number, of) = (next + 1, servers.len());
        log::info(
            "failover",
            format!("going on with server {number} of {of}: {why}"),
        );
        handle = match tunnel::client::start(config_of(&servers[next])) {
            Ok(handle) => handle,
            Err(failure) => break Err(failure.into()),
        };
        reloader.follow(&handle.controller());
        // The signal may have reached the client that has ended.
        if is_stopping.load(Ordering::Relaxed) {
            handle.controller().stop();
        }
    };
    settings.tproxy.end(host.changes());
    let ended = host.judge(ended);
    if let Some(kill_switch) = kill_switch {
        let as_asked = ended.is_ok() && is_stopping.load(Ordering::Relaxed);
        kill_switch::end(&kill_switch, as_asked);
    }
    ended
}

/// What no single setting can judge.
fn check(settings: &Settings) -> Result<(), Problem> {
    let has_ports = !settings.forward.is_empty() || !settings.remote_forward.is_empty();
    let has_proxy = !settings.proxies.is_empty() || settings.tproxy.port.is_some();
    if !has_ports && !has_proxy && settings.tun.name.is_none() {
        return Err(Problem::usage(
            "nothing to carry; give at least one -L, such as -L udp:5353=10.0.0.1:53, -R tcp:8080=localhost:80, --socks 1080, \
             --http 8080 or --tun",
        ));
    }
    if settings.tun.name.is_some() && !settings.fallback.is_empty() {
        return Err(Problem::usage(
            "a TUN leads to one server: leave --tun or --fallback out (tun and fallback in the config file)",
        ));
    }
    if settings.tproxy.port.is_some() && settings.tun.default_route {
        return Err(Problem::usage(
            "with the default route in the tunnel a router's network goes there as well: leave --tproxy or --default-route out",
        ));
    }
    settings.tproxy.check()?;
    settings.proxies.check(&settings.forward)
}

/// `--tun LINK` makes clap take the link for the device's name: moves it to where it belongs.
fn take_link_from_tun(arguments: &mut ConnectArguments) {
    let name = arguments.flags.value("tun").and_then(OsStr::to_str);
    if let (None, Some(link)) = (&arguments.link, name)
        && link.contains("://")
    {
        arguments.link = Some(link.to_owned());
        arguments.flags.replace("tun", AUTOMATIC);
    }
}

/// The link from the argument, `--link-file` or GRAMWAY_LINK, of which one may be given; else from the `link_file` of
/// the config file or the environment.
fn find_link(arguments: &ConnectArguments, settings: &Settings) -> Result<Link, Problem> {
    let variable = std::env::var_os(LINK_VARIABLE).filter(|text| !text.is_empty());
    let given: Vec<_> = [
        arguments.link.as_ref().map(|_| "as an argument"),
        arguments.flags.value("link_file").map(|_| "with --link-file"),
        variable.as_ref().map(|_| "in GRAMWAY_LINK"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if given.len() > 1 {
        return Err(Problem::usage(format!(
            "the link is given {}; give it once",
            given.join(" and ")
        )));
    }
    if let Some(text) = &arguments.link {
        return parse(Code::Usage, "LINK", text);
    }
    if let Some(text) = variable {
        let text = text.to_string_lossy();
        return parse(Code::Configuration, LINK_VARIABLE, &text);
    }
    match &settings.link_file {
        Some(path) if path == Path::new("-") => {
            let text = read(&mut io::stdin().lock()).map_err(|error| Problem::file("read", path, &error))?;
            parse(Code::Configuration, "standard input", &text)
        }
        Some(path) => read_file(path),
        None => Err(Problem::usage(
            "no link; the server's `gramway link` prints it: give it as LINK, --link-file FILE or GRAMWAY_LINK, or the name of a \
             profile",
        )),
    }
}

fn read_file(path: &Path) -> Result<Link, Problem> {
    let text = read_link_file(path)?;
    parse(Code::Configuration, &path.display().to_string(), &text)
}

/// The text of a file with a link; warns where others can read it.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_link_file(path: &Path) -> Result<String, Problem> {
    let cannot = |error: io::Error| Problem::file("read the link file", path, &error);
    let mut file = File::open(path).map_err(cannot)?;
    let text = read(&mut file).map_err(cannot)?;
    let metadata = file.metadata().map_err(cannot)?;
    if metadata.is_file() && metadata.mode() & 0o077 != 0 && !is_credential(path) {
        let path = path.display();
        log::warning(
            "link",
            format!("others can read the link in {path} and use the server with it; run: chmod 600 {path}"),
        );
    }
    Ok(text)
}

/// systemd guards these by their directory, and lets its service in by an ACL, which the mode shows as the group's.
fn is_credential(path: &Path) -> bool {
    let directory = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|directory| !directory.is_empty());
    directory.is_some_and(|directory| path.starts_with(directory))
}

fn parse(code: Code, source: &str, text: &str) -> Result<Link, Problem> {
    Link::parse(text).map_err(|error| Problem::new(code, format!("{source}: {error}")))
}

/// Reads a little more than the longest link, so that a longer one is reported as too long.
fn read(source: &mut dyn Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    source
        .take(LINK_BYTES_MAX as u64 + 1_024)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
