//! The books of a cache balance, and pinned blocks stay.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, proptest};

use super::{FreeRoom, Leaving, Refusal, Reservation, Residency, Room};
use crate::eviction::Lru;

type Cache = Residency<u32, Lru<u32>>;

fn cache(capacity_bytes: u64) -> Cache {
    Residency::new(capacity_bytes, Box::default())
}

fn fill(cache: &mut Cache, keys: std::ops::Range<u32>, bytes: u64) {
    for key in keys {
        let room = cache.reserve(bytes).expect("there is room");
        cache.commit(room, key);
    }
}

fn keys(victims: &[Leaving<u32>]) -> Vec<u32> {
    victims.iter().map(|leaving| leaving.key).collect()
}

#[test]
fn a_block_too_large_for_the_cache_is_refused_differently_from_one_without_room_now() {
    let mut cache = cache(100);
    assert_eq!(cache.reserve(101), Err(Refusal::TooLarge));
    assert_eq!(cache.reserve(u64::MAX), Err(Refusal::TooLarge));
    fill(&mut cache, 0..1, 100);
    assert_eq!(cache.reserve(1), Err(Refusal::NoRoom));
}

#[test]
fn room_is_taken_from_the_reservation_until_the_last_byte_is_gone() {
    let mut cache = cache(100);
    let room = cache.reserve(60).unwrap();
    assert_eq!(cache.reserve(60), Err(Refusal::NoRoom), "reserved room is taken");
    cache.commit(room, 1);
    let leaving = cache.evict(&mut |_| true).unwrap();
    assert_eq!(
        cache.reserve(60),
        Err(Refusal::NoRoom),
        "a victim takes room until it is gone"
    );
    cache.left(leaving);
    let room = cache.reserve(100).unwrap();
    cache.cancel(room);
    assert_eq!(cache.room().taken_bytes(), 0);
}

#[test]
fn a_released_block_leaves_before_all_others_unless_it_is_used_or_pinned() {
    let mut cache = cache(100).with_pins(100);
    fill(&mut cache, 0..6, 10);
    for key in [5, 3, 4, 2] {
        assert!(cache.release(&key));
    }
    assert!(!cache.release(&9), "it is not held");
    cache.touch(&3);
    cache.pin(&4).unwrap();
    assert!(!cache.release(&4), "it is pinned");
    assert_eq!(cache.released().copied().collect::<Vec<_>>(), [5, 2]);
    let mut leaves = |held: u32| {
        let leaving = cache.evict(&mut |key| *key != held);
        let leaving = leaving.expect("one may leave");
        let key = leaving.key;
        cache.left(leaving);
        key
    };
    // One that a reader holds stays, and keeps its place.
    assert_eq!([leaves(5), leaves(9)], [2, 5]);
    assert_eq!(
        [leaves(9), leaves(9), leaves(9)],
        [0, 1, 3],
        "then the policy chooses"
    );
    cache.unpin(&4);
    cache.release(&4);
    cache.touch(&4);
    assert_eq!(cache.released().count(), 0);
}

#[test]
fn a_block_that_is_released_again_and_again_takes_no_more_room() {
    let mut cache = cache(100);
    fill(&mut cache, 0..2, 10);
    for _ in 0..10_000 {
        cache.release(&0);
        cache.touch(&0);
    }
    cache.release(&0);
    assert_eq!(cache.released().count(), 1);
    assert!(cache.released.len() < 200, "{}", cache.released.len());
}

#[test]
fn a_renamed_block_takes_its_room_along() {
    let mut cache = cache(100);
    fill(&mut cache, 0..1, 60);
    let leaving = cache.remove(&0).unwrap();
    let room = cache.retake(leaving);
    assert_eq!((room.bytes(), cache.room().taken_bytes()), (60, 60));
    assert_eq!(cache.reserve(60), Err(Refusal::NoRoom));
    cache.commit(room, 1);
    assert_eq!((cache.room().used_bytes(), cache.room().taken_bytes()), (60, 60));
}

#[test]
fn a_reservation_grows_while_there_is_room() {
    let mut cache = cache(100);
    let mut room = cache.reserve(60).unwrap();
    assert_eq!(cache.extend(&mut room, 41), Err(Refusal::TooLarge));
    cache.extend(&mut room, 40).unwrap();
    assert_eq!(room.bytes(), 100);
    cache.commit(room, 1);
    assert_eq!(cache.room().used_bytes(), 100);
}

