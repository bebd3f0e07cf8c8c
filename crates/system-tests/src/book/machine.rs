//! A machine of the reader: a network namespace with a home, an `/etc`, a `/run` and a `/var/lib` of its own, an
//! ordinary user, and a terminal for each command.
//!
//! There is no `sudo`: a line that begins with it is run as root. Files that it redirects its output to are then given
//! to the user, whose shell would have made them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs::run;

use super::output::without_escapes;
use crate::limits::PROGRAM_LIMIT;
use crate::program::gramway_binary;
use crate::tunnel::with_mounts;

/// The user of every machine, and where homes are.
const USER: &str = "anna";
const HOMES: &str = "/home";
const USER_ID: u32 = 1000;
const HOME_OF_ROOT: &str = "/root";

/// What every machine asks for names.
pub(super) const NAME_SERVER: &str = "198.51.100.20";

/// Directories that a machine has of its own, and those of the system that they hide.
const OWN: [(&str, &str); 5] = [
    ("etc", "/etc"),
    ("home", HOMES),
    ("root", HOME_OF_ROOT),
    ("run", "/run"),
    ("lib", "/var/lib"),
];

/// One machine; it ends with its programs.
pub struct Machine {
    name: String,
    namespace: Namespace,
    /// What is below it stands for [`OWN`].
    files: PathBuf,
    /// Holds the mounts; commands enter its namespaces.
    holder: Process,
    /// Commands that go on, the last one last.
    staying: Vec<Staying>,
    /// The one that was ended last, until another one starts.
    ended: Option<Staying>,
}

/// A command that goes on, and how many lines of it the reader has seen.
struct Staying {
    process: Process,
    lines_seen: usize,
}

impl Machine {
    /// A machine of this name on a network that others build, whose users know these names (`ADDRESS NAME`).
    ///
    /// # Panics
    /// When the system refuses it.
    #[must_use]
    pub fn new(name: &str, hosts: &str, directory: &Directory) -> Self {
        let files = directory.join(name);
        fs::create_dir(&files).unwrap();
        run(Command::new("cp").args(["-a", "/etc"]).arg(files.join("etc"))).unwrap();
        for (own, _) in OWN {
            fs::create_dir_all(files.join(own)).unwrap();
        }
        let mut passwd = fs::read_to_string(files.join("etc/passwd")).unwrap();
        passwd += &format!("{USER}:x:{USER_ID}:{USER_ID}::{HOMES}/{USER}:/bin/sh\n");
        fs::write(files.join("etc/passwd"), passwd).unwrap();
        let hosts = format!("127.0.0.1 localhost\n{hosts}\n");
        let resolv = format!("nameserver {NAME_SERVER}\n");
        for (file, text) in [("hosts", hosts), ("resolv.conf", resolv)] {
            // It may be a link to another file.
            let file = files.join("etc").join(file);
            let _ = fs::remove_file(&file);
            fs::write(file, text).unwrap();
        }
        let namespace = Namespace::create().unwrap();
        let mut script = format!("mount --bind '{}' /usr/local/bin", programs(directory).display());
        for (own, system) in OWN {
            script += &format!(" && mount --bind '{}' {system}", files.join(own).display());
        }
        let words = with_mounts(&(script + " && echo ready"));
        let mut command = namespace.command(&words[0]);
        command.args(&words[1..]).args(["sleep", "infinity"]);
        let mut holder = Process::start(command, name).unwrap();
        holder.wait_for_line("ready", PROGRAM_LIMIT).unwrap();
        let machine = Self {
            name: name.to_owned(),
            namespace,
            files,
            holder,
            staying: Vec::new(),
            ended: None,
        };
        machine.make_home();
        machine
    }

