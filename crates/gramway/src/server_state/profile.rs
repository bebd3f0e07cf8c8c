//! What a server with a cover imitates of it (specs/qr1.md, QR1-27), kept for starts at which it does not answer.

use std::time::Duration;

use serde_json::{Value, json};
use tunnel::examination::Profile;

use super::ServerState;
use crate::cover::Cover;
use crate::exit::Problem;
use crate::state::StateDirectory;

const FILE: &str = "cover.profile";

/// Where the profile of one cover is kept.
pub(crate) struct ProfileFile {
    directory: StateDirectory,
    cover: Cover,
}

impl ServerState {
    /// Of this cover.
    pub(crate) fn profile_file(&self, cover: &Cover) -> ProfileFile {
        ProfileFile {
            directory: self.directory.clone(),
            cover: cover.clone(),
        }
    }
}

impl ProfileFile {
    /// The profile that the cover had when it was examined last; `None` where it never was, or the file is damaged: the
    /// next examination writes another.
    pub(crate) fn read(&self) -> Result<Option<Profile>, Problem> {
        let bytes = self.directory.read(FILE)?;
        Ok(bytes.and_then(|bytes| parse(&bytes, &self.cover)))
    }

    /// Keeps what an examination found.
    pub(crate) fn keep(&self, profile: &Profile) -> Result<(), Problem> {
        let text = json!({
            "cover": self.cover.place.to_string(),
            "name": self.cover.name,
            "suite": profile.suite,
            "group": profile.group,
            "id_bytes": profile.id_bytes,
            "certificate_bytes": profile.certificate_bytes,
            "is_version_first": profile.is_version_first,
            "answer_delay_us": u64::try_from(profile.answer_delay.as_micros()).unwrap_or(u64::MAX),
        });
        self.directory.write(FILE, format!("{text}\n").as_bytes())
    }
}

/// Of this cover alone. Values that no server can have are refused where the server starts.
fn parse(bytes: &[u8], cover: &Cover) -> Option<Profile> {
    let kept: Value = serde_json::from_slice(bytes).ok()?;
    if kept["cover"] != cover.place.to_string() || kept["name"] != cover.name.as_str() {
        return None;
    }
    let number = |name: &str| kept[name].as_u64();
    Some(Profile {
        suite: number("suite")?.try_into().ok()?,
        group: number("group")?.try_into().ok()?,
        id_bytes: number("id_bytes")?.try_into().ok()?,
        certificate_bytes: number("certificate_bytes")?.try_into().ok()?,
        is_version_first: kept["is_version_first"].as_bool()?,
        answer_delay: Duration::from_micros(number("answer_delay_us")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{mode, state_directory};
    use tunnel_proto::link::Endpoint;

    fn cover(place: &str, name: &str) -> Cover {
        Cover {
            place: Endpoint::parse(place).unwrap(),
            name: name.to_owned(),
        }
    }

    fn harbour() -> Cover {
        cover("www.example.org:443", "www.example.org")
    }

    fn profile() -> Profile {
        Profile {
            suite: 0x1302,
            group: 0x001d,
            id_bytes: 20,
            certificate_bytes: 2_345,
            is_version_first: true,
            answer_delay: Duration::from_micros(12_345),
        }
    }

    fn file(directory: &StateDirectory, cover: &Cover) -> ProfileFile {
        directory.create().unwrap();
        ServerState::open(directory, &[]).unwrap().profile_file(cover)
    }

    #[test]
    fn a_profile_is_kept_for_its_cover_alone_and_for_nobody_else_to_see() {
        let (_guard, directory) = state_directory();
        let kept = file(&directory, &harbour());
        assert_eq!(kept.read().unwrap(), None);
        kept.keep(&profile()).unwrap();
        assert_eq!(kept.read().unwrap(), Some(profile()));
        assert_eq!(mode(&directory.file(FILE)), 0o600);
        for other in [
            cover("www.example.org:8443", "www.example.org"),
            cover("www.example.org:443", "example.org"),
        ] {
            assert_eq!(file(&directory, &other).read().unwrap(), None);
        }
    }

    #[test]
    fn a_damaged_profile_is_none_and_is_replaced() {
        let (_guard, directory) = state_directory();
        let kept = file(&directory, &harbour());
        kept.keep(&profile()).unwrap();
        let whole = String::from_utf8(directory.read(FILE).unwrap().unwrap()).unwrap();
        for damaged in [
            String::new(),
            "[]".to_owned(),
            whole[..whole.len() / 2].to_owned(),
            whole.replace("4866", "65536"),
            whole.replace("4866", "-1"),
            whole.replace(":20", ":256"),
            whole.replace("12345", "\"soon\""),
            whole.replace("true", "1"),
        ] {
            assert_ne!(damaged, whole);
            directory.write(FILE, damaged.as_bytes()).unwrap();
            assert_eq!(kept.read().unwrap(), None, "{damaged}");
        }
        kept.keep(&profile()).unwrap();
        assert_eq!(kept.read().unwrap(), Some(profile()));
    }
}
