//! Tries the static program as root: a server and a client, each in a root directory that holds nothing but the
//! program, and bytes through a TCP forward between them. Whatever they need of the machine beside its kernel fails
//! here.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::repository::find_program;

/// How long each step may take, with a machine that is busy with other things.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// Between two looks at whether a step is done.
const POLL: Duration = Duration::from_millis(20);

/// Bytes that go through the tunnel and come back: more than all buffers on the way hold.
const TRAFFIC_BYTES: usize = 32 << 20;

/// Runs the trial below `directory`, which holds the processes' output afterwards.
pub(super) fn run(program: &Path, directory: &Path) -> Result<()> {
    let server_root = Root::make(program, directory.join("server"))?;
    let client_root = Root::make(program, directory.join("client"))?;
    let echo = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port for the target of the trial")?;
    let target = echo.local_addr()?;
    thread::spawn(move || answer(&echo));

    let allowed = format!("127.0.0.1/32:{}", target.port());
    let up = [
        "up",
        "--state",
        "/state",
        "--listen",
        "127.0.0.1:0",
        "--allow-target",
        &allowed,
    ];
    let mut server = server_root.start(&up, None)?;
    server.wait_for_text("gramway link --state")?;
    let link = server_root.output(&["link", "--state", "/state"])?;

    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let forward = format!("tcp:{port}={target}");
    let mut client = client_root.start(
        &["connect", "--state", "/state", "-L", &forward],
        Some(link.trim()),
    )?;
    let connected = client.wait_for(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok())?;
    exchange(connected).with_context(|| {
        format!(
            "no traffic between two empty root directories; what the programs said is in {}",
            directory.display()
        )
    })
}

/// Sends everything back, connection by connection.
fn answer(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            // A connection that fails is seen at its other end.
            let _ = io::copy(&mut &stream, &mut &stream);
            let _ = stream.shutdown(Shutdown::Write);
        });
    }
}

/// Sends bytes of a known order, and compares what comes back.
fn exchange(stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(STEP_LIMIT))?;
    stream.set_write_timeout(Some(STEP_LIMIT))?;
    let sent: Vec<u8> = (0..TRAFFIC_BYTES).map(|index| (index % 251) as u8).collect();
    let mut received = Vec::new();
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            (&stream).write_all(&sent)?;
            stream.shutdown(Shutdown::Write)
        });
        let read = (&stream).read_to_end(&mut received);
        writing.join().expect("writing does not panic")?;
        read
    })?;
    if received != sent {
        bail!("{} of {TRAFFIC_BYTES} bytes came back, or others", received.len());
    }
    Ok(())
}

/// A root directory with the program in it.
struct Root {
    path: PathBuf,
    chroot: PathBuf,
}

impl Root {
    fn make(program: &Path, path: PathBuf) -> Result<Self> {
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        let inside = path.join("gramway");
        fs::copy(program, &inside).with_context(|| format!("{} cannot be made", inside.display()))?;
        let chroot =
            find_program("chroot").context("the program `chroot` is missing; it belongs to coreutils")?;
        Ok(Self { path, chroot })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.chroot);
        command
            .env_clear()
            .arg(&self.path)
            .arg("/gramway")
            .args(arguments);
        command
    }

    /// Starts the program, with its messages in a file beside the root. The link is a secret: it goes by the
    /// environment.
    fn start(&self, arguments: &[&str], link: Option<&str>) -> Result<Running> {
        let log = self.path.with_extension("log");
        let file = File::create(&log).with_context(|| format!("{} cannot be made", log.display()))?;
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        if let Some(link) = link {
            command.env("GRAMWAY_LINK", link);
        }
        let child = command.spawn().context("chroot cannot be started")?;
        Ok(Running { child, log })
    }

    /// Runs the program to its end; what it prints.
    fn output(&self, arguments: &[&str]) -> Result<String> {
        let output = self
            .command(arguments)
            .output()
            .context("chroot cannot be started")?;
        if !output.status.success() {
            bail!(
                "`gramway {}` fails in an empty root directory: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // A state directory with the keys of the trial, which are of no use to anybody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A process of the trial, which ends with it.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn wait_for_text(&mut self, text: &str) -> Result<()> {
        self.wait_for(|messages| messages.contains(text).then_some(()))
    }

    /// Waits until `look` finds something, given what the process has said.
    fn wait_for<T>(&mut self, mut look: impl FnMut(&str) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + STEP_LIMIT;
        loop {
            let messages = fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(found) = look(&messages) {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the program ended in an empty root directory ({status}):\n{messages}");
            }
            if Instant::now() >= deadline {
                bail!(
                    "nothing happened in an empty root directory for {} s:\n{messages}",
                    STEP_LIMIT.as_secs()
                );
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