#[test]
fn a_reservation_is_split_and_joined_without_a_change_of_its_room() {
    let mut cache = cache(100);
    let mut room = cache.reserve(60).unwrap();
    let part = room.split(25);
    assert_eq!(
        (room.bytes(), part.bytes(), cache.room().taken_bytes()),
        (35, 25, 60)
    );
    cache.commit(part, 1);
    assert_eq!(cache.room().used_bytes(), 25);
    let leaving = cache.remove(&1).unwrap();
    room.join(cache.retake(leaving));
    assert_eq!((room.bytes(), cache.room().taken_bytes()), (60, 60));
    cache.cancel(room);
    assert_eq!(cache.room().taken_bytes(), 0);
}

#[test]
fn eviction_ahead_starts_above_high_and_stops_at_low() {
    let mut cache = cache(100);
    fill(&mut cache, 0..19, 5);
    assert!(!cache.room().is_crowded());
    assert!(
        cache.evict_ahead(false, 10, &mut |_| true).is_empty(),
        "at the mark nothing happens"
    );
    fill(&mut cache, 19..20, 5);
    assert!(cache.room().is_crowded());
    assert_eq!(
        keys(&cache.evict_ahead(false, 1, &mut |_| true)),
        [0],
        "not more than asked"
    );
    assert!(cache.evict_ahead(false, 10, &mut |_| true).is_empty());
    assert_eq!(
        keys(&cache.evict_ahead(true, 10, &mut |_| true)),
        [1],
        "once started, down to the low mark"
    );
    assert_eq!(cache.room().used_bytes(), 90);
}

#[test]
fn a_block_in_use_does_not_leave() {
    let mut cache = cache(100);
    fill(&mut cache, 0..10, 10);
    assert_eq!(keys(&cache.evict_ahead(false, 10, &mut |key| *key == 7)), [7]);
    assert_eq!(cache.evict(&mut |_| false), None);
    assert!(cache.contains(&0));
}

#[test]
fn room_may_be_added_and_taken_but_not_from_under_what_is_held() {
    let mut cache = cache(100);
    fill(&mut cache, 0..10, 10);
    cache.resize(110);
    fill(&mut cache, 10..11, 10);
    let leaving = cache.evict(&mut |_| true).unwrap();
    let promise = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cache.resize(100);
    }));
    assert!(promise.is_err(), "a victim takes room until it is gone");
    cache.resize(110);
    cache.left(leaving);
    cache.resize(100);
    assert_eq!(
        (cache.room().capacity_bytes(), cache.room().used_bytes()),
        (100, 100)
    );
}

#[test]
fn a_pinned_block_stays_until_its_pin_ends_and_is_the_newest_then() {
    let mut cache = cache(100).with_pins(30);
    fill(&mut cache, 0..10, 10);
    assert_eq!(cache.pin(&0), Ok(Some(10)));
    assert_eq!(cache.pin(&0), Ok(None), "it is pinned once");
    assert_eq!(cache.pin(&99), Ok(None), "it is not here");
    let asked = std::cell::RefCell::new(Vec::new());
    let gone = cache.evict(&mut |key| {
        asked.borrow_mut().push(*key);
        true
    });
    assert_eq!(
        (gone.unwrap().key, asked.into_inner()),
        (1, vec![1]),
        "it is not even looked at"
    );
    assert!(cache.contains(&0) && cache.pins().contains(&0));
    assert_eq!(
        (cache.held(), cache.pins().bytes(), cache.room().used_bytes()),
        (9, 10, 90)
    );
    assert_eq!(cache.unpin(&0), Some(10));
    assert_eq!(cache.unpin(&0), None);
    let order: Vec<u32> = std::iter::from_fn(|| cache.evict(&mut |_| true))
        .map(|gone| gone.key)
        .collect();
    assert_eq!(order, [2, 3, 4, 5, 6, 7, 8, 9, 0]);
}

#[test]
fn pins_beyond_their_share_are_refused_and_the_block_stays_like_any_other() {
    let mut cache = cache(100).with_pins(25);
    fill(&mut cache, 0..5, 10);
    assert_eq!((cache.pin(&0), cache.pin(&1)), (Ok(Some(10)), Ok(Some(10))));
    assert_eq!(cache.pin(&2), Err(Refusal::PinsFull));
    assert_eq!(
        (cache.pins().admit(5), cache.pins().admit(6)),
        (Ok(()), Err(Refusal::PinsFull))
    );
    assert_eq!(cache.pins().admit(u64::MAX), Err(Refusal::PinsFull));
    assert!(cache.contains(&2) && !cache.pins().contains(&2));
    let leaving = cache
        .remove(&0)
        .expect("what is no longer valid goes, pinned or not");
    cache.left(leaving);
    assert_eq!(cache.pin(&2), Ok(Some(10)));
    assert_eq!(
        super::Residency::new(9, Box::<Lru<u32>>::default())
            .pins()
            .admit(1),
        Err(Refusal::PinsFull)
    );
}

