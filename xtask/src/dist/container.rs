//! What a container image is built from: `Containerfile`, with the program and an empty directory for the state beside
//! it. The file is read here too, so that what it describes can be tried without a builder of images.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// An image, as far as the trial needs it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    /// From the build's directory, to the image, and whose it is: user and group.
    pub(super) copies: Vec<(String, String, Option<String>)>,
    /// User and group of the program.
    pub(super) user: String,
    /// Names and values.
    pub(super) environment: Vec<(String, String)>,
    /// The program, and its arguments where none are given.
    pub(super) entry: Vec<String>,
    pub(super) arguments: Vec<String>,
}

/// Writes the file and the directory of the state into `directory`, and gives the file's path.
pub(super) fn write(repository: &crate::repository::Repository, directory: &Path) -> Result<PathBuf> {
    let source = repository.root().join("contrib/container/Containerfile");
    let path = directory.join("Containerfile");
    fs::copy(&source, &path).with_context(|| format!("{} cannot be copied", source.display()))?;
    let state = directory.join("state");
    fs::create_dir_all(&state)
        .and_then(|()| fs::set_permissions(&state, fs::Permissions::from_mode(0o700)))
        .context("the state's directory cannot be made")?;
    Ok(path)
}

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Image> {
    let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    parse(&text).with_context(|| format!("{} cannot be used", path.display()))
}

fn parse(text: &str) -> Result<Image> {
    let mut image = Image::default();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (instruction, rest) = line.split_once(' ').unwrap_or((line, ""));
        match instruction {
            // An empty image: a root directory needs nothing from elsewhere.
            "FROM" if rest == "scratch" => {}
            "COPY" => {
                let (owner, paths) = match rest
                    .strip_prefix("--chown=")
                    .and_then(|rest| rest.split_once(' '))
                {
                    Some((owner, paths)) => (Some(owner.to_owned()), paths),
                    None => (None, rest),
                };
                let (from, to) = paths.split_once(' ').context("COPY names two paths")?;
                image.copies.push((from.to_owned(), to.to_owned(), owner));
            }
            "USER" => image.user = rest.to_owned(),
            "ENV" => {
                let (name, value) = rest
                    .split_once('=')
                    .context("ENV names a variable and its value")?;
                image.environment.push((name.to_owned(), value.to_owned()));
            }
            "ENTRYPOINT" => image.entry = serde_json::from_str(rest).context("ENTRYPOINT is a list")?,
            "CMD" => image.arguments = serde_json::from_str(rest).context("CMD is a list")?,
            // What they ask for is the host's to give.
            "VOLUME" | "EXPOSE" => {}
            other => bail!("`{other}` is not understood here"),
        }
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_and_what_is_not_understood_is_told() {
        let text = "# x\nFROM scratch\nCOPY a /b\nCOPY --chown=1:2 c /d\nUSER 1:2\nENV A=b=c\nVOLUME /d\n\n\
                    ENTRYPOINT [\"/b\"]\nCMD [\"up\"]\n";
        let image = parse(text).unwrap();
        let copies = [("a", "/b", None), ("c", "/d", Some("1:2"))];
        let copies =
            copies.map(|(from, to, owner)| (from.to_owned(), to.to_owned(), owner.map(str::to_owned)));
        assert_eq!(image.copies, copies);
        assert_eq!(image.environment, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(
            (image.user.as_str(), image.entry, image.arguments),
            ("1:2", vec!["/b".to_owned()], vec!["up".to_owned()])
        );
        assert!(parse("FROM debian\n").is_err() && parse("RUN make\n").is_err());
    }
}
