//! `gramway service`: writes a unit for systemd that has the rights that the settings need, and removes it.
//!
//! The arguments are read by the command line of `up` or `connect` itself, so that what does not work is refused here.
//! A server's config file is read as well; what a later change of it needs is granted by installing again.

mod unit;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use unit::{Rights, Role};

use crate::cli::{self, Command as Line, Places, ServiceAction, ServiceArguments, ServiceRole};
use crate::config::{CarrierSetting, CommandWithSettings, DEFAULT_LISTEN, Flags, Settings};
use crate::exit::{Problem, sentence};
use crate::limits::FIRST_ORDINARY_PORT;
use crate::{output, startup};

/// Where the administrator's units are.
const DIRECTORY: &str = "/etc/systemd/system";

/// Where packages put theirs.
const PACKAGED: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

/// What exists where systemd runs (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// Where a service of systemd finds no program: homes are hidden from it, and these are its own.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// What the config file of the server under systemd is called.
const SERVER_CONFIG: &str = "/var/lib/gramway/config.toml";

/// Runs the command.
pub(crate) fn run(arguments: &ServiceArguments) -> Result<(), Problem> {
    match &arguments.action {
        ServiceAction::Print { role, arguments } => output::data(&text(*role, arguments)?),
        ServiceAction::Install {
            role,
            directory,
            arguments,
        } => install(*role, directory.as_deref(), arguments),
        ServiceAction::Remove { role, directory } => remove(role_of(*role), directory.as_deref()),
    }
}

/// The offer to an administrator who starts a server by hand where a service would be better; none elsewhere. The
/// service gets the same `arguments`, and takes over keys, users and link.
pub(crate) fn offer(places: &Places, arguments: &[String]) -> Option<String> {
    let is_administrator = geteuid().is_root() && Path::new(BOOTED).exists();
    // A service that somebody wrote has no need of another.
    let is_service = std::env::var_os("INVOCATION_ID").is_some();
    let file = Role::Server.file();
    let is_installed = Path::new(DIRECTORY).join(file).exists();
    if !is_administrator || is_service || is_installed || places.state.is_some() {
        return None;
    }
    let is_packaged = PACKAGED
        .iter()
        .any(|directory| Path::new(directory).join(file).exists());
    let install = if is_packaged && arguments.is_empty() {
        String::new()
    } else {
        install_line(arguments) + " && "
    };
    Some(format!(
        "to run this server as a service, under a user of its own and with the machine, end it with Ctrl-C, then:\n  \
         {install}systemctl enable --now gramway"
    ))
}

/// The command as one types it.
fn install_line(arguments: &[String]) -> String {
    let mut words = vec!["gramway service install up".to_owned()];
    if !arguments.is_empty() {
        words.push("--".to_owned());
        words.extend(arguments.iter().map(|word| for_shell(word)));
    }
    words.join(" ")
}

/// A word that a shell leaves as it is.
fn for_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn role_of(role: ServiceRole) -> Role {
    match role {
        ServiceRole::Up => Role::Server,
        ServiceRole::Connect => Role::Client,
    }
}

/// The unit's text.
fn text(role: ServiceRole, arguments: &[String]) -> Result<String, Problem> {
    let program = std::env::current_exe()
        .map_err(|error| Problem::bug(format!("cannot find this program: {}", sentence(&error))))?;
    let rights = match cli::read_line(role, arguments)? {
        Line::Up(line) => {
            own_places(&line.places)?;
            of_server(&settings(
                &line.places,
                &line.flags,
                Some(Path::new(SERVER_CONFIG)),
            )?)
        }
        Line::Connect(line) => {
            own_places(&line.places)?;
            if line.link.is_some() || line.flags.value("link_file").is_some() {
                return Err(Problem::usage(
                    "the service takes its link from /etc/gramway/NAME.link; leave it out here",
                ));
            }
            of_client(&settings(&line.places, &line.flags, None)?)
        }
        _ => {
            return Err(Problem::bug(
                "another command was read than the one that was named",
            ));
        }
    };
    unit::text(role_of(role), rights, &program.to_string_lossy(), arguments)
}

fn own_places(places: &Places) -> Result<(), Problem> {
    if places.state.is_some() {
        return Err(Problem::usage(
            "the service has a state directory of its own below /var/lib; leave --state out",
        ));
    }
    Ok(())
}

/// What the service will have, without this process's environment.
fn settings<C: CommandWithSettings>(
    places: &Places,
    flags: &Flags<C>,
    default: Option<&Path>,
) -> Result<Settings, Problem> {
    let mut settings = Settings::default();
    if let Some(path) = places.config.as_deref().or(default) {
        match startup::read_bounded(path) {
            Ok(text) => settings.apply_file(path, &text)?,
            Err(error) if places.config.is_none() && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Problem::file("read the config file", path, &error)),
        }
    }
    settings.apply_flags(flags)?;
    settings.check_needs(flags)?;
    Ok(settings)
}

