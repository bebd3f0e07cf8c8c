//! What a client gets, keeps and loses.

use std::collections::BTreeMap;

use super::*;

fn client(number: u8) -> ClientIdentity {
    ClientIdentity::Named(UserId::OWNER, [number; 16])
}

fn leases(pools: &[&str]) -> Leases {
    let pools: Vec<Prefix> = pools.iter().map(|pool| pool.parse().unwrap()).collect();
    Leases::new(&pools)
}

#[test]
fn the_first_address_is_the_servers_and_a_client_gets_the_same_one_again() {
    let mut leases = leases(&["10.9.0.0/24", "fd09::/64"]);
    assert_eq!(
        own_address(&"10.9.0.0/24".parse().unwrap()),
        Some("10.9.0.1".parse().unwrap())
    );
    assert_eq!(
        own_address(&"fd09::/64".parse().unwrap()),
        Some("fd09::1".parse().unwrap())
    );
    let first = leases.acquire(client(1)).unwrap();
    assert_eq!(
        (first.v4, first.v6),
        (
            Some("10.9.0.2".parse().unwrap()),
            Some("fd09::2".parse().unwrap())
        )
    );
    let second = leases.acquire(client(2)).unwrap();
    assert_ne!(first, second);
    leases.release(client(1));
    assert_eq!(
        leases.acquire(client(3)).unwrap().v4,
        Some("10.9.0.4".parse().unwrap())
    );
    assert_eq!(leases.acquire(client(1)), Ok(first));
}

/// SESSION-4.
#[test]
fn a_full_pool_gives_the_address_that_was_free_for_longest_and_none_that_is_held() {
    // Five for clients: .2 to .6.
    let mut leases = leases(&["10.9.0.0/29"]);
    for number in 1..=5 {
        leases.acquire(client(number)).unwrap();
    }
    assert_eq!(leases.acquire(client(9)), Err(NoLease::Exhausted));
    leases.release(client(3));
    leases.release(client(2));
    let third = leases.entries[&client(3)].lease;
    assert_eq!(leases.acquire(client(9)), Ok(third));
    assert!(!leases.entries.contains_key(&client(3)));
    assert_eq!(leases.counts(), (4, 5));
    leases.acquire(client(3)).unwrap();
    assert_eq!(leases.acquire(client(2)), Err(NoLease::Exhausted));
}

/// SESSION-9.
#[test]
fn stripes_of_one_client_share_its_lease_until_the_last_one_ends() {
    let mut leases = leases(&["10.9.0.0/30"]);
    let lease = leases.acquire(client(1)).unwrap();
    assert_eq!(leases.acquire(client(1)), Ok(lease));
    leases.release(client(1));
    assert_eq!(leases.acquire(client(2)), Err(NoLease::Exhausted));
    leases.release(client(1));
    assert_eq!(leases.acquire(client(2)), Ok(lease));
}

/// SESSION-5.
#[test]
fn a_client_without_a_name_leaves_nothing_behind() {
    let mut leases = leases(&["10.9.0.0/30"]);
    for number in 0..10 {
        let nameless = ClientIdentity::Nameless(UserId::OWNER, number);
        assert_eq!(
            leases.acquire(nameless).unwrap().v4,
            Some("10.9.0.2".parse().unwrap())
        );
        leases.release(nameless);
    }
    assert!(leases.stored().is_empty());
}

/// SESSION-4.
#[test]
fn leases_come_back_after_a_restart_in_the_order_in_which_they_were_freed() {
    let mut before = leases(&["10.9.0.0/29", "fd09::/64"]);
    let first: Vec<Lease> = (1..=5)
        .map(|number| before.acquire(client(number)).unwrap())
        .collect();
    for number in [4, 2] {
        before.release(client(number));
    }
    assert!(before.take_changed());
    let mut after = leases(&["10.9.0.0/29", "fd09::/64"]);
    after.restore(before.stored());
    assert_eq!(after.counts(), (0, 5));
    assert_eq!(
        after.acquire(client(6)).unwrap().v4,
        first[3].v4,
        "the longest free one"
    );
    assert_eq!(after.acquire(client(1)), Ok(first[0]));
    assert!(!before.take_changed());
    // Another pool: what it does not offer is forgotten.
    let mut moved = leases(&["10.10.0.0/29"]);
    moved.restore(before.stored());
    assert_eq!(moved.counts(), (0, 0));
}

