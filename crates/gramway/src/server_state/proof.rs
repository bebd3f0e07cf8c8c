//! What clients know the server by that ran last, and what one with a cover keeps besides: its X25519 keys, by which it
//! recognises clients (specs/qr1.md, QR1-1), and the name that the link shows.
//!
//! The present key is made at the first start with a cover. To replace it, it is moved to `cover.previous.key`: the
//! next start makes another, and links with the previous one work on.

use std::path::PathBuf;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use data_encoding::BASE64URL_NOPAD;
use tunnel_proto::link::Proof;

use super::{ServerState, random, unusable};
use crate::exit::Problem;
use crate::state::StateDirectory;

const KEY_FILE: &str = "cover.key";
const PREVIOUS_KEY_FILE: &str = "cover.previous.key";
const NAME_FILE: &str = "cover.name";
/// By which ordinary certificate clients know the server, where it has one: "web", or a pin.
const CERTIFICATE_FILE: &str = "link.certificate";
const WEB: &str = "web";
const REPLAYS_FILE: &str = "cover.replays";

/// The private keys of a server with a cover; no `Debug`.
pub(crate) struct CoverKeys {
    pub(crate) present: [u8; 32],
    pub(crate) previous: Option<[u8; 32]>,
    /// There was none before.
    pub(crate) is_new: bool,
}

impl ServerState {
    /// The keys of a server with a cover; one that is missing is made, and written by [`ServerState::commit`].
    pub(crate) fn cover_keys(&mut self) -> Result<CoverKeys, Problem> {
        let kept = read_key(&self.directory, KEY_FILE)?;
        let previous = read_key(&self.directory, PREVIOUS_KEY_FILE)?;
        let is_new = kept.is_none() && previous.is_none();
        let present = match kept {
            Some(key) => key,
            None => {
                let key: [u8; 32] = random()?;
                self.missing.push((KEY_FILE, key.to_vec()));
                key
            }
        };
        Ok(CoverKeys {
            present,
            previous,
            is_new,
        })
    }

    /// The file in which a running server notes what it has accepted.
    pub(crate) fn replays_file(&self) -> PathBuf {
        self.directory.file(REPLAYS_FILE)
    }

    /// What clients know a server by whose cover has this name.
    pub(crate) fn proof_behind(&self, name: String, keys: &CoverKeys) -> Result<Proof, Problem> {
        let key = public_half(&keys.present).map_err(|error| unusable(&self.directory, KEY_FILE, error))?;
        Ok(Proof::Cover { key, name })
    }

    /// What clients know the server by that ran last.
    pub(crate) fn last_proof(&self) -> Result<Proof, Problem> {
        let Some(name) = self.last_line(NAME_FILE)? else {
            return self.last_certificate();
        };
        let Some(present) = read_key(&self.directory, KEY_FILE)? else {
            return Err(unusable(
                &self.directory,
                NAME_FILE,
                "the key cover.key is missing",
            ));
        };
        let keys = CoverKeys {
            present,
            previous: None,
            is_new: false,
        };
        self.proof_behind(name, &keys)
    }

    /// Keeps by what clients know the server that runs. What to tell where links that were given out before are of no
    /// use any more.
    pub(super) fn keep_proof(
        &self,
        proof: &Proof,
        is_first_run: bool,
    ) -> Result<Option<&'static str>, Problem> {
        let former = [NAME_FILE, CERTIFICATE_FILE].map(|file| self.last_line(file));
        let [former_name, former_certificate] = former;
        let former = [former_name?, former_certificate?];
        let present = match proof {
            Proof::Cover { name, .. } => [Some(name.clone()), None],
            Proof::WebPki => [None, Some(WEB.to_owned())],
            Proof::Pin(pin) if *pin == self.identity.pin() => [None, None],
            Proof::Pin(pin) => [None, Some(BASE64URL_NOPAD.encode(pin))],
        };
        if former == present {
            return Ok(None);
        }
        for (file, line) in [NAME_FILE, CERTIFICATE_FILE].into_iter().zip(&present) {
            match line {
                Some(line) => self.directory.write(file, format!("{line}\n").as_bytes())?,
                None => self.directory.remove(file)?,
            }
        }
        Ok(match (&former, &present) {
            ([None, _], [Some(_), _]) if !is_first_run => {
                Some("the server has a cover now: links that were given out before no longer work")
            }
            ([Some(_), _], [None, _]) => Some(
                "the server has no cover any more: links that were given out with it no longer work, and everybody can tell \
                 what it is",
            ),
            ([None, _], [None, _]) if !is_first_run => Some(
                "clients know the server by another certificate now: links that were given out before no longer work",
            ),
            _ => None,
        })
    }

    /// What clients know the server by that ran last, without a cover.
    fn last_certificate(&self) -> Result<Proof, Problem> {
        match self.last_line(CERTIFICATE_FILE)? {
            None => Ok(Proof::Pin(self.identity.pin())),
            Some(line) if line == WEB => Ok(Proof::WebPki),
            Some(line) => {
                let pin = BASE64URL_NOPAD.decode(line.as_bytes()).ok();
                let pin = pin.and_then(|pin| pin.try_into().ok());
                pin.map(Proof::Pin)
                    .ok_or_else(|| unusable(&self.directory, CERTIFICATE_FILE, "it holds no pin"))
            }
        }
    }

    fn last_line(&self, file: &str) -> Result<Option<String>, Problem> {
        let bytes = self.directory.read(file)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }
}

