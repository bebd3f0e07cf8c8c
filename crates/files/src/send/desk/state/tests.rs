//! What a desk gives to carriers, takes back, and counts.

use std::path::PathBuf;

use files_proto::Kind;

use super::*;

impl State {
    /// What is there to be done.
    fn job(&mut self, lane: Lane, carrier: Carrier) -> Option<Job> {
        match self.next(lane, carrier) {
            Next::Job(job) => Some(job),
            Next::Nothing | Next::Over => None,
        }
    }
}

fn state(size: u64) -> State {
    let mut state = State::default();
    offer(&mut state, 0, size);
    state.allow(&[Carrier::Quic, Carrier::Tcp]);
    state
}

fn offer(state: &mut State, id: EntryId, size: u64) {
    let stamp = Stamp {
        device: 1,
        inode: 1 + id,
        size,
        modified: 0,
        changed: 0,
        mode: 0o644,
        is_sparse: false,
    };
    let source = Arc::new(Source::new(id, PathBuf::from("file"), "file".to_owned(), stamp));
    let entry = Entry {
        id,
        parent: None,
        name: b"file".to_vec(),
        kind: Kind::File { size },
        mode: 0o644,
        modified_ns: 0,
        attributes: Vec::new(),
        disk_bytes_min: 0,
    };
    assert!(state.has_room(&entry));
    state.offer(&entry, Offered::File(source), Vec::new());
}

fn index_of(job: Option<Job>) -> u64 {
    match job {
        Some(Job::Send { index, .. }) => index,
        Some(Job::Hash { index, .. }) => 1_000 + index,
        Some(Job::Pack(sources)) => 2_000 + sources.len() as u64,
        None => panic!("there is nothing to do"),
    }
}

#[test]
fn what_a_lost_carrier_had_is_sent_by_another_and_what_arrived_is_not() {
    let mut state = state(4 << 20);
    state.want(0, &Ranges::from_range(0..4)).unwrap();
    for expected in 0..3 {
        assert_eq!(index_of(state.job(1, Carrier::Tcp)), expected);
        assert_eq!(state.read(0, expected, [expected as u8; 32]), Step::More);
    }
    assert_eq!(index_of(state.job(2, Carrier::Quic)), 3);
    let (arrived, _) = state.acknowledge(0, &Ranges::from_range(1..2));
    assert_eq!((arrived.quic, arrived.tcp), (0, 1 << 20));
    state.lose(1);
    assert_eq!(index_of(state.job(2, Carrier::Quic)), 0);
    assert_eq!(index_of(state.job(2, Carrier::Quic)), 2);
    state.read(0, 0, [0; 32]);
    state.read(0, 2, [2; 32]);
    assert!(matches!(state.read(0, 3, [3; 32]), Step::Complete { .. }));
    let (arrived, _) = state.acknowledge(0, &Ranges::from_range(0..u64::from(u32::MAX)));
    assert_eq!(arrived.quic, 3 << 20);
}

/// FILE-19.
#[test]
fn what_a_silent_carrier_has_is_sent_by_the_other_one_after_all_else_and_once() {
    let mut state = state(4 << 20);
    offer(&mut state, 1, 5);
    state.want(0, &Ranges::from_range(0..4)).unwrap();
    assert_eq!(index_of(state.job(1, Carrier::Tcp)), 0);
    assert_eq!(index_of(state.job(2, Carrier::Tcp)), 1);
    state.want(1, &Ranges::from_range(0..1)).unwrap();
    state.set_tcp_silent(true);
    assert_eq!(state.under_way(), [0, 2]);
    assert!(state.job(1, Carrier::Tcp).is_none(), "it would be lost as well");
    let order: Vec<u64> = (0..5).map(|_| index_of(state.job(0, Carrier::Quic))).collect();
    assert_eq!(order, [2, 3, 2_001, 0, 1]);
    assert!(state.job(0, Carrier::Quic).is_none());
    assert_eq!(state.under_way(), [1, 0]);
    // What it is blamed for arrives by whichever is first.
    let (arrived, _) = state.acknowledge(0, &Ranges::from_range(0..4));
    assert_eq!((arrived.quic, arrived.tcp), (4 << 20, 0));
    state.lose(1);
    assert!(state.job(0, Carrier::Quic).is_none());
    for index in [0, 1, 2, 3, 0] {
        let step = state.read(0, index, [index as u8; 32]);
        assert!(!matches!(step, Step::Changed), "{step:?}");
    }
}

