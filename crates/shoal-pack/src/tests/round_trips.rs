//! Packs return the members that were written.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;

use super::{all_bytes, description, pack, part, read, sample};
use crate::records::END_BYTES;
use crate::{Description, Pack, PackBuilder, Reading, read_tail};

/// A pack of format 1, as an earlier build wrote it. Packs of this format stay at lakes: a change that fails
/// this test needs a format of its own.
const FORMAT_1: &[u8] = include_bytes!("../../tests/golden/format-1.zip");

#[test]
fn a_pack_of_an_earlier_build_is_written_in_the_same_bytes_and_read() {
    let sample = sample();
    assert_eq!(all_bytes(&sample), FORMAT_1);
    assert_eq!(read(FORMAT_1), Ok(sample.members));
}

#[test]
fn a_pack_passes_the_bytes_of_its_members_on_without_a_copy() {
    let bytes = Bytes::from(vec![7; 100]);
    let mut builder = PackBuilder::default();
    builder.add(b"k", &description(1), bytes.clone()).unwrap();
    let pack = builder.finish();
    assert!(pack.pieces.iter().any(|piece| piece.as_ptr() == bytes.as_ptr()));
}

#[test]
fn a_pack_of_no_object_is_one() {
    let pack = PackBuilder::default().finish();
    assert_eq!((pack.size_bytes, pack.pieces.len()), (END_BYTES as u64, 1));
    assert_eq!(read(&all_bytes(&pack)), Ok(Vec::new()));
}

/// The new name of the second one is its key.
#[test]
fn a_key_that_looks_like_a_new_name_is_kept() {
    let key = format!("_renamed/00001-{}", "x".repeat(100));
    let pack = pack(&[(b"/", b"1"), (key.as_bytes(), b"2")]);
    assert_eq!(read(&all_bytes(&pack)), Ok(pack.members));
}

#[test]
fn a_tail_that_is_too_short_says_how_much_is_needed() {
    let sample = sample();
    let bytes = all_bytes(&sample);
    let directory = sample.pieces.last().unwrap().len();
    for length in 0..bytes.len() {
        let needed = match length {
            _ if length < END_BYTES => END_BYTES,
            _ if length < directory => directory,
            _ => 0,
        };
        let expected = match needed {
            0 => Reading::Members(sample.members.clone()),
            needed => Reading::Needs {
                tail_bytes: needed as u64,
            },
        };
        let tail = &bytes[bytes.len() - length..];
        assert_eq!(read_tail(sample.size_bytes, tail), Ok(expected));
    }
}

#[test]
fn a_member_is_made_of_its_own_bytes_alone() {
    let sample = sample();
    let member = &sample.members[0];
    assert!(member.is_made_of(b"one"));
    assert!(!member.is_made_of(b"onf") && !member.is_made_of(b"on") && !member.is_made_of(b""));
    // Both have the CRC-32 of no bytes.
    let empty = &sample.members[2];
    assert!(empty.is_made_of(b"") && !empty.is_made_of(b"\x9d\x0a\xd9\x6d"));
}

#[test]
fn times_that_zip_cannot_express_become_the_nearest() {
    let at = |modified| {
        Description {
            modified,
            ..description(1)
        }
        .dos_time()
    };
    let epoch = SystemTime::UNIX_EPOCH;
    // 1980-01-01 00:00:00
    let first = 1 << 21 | 1 << 16;
    assert_eq!(at(epoch), first);
    assert_eq!(at(epoch - Duration::from_secs(1)), first);
    // 2027-01-15 08:00:01
    assert_eq!(
        at(epoch + Duration::from_secs(1_800_000_001)),
        (47 << 25) + (1 << 21) + (15 << 16) + (8 << 11)
    );
    // 2107-12-31 23:59:58
    let last = (127 << 25) + (12 << 21) + (31 << 16) + (23 << 11) + (59 << 5) + 29;
    assert_eq!(at(epoch + Duration::from_secs(1 << 40)), last);
}

/// Keys of few characters that have a meaning in paths.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    vec(select(&b"aA/.;1\\\n\xc3\xa9"[..]), 1..8)
}

fn objects() -> impl Strategy<Value = BTreeMap<Vec<u8>, (Vec<u8>, Description)>> {
    let modified = (any::<u32>(), 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanos)| SystemTime::UNIX_EPOCH + Duration::new(seconds.into(), nanos));
    let object = (vec(any::<u8>(), 0..40), any::<u64>(), modified, any::<bool>());
    let object = object.prop_map(|(bytes, sequence, modified, has_parts)| {
        let parts = if has_parts {
            vec![part(2, bytes.len() as u64)]
        } else {
            Vec::new()
        };
        let description = Description {
            modified,
            parts,
            ..description(sequence)
        };
        (bytes, description)
    });
    btree_map(keys(), object, 0..20)
}

fn packed(objects: &BTreeMap<Vec<u8>, (Vec<u8>, Description)>) -> Pack {
    let mut builder = PackBuilder::default();
    // The order does not matter.
    for (key, (bytes, description)) in objects.iter().rev() {
        let bytes = Bytes::copy_from_slice(bytes);
        assert_eq!(builder.check(key, description, bytes.len() as u64), Ok(()));
        builder.add(key, description, bytes).unwrap();
    }
    builder.finish()
}

proptest! {
    #[test]
    fn all_objects_are_read_as_they_were_added(objects in objects()) {
        let pack = packed(&objects);
        let bytes = all_bytes(&pack);
        prop_assert_eq!(bytes.len() as u64, pack.size_bytes);
        let members = read(&bytes).unwrap();
        prop_assert_eq!(&members, &pack.members);
        prop_assert_eq!(members.len(), objects.len());
        for (member, (key, (content, description))) in members.iter().zip(&objects) {
            let range = member.range.start as usize..member.range.end as usize;
            prop_assert_eq!((&member.key[..], &bytes[range]), (&key[..], &content[..]));
            prop_assert!(member.is_made_of(content));
            prop_assert_eq!(&member.description(), description);
        }
    }
}
