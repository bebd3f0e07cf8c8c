//! Virtual time, and strangers that are numbers.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use super::*;

/// The first instant of virtual time; nothing depends on which one it is.
fn start() -> Instant {
    // tidy-allow(pure): first instant of virtual time
    Instant::now()
}

fn at(second: u8, third: u8, host: u8) -> IpAddr {
    IpAddr::from([10, second, third, host])
}

/// An admission whose strangers are remembered by their numbers.
struct World {
    admission: Admission,
    places: BTreeMap<usize, Place>,
    came: usize,
}

impl World {
    fn new(shards: u8) -> Self {
        Self {
            admission: Admission::new(shards),
            places: BTreeMap::new(),
            came: 0,
        }
    }

    /// Somebody comes who has proved its address. Its number, and that of who had to go.
    fn come(&mut self, now: Instant, remote: IpAddr) -> (usize, Option<usize>) {
        assert_eq!(
            self.admission.judge(now, remote, Proof::Shown, 0),
            Verdict::Accept
        );
        let gone = self.admission.in_the_way_of(now, remote);
        let gone = gone.map(|stranger| {
            let Stranger::Connection(ConnectionKey(number)) = stranger else {
                panic!("all are connections here: {stranger:?}");
            };
            let place = self.places.remove(&number).unwrap();
            assert!(self.admission.end(place).is_some());
            number
        });
        let number = self.came;
        self.came += 1;
        let stranger = Stranger::Connection(ConnectionKey(number));
        let place = self.admission.begin(now, remote, stranger);
        self.places.insert(number, place);
        (number, gone)
    }

    fn show_token(&mut self, now: Instant, number: usize) {
        let place = self.places.remove(&number).unwrap();
        self.admission.authenticated(now, place);
    }

    fn leave(&mut self, number: usize) {
        if let Some(place) = self.places.remove(&number) {
            self.admission.end(place);
        }
    }
}

#[test]
fn a_newcomer_of_a_full_prefix_takes_the_place_of_the_oldest_there() {
    let (mut world, now) = (World::new(1), start());
    let (other, _) = world.come(now, at(0, 1, 1));
    for host in 0..limits::STRANGERS_PER_PREFIX {
        assert_eq!(world.come(now, at(0, 2, host as u8)).1, None);
    }
    assert_eq!(world.come(now, at(0, 2, 200)).1, Some(other + 1));
    assert_eq!(world.come(now, at(0, 2, 201)).1, Some(other + 2));
    // Who has shown a token counts no more.
    world.show_token(now, other + 3);
    assert_eq!(world.come(now, at(0, 2, 202)).1, None);
}

#[test]
fn where_all_places_are_taken_the_oldest_of_the_fullest_prefix_goes() {
    let (mut world, now) = (World::new(1), start());
    let (alone, _) = world.come(now, at(1, 0, 1));
    let unknown_max = limits::STRANGERS_MAX - limits::STRANGERS_RESERVED;
    for number in 1..unknown_max {
        // Twelve from each but the last.
        assert_eq!(world.come(now, at(0, (number / 12) as u8, 1)).1, None);
    }
    for round in 0..20 {
        let (_, gone) = world.come(now, at(2, round, 1));
        let gone = gone.expect("there is no place");
        assert_ne!(gone, alone);
        assert!(gone < unknown_max, "newcomers stay, of whom each is alone");
    }
}

#[test]
fn a_part_of_the_room_is_for_prefixes_that_showed_a_token_lately() {
    let (mut world, now) = (World::new(1), start());
    let (user, _) = world.come(now, at(1, 0, 1));
    world.show_token(now, user);
    for number in 0..5_000_u32 {
        world.come(now, at(2 + (number % 20) as u8, (number / 20) as u8, 1));
    }
    let (back, gone) = world.come(now, at(1, 0, 2));
    assert_eq!(gone, None, "there is room without pushing anybody out");
    for number in 0..5_000_u32 {
        let (_, gone) = world.come(now, at(30 + (number % 20) as u8, (number / 20) as u8, 1));
        assert_ne!(gone, Some(back));
    }
    assert_eq!(
        world.admission.strangers.len(),
        limits::STRANGERS_MAX - limits::STRANGERS_RESERVED + 1
    );
    let later = now + limits::KNOWN_PREFIX_TIME;
    assert!(world.come(later, at(1, 0, 3)).1.is_some(), "it is long ago");
}

#[test]
fn strangers_of_prefixes_that_showed_a_token_lately_leave_the_bound_of_all_as_it_is() {
    let (mut world, now) = (World::new(1), start());
    let known = (limits::STRANGERS_MAX / limits::STRANGERS_PER_PREFIX) as u8;
    for third in 0..known {
        let (user, _) = world.come(now, at(1, third, 1));
        world.show_token(now, user);
        for _ in 0..limits::STRANGERS_PER_PREFIX {
            assert_eq!(world.come(now, at(1, third, 1)).1, None);
        }
    }
    for number in 0..2 * limits::STRANGERS_MAX as u32 {
        let (_, gone) = world.come(now, at(2 + (number % 20) as u8, (number / 20) as u8, 1));
        assert!(gone.is_some(), "there is no place");
    }
    assert_eq!(world.admission.strangers.len(), limits::STRANGERS_MAX);
    let unknown: usize = world.admission.unknown().map(|group| group.places.len()).sum();
    assert_eq!(unknown, limits::STRANGERS_MAX - limits::STRANGERS_RESERVED);
}

