//! QR1-10, QR1-11.

use proptest::prelude::*;

use super::*;

const WINDOW: Duration = Duration::from_secs(120);
const BOOT: BootId = [0xb0; 16];
const START: u32 = 1_900_000_000;

/// One that knows that nothing was accepted before.
fn fresh() -> ReplayWindow {
    let empty = file::write(&BOOT, None, [].iter());
    ReplayWindow::restore(Some(&empty), &BOOT, START, WINDOW)
}

fn tag(number: u32) -> Tag {
    let mut tag = [0; 16];
    tag[..4].copy_from_slice(&number.to_be_bytes());
    tag
}

/// QR1-10.
#[test]
fn a_tag_is_accepted_once_as_long_as_its_time_may_be_right() {
    let mut replays = fresh();
    assert!(replays.accept(START, &tag(1), START + 120).is_ok());
    // Whoever asks checked the time before: the hello's is at most a window old until then.
    for now in START..=START + 240 {
        let found = replays.accept(now, &tag(1), START + 120);
        assert_eq!(found, Err(Refused::Replayed), "{} s later", now - START);
    }
    assert!(replays.accept(START, &tag(2), START).is_ok());
}

/// QR1-10: for two windows, at whatever point of a generation it came.
#[test]
fn a_tag_stays_for_two_windows_and_is_gone_after_four() {
    for offset in 0..=241 {
        let mut replays = fresh();
        let accepted = START + offset;
        assert!(replays.accept(accepted, &tag(1), accepted).is_ok());
        for now in accepted..=accepted + 240 {
            replays.turn(now);
            assert_eq!(replays.len(), 1, "accepted after {offset} s");
        }
        for now in accepted..=accepted + 483 {
            replays.turn(now);
        }
        assert!(replays.is_empty());
        let again = replays.accept(accepted + 483, &tag(1), accepted);
        assert_eq!(again, Err(Refused::Forgotten));
        assert!(replays.accept(accepted + 483, &tag(1), accepted + 400).is_ok());
    }
}

/// QR1-10: a jump of the clock forgets tags, and with them all hellos that are not later.
#[test]
fn no_jump_of_the_clock_has_a_hello_accepted_twice() {
    let mut replays = fresh();
    assert!(replays.accept(START, &tag(1), START + 30).is_ok());
    assert!(replays.accept(START + 100_000, &tag(2), START + 100_000).is_ok());
    assert_eq!(replays.len(), 1);
    // And back again.
    assert_eq!(
        replays.accept(START + 10, &tag(1), START + 30),
        Err(Refused::Forgotten)
    );
    assert_eq!(
        replays.accept(START + 10, &tag(3), START + 10),
        Err(Refused::Forgotten)
    );
    assert!(replays.accept(START + 31, &tag(3), START + 31).is_ok());
    assert_eq!(
        replays.accept(START + 31, &tag(2), START + 100_000),
        Err(Refused::Replayed)
    );
}

/// QR1-10.
#[test]
fn a_full_window_refuses_until_tags_are_forgotten() {
    let mut replays = fresh();
    replays.tags_max = 3;
    for number in 0..3 {
        assert!(replays.accept(START, &tag(number), START).is_ok());
    }
    assert_eq!(replays.accept(START, &tag(3), START), Err(Refused::Full));
    assert_eq!(replays.accept(START, &tag(2), START), Err(Refused::Replayed));
    assert_eq!(
        replays.accept(START + 241, &tag(3), START + 241),
        Err(Refused::Full)
    );
    assert!(replays.accept(START + 482, &tag(3), START + 482).is_ok());
}

/// QR1-11.
#[test]
fn what_was_accepted_is_known_after_a_restart() {
    let mut replays = fresh();
    let mut file = replays.to_file(&BOOT);
    for number in 0..50 {
        let record = replays
            .accept(START + number, &tag(number), START + 100)
            .expect("new");
        file.extend_from_slice(&record);
    }
    assert_eq!(file, replays.to_file(&BOOT));
    for cut in 0..RECORD_BYTES {
        // A record that is cut off was never answered.
        let bytes = [&file[..], &file::record(&tag(99), 1, 1)[..cut]].concat();
        let mut restored = ReplayWindow::restore(Some(&bytes), &BOOT, START + 60, WINDOW);
        for number in 0..50 {
            let again = restored.accept(START + 60, &tag(number), START + 100);
            assert_eq!(again, Err(Refused::Replayed));
        }
        assert!(restored.accept(START + 60, &tag(50), START).is_ok());
        assert!(restored.accept(START + 60, &tag(99), START).is_ok());
    }
    let restored = ReplayWindow::restore(Some(&file), &BOOT, START + 60, WINDOW);
    assert_eq!(restored.to_file(&BOOT), file);
}