fn read_key(directory: &StateDirectory, name: &str) -> Result<Option<[u8; 32]>, Problem> {
    let Some(bytes) = directory.read_secret(name)? else {
        return Ok(None);
    };
    let key = bytes.try_into();
    key.map(Some)
        .map_err(|_| unusable(directory, name, "it does not hold 32 bytes"))
}

/// The public half of a key.
fn public_half(key: &[u8; 32]) -> Result<[u8; 32], &'static str> {
    let refused = "it is not an X25519 key";
    let key = PrivateKey::from_private_key(&X25519, key).map_err(|_| refused)?;
    let public = key.compute_public_key().map_err(|_| refused)?;
    public.as_ref().try_into().map_err(|_| refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{listing, mode, state_directory};
    use tunnel_proto::link::Endpoint;

    const NAME: &str = "www.example.org";

    fn endpoints() -> Vec<Endpoint> {
        vec![Endpoint::parse("example.org:443").unwrap()]
    }

    /// One run with a cover: what clients know the server by, and what is told.
    fn run(directory: &StateDirectory) -> (Proof, Option<String>) {
        let mut state = ServerState::open(directory, &[]).unwrap();
        let keys = state.cover_keys().unwrap();
        let proof = state.proof_behind(NAME.to_owned(), &keys).unwrap();
        let told = state.commit(&endpoints(), None, &proof).unwrap();
        (proof, told)
    }

    fn run_without(directory: &StateDirectory) -> Option<String> {
        let mut state = ServerState::open(directory, &[]).unwrap();
        let proof = Proof::Pin(state.identity.pin());
        state.commit(&endpoints(), None, &proof).unwrap()
    }

    #[test]
    fn a_server_with_a_cover_keeps_its_key_and_its_link() {
        let (_guard, directory) = state_directory();
        let (proof, told) = run(&directory);
        assert_eq!(told, None);
        assert_eq!(mode(&directory.file(KEY_FILE)), 0o600);
        let before = listing(directory.path());
        assert_eq!(run(&directory), (proof.clone(), None));
        assert_eq!(listing(directory.path()), before);
        let state = ServerState::existing(&directory).unwrap();
        assert_eq!(state.last_proof().unwrap(), proof);
    }

    #[test]
    fn the_public_half_is_that_of_rfc_7748() {
        // Section 6.1, Bob's keys.
        let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let private = hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let public = public_half(&private.try_into().unwrap()).unwrap();
        let expected = hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        assert_eq!(public.as_slice(), expected);
    }

    #[test]
    fn a_key_that_was_moved_aside_stays_known_and_another_is_made() {
        let (_guard, directory) = state_directory();
        let (first, _) = run(&directory);
        let key = directory.read_secret(KEY_FILE).unwrap().unwrap();
        std::fs::rename(directory.file(KEY_FILE), directory.file(PREVIOUS_KEY_FILE)).unwrap();
        let (second, _) = run(&directory);
        assert_ne!(first, second);
        let keys = ServerState::open(&directory, &[]).unwrap().cover_keys().unwrap();
        assert_eq!(keys.previous.map(Vec::from), Some(key));
        assert_ne!(Some(keys.present), keys.previous);
    }

    #[test]
    fn a_server_whose_links_cease_to_work_says_so_once() {
        let (_guard, directory) = state_directory();
        assert_eq!(run_without(&directory), None);
        assert!(run(&directory).1.unwrap().contains("has a cover now"));
        assert_eq!(run(&directory).1, None);
        assert!(run_without(&directory).unwrap().contains("no cover any more"));
        assert_eq!(run_without(&directory), None);
        let state = ServerState::existing(&directory).unwrap();
        assert_eq!(state.last_proof().unwrap(), Proof::Pin(state.identity.pin()));
    }

    #[test]
    fn an_ordinary_certificate_is_what_the_link_says_until_there_is_none() {
        let (_guard, directory) = state_directory();
        run_without(&directory);
        let told = |proof: &Proof| {
            let mut state = ServerState::open(&directory, &[]).unwrap();
            let told = state.commit(&endpoints(), None, proof).unwrap();
            assert_eq!(state.last_proof().unwrap(), *proof);
            told.is_some_and(|told| told.contains("another certificate now"))
        };
        assert!(told(&Proof::WebPki));
        assert!(!told(&Proof::WebPki));
        assert!(told(&Proof::Pin([9; 32])));
        assert!(!told(&Proof::Pin([9; 32])));
        assert!(
            run_without(&directory)
                .unwrap()
                .contains("another certificate now")
        );
        let state = ServerState::existing(&directory).unwrap();
        assert_eq!(state.last_proof().unwrap(), Proof::Pin(state.identity.pin()));
    }

    #[test]
    fn damaged_keys_are_named_and_left_alone() {
        for name in [KEY_FILE, PREVIOUS_KEY_FILE] {
            let (_guard, directory) = state_directory();
            run(&directory);
            directory.write(name, b"short").unwrap();
            let mut state = ServerState::open(&directory, &[]).unwrap();
            let problem = state.cover_keys().map(|_| ()).unwrap_err();
            assert!(problem.to_string().contains(name), "{problem}");
            assert_eq!(problem.code() as u8, 78);
        }
    }
}
