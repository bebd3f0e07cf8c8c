//! What a server keeps in its state directory: key, certificate, the owner's token, the keys of resets and of address
//! validation, and the endpoints that its link names; what clients know the server by is in `proof.rs`.
//!
//! [`ServerState::open`] reads existing files and creates the rest in memory; [`ServerState::commit`] writes the rest
//! once the server runs, so a failed start leaves the disk unchanged. An existing file is never overwritten, except the
//! list of endpoints. An advisory lock on the directory prevents a second server.

mod profile;
mod proof;

use std::fmt;
use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use tunnel_proto::Token;
use tunnel_proto::link::{Endpoint, Proof};

use crate::exit::Problem;
use crate::identity::Identity;
use crate::state::StateDirectory;
pub(crate) use proof::CoverKeys;

const KEY_FILE: &str = "server.key";
const CERTIFICATE_FILE: &str = "server.crt";
const TOKEN_FILE: &str = "owner.token";
const RESET_KEY_FILE: &str = "reset.key";
const TOKEN_KEY_FILE: &str = "token.key";
const ENDPOINTS_FILE: &str = "endpoints";
/// What the line with the port in TCP's shape begins with.
const TCP_LINE: &str = "tcp ";

/// The config file's name in the state directory.
pub(crate) const CONFIG_FILE: &str = "config.toml";

/// A server's lasting secrets.
pub(crate) struct ServerState {
    directory: StateDirectory,
    pub(crate) identity: Identity,
    pub(crate) token: Token,
    pub(crate) reset_key: [u8; 64],
    pub(crate) token_key: [u8; 64],
    /// Files to be written by [`ServerState::commit`].
    missing: Vec<(&'static str, Vec<u8>)>,
    /// The open directory, which holds the lock.
    lock: Option<File>,
}

impl ServerState {
    /// Locks the directory, reads existing files and creates the rest in memory, including a certificate for `hosts`.
    pub(crate) fn open(directory: &StateDirectory, hosts: &[String]) -> Result<Self, Problem> {
        let lock = directory.examine()?;
        if let Some(lock) = &lock {
            lock_directory(directory, lock)?;
        }
        let mut state = Self::read(directory, Some(hosts))?;
        state.lock = lock;
        Ok(state)
    }

    /// The same where the lock is held already, by another process that has handed it over.
    pub(crate) fn open_locked(
        directory: &StateDirectory,
        hosts: &[String],
        lock: File,
    ) -> Result<Self, Problem> {
        directory.examine()?;
        let mut state = Self::read(directory, Some(hosts))?;
        state.lock = Some(lock);
        Ok(state)
    }

    /// The open directory, which holds the lock; there is one after [`ServerState::commit`].
    pub(crate) fn lock(&self) -> Result<File, Problem> {
        let lock = self.lock.as_ref().map(File::try_clone);
        let lock = lock.ok_or_else(|| Problem::bug("the state directory is not locked"))?;
        lock.map_err(|error| Problem::file("keep the lock of", self.directory.path(), &error))
    }

    /// Reads the state of a server that has run before.
    pub(crate) fn existing(directory: &StateDirectory) -> Result<Self, Problem> {
        directory.examine()?;
        Self::read(directory, None)
    }

    fn read(directory: &StateDirectory, hosts: Option<&[String]>) -> Result<Self, Problem> {
        let may_make = |name: &str| match hosts {
            Some(_) => Ok(()),
            None => Err(Problem::configuration(format!(
                "no server has run with the state directory {} ({name} is missing); start one with: gramway up --state {}",
                directory.shown().display(),
                directory.shown().display()
            ))),
        };
        let mut missing = Vec::new();
        let identity = match (
            directory.read_secret(KEY_FILE)?,
            directory.read(CERTIFICATE_FILE)?,
        ) {
            (Some(key), Some(certificate)) => {
                Identity::load(&key, &certificate).map_err(|error| unusable(directory, KEY_FILE, error))?
            }
            (Some(key), None) => {
                may_make(CERTIFICATE_FILE)?;
                Identity::renew(&key, hosts.unwrap_or_default())
                    .map_err(|error| unusable(directory, KEY_FILE, error))?
            }
            (None, Some(_)) => {
                return Err(unusable(
                    directory,
                    CERTIFICATE_FILE,
                    "its private key server.key is missing",
                ));
            }
            (None, None) => {
                may_make(KEY_FILE)?;
                let identity = Identity::generate(hosts.unwrap_or_default())
                    .map_err(|error| Problem::bug(format!("cannot make a certificate: {error}")))?;
                missing.push((KEY_FILE, identity.key_pem().into_bytes()));
                identity
            }
        };
        if !directory.file(CERTIFICATE_FILE).exists() {
            missing.push((CERTIFICATE_FILE, identity.certificate_pem().as_bytes().to_vec()));
        }
        let token = match directory.read_secret(TOKEN_FILE)? {
            Some(text) => {
                let text = String::from_utf8_lossy(&text);
                Token::parse(text.trim()).map_err(|error| unusable(directory, TOKEN_FILE, error))?
            }
            None => {
                may_make(TOKEN_FILE)?;
                let token = Token::from_bytes(random()?);
                missing.push((TOKEN_FILE, format!("{}\n", token.reveal()).into_bytes()));
                token
            }
        };
        let mut read_key = |name: &'static str| match directory.read_secret(name)? {
            Some(bytes) => bytes
                .try_into()
                .map_err(|_| unusable(directory, name, "it does not hold 64 bytes")),
            None => {
                may_make(name)?;
                let key: [u8; 64] = random()?;
                missing.push((name, key.to_vec()));
                Ok(key)
            }
        };
        let reset_key = read_key(RESET_KEY_FILE)?;
        let token_key = read_key(TOKEN_KEY_FILE)?;
        Ok(Self {
            directory: directory.clone(),
            identity,
            token,
            reset_key,
            token_key,
            missing,
            lock: None,
        })
    }