    /// Ends what stays there, and forgets what users and programs have written to homes and state directories.
    ///
    /// # Panics
    /// When a command has not ended 30 s after Ctrl-C.
    pub fn start_over(&mut self) {
        while !self.staying.is_empty() {
            self.interrupt().unwrap();
        }
        self.ended = None;
        for own in ["home", "root", "lib"] {
            let directory = self.files.join(own);
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let removed = if path.is_dir() {
                    fs::remove_dir_all(&path)
                } else {
                    fs::remove_file(&path)
                };
                removed.unwrap();
            }
        }
        self.make_home();
    }

    fn make_home(&self) {
        fs::create_dir(self.home()).unwrap();
        self.give_home_to_user();
    }

    fn home(&self) -> PathBuf {
        self.files.join("home").join(USER)
    }

    /// Its name in the book.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its network.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Writes a file at this path of the machine; below `~/` it is the user's, elsewhere root's.
    ///
    /// # Panics
    /// When the system refuses it.
    pub fn write(&self, path: &str, text: &str) {
        let (file, is_users) = match path.strip_prefix("~/") {
            Some(path) => (self.home().join(path), true),
            None => (self.files.join(path.trim_start_matches('/')), false),
        };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        if is_users {
            // As whoever keeps secrets in files does.
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            self.give_home_to_user();
        }
    }

    /// The text of the user's file at this path below `~/`.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(&self, path: &str) -> Result<String, String> {
        let file = self.home().join(path.trim_start_matches("~/"));
        fs::read_to_string(file).map_err(|error| format!("{path}: {error}"))
    }

    /// Runs a command to its end: whether it exited with 0, and all that its terminal shows.
    ///
    /// # Panics
    /// When it has not ended 30 s later.
    #[must_use]
    pub fn run(&self, line: &str) -> (bool, String) {
        // Services that it leaves behind would end with its terminal, which a reader keeps open.
        let mut process = self.start(line, "trap '' HUP; ");
        let status = process.wait(PROGRAM_LIMIT).unwrap();
        if line.starts_with("sudo ") && line.contains('>') {
            self.give_home_to_user();
        }
        (status.success(), without_escapes(&process.stdout()))
    }

    /// Starts a command that stays.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_staying(&mut self, line: &str) {
        let process = self.start(line, "exec ");
        self.staying.push(Staying {
            process,
            lines_seen: 0,
        });
        self.ended = None;
    }

    /// Shows `find` the lines of the last command that stays, or was just ended, that no earlier call has covered. It
    /// says how many of them it covers.
    ///
    /// # Errors
    /// When it covers none of them: these lines.
    pub fn look(&mut self, find: impl FnOnce(&[&str]) -> Option<usize>) -> Result<(), String> {
        let Some(staying) = self.ended.as_mut().or(self.staying.last_mut()) else {
            return Err("no command stays there".to_owned());
        };
        let text = without_escapes(&staying.process.stdout());
        let lines: Vec<&str> = text.lines().collect();
        let unseen = &lines[staying.lines_seen..];
        match find(unseen) {
            Some(covered) => {
                staying.lines_seen += covered;
                Ok(())
            }
            None => Err(unseen.join("\n")),
        }
    }

    /// The word behind these at the beginning of a line of the last command that stays, or was just ended.
    #[must_use]
    pub fn word_behind(&self, before: &str) -> Option<String> {
        let staying = self.ended.as_ref().or(self.staying.last())?;
        let text = without_escapes(&staying.process.stdout());
        let mut rests = text.lines().filter_map(|line| line.strip_prefix(before));
        rests.find_map(|rest| rest.split_whitespace().next().map(str::to_owned))
    }

    /// Ends the last command that stays as Ctrl-C on its terminal does.
    ///
    /// # Errors
    /// When nothing stays there, or it has not ended 30 s later.
    pub fn interrupt(&mut self) -> Result<(), String> {
        let mut staying = self.staying.pop().ok_or("no command stays there")?;
        // The terminal makes a signal of this character.
        // It may have ended by itself.
        let _ = staying.process.tell("\u{3}");
        staying
            .process
            .wait(PROGRAM_LIMIT)
            .map_err(|error| error.to_string())?;
        self.ended = Some(staying);
        Ok(())
    }

    /// Kills the last command that stays, as by `kill -9`.
    ///
    /// # Errors
    /// When nothing stays there.
    pub fn kill(&mut self) -> Result<(), String> {
        let staying = self.staying.pop().ok_or("no command stays there")?;
        // The process is that of the terminal, and the command its only child.
        let id = staying.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
            .map_err(|error| error.to_string())?;
        let child = children.split_whitespace().next().and_then(|id| id.parse().ok());
        let child = child
            .and_then(Pid::from_raw)
            .ok_or("the command has ended by itself")?;
        kill_process(child, Signal::KILL).map_err(|error| error.to_string())
    }

    fn start(&self, line: &str, before: &str) -> Process {
        let mut command = Command::new("nsenter");
        command.args([&format!("--target={}", self.holder.id()), "--net", "--mount"]);
        let users_home = format!("{HOMES}/{USER}");
        let (line, user, home) = match line.strip_prefix("sudo ") {
            Some(line) => (line, "root", HOME_OF_ROOT),
            None => (line, USER, users_home.as_str()),
        };
        if user == USER {
            let id = USER_ID;
            command.arg("setpriv");
            command.args([
                format!("--reuid={id}"),
                format!("--regid={id}"),
                "--clear-groups".to_owned(),
            ]);
        }
        // A terminal, because programs print otherwise in files.
        let line = format!("stty cols 120 rows 50; cd {users_home}; {before}{line}");
        command.args(["script", "--quiet", "--return", "--command", &line, "/dev/null"]);
        command.env_clear().envs([
            ("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", home),
            ("USER", user),
            ("SHELL", "/bin/sh"),
            ("TERM", "xterm"),
            ("LANG", "C.UTF-8"),
        ]);
        Process::start(command, &format!("`{line}` on {}", self.name)).unwrap()
    }

    fn give_home_to_user(&self) {
        let owner = format!("{USER_ID}:{USER_ID}");
        run(Command::new("chown").args(["-R", &owner]).arg(self.home())).unwrap();
    }
}

/// The directory with the program under test, which everybody may run, made at the first call.
fn programs(directory: &Directory) -> PathBuf {
    let programs = directory.join("bin");
    let program = programs.join("gramway");
    if !program.exists() {
        fs::create_dir(&programs).unwrap();
        // Not copied by this process: a file that a child of another thread holds open for writing cannot be run.
        run(Command::new("cp")
            .arg(gramway_binary())
            .arg(&program)
            .stdin(Stdio::null()))
        .unwrap();
    }
    programs
}
