//! The token of the admin API: a secret in a file, which is made at the first start, and the cookie by which a browser
//! stays logged in until the process ends.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use data_encoding::BASE64URL_NOPAD;

use crate::exit::Problem;
use crate::http::Request;
use crate::limits::ADMIN_TOKEN_CHARACTERS_MIN;
use crate::server_state::random;
use crate::state::{StateDirectory, read_secret};

/// Name of the file in the state directory.
pub(super) const FILE: &str = "admin-token";

/// Name of the cookie.
const COOKIE: &str = "gramway-admin";

/// What is asked for.
pub(super) struct AdminToken {
    text: String,
    /// The value of the cookie: another secret, so that one that a browser keeps is of no use later.
    session: String,
}

impl AdminToken {
    /// Reads the file that is named, or makes it.
    ///
    /// # Errors
    /// It cannot be read or made; others may read it; it is too short.
    pub(super) fn of_file(path: &Path) -> Result<Self, Problem> {
        if let Some(bytes) = read_secret(path)? {
            return Self::read(path, &bytes);
        }
        let token = Self::new()?;
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(path);
        made.and_then(|mut file| writeln!(file, "{}", token.text))
            .map_err(|error| Problem::file("make the token file", path, &error))?;
        Ok(token)
    }

    /// The one in the state directory, and whether it is new: [`Self::keep`] writes it.
    ///
    /// # Errors
    /// It cannot be read; it is too short.
    pub(super) fn of_state(directory: &StateDirectory) -> Result<(Self, bool), Problem> {
        match directory.read_secret(FILE)? {
            Some(bytes) => Ok((Self::read(&directory.file(FILE), &bytes)?, false)),
            None => Ok((Self::new()?, true)),
        }
    }

    /// Writes it to the state directory.
    pub(super) fn keep(&self, directory: &StateDirectory) -> Result<(), Problem> {
        directory.write(FILE, format!("{}\n", self.text).as_bytes())
    }

    fn new() -> Result<Self, Problem> {
        Ok(Self {
            text: secret()?,
            session: secret()?,
        })
    }

    fn read(path: &Path, bytes: &[u8]) -> Result<Self, Problem> {
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        if text.chars().count() < ADMIN_TOKEN_CHARACTERS_MIN {
            return Err(Problem::configuration(format!(
                "the token in {} has fewer than {ADMIN_TOKEN_CHARACTERS_MIN} characters; remove the file, and the next start \
                 makes a good one",
                path.display()
            )));
        }
        Ok(Self {
            text,
            session: secret()?,
        })
    }

    /// Whether the request shows the token.
    pub(super) fn is_shown(&self, request: &Request) -> bool {
        let given = request.headers("authorization").next();
        let token = given.and_then(|given| given.split_once(' '));
        token.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && is_equal(token.trim(), &self.text)
        })
    }

    /// Whether the request comes from a browser that has shown it.
    pub(super) fn is_logged_in(&self, request: &Request) -> bool {
        let cookies = request.headers("cookie").flat_map(|cookies| cookies.split(';'));
        cookies
            .filter_map(|cookie| cookie.trim().split_once('='))
            .any(|(name, value)| name == COOKIE && is_equal(value, &self.session))
    }

    /// What makes a browser come back with it, and no page of others.
    pub(super) fn cookie(&self) -> String {
        format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict", self.session)
    }
}

fn secret() -> Result<String, Problem> {
    Ok(BASE64URL_NOPAD.encode(&random::<32>()?))
}

fn is_equal(one: &str, other: &str) -> bool {
    verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::mode;

    #[test]
    fn a_token_file_is_made_once_for_its_owner_alone_and_a_weak_one_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let made = AdminToken::of_file(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        let again = AdminToken::of_file(&path).unwrap();
        assert_eq!(made.text, again.text);
        assert_ne!(made.session, again.session);
        std::fs::write(&path, "short\n").unwrap();
        assert!(AdminToken::of_file(&path).is_err());
    }
}
