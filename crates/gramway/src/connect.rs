//! `gramway connect`: runs a client. The link comes from exactly one place; the disk is touched only once the client
//! runs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use tunnel::config::{ClientConfig, ServerProof};

use crate::admin::{Admin, AdminSocket, client_socket};
use crate::cli::ConnectArguments;
use crate::config::Settings;
use crate::exit::{Code, Problem};
use crate::limits::{FIRST_CONNECTION_LIMIT, LINK_BYTES_MAX};
use crate::link::{Link, Proof};
use crate::run::{Detail, Entrances};
use crate::sandbox::{Needs, Sandbox};
use crate::tun::AUTOMATIC;
use crate::{authorities, kill_switch, output, run, service_manager, startup, tcp_shape};

const LINK_VARIABLE: &str = "GRAMWAY_LINK";

/// Runs the command.
pub(crate) fn run(mut arguments: ConnectArguments) -> Result<(), Problem> {
    take_link_from_tun(&mut arguments);
    let (directory, settings) = startup::settings(&arguments.places, &arguments.flags)?;
    let link = find_link(&arguments, &settings)?;
    let proof = match link.proof {
        Proof::Pin(pin) => ServerProof::Pin(pin),
        Proof::Cover { key, name } => ServerProof::Cover {
            key,
            name,
            authorities: authorities::read(settings.cover_roots.as_deref())?,
        },
    };
    if settings.forward.is_empty() && settings.proxies.is_empty() && settings.tun.name.is_none() {
        return Err(Problem::usage(
            "nothing to carry; give at least one -L, such as -L udp:5353=10.0.0.1:53, --socks 1080, --http 8080 or --tun",
        ));
    }
    let carriers = tcp_shape::of_client(settings.carrier, link.tcp_port)?;
    settings.proxies.check(&settings.forward)?;
    if let Some(warning) = settings.proxies.warning() {
        output::event(&format!("warning: {warning}"));
    }

    startup::undo_leftovers(&directory);
    if !settings.tun.default_route {
        kill_switch::warn_of_one_left();
    }
    let needs = Needs::of_client(&directory, &settings, carriers);
    let mut host = needs.host_access(settings.has_no_sandbox)?;
    let (tun, _name_lock) = settings.tun.for_client(&directory, host.changes())?.unzip();
    startup::raise_file_limit();
    let metrics = settings.metrics.open()?;
    let page = settings.admin.open(&directory)?;
    service_manager::connect()?;
    let sandbox = Sandbox::enter(&needs, &host, settings.has_no_sandbox)?;
    let handle = tunnel::client::start(ClientConfig {
        servers: link
            .endpoints
            .into_iter()
            .map(|endpoint| (endpoint.host, endpoint.port))
            .collect(),
        carriers,
        proof,
        token: link.token,
        forwards: settings.forward.clone(),
        proxies: settings.proxies.of_client(),
        bind: settings.bind,
        tun,
        common: settings.common,
    })?;
    let controller = handle.controller();
    let is_stopping = run::end_on_signals(controller.clone())?;
    host.watch(controller.clone())?;
    directory.create()?;
    if let Some(metrics) = metrics {
        metrics.serve(controller.clone(), None)?;
    }
    let admin = Admin::new(controller.clone(), sandbox.report(), None);
    if let Some(page) = page {
        page.serve(&admin, &directory)?;
    }
    let _admin = AdminSocket::open(&directory, &client_socket(), &admin)?;
    service_manager::ready(controller)?;
    let limit = settings.exit_on_failure.then_some(FIRST_CONNECTION_LIMIT);
    let kill_switch = handle.kill_switch();
    let entrances = Entrances {
        forwards: &settings.forward,
        proxies: settings.proxies,
        users: None,
    };
    let ended = run::until_end(handle, &entrances, Detail::Normal, limit, &is_stopping);
    let ended = host.judge(ended);
    if let Some(kill_switch) = kill_switch {
        let as_asked = ended.is_ok() && is_stopping.load(Ordering::Relaxed);
        kill_switch::end(&kill_switch, as_asked);
    }
    ended
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
        Some(path) => {
            let cannot = |error: io::Error| Problem::file("read the link file", path, &error);
            let mut file = File::open(path).map_err(cannot)?;
            let text = read(&mut file).map_err(cannot)?;
            let link = parse(Code::Configuration, &path.display().to_string(), &text)?;
            let metadata = file.metadata().map_err(cannot)?;
            if metadata.is_file() && metadata.mode() & 0o077 != 0 && !is_credential(path) {
                let path = path.display();
                output::note(&format!(
                    "warning: others can read the link in {path}, and use the server by it; run: chmod 600 {path}"
                ));
            }
            Ok(link)
        }
        None => Err(Problem::usage(
            "no link; the server's `gramway link` prints it: give it as LINK, --link-file FILE or GRAMWAY_LINK",
        )),
    }
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