fn guest(number: u8) -> ClientIdentity {
    ClientIdentity::Named(UserId([7; 16]), [number; 16])
}

#[test]
fn clients_of_two_users_with_one_name_are_two() {
    let mut before = leases(&["10.9.0.0/29", "fd09::/64"]);
    let (owners, guests) = (
        before.acquire(client(1)).unwrap(),
        before.acquire(guest(1)).unwrap(),
    );
    assert_ne!(owners, guests);
    // Both come back to their own after a restart, and the owner's leases are stored as ever.
    let stored = before.stored();
    let users: Vec<_> = stored.iter().map(|lease| lease.user.as_deref()).collect();
    assert_eq!(users, [None, Some(&"07".repeat(16)[..])]);
    let mut after = leases(&["10.9.0.0/29", "fd09::/64"]);
    after.restore(stored);
    assert_eq!(after.acquire(guest(1)), Ok(guests));
    assert_eq!(after.acquire(client(1)), Ok(owners));
}

#[test]
fn a_user_keeps_no_more_leases_than_it_may_and_takes_none_of_others() {
    let mut leases = leases(&["10.9.0.0/24"]);
    let owners = leases.acquire(client(1)).unwrap();
    leases.release(client(1));
    for number in [1, 2] {
        leases.acquire_within(guest(number), 2).unwrap();
    }
    assert_eq!(leases.acquire_within(guest(3), 2), Err(NoLease::UserLimit));
    assert!(NoLease::UserLimit.to_string().contains("user"));
    // One that is there is not new.
    assert!(leases.acquire_within(guest(2), 2).is_ok());
    leases.release(guest(1));
    assert!(leases.acquire_within(guest(3), 2).is_ok());
    assert_eq!(leases.of_user(UserId([7; 16])), 2);
    assert!(!leases.entries.contains_key(&guest(1)));
    assert_eq!(leases.acquire(client(1)), Ok(owners));
    assert_eq!(leases.acquire_within(guest(9), 0), Err(NoLease::UserLimit));
}

#[test]
fn a_full_pool_takes_from_the_user_who_has_most_and_gives_nobody_more_than_its_part_of_others() {
    // Thirteen for clients.
    let mut leases = leases(&["10.9.0.0/28"]);
    for number in 1..=4 {
        leases.acquire(guest(number)).unwrap();
        leases.release(guest(number));
    }
    for number in 1..=9 {
        leases.acquire(client(number)).unwrap();
    }
    // The owner has most, and every one of its clients is there: those of the guest stay its own.
    assert_eq!(leases.acquire(client(10)), Err(NoLease::Exhausted));
    // One that is gone makes room for the owner's own, and for the guest's, whose own have been free for longer.
    leases.release(client(5));
    assert!(leases.acquire(client(10)).is_ok());
    for gone in [6, 7] {
        leases.release(client(gone));
    }
    assert!(leases.acquire(guest(5)).is_ok());
    assert!(!leases.entries.contains_key(&client(6)) && leases.entries.contains_key(&client(7)));
    assert_eq!(leases.of_user(UserId([7; 16])), 5);
    // Then the owner has no free one: the guest's own go.
    for number in 6..=7 {
        assert!(leases.acquire(guest(number)).is_ok());
    }
    assert!(!leases.entries.contains_key(&client(7)) && !leases.entries.contains_key(&guest(1)));
    assert_eq!(
        (leases.of_user(UserId::OWNER), leases.of_user(UserId([7; 16]))),
        (7, 6)
    );
}

#[test]
fn churn_never_gives_one_address_to_two_clients() {
    let mut leases = leases(&["10.9.0.0/27", "10.9.1.0/28"]);
    let mut held: BTreeMap<u8, Lease> = BTreeMap::new();
    let mut state = 7_u32;
    for _ in 0..20_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (state >> 24) as u8 % 100;
        if held.remove(&number).is_some() {
            leases.release(client(number));
        } else if let Ok(lease) = leases.acquire(client(number)) {
            assert!(held.values().all(|other| other.v4 != lease.v4));
            held.insert(number, lease);
        } else {
            assert_eq!(held.len(), 29 + 13, "only a full pool refuses");
        }
    }
}
