//! Covers: web sites with HTTP/3 by stacks that we did not write, and the authority that their certificates come from.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use testbed::place::Place;
use testbed::process::Process;

use crate::limits::PROGRAM_LIMIT;
use crate::python;

/// The stack of a cover, with what starts it.
#[derive(Clone, Copy, Debug)]
pub enum Stack<'a> {
    /// aioquic, by the interpreter that [`crate::require_python!`] gives. It knows X25519 as the only group, sends no
    /// stateless resets, and puts `supported_versions` first into its ServerHello.
    Aioquic(&'a Path),
    /// quic-go, by the directory that [`crate::require_go!`] gives. It prefers X25519MLKEM768 and sends stateless
    /// resets.
    QuicGo(&'a Path),
}

/// A running web site; ended on drop.
pub struct Cover {
    process: Process,
    address: SocketAddr,
}

impl Cover {
    /// Starts one on `listen` (`ADDR:PORT`, port 0 for a free one) with a certificate for `name`, and waits until it
    /// serves. The options are those of `interop/cover.py` and `interop-go/cover`.
    ///
    /// # Panics
    /// When it does not within 30 s.
    #[must_use]
    pub fn start(
        stack: Stack<'_>,
        place: &Place,
        listen: &str,
        (authority, name): (&Authority, &str),
        options: &[&str],
    ) -> Self {
        let [chain, key] = authority.issue(name);
        let mut arguments = vec!["--listen".into(), listen.into(), "--chain".into(), chain];
        arguments.extend(["--key".into(), key]);
        arguments.extend(options.iter().map(PathBuf::from));
        let mut process = match stack {
            Stack::Aioquic(interpreter) => python::start(interpreter, place, "cover.py", arguments),
            Stack::QuicGo(programs) => {
                let mut command = place.command(programs.join("cover"));
                command.args(arguments);
                Process::start(command, "cover").unwrap()
            }
        };
        let line = process.wait_for_line("\"address\"", PROGRAM_LIMIT).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let address = told["address"].as_str().unwrap().parse().unwrap();
        Self { process, address }
    }

    /// Where it serves.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process, to stop or end it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// A certificate authority of a test; its files are in the test's directory.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// Its own, in PEM.
    certificate: String,
    root: PathBuf,
}

impl Authority {
    /// Makes one.
    ///
    /// # Panics
    /// When its certificate cannot be written.
    #[must_use]
    pub fn create(directory: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters
            .distinguished_name
            .push(DnType::CommonName, "Authority of the tests");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap();
        let root = directory.join("authority.pem");
        std::fs::write(&root, certificate.pem()).unwrap();
        Self {
            directory: directory.to_owned(),
            issuer: Issuer::new(parameters, key),
            certificate: certificate.pem(),
            root,
        }
    }

    /// The PEM file with its certificate, for those who are to trust it.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The PEM files of a certificate for this name and of its key, for this user only.
    ///
    /// # Panics
    /// When they cannot be written.
    #[must_use]
    pub fn issue(&self, name: &str) -> [PathBuf; 2] {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        // With its authority's, as web sites send theirs.
        let chain = certificate.pem() + &self.certificate;
        let texts = [("pem", chain), ("key", key.serialize_pem())];
        texts.map(|(ending, text)| {
            let path = self.directory.join(format!("{name}.{ending}"));
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        })
    }
}