/// The flood that kept everybody out when strangers were counted until their handshake only: nobody new was answered.
#[test]
fn stalled_and_completed_handshakes_in_masses_keep_nobody_out() {
    for shards in [1, 2] {
        let (mut world, begin) = (World::new(shards), start());
        let (mut stalled, mut honest, mut in_time) = (VecDeque::new(), VecDeque::new(), 0);
        for millisecond in 0..20_000_u64 {
            let now = begin + Duration::from_millis(millisecond);
            if millisecond % 10 < 3 {
                let (number, _) = world.come(now, at(0, (world.came % 64) as u8, 1));
                stalled.push_back((now + limits::HANDSHAKE_TIME_MAX, number));
            }
            for _ in 0..1 + millisecond % 2 {
                world.come(now, at(1, 0, 1));
            }
            while let Some((_, number)) = stalled.pop_front_if(|(due, _)| *due <= now) {
                world.leave(number);
            }
            if millisecond % 500 == 499 && millisecond >= 10_000 {
                let (number, _) = world.come(now, at(2, (millisecond / 500) as u8, 1));
                honest.push_back((now + Duration::from_secs(2), number));
            }
            while let Some((_, number)) = honest.pop_front_if(|(due, _)| *due <= now) {
                in_time += usize::from(world.places.contains_key(&number));
                world.leave(number);
            }
        }
        in_time += honest
            .iter()
            .filter(|(_, number)| world.places.contains_key(number))
            .count();
        assert_eq!(in_time, 20, "{shards} shards");
    }
}

#[test]
fn forged_addresses_push_nobody_out_and_leave_half_of_the_room() {
    let (mut world, now) = (World::new(1), start());
    for _ in 0..limits::STRANGERS_PER_PREFIX / 2 {
        assert_eq!(
            world.admission.judge(now, at(0, 0, 1), Proof::Nothing, 0),
            Verdict::Accept
        );
        world.come(now, at(0, 0, 1));
    }
    assert_eq!(
        world.admission.judge(now, at(0, 0, 1), Proof::Nothing, 0),
        Verdict::Retry
    );
    assert_eq!(
        world.admission.judge(now, at(0, 0, 1), Proof::Shown, 0),
        Verdict::Accept
    );
    for number in world.came..limits::STRANGERS_MAX / 2 {
        world.come(now, at(1, (number / 16) as u8, 1));
    }
    assert_eq!(
        world.admission.judge(now, at(2, 0, 1), Proof::Nothing, 0),
        Verdict::Retry
    );
}

#[test]
fn above_the_named_rate_an_address_has_to_prove_itself_until_the_second_is_over() {
    let mut admission = Admission::new(1);
    let (now, ip) = (start(), at(0, 0, 1));
    for _ in 0..limits::RETRY_ABOVE_PER_SECOND {
        assert_eq!(admission.judge(now, ip, Proof::Nothing, 0), Verdict::Accept);
    }
    assert_eq!(admission.judge(now, ip, Proof::Nothing, 0), Verdict::Retry);
    assert_eq!(admission.judge(now, ip, Proof::Shown, 0), Verdict::Accept);
    let next = now + Duration::from_secs(1);
    assert_eq!(admission.judge(next, ip, Proof::Nothing, 0), Verdict::Accept);
}

#[test]
fn no_connection_is_accepted_beyond_the_total() {
    let mut admission = Admission::new(1);
    let verdict = admission.judge(start(), at(0, 0, 1), Proof::Shown, limits::CONNECTIONS_MAX);
    assert_eq!(verdict, Verdict::Ignore);
}

#[test]
fn the_shards_of_a_process_have_together_what_one_alone_has() {
    let now = start();
    let mut strangers = 0;
    for _ in 0..4 {
        let mut world = World::new(4);
        while world.come(now, at(0, 0, 1)).1.is_none() {}
        strangers += world.admission.strangers.len();
    }
    assert_eq!(strangers, limits::STRANGERS_PER_PREFIX);
}

#[test]
fn prefixes_that_are_remembered_are_bounded() {
    let (mut lately, now) = (Lately::new(1), start());
    for number in 0..limits::KNOWN_PREFIXES_MAX as u32 + 10 {
        let seen = now + Duration::from_millis(u64::from(number));
        lately.remember(seen, IpAddr::from(Ipv4Addr::from_bits(number << 8)));
    }
    let later = now + Duration::from_secs(60);
    let has = |number: u32| lately.has(later, IpAddr::from(Ipv4Addr::from_bits(number << 8)));
    assert_eq!((0..).take_while(|number| !has(*number)).count(), 10);
}
