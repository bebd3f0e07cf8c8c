//! The image without a builder of images: a server and a client, each in a root directory that holds nothing but what
//! `Containerfile` copies, as its user and with its environment. Whatever they need of the machine beside its kernel
//! fails here.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs::run as run_to_end;

use super::{STEP_LIMIT, allowed_target, connect, exchange, forward, target};
use crate::dist::container::{self, Image};
use crate::repository::run_to_success;

/// Runs the trial.
pub(super) fn run(containerfile: &Path) -> Result<()> {
    let image = container::read(containerfile)?;
    let context = containerfile.parent().unwrap_or(Path::new("."));
    let network = Namespace::create()?;
    network
        .inside(target)
        .context("no port for the target of the trial")?;

    let server_root = Root::make(&image, context)?;
    let mut up = server_root.command(&network, &image.arguments);
    up.args(["--public", "127.0.0.1:8443", "--allow-target", &allowed_target()]);
    let mut server = Process::start(up, "the server")?;
    server.wait_for_line("gramway link --state", STEP_LIMIT)?;
    let link = run_to_end(&mut server_root.command(&network, &["link".to_owned()]))?;

    let client_root = Root::make(&image, context)?;
    let mut client = client_root.command(&network, &["connect", "-L", &forward()].map(str::to_owned));
    // The link is a secret: it goes by the environment.
    client.env("GRAMWAY_LINK", link.trim());
    let mut client = Process::start(client, "the client")?;
    client.wait_for_starts("connected", 1, STEP_LIMIT)?;
    exchange(network.inside(connect)?).context("no traffic between two empty root directories")
}

/// A root directory as the image has it.
struct Root<'a> {
    image: &'a Image,
    directory: Directory,
}

impl<'a> Root<'a> {
    fn make(image: &'a Image, context: &Path) -> Result<Self> {
        let directory = Directory::create()?;
        // The image's user comes in.
        run_to_success(Command::new("chmod").arg("755").arg(directory.path()))?;
        for (from, to, owner) in &image.copies {
            let (from, to) = (context.join(from), directory.join(to.trim_start_matches('/')));
            run_to_success(Command::new("cp").arg("-a").arg(&from).arg(&to))?;
            let owner = owner.as_deref().unwrap_or("0:0");
            run_to_success(Command::new("chown").arg("-R").arg(owner).arg(&to))?;
        }
        Ok(Self { image, directory })
    }

    /// The image's program with these arguments.
    fn command(&self, network: &Namespace, arguments: &[String]) -> Command {
        let mut command = network.command("chroot");
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .arg(format!("--userspec={}", self.image.user))
            .arg("--groups=")
            .arg(self.directory.path())
            .args(&self.image.entry)
            .args(arguments)
            .envs(self.image.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}