/// QR1-11: what is forgotten stays refused over a restart, too.
#[test]
fn the_floor_is_known_after_a_restart() {
    let mut replays = fresh();
    assert!(replays.accept(START, &tag(1), START + 30).is_ok());
    assert!(replays.accept(START + 1_000, &tag(2), START + 1_000).is_ok());
    let file = replays.to_file(&BOOT);
    let mut restored = ReplayWindow::restore(Some(&file), &BOOT, START + 10, WINDOW);
    assert_eq!(
        restored.accept(START + 10, &tag(1), START + 30),
        Err(Refused::Forgotten)
    );
}

/// QR1-11.
#[test]
fn without_its_file_a_server_refuses_up_to_its_start_and_a_window_more() {
    let mut replays = fresh();
    let record = replays.accept(START, &tag(1), START).expect("new");
    let file = [&replays.to_file(&BOOT)[..], &record].concat();
    let mut damaged = file.clone();
    damaged[3] ^= 1;
    let mut flag = file.clone();
    flag[32] = 4;
    let too_long = [&file[..], &vec![0; limits::REPLAY_FILE_BYTES_MAX]].concat();
    for (lost, boot) in [
        (None, BOOT),
        (Some(&file[..]), [0xb1; 16]),
        (Some(&damaged[..]), BOOT),
        (Some(&flag[..]), BOOT),
        (Some(&too_long[..]), BOOT),
        (Some(&file[..file::HEADER_BYTES - 1]), BOOT),
        (Some(&[][..]), BOOT),
    ] {
        let mut restored = ReplayWindow::restore(lost, &boot, START, WINDOW);
        for time in [START - 120, START, START + 120] {
            assert_eq!(restored.accept(START, &tag(1), time), Err(Refused::Forgotten));
        }
        assert!(restored.accept(START + 1, &tag(1), START + 121).is_ok());
    }
}

/// QR1-11: the machine starts again, and what no disk had is gone.
#[test]
fn a_process_that_has_ended_is_believed_after_a_boot_and_one_that_was_cut_short_is_not() {
    const NEXT_BOOT: BootId = [0xb1; 16];
    let mut replays = fresh();
    let mut file = replays.to_file(&BOOT);
    for number in 0..3 {
        let record = replays.accept(START, &tag(number), START).expect("new");
        file.extend_from_slice(&record);
    }
    let last = replays.to_last_file(&BOOT);
    let mut restored = ReplayWindow::restore(Some(&last), &NEXT_BOOT, START + 9, WINDOW);
    assert_eq!(restored.accept(START + 9, &tag(2), START), Err(Refused::Replayed));
    assert!(restored.accept(START + 9, &tag(3), START).is_ok());
    // Before that process accepts anything, the file says so, in place: whatever is left of either is believed no more.
    let (at, flags) = begin_again(&last).expect("it has ended");
    let mut begun = last.clone();
    begun[at as usize] = flags;
    assert_eq!((&begun, begin_again(&begun)), (&file, None));
    for left in [file, restored.to_file(&NEXT_BOOT)] {
        for cut in 0..=left.len() {
            let mut restored = ReplayWindow::restore(Some(&left[..cut]), &[0xb2; 16], START + 20, WINDOW);
            let again = restored.accept(START + 20, &tag(3), START);
            assert_eq!(again, Err(Refused::Forgotten), "{cut} bytes");
        }
    }
}

/// QR1-9.
#[test]
fn a_window_is_ten_minutes_at_most() {
    let replays = ReplayWindow::restore(None, &BOOT, START, Duration::from_secs(100_000));
    assert_eq!(replays.window_seconds, 600);
    assert_eq!(replays.floor, Some(START + 600));
}

proptest! {
    /// QR1-10, QR1-11: whatever the clock does, and however often the process starts again.
    #[test]
    fn no_tag_is_ever_accepted_twice_while_its_time_is_right(
        steps in proptest::collection::vec((0_u32..40, -300_i32..600, -120_i32..=120, 0_u8..14), 0..200),
    ) {
        let mut boot = BOOT;
        let mut replays = fresh();
        let mut file = replays.to_file(&BOOT);
        let mut accepted = BTreeSet::new();
        let mut times = [None; 40];
        let mut now = START;
        for (number, step, off, restart) in steps {
            now = now.saturating_add_signed(step);
            if restart == 1 {
                // It ends, and the machine starts again.
                file = replays.to_last_file(&boot);
                boot[0] = boot[0].wrapping_add(1);
            }
            if restart < 2 {
                replays = ReplayWindow::restore(Some(&file), &boot, now, WINDOW);
                file = replays.to_file(&boot);
            }
            // A hello has one time for ever.
            let time = *times[number as usize].get_or_insert(now.saturating_add_signed(off));
            if time.abs_diff(now) > 120 {
                continue;
            }
            if let Ok(record) = replays.accept(now, &tag(number), time) {
                prop_assert!(accepted.insert(number), "hello {} twice", number);
                file.extend_from_slice(&record);
            }
        }
    }
}