#[test]
fn no_policy_evicts_what_is_pinned() {
    for policy in crate::eviction::PolicyName::ALL {
        let mut cache = super::Residency::new(1_000, policy.build()).with_pins(500);
        for key in 0..20_u32 {
            let room = cache.reserve(10).unwrap();
            cache.commit(room, key);
            cache.pin(&key).unwrap();
        }
        for key in 100..2_000 {
            while cache.reserve(10).map(|room| cache.commit(room, key)).is_err() {
                let gone = cache.evict(&mut |_| true).unwrap();
                assert!(gone.key >= 100, "{policy}");
                cache.left(gone);
            }
            cache.touch(&key);
        }
        assert!((0..20).all(|key| cache.unpin(&key) == Some(10)), "{policy}");
        assert!((0..20).all(|key| cache.contains(&key)), "{policy}");
    }
}

#[test]
fn watermarks_are_in_order_at_every_capacity() {
    for capacity_bytes in (0..100).chain([1 << 20, u64::MAX]) {
        let amounts = [0, 1, 7, 1 << 10, u64::MAX];
        let bytes = amounts.into_iter().flat_map(|start_bytes| {
            amounts.map(|batch_bytes| FreeRoom::Bytes {
                start_bytes,
                batch_bytes,
            })
        });
        let mut room = Room::new(capacity_bytes);
        for free in bytes.chain([FreeRoom::Share]) {
            room.free = free;
            assert!(room.low_bytes() <= room.high_bytes() && room.high_bytes() <= capacity_bytes);
            assert!(capacity_bytes - room.low_bytes() <= capacity_bytes / 10);
        }
    }
}

#[test]
fn large_keys_leave_one_at_a_time_and_small_ones_by_dozens() {
    let free = FreeRoom::Bytes {
        start_bytes: 400,
        batch_bytes: 25,
    };
    // A cache of a hundred keys of 100 bytes; 10,070 is no multiple of them.
    for (capacity_bytes, key_bytes, free, batch) in [
        (10_000, 100, free, 1),
        (10_070, 100, free, 1),
        (10_000, 1, free, 26),
        (10_000, 100, FreeRoom::Share, 6),
    ] {
        let mut cache = cache(capacity_bytes);
        cache.keep_free(free);
        let mut batches = Vec::new();
        for key in 0..20_000 / key_bytes as u32 {
            fill(&mut cache, key..key + 1, key_bytes);
            let mut gone = cache.evict_ahead(false, 4, &mut |_| true);
            while !gone.is_empty() && gone.len().is_multiple_of(4) {
                gone.append(&mut cache.evict_ahead(true, 4, &mut |_| true));
            }
            batches.push(gone.len());
            for gone in gone {
                cache.left(gone);
            }
        }
        batches.retain(|batch| *batch > 0);
        assert!(!batches.is_empty());
        assert!(batches.iter().all(|size| *size == batch), "{free:?}: {batches:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_balance_after_any_history(steps in vec((0..9u8, 0..40u32, 0..40u64), 0..200)) {
        let mut cache = cache(100).with_pins(50);
        let (mut reserved, mut leaving): (Vec<Reservation>, Vec<Leaving<u32>>) = (Vec::new(), Vec::new());
        let mut used: Vec<(u32, u64)> = Vec::new();
        for (step, key, bytes) in steps {
            match step {
                0 | 1 => reserved.extend(cache.reserve(bytes)),
                2 if !cache.contains(&key) => if let Some(room) = reserved.pop() {
                    used.push((key, room.bytes()));
                    cache.commit(room, key);
                },
                3 => if let Some(room) = reserved.pop() { cache.cancel(room) },
                4 => leaving.extend(cache.evict(&mut |other| *other >= key)),
                5 => leaving.extend(cache.remove(&key)),
                6 => drop(cache.pin(&key)),
                7 => drop(cache.unpin(&key)),
                _ => if let Some(gone) = leaving.pop() { cache.left(gone) },
            }
            used.retain(|(key, _)| cache.contains(key));
            let used_bytes: u64 = used.iter().map(|(_, bytes)| bytes).sum();
            let reserved_bytes: u64 = reserved.iter().map(Reservation::bytes).sum();
            let leaving_bytes: u64 = leaving.iter().map(Leaving::bytes).sum();
            assert_eq!(cache.room().used_bytes(), used_bytes);
            assert_eq!(cache.room().taken_bytes(), used_bytes + reserved_bytes + leaving_bytes);
            assert!(cache.room().taken_bytes() <= cache.room().capacity_bytes());
            assert_eq!(cache.held(), used.len());
            let pinned = used.iter().filter(|(key, _)| cache.pins().contains(key));
            assert_eq!(cache.pins().bytes(), pinned.map(|(_, bytes)| bytes).sum::<u64>());
        }
    }
}