    fn is_made(&self, file: &str) -> bool {
        self.missing.iter().any(|(name, _)| *name == file)
    }

    /// What to tell where a server that has run before makes a new token.
    fn replaced_token(&self) -> Option<String> {
        (self.is_made(TOKEN_FILE) && !self.is_made(KEY_FILE)).then(|| {
            format!(
                "{} was missing: a new token was made, and links that were given out before no longer work",
                self.directory.file(TOKEN_FILE).display()
            )
        })
    }

    /// Writes what was made in memory, the endpoints of the link, and by what clients know the server. What to tell
    /// where links that were given out before do not say so.
    pub(crate) fn commit(
        &mut self,
        endpoints: &[Endpoint],
        tcp_port: Option<u16>,
        proof: &Proof,
    ) -> Result<Option<String>, Problem> {
        let replaced = self.replaced_token();
        let is_first_run = self.is_made(KEY_FILE);
        if self.lock.is_none() {
            let created = self.directory.create()?;
            lock_directory(&self.directory, &created)?;
            self.lock = Some(created);
            if let Some((name, _)) = self
                .missing
                .iter()
                .find(|(name, _)| self.directory.file(name).exists())
            {
                return Err(Problem::unavailable(format!(
                    "another server has just written {}; start again",
                    self.directory.file(name).display()
                )));
            }
        }
        self.directory.create()?;
        if !self.directory.file(CONFIG_FILE).exists() {
            self.directory
                .write(CONFIG_FILE, crate::config::template().as_bytes())?;
        }
        for (name, bytes) in self.missing.drain(..) {
            self.directory.write(name, &bytes)?;
        }
        let mut lines: String = endpoints.iter().map(|endpoint| format!("{endpoint}\n")).collect();
        if let Some(port) = tcp_port {
            lines.push_str(&format!("{TCP_LINE}{port}\n"));
        }
        if self.directory.read(ENDPOINTS_FILE)?.as_deref() != Some(lines.as_bytes()) {
            self.directory.write(ENDPOINTS_FILE, lines.as_bytes())?;
        }
        let changed = self.keep_proof(proof, is_first_run)?.map(str::to_owned);
        Ok(replaced.or(changed))
    }

    /// The endpoints that the last start announced, and their port in TCP's shape; empty where none did.
    pub(crate) fn endpoints(&self) -> Result<(Vec<Endpoint>, Option<u16>), Problem> {
        let bytes = self.directory.read(ENDPOINTS_FILE)?.unwrap_or_default();
        let (mut endpoints, mut tcp_port) = (Vec::new(), None);
        for line in String::from_utf8_lossy(&bytes).lines() {
            let unusable = |error: &dyn fmt::Display| unusable(&self.directory, ENDPOINTS_FILE, error);
            match line.strip_prefix(TCP_LINE) {
                Some(port) => tcp_port = Some(port.parse().map_err(|error| unusable(&error))?),
                None => endpoints.push(Endpoint::parse(line).map_err(|error| unusable(&error))?),
            }
        }
        Ok((endpoints, tcp_port))
    }
}

fn unusable(directory: &StateDirectory, name: &str, error: impl fmt::Display) -> Problem {
    let path = directory.shown_file(name);
    Problem::configuration(format!(
        "{} cannot be used: {error}; restore it, or move it away to start anew",
        path.display()
    ))
}

