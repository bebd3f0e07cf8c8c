//! Nothing leaves a client's machine in clear under a default route, whatever happens to tunnel, client and guardian:
//! seen at the other end of its cable, while an unprivileged program on it sends all the time.
//!
//! Each test ends with the same program's packets in clear, as a control that they would have been seen.

mod ends;
mod kills;
mod life;
mod routes;
mod sender;
mod withdrawn;

use system_tests::underlay::Underlay;

use super::*;
use sender::Sender;

/// The table by which nothing leaves.
const TABLE: [&str; 4] = ["list", "table", "inet", "gramway_kill_switch"];

/// Turns of the sender, of ten milliseconds, in which something that leaks is seen.
const TURNS: u64 = 40;

/// The machines, a capture of what the client's sends, and who sends there.
struct Watched {
    sender: Sender,
    underlay: Underlay,
    machines: Machines,
    directory: Directory,
}

impl Watched {
    /// Nobody sends yet.
    fn new() -> Self {
        let (machines, directory) = (Machines::new(1500), Directory::create_for_test().unwrap());
        let underlay = Underlay::capture(
            &machines.router,
            (&machines.first, "eth0"),
            LISTEN.parse().unwrap(),
        );
        let sender = Sender::start(&machines.first);
        Self {
            sender,
            underlay,
            machines,
            directory,
        }
    }

    /// A client with a default route that nobody waits for; its kill switch stands.
    fn start_client(&self, link: &str, options: &[&str]) -> Client {
        let options = [&[TUN, "--default-route"], options].concat();
        let place = self.machines.first.place();
        let client = Client::start_unconnected(&place, "client", link, &[], &options, self.directory.path());
        wait_until("the kill switch", PROGRAM_LIMIT, || self.has_kill_switch());
        client
    }

    fn has_kill_switch(&self) -> bool {
        self.machines.first.run("nft", TABLE).is_ok()
    }

    /// The sender begins, or goes on, where nothing may leave.
    fn send(&self) {
        self.underlay.forget();
        self.sender.go_on();
    }

    /// Nothing has left in clear since [`Self::send`], and nothing leaves within some more turns.
    fn assert_closed(&self, when: &str) {
        self.sender.wait_for_turns(TURNS);
        let leaked = self.underlay.in_clear();
        assert!(leaked.is_empty(), "{when}: left in clear: {leaked:?}");
    }

    /// Everything leaves in clear; then the sender pauses, and all of that has been seen.
    fn assert_open(&self, when: &str) {
        self.sender.go_on();
        self.underlay.forget();
        wait_until(&format!("everything in clear, {when}"), PROGRAM_LIMIT, || {
            let seen = self.underlay.in_clear();
            self.sender.flows().iter().all(|flow| seen.contains_key(flow))
        });
        let mark = self.sender.pause();
        wait_until("the sender's last packet", PROGRAM_LIMIT, || {
            self.underlay.in_clear().contains_key(&mark)
        });
    }

    fn release(&self, client: &Client) -> (Option<i32>, String) {
        release(&self.machines.first, client)
    }

    /// What `gramway status` says on the client's machine.
    fn status(&self, client: &Client) -> String {
        let mut command = self.machines.first.command(gramway_binary());
        command.arg("status").arg("--state").arg(client.state());
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    }
}
