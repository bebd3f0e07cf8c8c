//! Files with certificates of authorities that are trusted beside those that browsers trust.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::exit::Problem;
use crate::limits::ROOTS_FILE_BYTES_MAX;

/// The certificates of a PEM file, in DER; there is at least one. None where no file is named.
pub(crate) fn read(file: Option<&Path>) -> Result<Vec<Vec<u8>>, Problem> {
    file.map_or(Ok(Vec::new()), read_all)
}

/// The certificates of this PEM file.
pub(crate) fn read_all(path: &Path) -> Result<Vec<Vec<u8>>, Problem> {
    let text = read_bounded(path).map_err(|error| Problem::file("read the certificates", path, &error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| unusable(path, &error))?;
    if certificates.is_empty() {
        return Err(unusable(path, &"it has none in PEM"));
    }
    let certificates = certificates.iter().map(|certificate| certificate.to_vec());
    Ok(certificates.collect())
}

/// What is said where the certificates of a file are of no use.
pub(crate) fn unusable(path: &Path, reason: &dyn Display) -> Problem {
    Problem::configuration(format!(
        "cannot use the certificates of {}: {reason}",
        path.display()
    ))
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(ROOTS_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > ROOTS_FILE_BYTES_MAX {
        let message = format!("it is larger than {ROOTS_FILE_BYTES_MAX} bytes");
        return Err(io::Error::other(message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8]) -> Result<Vec<Vec<u8>>, Problem> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("authorities.pem");
        std::fs::write(&path, text).unwrap();
        read(Some(&path))
    }

    #[test]
    fn all_certificates_of_a_file_are_read() {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(["authority.test".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let text = certificate.pem() + &certificate.pem();
        let expected = vec![certificate.der().to_vec(); 2];
        assert_eq!(read_text(text.as_bytes()).unwrap(), expected);
        assert_eq!(read(None).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let long = vec![b'\n'; ROOTS_FILE_BYTES_MAX as usize + 1];
        for (text, reason) in [
            (&b""[..], "none in PEM"),
            (
                b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n",
                "cannot use",
            ),
            (&long, "larger than"),
        ] {
            let problem = read_text(text).unwrap_err();
            assert!(problem.to_string().contains(reason), "{problem}");
            assert_eq!(problem.code() as u8, 78, "{problem}");
        }
        let problem = read(Some(Path::new("/nowhere/authorities.pem"))).unwrap_err();
        assert!(problem.to_string().contains("read the certificates"), "{problem}");
    }
}