fn of_server(settings: &Settings) -> Rights {
    let port = settings.listen.unwrap_or(DEFAULT_LISTEN).port();
    Rights {
        low_port: (1..FIRST_ORDINARY_PORT).contains(&port),
        tun: settings.tun.name.is_some(),
        tproxy: false,
        names: false,
        tcp_shape: settings.tcp.is_some(),
    }
}

fn of_client(settings: &Settings) -> Rights {
    let forwards = settings.forward.iter().map(|forward| forward.listen);
    let proxies = [settings.proxies.socks, settings.proxies.http];
    let mut listeners = forwards.chain(proxies.into_iter().flatten());
    let tun = settings.tun.name.is_some();
    Rights {
        low_port: listeners.any(|listener| (1..FIRST_ORDINARY_PORT).contains(&listener.port())),
        tun,
        tproxy: settings.tproxy.port.is_some(),
        names: tun && settings.tun.sets_names(),
        // The link says whether its server knows it.
        tcp_shape: settings.carrier != CarrierSetting::Udp,
    }
}

fn install(role: ServiceRole, directory: Option<&Path>, arguments: &[String]) -> Result<(), Problem> {
    let text = text(role, arguments)?;
    let file = role_of(role).file();
    let program = std::env::current_exe().unwrap_or_default();
    if directory.is_none() && HIDDEN.iter().any(|hidden| program.starts_with(hidden)) {
        return Err(Problem::usage(format!(
            "a service cannot run {}; copy it first: install -m 755 {} /usr/local/bin/gramway",
            program.display(),
            program.display()
        )));
    }
    let path = directory.unwrap_or(Path::new(DIRECTORY)).join(file);
    if is_ours(&path)? == Some(false) {
        return Err(foreign(&path));
    }
    write(&path, &text).map_err(|error| Problem::file("write", &path, &error))?;
    output::note(&format!("wrote {}", path.display()));
    if directory.is_some() {
        return Ok(());
    }
    reload()?;
    output::note(match role {
        ServiceRole::Up => {
            "start it, also with the machine: systemctl enable --now gramway; its link: gramway link"
        }
        ServiceRole::Connect => {
            "put a link into /etc/gramway/NAME.link (mode 600), and start it, also with the machine: \
             systemctl enable --now gramway-connect@NAME"
        }
    });
    Ok(())
}

/// Stops and disables what runs by it, and removes the file; settings, links and state stay.
fn remove(role: Role, directory: Option<&Path>) -> Result<(), Problem> {
    let path = directory.unwrap_or(Path::new(DIRECTORY)).join(role.file());
    match is_ours(&path)? {
        None => {
            return Err(Problem::unavailable(format!(
                "there is no {}; nothing to remove",
                path.display()
            )));
        }
        Some(false) => return Err(foreign(&path)),
        Some(true) => {}
    }
    if directory.is_none() {
        let units = match role {
            Role::Server => "gramway.service",
            Role::Client => "gramway-connect@*.service",
        };
        // Of a template, whatever runs; its links in `multi-user.target.wants` are all removed with it.
        systemctl(&["stop", units])?;
        systemctl(&["disable", role.file()])?;
    }
    fs::remove_file(&path).map_err(|error| Problem::file("remove", &path, &error))?;
    output::note(&format!("removed {}", path.display()));
    if directory.is_none() {
        reload()?;
    }
    Ok(())
}

/// Whether the file is one that `install` wrote; `None` where there is none.
fn is_ours(path: &Path) -> Result<Option<bool>, Problem> {
    match startup::read_bounded(path) {
        Ok(text) => Ok(Some(text.starts_with(unit::FIRST_LINE))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Problem::file("read", path, &error)),
    }
}

fn foreign(path: &Path) -> Problem {
    Problem::configuration(format!(
        "{} was not written by `gramway service install`, so it stays as it is; remove it yourself",
        path.display()
    ))
}

/// Whole or not at all.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let beside = PathBuf::from(format!("{}.{}.new", path.display(), std::process::id()));
    let written = fs::File::create_new(&beside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Has systemd read its units, where it runs.
fn reload() -> Result<(), Problem> {
    systemctl(&["daemon-reload"])
}

fn systemctl(arguments: &[&str]) -> Result<(), Problem> {
    if !Path::new(BOOTED).exists() {
        return Ok(());
    }
    let shown = arguments.join(" ");
    match Command::new("systemctl").args(arguments).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Problem::unavailable(format!("systemctl {shown} failed"))),
        Err(error) => Err(Problem::unavailable(format!(
            "cannot run systemctl {shown}: {}",
            sentence(&error)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offered_command_line_means_the_same_to_a_shell() {
        let arguments =
            ["--public", "vpn.example.com", "--listen", "[::]:443", "it's", ""].map(str::to_owned);
        assert_eq!(
            install_line(&arguments),
            r"gramway service install up -- --public vpn.example.com --listen '[::]:443' 'it'\''s' ''"
        );
        assert_eq!(install_line(&[]), "gramway service install up");
    }
}
