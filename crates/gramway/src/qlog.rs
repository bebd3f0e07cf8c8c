//! Traces of connections (qlog): where they go, and of a server's users whose are written.

mod settings;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use tunnel::qlog::{Chosen, Qlog};
use tunnel_proto::UserId;

use crate::exit::{Problem, sentence};
use crate::log;
use crate::users::Register;

pub(crate) use settings::{QlogSettings, TracedUsers};

/// The traced users of a server, by the names that its owner gave them.
struct OfServer {
    users: TracedUsers,
    register: Arc<Register>,
}

impl Chosen for OfServer {
    fn is_anybody(&self) -> bool {
        self.users.is_anybody()
    }

    fn name(&self, user: UserId) -> Option<String> {
        Some(self.register.name(user)).filter(|name| self.users.has(name))
    }
}

impl QlogSettings {
    /// Makes the directory, for this user alone. To be done before the sandbox closes.
    pub(crate) fn prepare(&self) -> Result<(), Problem> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| Problem::file("create the directory of qlog", directory, &error))
    }

    /// Starts writing the traces of a client.
    pub(crate) fn of_client(&self) -> Result<Option<Qlog>, Problem> {
        self.start(None)
    }

    /// Starts writing the traces of a server.
    pub(crate) fn of_server(&self, register: &Arc<Register>) -> Result<Option<Qlog>, Problem> {
        self.start(Some(Arc::new(OfServer {
            users: self.users.clone(),
            register: Arc::clone(register),
        })))
    }

    fn start(&self, chosen: Option<Arc<dyn Chosen>>) -> Result<Option<Qlog>, Problem> {
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        let complain = Box::new(|text| log::warning("qlog", text));
        let started = Qlog::start(directory.clone(), chosen, complain);
        started
            .map(Some)
            .map_err(|error| Problem::unavailable(format!("no thread for qlog: {}", sentence(&error))))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::settings::EVERYBODY;
    use super::*;

    #[test]
    fn users_are_chosen_by_name_or_all_and_a_reload_chooses_others() {
        let users = TracedUsers::default();
        let same = users.clone();
        assert!(!users.has("ann"));
        same.follow(&TracedUsers::new(vec!["ann".to_owned()]));
        assert!(users.has("ann") && !users.has("bob"));
        same.follow(&TracedUsers::new(vec![EVERYBODY.to_owned()]));
        assert!(users.has("bob"));
    }

    #[test]
    fn the_directory_is_made_for_this_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        let settings = QlogSettings {
            directory: Some(directory.clone()),
            ..QlogSettings::default()
        };
        settings.prepare().unwrap();
        settings.prepare().unwrap();
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::write(place.path().join("file"), "").unwrap();
        let settings = QlogSettings {
            directory: Some(place.path().join("file/c")),
            ..QlogSettings::default()
        };
        let problem = settings.prepare().unwrap_err().to_string();
        assert!(problem.contains("create the directory of qlog"), "{problem}");
    }
}