fn lock_directory(directory: &StateDirectory, file: &File) -> Result<(), Problem> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => Problem::unavailable(format!(
            "another server uses the state directory {}; stop it, or give this one its own --state DIR",
            directory.shown().display()
        )),
        error => Problem::file("lock the state directory", directory.shown(), &error.into()),
    })
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Problem::bug("the system provides no random bytes"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{listing, mode, state_directory};

    fn endpoints() -> Vec<Endpoint> {
        vec![
            Endpoint::parse("example.org:443").unwrap(),
            Endpoint::parse("[2001:db8::1]:443").unwrap(),
        ]
    }

    fn commit(state: &mut ServerState) -> Result<Option<String>, Problem> {
        let proof = Proof::Pin(state.identity.pin());
        state.commit(&endpoints(), Some(8_443), &proof)
    }

    #[test]
    fn nothing_is_written_before_the_commit_and_everything_after_it() {
        let (_guard, directory) = state_directory();
        let mut state = ServerState::open(&directory, &["example.org".to_owned()]).unwrap();
        assert!(!directory.path().exists());
        commit(&mut state).unwrap();
        let files = listing(directory.path());
        let names: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "config.toml",
                "endpoints",
                "owner.token",
                "reset.key",
                "server.crt",
                "server.key",
                "token.key",
                "version"
            ]
        );
        for name in names {
            assert_eq!(mode(&directory.file(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn a_second_start_reads_the_same_secrets_and_writes_nothing() {
        let (_guard, directory) = state_directory();
        let mut first = ServerState::open(&directory, &[]).unwrap();
        commit(&mut first).unwrap();
        let before = listing(directory.path());
        let (token, pin, reset_key) = (first.token.clone(), first.identity.pin(), first.reset_key);
        drop(first);
        let mut second = ServerState::open(&directory, &["other.example".to_owned()]).unwrap();
        commit(&mut second).unwrap();
        assert_eq!(second.token, token);
        assert_eq!(second.identity.pin(), pin);
        assert_eq!(second.reset_key, reset_key);
        assert_eq!(listing(directory.path()), before);
        let existing = ServerState::existing(&directory).unwrap();
        assert_eq!(existing.endpoints().unwrap(), (endpoints(), Some(8_443)));
        assert_eq!(existing.token, token);
    }

    #[test]
    fn two_servers_do_not_share_a_directory() {
        let (_guard, directory) = state_directory();
        let mut first = ServerState::open(&directory, &[]).unwrap();
        let mut raced = ServerState::open(&directory, &[]).unwrap();
        commit(&mut first).unwrap();
        let before = listing(directory.path());
        let problem = ServerState::open(&directory, &[]).map(|_| ()).unwrap_err();
        assert_eq!(problem.code() as u8, 69);
        assert!(problem.to_string().contains("another server uses"), "{problem}");
        assert_eq!(commit(&mut raced).unwrap_err().code() as u8, 69);
        drop(first);
        assert!(
            commit(&mut raced)
                .unwrap_err()
                .to_string()
                .contains("just written")
        );
        assert_eq!(listing(directory.path()), before);
    }

    #[test]
    fn a_missing_certificate_is_made_again_for_the_same_key() {
        let (_guard, directory) = state_directory();
        let mut first = ServerState::open(&directory, &[]).unwrap();
        commit(&mut first).unwrap();
        let pin = first.identity.pin();
        drop(first);
        std::fs::remove_file(directory.file(CERTIFICATE_FILE)).unwrap();
        let mut second = ServerState::open(&directory, &[]).unwrap();
        commit(&mut second).unwrap();
        assert_eq!(ServerState::existing(&directory).unwrap().identity.pin(), pin);
    }

    #[test]
    fn damaged_files_are_named_and_left_alone() {
        for (name, text) in [
            ("server.key", "x"),
            ("owner.token", "x"),
            ("reset.key", "x"),
            ("server.crt", "x"),
            ("token.key", ""),
        ] {
            let (_guard, directory) = state_directory();
            commit(&mut ServerState::open(&directory, &[]).unwrap()).unwrap();
            directory.write(name, text.as_bytes()).unwrap();
            let before = listing(directory.path());
            let problem = ServerState::open(&directory, &[]).map(|_| ()).unwrap_err();
            assert_eq!(problem.code() as u8, 78, "{problem}");
            assert!(problem.to_string().contains("cannot be used"), "{problem}");
            assert_eq!(listing(directory.path()), before);
        }
    }

    #[test]
    fn a_link_cannot_be_had_before_a_server_has_run() {
        let (_guard, directory) = state_directory();
        let problem = ServerState::existing(&directory).map(|_| ()).unwrap_err();
        assert_eq!(problem.code() as u8, 78);
        assert!(problem.to_string().contains("gramway up --state"), "{problem}");
        assert!(!directory.path().exists());
    }
}
