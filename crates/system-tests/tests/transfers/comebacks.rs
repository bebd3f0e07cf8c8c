//! Networks and ends that fall silent for longer than a connection lives: one command at each end goes on by itself.
//! And receivers that are interrupted, who come again by the same code.

use testbed::process::Signal;

use super::*;

/// A transfer that takes longer than the tests need to break its connection.
struct Broken {
    ends: Ends,
    sender: Process,
    receiver: Process,
}

impl Broken {
    /// One that runs, and of which something has come.
    fn begin() -> Self {
        let ends = Ends::with_noise(24_000_000);
        let mut sender = ends.send(&["--limit", "2M"]);
        sender
            .wait_for_line("waiting for the peer", PROGRAM_LIMIT)
            .unwrap();
        let receiver = ends.receive(&["--timeout", "120"]);
        wait_for_chunks(&ends.to);
        Self {
            ends,
            sender,
            receiver,
        }
    }

    /// Until the receiver has found that its connection is dead.
    fn wait_for_loss(&self) {
        wait_until("the receiver connects again", 4 * PROGRAM_LIMIT, || {
            self.receiver.stderr().contains("was lost") && self.receiver.stderr().contains("connecting again")
        });
    }

    fn assert_arrives(mut self) {
        let ended = self.receiver.wait(6 * PROGRAM_LIMIT).unwrap();
        assert!(ended.success(), "{}", self.receiver.stderr());
        let told = self.receiver.stderr();
        // Of all connections: nothing is sent again.
        assert!(told.contains("received 24.0 MB in 1 entry"), "{told}");
        assert!(!told.contains("were there already"), "{told}");
        assert_done(&mut self.sender);
        self.ends.assert_all_there();
    }
}

/// FILE-28.
#[test]
fn a_network_that_comes_back_after_the_connection_has_died_has_the_rest_brought() {
    require_root!();
    let broken = Broken::begin();
    let silence = "table inet silence {
        chain in { type filter hook input priority 0; iifname eth0 drop; }
        chain out { type filter hook output priority 0; oifname eth0 drop; }
    }";
    broken.ends.pair.client.nft(silence).unwrap();
    broken.wait_for_loss();
    broken.ends.pair.client.nft("delete table inet silence").unwrap();
    broken.assert_arrives();
}

/// FILE-28: as when its machine sleeps.
#[test]
fn a_sender_that_was_stopped_for_longer_than_its_connection_lives_sends_the_rest() {
    require_root!();
    let mut broken = Broken::begin();
    broken.sender.signal(Signal::STOP);
    broken.wait_for_loss();
    broken.sender.signal(Signal::CONT);
    broken.assert_arrives();
}

/// Until some chunks have come of what is stored there, of which each has a record of 40 bytes.
fn wait_for_chunks(to: &Path) {
    let journal = to.join(".noise.gramway-state");
    wait_until("something has come", PROGRAM_LIMIT, || {
        fs::metadata(&journal).is_ok_and(|found| found.len() > 200)
    });
}

/// RDV-18: a server that was started again does not know the number, like one where its time is over.
#[test]
fn a_receiver_with_a_link_meets_its_sender_again_whose_number_the_server_has_forgotten() {
    require_root!();
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let (mut server, link) = server(&pair, &directory);
    let (from, to) = (directory.join("noise"), directory.join("to"));
    fs::write(&from, pattern(1, 24_000_000)).unwrap();
    let send = ["send", text(&from), "--rendezvous-file", &link, "--limit", "2M"];
    let mut sender = start(&pair.server, &directory, "sender", &send);
    let shown = shown_code(&sender);
    let receive = ["receive", &shown, "--rendezvous-file", &link, "--no-lan"];
    let options = ["--to", text(&to), "--timeout", "120"];
    let receive = [&receive[..], &options].concat();
    let mut receiver = start(&pair.client, &directory, "receiver", &receive);
    wait_for_chunks(&to);
    sender.signal(Signal::STOP);
    server.kill();
    server.start_again();
    wait_until("the receiver connects again", 4 * PROGRAM_LIMIT, || {
        receiver.stderr().contains("connecting again")
    });
    sender.signal(Signal::CONT);
    let ended = receiver.wait(6 * PROGRAM_LIMIT).unwrap();
    assert!(ended.success(), "{}", receiver.stderr());
    assert_done(&mut sender);
    assert_same(&from, &to.join("noise"));
}

/// FILE-33, FILE-37, RDV-18: Ctrl-C uses no code up, whoever else receives; of a guest, and of users of the server.
#[test]
fn a_receiver_that_is_interrupted_goes_on_by_its_code_beside_another_one() {
    require_root!();
    for receivers in [1, 2] {
        let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
        let (_server, link) = server(&pair, &directory);
        let from = directory.join("noise");
        fs::write(&from, pattern(1, 12_000_000)).unwrap();
        let count = receivers.to_string();
        let send = [
            "send",
            text(&from),
            "--rendezvous-file",
            &link,
            "--limit",
            "4M",
            "--receivers",
            &count,
        ];
        let mut sender = start(&pair.server, &directory, "sender", &send);
        let codes: Vec<String> = (0..receivers).map(|_| shown_code(&sender)).collect();
        let to = |number: usize| directory.join(&format!("to-{number}"));
        let receive = |number: usize| {
            let to = to(number);
            let receive = ["receive", &codes[number], "--to", text(&to), "--timeout", "60"];
            let own_link = ["--rendezvous-file", &link];
            let own_link = if receivers == 1 { &[][..] } else { &own_link };
            let receive = [&receive, own_link].concat();
            start(&pair.client, &directory, &format!("receiver-{number}"), &receive)
        };
        let mut running: Vec<Process> = (0..receivers).map(receive).collect();
        wait_for_chunks(&to(0));
        running[0].signal(Signal::INT);
        running[0].wait(PROGRAM_LIMIT).unwrap();
        let told = running[0].stderr();
        assert!(told.contains("interrupted. What has come is kept"), "{told}");
        wait_until("the sender knows", PROGRAM_LIMIT, || {
            sender
                .stderr()
                .contains("the receiver was interrupted; it may come again")
        });
        running[0] = receive(0);
        for (number, receiver) in running.iter_mut().enumerate() {
            assert_done(receiver);
            assert_same(&from, &to(number).join("noise"));
        }
        let told = running[0].stderr();
        assert!(told.contains("were there already"), "{told}");
        assert_done(&mut sender);
    }
}
