//! A server with an ordinary certificate, and clients that know it by that.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::support::{CONFIGURATION, PERMISSION, Place, Program, USAGE, free_port};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(parameters, key),
            pem,
        }
    }

    /// Puts a new certificate for this name, and its key, into the place.
    fn certify(&self, place: &Place, name: &str) {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        place.write_secret("privkey.pem", &key.serialize_pem());
        place.write_secret("fullchain.pem", &(certificate.pem() + &self.pem));
    }
}

fn server(place: &Place) -> Program {
    let words = ["up", "--state", "state", "--listen", "127.0.0.1:0"];
    let files = ["--tls-cert", "fullchain.pem", "--tls-key", "privkey.pem"];
    let child = place.command(&[&words[..], &files].concat()).spawn().unwrap();
    let server = Program::watch(child);
    server.wait_for("gramway link --state state");
    place.write_secret("link", &place.link());
    server
}

/// A client that trusts `roots` besides.
fn client(place: &Place, roots: &str) -> Program {
    let mut command = place.client_command(&format!("udp:{}=192.0.2.1:9", free_port()));
    let child = command.args(["--tls-roots", roots]).spawn().unwrap();
    Program::watch(child)
}

#[test]
fn clients_know_a_server_by_its_name_and_go_on_when_its_certificate_is_renewed() {
    let place = Place::new();
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    place.write_secret("one.pem", &authority.pem);
    place.write_secret("other.pem", &other.pem);
    authority.certify(&place, "localhost");
    let server = server(&place);
    let link = place.link();
    assert!(
        link.contains("@localhost:") && link.ends_with("?!trust=web"),
        "{link}"
    );
    client(&place, "one.pem").wait_for("connected to ");
    let stranger = client(&place, "other.pem");
    stranger.wait_for("the server's certificate is not valid");
    assert_eq!(stranger.end(), Some(PERMISSION));
    // Of another authority, so that it shows.
    other.certify(&place, "localhost");
    server.wait_for("the certificate was replaced");
    client(&place, "other.pem").wait_for("connected to ");
    let late = client(&place, "one.pem");
    late.wait_for("the server's certificate is not valid");
    assert_eq!(late.end(), Some(PERMISSION));
    let masque = place.run(&["link", "--masque", "--state", "state"]);
    let templates = String::from_utf8(masque.stdout).unwrap();
    assert!(templates.contains("https://localhost:") && !templates.contains("BEGIN"));
}

#[test]
fn a_certificate_that_cannot_be_used_stops_the_start() {
    let place = Place::new();
    let up = |more: &[&'static str]| [&["up", "--state", "state"], more].concat();
    place.refused(&up(&["--tls-cert", "fullchain.pem"]), USAGE, "add --tls-key FILE");
    let both = up(&["--tls-cert", "fullchain.pem", "--tls-key", "privkey.pem"]);
    place.refused(&both, CONFIGURATION, "fullchain.pem");
    Authority::new("one").certify(&place, "localhost");
    let with_cover = [&both[..], &["--cover", "www.example.org"]].concat();
    place.refused(&with_cover, USAGE, "leave out --tls-cert or --cover");
    place.write_secret("privkey.pem", &KeyPair::generate().unwrap().serialize_pem());
    place.refused(&both, CONFIGURATION, "cannot be used");
}
