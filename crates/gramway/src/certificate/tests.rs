//! Files that are renewed, and those that cannot be used.

use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::log::Detail;

struct Files {
    directory: TempDir,
    files: CertificateFiles,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [chain, key] = ["chain.pem", "key.pem"].map(|name| directory.path().join(name));
        let settings = Settings {
            tls_cert: Some(chain),
            tls_key: Some(key),
            ..Settings::default()
        };
        let files = CertificateFiles::of(&settings).unwrap().unwrap();
        Self { directory, files }
    }

    fn with(names: &[&str]) -> Self {
        let files = Self::new();
        files.renew(names, &KeyPair::generate().unwrap());
        files
    }

    /// Puts new files in the place of the former ones.
    fn renew(&self, names: &[&str], key: &KeyPair) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().self_signed(key).unwrap();
        self.write(&self.files.key, &key.serialize_pem());
        self.write(&self.files.chain, &certificate.pem());
    }

    fn write(&self, path: &Path, text: &str) {
        let beside = self.directory.path().join("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&beside, path).unwrap();
    }

    fn watched(&self) -> Watched {
        Watched {
            files: self.files.clone(),
            certificate: self.files.read().unwrap(),
            trouble: None,
        }
    }

    fn refused(&self, part: &str) {
        let problem = self.files.read().err().unwrap();
        assert!(problem.to_string().contains(part), "{problem}");
    }
}

/// What people are told after a look.
fn look(watched: &mut Watched) -> Option<String> {
    watched.look().map(|record| record.for_people(Detail::Normal))
}

#[test]
fn renewed_files_are_taken_once_and_those_that_cannot_be_used_told_once() {
    let files = Files::with(&["one.test"]);
    let mut watched = files.watched();
    assert_eq!(look(&mut watched), None);
    let key = KeyPair::generate().unwrap();
    files.renew(&["two.test"], &key);
    assert_eq!(look(&mut watched).unwrap(), "the certificate was replaced");
    assert_eq!(look(&mut watched), None);
    assert_eq!(watched.certificate.hosts(), [("two.test".to_owned(), None)]);
    // The key comes later than the certificate.
    let other = KeyPair::generate().unwrap();
    files.write(&files.files.key, &other.serialize_pem());
    let told = look(&mut watched).unwrap();
    assert!(told.contains("the former certificate is shown on"), "{told}");
    assert_eq!((look(&mut watched), look(&mut watched)), (None, None));
    files.renew(&["three.test"], &other);
    assert_eq!(look(&mut watched).unwrap(), "the certificate was replaced");
    assert_eq!(watched.certificate.hosts(), [("three.test".to_owned(), None)]);
    std::fs::remove_file(&files.files.chain).unwrap();
    assert!(look(&mut watched).unwrap().contains("read the certificates"));
    assert_eq!(look(&mut watched), None);
}

#[test]
fn another_key_under_links_that_pin_it_is_a_warning() {
    let mut files = Files::with(&["one.test"]);
    files.files.is_pinned = true;
    let mut watched = files.watched();
    let Ok(Proof::Pin(pin)) = watched.certificate.proof(&files.files) else {
        panic!("the link has no pin");
    };
    assert_eq!(
        pin,
        certificates::public_key_pin(&watched.certificate.leaf).unwrap()
    );
    let key = KeyPair::generate().unwrap();
    files.renew(&["one.test"], &key);
    assert!(look(&mut watched).unwrap().contains("no longer work"));
    files.renew(&["one.test"], &key);
    assert_eq!(look(&mut watched).unwrap(), "the certificate was replaced");
}

#[test]
fn hosts_of_the_link_that_the_certificate_is_not_for_are_told() {
    let files = Files::with(&["one.test", "*.two.test", "192.0.2.1"]);
    let certificate = files.files.read().unwrap();
    assert_eq!(certificate.hosts(), [("one.test".to_owned(), None)]);
    let warning = |hosts: &[&str]| {
        let endpoint = |host: &&str| Endpoint {
            host: (*host).to_owned(),
            port: 443,
        };
        let endpoints: Vec<_> = hosts.iter().map(endpoint).collect();
        certificate.warning(&endpoints, &Proof::WebPki)
    };
    assert_eq!(warning(&["one.test", "www.two.test", "192.0.2.1"]), None);
    let told = warning(&["one.test", "three.test", "192.0.2.2"]).unwrap();
    assert!(told.contains("not for three.test and 192.0.2.2"), "{told}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let files = Files::new();
    files.refused("chain.pem");
    let key = KeyPair::generate().unwrap();
    files.renew(&["one.test"], &key);
    files.write(&files.files.key, &KeyPair::generate().unwrap().serialize_pem());
    files.refused("cannot be used");
    files.write(&files.files.key, "x");
    files.refused("holds no private key");
    std::fs::set_permissions(&files.files.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    files.refused("chmod 600");
    std::fs::remove_file(&files.files.key).unwrap();
    files.refused("there is no file");
}

#[test]
fn half_of_the_settings_and_a_cover_are_refused() {
    let mut settings = Settings {
        tls_cert: Some("chain.pem".into()),
        ..Settings::default()
    };
    let told = |settings: &Settings| CertificateFiles::of(settings).unwrap_err().to_string();
    assert!(told(&settings).contains("--tls-key"));
    settings.tls_key = settings.tls_cert.take();
    assert!(told(&settings).contains("--tls-cert"));
    settings.tls_cert = settings.tls_key.clone();
    settings.cover.place = Some(("www.example.org".to_owned(), None));
    assert!(told(&settings).contains("--cover"));
}
