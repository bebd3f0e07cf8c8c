//! How both ends of `gramway send` and `receive` end: by which code, and what they say.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use crate::support::{Place, UNAVAILABLE, is_root};
use crate::transfer::{receive, sender_by};

/// The same command without root's right to read whatever there is.
fn without_right_to_read_all(command: Command) -> Command {
    if !is_root() {
        return command;
    }
    let mut without = Command::new("setpriv");
    without
        .arg("--bounding-set=-dac_override,-dac_read_search")
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().expect("it runs in its place"))
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    without
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// FILE-44.
#[test]
fn a_directory_that_its_sender_may_not_read_is_no_success_of_either_end() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/secret")).expect("it is made");
    fs::write(place.path("tree/file"), "is sent").expect("it is written");
    let mode = |mode| fs::set_permissions(place.path("tree/secret"), fs::Permissions::from_mode(mode));
    mode(0).expect("its mode is set");
    let (sender, at) = sender_by(&place, &["tree"], without_right_to_read_all);
    let output = receive(&place, &at, &[]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
    assert!(
        told.contains("tree/secret: at the sender: the directory cannot be read"),
        "{told}"
    );
    assert!(
        told.contains("1 files, directories or links were not transferred"),
        "{told}"
    );
    let told = sender.wait_for("tree/secret: ");
    assert!(told.contains("the directory cannot be read"), "{told}");
    assert_eq!(sender.end(), Some(UNAVAILABLE));
    assert_eq!(
        fs::read(place.path("to/tree/file")).expect("the rest is there"),
        b"is sent"
    );
    // To be removed.
    mode(0o700).expect("its mode is set");
}
