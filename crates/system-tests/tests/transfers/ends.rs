//! Two machines with one cable, of which each knows the other's ID: what the sender has goes to the receiver, which
//! finds it at its address alone.

use super::*;

/// Where the sender listens.
const PORT: u16 = 4_000;

/// Both ends of transfers, and where they take and put files.
pub(super) struct Ends {
    /// The sender's machine is `server`, the receiver's `client`.
    pub(super) pair: Pair,
    pub(super) directory: Directory,
    /// What is sent.
    pub(super) from: PathBuf,
    /// Below which it is stored.
    pub(super) to: PathBuf,
    sender: String,
    receiver: String,
}

impl Ends {
    /// What is sent has this name, and is yet to be made.
    pub(super) fn new(name: &str) -> Self {
        let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
        Self {
            from: directory.join(name),
            to: directory.join("to"),
            sender: id(&pair.server, &directory, "sender"),
            receiver: id(&pair.client, &directory, "receiver"),
            pair,
            directory,
        }
    }

    /// What is sent is a file of so many bytes that do not repeat.
    pub(super) fn with_noise(bytes: usize) -> Self {
        let ends = Self::new("noise");
        fs::write(&ends.from, pattern(1, bytes)).unwrap();
        ends
    }

    /// Waits at its address for the receiver.
    pub(super) fn send(&self, options: &[&str]) -> Process {
        run(self.sending(text(&self.from), options))
    }

    pub(super) fn receive(&self, options: &[&str]) -> Process {
        run(self.receiving(options))
    }

    /// The sender's command, to send `what`.
    pub(super) fn sending(&self, what: &str, options: &[&str]) -> Command {
        let listen = format!("{PAIR_SERVER_V4}:{PORT}");
        let send = [
            "send",
            what,
            "--peer",
            &self.receiver,
            "--listen",
            &listen,
            "--no-lan",
        ];
        command(
            &self.pair.server,
            &self.directory,
            "sender",
            &[&send, options].concat(),
        )
    }

    /// The receiver's command.
    pub(super) fn receiving(&self, options: &[&str]) -> Command {
        let peer = format!("{}@{PAIR_SERVER_V4}:{PORT}", self.sender);
        let receive = ["receive", "--peer", &peer, "--no-lan", "--to", text(&self.to)];
        command(
            &self.pair.client,
            &self.directory,
            "receiver",
            &[&receive, options].concat(),
        )
    }

    /// What was sent is there, and nothing beside it.
    pub(super) fn assert_all_there(&self) {
        let name = self.from.file_name().expect("it has a name");
        assert_same(&self.from, &self.to.join(name));
        assert_eq!(
            fs::read_dir(&self.to).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }
}
