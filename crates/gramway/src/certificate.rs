//! A server's ordinary certificate (`--tls-cert`, `--tls-key`): read at the start, and again whenever its files change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use tunnel_proto::link::{Endpoint, Proof};

use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tunnel::certificates::{self, Certificates};

use crate::config::Settings;
use crate::exit::Problem;
use crate::limits::CERTIFICATE_CHECK_INTERVAL;
use crate::log::Record;
use crate::{authorities, log, state};

/// Where chain and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    chain: PathBuf,
    key: PathBuf,
    /// The link has the pin of the key.
    is_pinned: bool,
}

/// What was read.
pub(crate) struct Certificate {
    pub(crate) shown: Certificates,
    /// The server's own, DER.
    leaf: Vec<u8>,
    /// When the files changed last, before they were read.
    seen: Seen,
}

/// What tells a change of both files.
type Seen = [Option<(u64, u64, i64, i64)>; 2];

impl CertificateFiles {
    /// The files of the settings, where there are some.
    ///
    /// # Errors
    /// One is named without the other, or there is a cover.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Self>, Problem> {
        let (chain, key) = match (&settings.tls_cert, &settings.tls_key) {
            (None, None) => return Ok(None),
            (Some(chain), Some(key)) => (chain.clone(), key.clone()),
            (Some(_), None) => return Err(Problem::usage("a certificate needs its key: add --tls-key FILE")),
            (None, Some(_)) => {
                return Err(Problem::usage("a key needs its certificate: add --tls-cert FILE"));
            }
        };
        if settings.cover.place.is_some() {
            return Err(Problem::usage(
                "a server with a cover shows the cover's certificate; leave out --tls-cert or --cover",
            ));
        }
        Ok(Some(Self {
            chain,
            key,
            is_pinned: settings.tls_pin,
        }))
    }

    /// The directories in which the files are replaced, those behind links too.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let named = [&self.chain, &self.key].map(Clone::clone);
        let real = named.iter().filter_map(|path| path.canonicalize().ok());
        let all: Vec<_> = real.chain(named.iter().cloned()).collect();
        all.iter()
            .filter_map(|path| path.parent())
            .map(|parent| match parent.as_os_str().is_empty() {
                true => PathBuf::from("."),
                false => parent.to_owned(),
            })
            .collect()
    }

    /// Reads both files.
    ///
    /// # Errors
    /// They cannot be read, are not what they should be, or do not belong together.
    pub(crate) fn read(&self) -> Result<Certificate, Problem> {
        let seen = self.seen();
        let (chain, key) = self.read_files()?;
        let leaf = chain[0].clone();
        let shown = Certificates::new(chain, key).map_err(|error| self.unusable(&error))?;
        Ok(Certificate { shown, leaf, seen })
    }

    fn read_files(&self) -> Result<(Vec<Vec<u8>>, Vec<u8>), Problem> {
        let chain = authorities::read_all(&self.chain)?;
        let key = state::read_secret(&self.key)?
            .ok_or_else(|| Problem::configuration(format!("there is no file {}", self.key.display())))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
            Problem::configuration(format!("{} holds no private key in PEM", self.key.display()))
        })?;
        Ok((chain, key.secret_der().to_vec()))
    }

    fn unusable(&self, error: &dyn std::fmt::Display) -> Problem {
        let (chain, key) = (self.chain.display(), self.key.display());
        Problem::configuration(format!("{chain} and {key}: {error}"))
    }

    fn seen(&self) -> Seen {
        let of = |path: &Path| {
            let of = |file: Metadata| (file.dev(), file.ino(), file.mtime(), file.mtime_nsec());
            std::fs::metadata(path).ok().map(of)
        };
        [of(&self.chain), of(&self.key)]
    }

    /// Has a thread look at the files, which puts what they hold in the place of the former certificate.
    pub(crate) fn watch(self, certificate: Certificate) -> Result<Watch, Problem> {
        let (stop, stopped) = mpsc::channel::<()>();
        let mut watched = Watched {
            files: self,
            certificate,
            trouble: None,
        };
        let work = move || {
            while stopped.recv_timeout(CERTIFICATE_CHECK_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Some(told) = watched.look() {
                    log::remember_and_write(&told);
                }
            }
        };
        let thread = thread::Builder::new().name("certificate".to_owned()).spawn(work);
        thread.map_err(|error| Problem::unavailable(format!("no thread for the certificate: {error}")))?;
        Ok(Watch { _stop: stop })
    }
}

/// Dropping it ends the thread.
pub(crate) struct Watch {
    _stop: mpsc::Sender<()>,
}

impl Certificate {
    /// What clients know the server by.
    pub(crate) fn proof(&self, files: &CertificateFiles) -> Result<Proof, Problem> {
        if !files.is_pinned {
            return Ok(Proof::WebPki);
        }
        let pin = certificates::public_key_pin(&self.leaf);
        pin.map(Proof::Pin).map_err(|error| files.unusable(&error))
    }

    /// The hosts that the link names where none are set.
    pub(crate) fn hosts(&self) -> Vec<(String, Option<u16>)> {
        let names = certificates::names_of_certificate(&self.leaf).unwrap_or_default();
        names.into_iter().map(|name| (name, None)).collect()
    }

    /// What to tell where clients will not take it for a server that the link names.
    pub(crate) fn warning(&self, endpoints: &[Endpoint], proof: &Proof) -> Option<String> {
        if *proof != Proof::WebPki {
            return None;
        }
        let is_other = |endpoint: &&Endpoint| !certificates::is_certificate_for(&self.leaf, &endpoint.host);
        let others: Vec<_> = endpoints
            .iter()
            .filter(is_other)
            .map(|endpoint| endpoint.host.as_str())
            .collect();
        (!others.is_empty()).then(|| {
            format!(
                "the certificate is not for {}, which the link names: name its hosts with --public, or pin its key with \
                 --tls-pin",
                others.join(" and ")
            )
        })
    }
}

/// What the log calls its events.
const EVENT: &str = "certificate";

/// What the thread knows.
struct Watched {
    files: CertificateFiles,
    certificate: Certificate,
    /// What was told of files that cannot be used.
    trouble: Option<String>,
}

impl Watched {
    /// Looks at the files. What to tell.
    fn look(&mut self) -> Option<Record> {
        let seen = self.files.seen();
        if seen == self.certificate.seen && self.trouble.is_none() {
            return None;
        }
        let replaced = self.files.read_files().and_then(|(chain, key)| {
            let leaf = chain[0].clone();
            let shown = &self.certificate.shown;
            shown
                .replace(chain, key)
                .map_err(|error| self.files.unusable(&error))?;
            Ok(leaf)
        });
        self.certificate.seen = seen;
        match replaced {
            Ok(leaf) => {
                self.trouble = None;
                let (former, now) = [&self.certificate.leaf, &leaf]
                    .map(|leaf| certificates::public_key_pin(leaf).ok())
                    .into();
                self.certificate.leaf = leaf;
                Some(if self.files.is_pinned && former != now {
                    Record::warning(
                        EVENT,
                        "the certificate was replaced, and its key is another one: links that pin the former key no longer \
                         work",
                    )
                } else {
                    Record::info(EVENT, "the certificate was replaced")
                })
            }
            // Half of a change is a matter of moments; what stays wrong is told once.
            Err(problem) => {
                let told = problem.to_string();
                if self.trouble.as_ref() == Some(&told) {
                    return None;
                }
                self.trouble = Some(told.clone());
                Some(Record::warning(
                    EVENT,
                    format!("{told}; the former certificate is shown on"),
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests;