/// FILE-19.
#[test]
fn what_a_silent_carrier_brings_after_all_is_its_own_and_goes_no_second_time() {
    let mut state = state(4 << 20);
    state.want(0, &Ranges::from_range(0..4)).unwrap();
    state.end_offer();
    for index in 0..3 {
        assert_eq!(index_of(state.job(1, Carrier::Tcp)), index);
        state.read(0, index, [index as u8; 32]);
    }
    assert_eq!(index_of(state.job(0, Carrier::Quic)), 3);
    assert!(matches!(state.read(0, 3, [3; 32]), Step::Complete { .. }));
    state.set_tcp_silent(true);
    assert_eq!(index_of(state.job(0, Carrier::Quic)), 0);
    state.read(0, 0, [0; 32]);
    let (arrived, step) = state.acknowledge(0, &Ranges::from_range(1..2));
    assert_eq!((arrived.quic, arrived.tcp, step), (0, 1 << 20, Step::More));
    assert_eq!(state.left(), Some(3 << 20));
    // The receiver has lost what it had of this one.
    state.want(0, &Ranges::from_range(1..2)).unwrap();
    assert_eq!(index_of(state.job(0, Carrier::Quic)), 1);
    // What waits at the end has come by the one that had it.
    let arrived = state.stored(&Ranges::from_range(0..1)).unwrap().remove(0).arrived;
    assert_eq!((arrived.quic, arrived.tcp, arrived.there), (3 << 20, 1 << 20, 0));
    assert!(state.job(0, Carrier::Quic).is_none());
}

#[test]
fn what_a_lost_carrier_had_brought_is_no_longer_waited_for() {
    let mut state = state(2 << 20);
    state.want(0, &Ranges::from_range(0..2)).unwrap();
    for index in 0..2 {
        assert_eq!(index_of(state.job(index as usize, Carrier::Tcp)), index);
    }
    assert_eq!(state.read(0, 0, [0; 32]), Step::More);
    state.lose(0);
    // The other carrier is busy, and does not take it before this one has been read.
    assert_eq!(state.read(0, 1, [1; 32]), Step::More);
    let (arrived, step) = state.acknowledge(0, &Ranges::from_range(0..1));
    assert_eq!(arrived.tcp, 1 << 20);
    assert!(matches!(step, Step::Complete { .. }), "{step:?}");
    assert!(state.job(0, Carrier::Quic).is_none());
}

#[test]
fn small_files_that_wait_to_go_again_and_are_stored_meanwhile_hold_nothing_up() {
    let mut state = state(2 << 20);
    let size = PACKED_FILE_BYTES_MAX;
    let count = PACK_BYTES_MAX as u64 / size - 1;
    for entry in 1..=count {
        offer(&mut state, entry, size);
        state.want(entry, &Ranges::from_range(0..1)).unwrap();
        // Wanted twice, it is sent once.
        state.want(entry, &Ranges::from_range(0..1)).unwrap();
    }
    assert_eq!(index_of(state.job(1, Carrier::Tcp)), 2_000 + count);
    state.lose(1);
    let ended = state.stored(&Ranges::from_range(1..count + 1)).unwrap();
    for Ended { arrived, .. } in ended {
        assert_eq!((arrived.tcp, arrived.there), (size, 0));
    }
    // A small file is no reason to let chunks wait.
    offer(&mut state, count + 1, 5);
    state.want(count + 1, &Ranges::from_range(0..1)).unwrap();
    state.want(0, &Ranges::from_range(0..1)).unwrap();
    assert_eq!(index_of(state.job(0, Carrier::Quic)), 0);
    assert_eq!(index_of(state.job(0, Carrier::Quic)), 2_001);
}

#[test]
fn chunks_that_the_receiver_has_are_hashed_for_the_root_after_all_that_it_wants() {
    let mut state = state(3 << 20);
    state.want(0, &Ranges::from_range(2..3)).unwrap();
    let order: Vec<u64> = (0..3).map(|_| index_of(state.job(0, Carrier::Quic))).collect();
    assert_eq!(order, [2, 1_000, 1_001]);
    assert_eq!(state.read(0, 2, [2; 32]), Step::More);
    assert_eq!(state.read(0, 0, [0; 32]), Step::More);
    assert!(matches!(state.read(0, 1, [1; 32]), Step::Complete { .. }));
    assert_eq!(state.read(0, 1, [9; 32]), Step::Changed);
}

#[test]
fn what_is_left_is_what_is_wanted_and_files_of_which_nothing_is_known() {
    let mib = |count: u64| count << 20;
    let mut state = state(mib(100) - 5);
    offer(&mut state, 1, mib(20));
    offer(&mut state, 2, mib(7));
    assert_eq!(state.left(), None, "more may be offered");
    state.end_offer();
    assert_eq!(state.left(), Some(mib(127) - 5));
    // A transfer that goes on: all but the first chunks are there, and nothing is known of what is behind them.
    let wanted: Ranges = [1, 2, 40].into_iter().collect();
    assert_eq!(state.want(0, &wanted).unwrap(), mib(38));
    assert_eq!(state.left(), Some(mib(127 - 38) - 5));
    assert_eq!(state.want(0, &Ranges::from_range(98..100)).unwrap(), mib(57));
    assert_eq!(state.left(), Some(mib(5 + 27) - 5));
    for expected in [1, 2, 40, 98, 99] {
        assert_eq!(index_of(state.job(0, Carrier::Quic)), expected);
    }
    state.acknowledge(0, &Ranges::from_range(0..99));
    assert_eq!(state.left(), Some(mib(1 + 27) - 5));
    // One that is wanted as the chunks before leave (standard output), and one that is skipped.
    assert_eq!(state.want(1, &Ranges::from_range(0..16)).unwrap(), 0);
    assert_eq!(state.left(), Some(mib(1 + 27) - 5));
    state.end(2, End::Skipped).unwrap();
    assert_eq!(state.left(), Some(mib(1 + 20) - 5));
    let arrived = state.stored(&Ranges::from_range(0..1)).unwrap().remove(0).arrived;
    assert_eq!((arrived.came(), arrived.there), (mib(1) - 5, 0));
    // Nothing of it was sent.
    let arrived = state.stored(&Ranges::from_range(1..2)).unwrap().remove(0).arrived;
    assert_eq!((arrived.came(), arrived.there), (0, mib(20)));
    assert_eq!(state.left(), Some(0));
}

/// FILE-14: of a receiver that keeps to no order.
#[test]
fn each_byte_is_counted_once_in_whatever_order_chunks_are_wanted() {
    let mut state = state(4 << 20);
    offer(&mut state, 1, 3 << 20);
    let mut done = state.want(0, &Ranges::from_range(2..4)).unwrap();
    assert_eq!(done, 2 << 20);
    done += state.want(0, &Ranges::from_range(0..1)).unwrap();
    for _ in 0..3 {
        state.job(0, Carrier::Quic);
    }
    let mut come = |arrived: Arrived| done += arrived.came() - arrived.again + arrived.there;
    let (arrived, _) = state.acknowledge(0, &Ranges::from_range(0..4));
    assert_eq!(arrived.quic, 3 << 20);
    come(arrived);
    // Everything once more, of which half is acknowledged.
    state.want(0, &Ranges::from_range(0..4)).unwrap();
    for _ in 0..4 {
        state.job(0, Carrier::Quic);
    }
    come(state.acknowledge(0, &Ranges::from_range(0..2)).0);
    come(state.stored(&Ranges::from_range(0..1)).unwrap().remove(0).arrived);
    assert_eq!(done, 4 << 20);
    // What is skipped is there, but for what has come.
    state.want(1, &Ranges::from_range(0..3)).unwrap();
    state.job(0, Carrier::Quic);
    let (arrived, _) = state.acknowledge(1, &Ranges::from_range(0..1));
    assert_eq!((arrived.quic, arrived.again), (1 << 20, 0));
    let arrived = state.end(1, End::Skipped).unwrap().unwrap().arrived;
    assert_eq!((arrived.came(), arrived.there), (0, 2 << 20));
}

#[test]
fn a_question_for_addresses_is_answered_once_all_are_known() {
    let mut state = state(2 << 20);
    assert_eq!(state.ask(0).unwrap(), Step::More);
    for index in [0, 1] {
        assert_eq!(index_of(state.job(0, Carrier::Quic)), 1_000 + index);
    }
    assert_eq!(state.read(0, 1, [1; 32]), Step::More);
    let addresses = vec![[0; 32], [1; 32]];
    assert_eq!(state.read(0, 0, [0; 32]), Step::Answer { addresses });
    assert_eq!(state.completion(0), Step::More, "nothing of it is wanted");
    assert!(!state.is_complete());
    state.stored(&Ranges::from_range(0..1)).unwrap();
    state.end_offer();
    assert!(state.is_complete());
}

#[test]
fn small_files_go_together_and_again_where_their_carrier_is_lost() {
    let mut state = state(5);
    state.want(0, &Ranges::from_range(0..1)).unwrap();
    assert_eq!(index_of(state.job(0, Carrier::Quic)), 2_001);
    state.lose(0);
    assert_eq!(index_of(state.job(1, Carrier::Quic)), 2_001);
}

#[test]
fn no_more_files_are_read_at_once_than_the_user_allows() {
    let mut state = state(2 << 20);
    state.limit_files(1);
    offer(&mut state, 1, 1 << 20);
    state.want(0, &Ranges::from_range(0..2)).unwrap();
    state.want(1, &Ranges::from_range(0..1)).unwrap();
    for expected in [0, 1] {
        assert_eq!(index_of(state.job(expected as usize, Carrier::Quic)), expected);
    }
    assert!(
        state.job(2, Carrier::Quic).is_none(),
        "the first file is being read"
    );
    state.read(0, 0, [0; 32]);
    assert!(state.job(2, Carrier::Quic).is_none());
    state.read(0, 1, [1; 32]);
    assert_eq!(index_of(state.job(2, Carrier::Quic)), 0);
    // What fails while it is read makes room as well.
    offer(&mut state, 2, 1 << 20);
    state.want(2, &Ranges::from_range(0..1)).unwrap();
    assert!(state.job(0, Carrier::Quic).is_none());
    state.end(1, End::Failed).unwrap();
    state.put_down(1);
    assert_eq!(index_of(state.job(0, Carrier::Quic)), 0);
}
