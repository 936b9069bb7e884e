//! Builders refuse each kind of bad input, and make packs up to the largest size.

use bytes::Bytes;

use super::{description, headers, part, read};
use crate::records::END_BYTES;
use crate::{
    DIRECTORY_BYTES_MAX, Description, KEY_BYTES_MAX, MEMBERS_MAX, PACK_BYTES_MAX, PackBuilder, Refused,
    read_tail,
};

fn small() -> Description {
    Description {
        writer: String::new(),
        etag: String::new(),
        headers: headers(&[]),
        of_reads: headers(&[]),
        ..description(1)
    }
}

#[test]
fn a_pack_with_as_many_members_as_zip_counts_is_read() {
    let mut builder = PackBuilder::default();
    let small = small();
    for number in 0..MEMBERS_MAX {
        builder
            .add(number.to_string().as_bytes(), &small, Bytes::new())
            .unwrap();
    }
    assert_eq!(builder.check(b"one more", &small, 0), Err(Refused::Full));
    let pack = builder.finish();
    let tail = pack.pieces.last().unwrap();
    let Ok(crate::Reading::Members(members)) = read_tail(pack.size_bytes, tail) else {
        panic!("the directory is read");
    };
    assert_eq!((members.len(), members == pack.members), (MEMBERS_MAX, true));
}

/// Each member gets the longest name that a builder plans with.
#[test]
fn a_directory_is_full_before_it_is_too_large_to_be_read() {
    let mut builder = PackBuilder::default();
    let description = description(1);
    let added = (0..).take_while(|number: &u32| {
        let added = builder.add(format!("/{number:0100}").as_bytes(), &description, Bytes::new());
        assert!(matches!(added, Ok(()) | Err(Refused::Full)));
        added.is_ok()
    });
    let added = added.count();
    let pack = builder.finish();
    let directory_bytes = (pack.pieces.last().unwrap().len() - END_BYTES) as u64;
    assert!(directory_bytes > DIRECTORY_BYTES_MAX - 1024 && directory_bytes <= DIRECTORY_BYTES_MAX);
    assert_eq!(read(&pack.pieces.concat()).unwrap().len(), added);
}

#[test]
fn an_object_that_no_pack_takes_is_refused_for_another_reason_than_a_full_pack() {
    let mut builder = PackBuilder::default();
    let description = small();
    let check = |builder: &PackBuilder, size_bytes| builder.check(b"k", &description, size_bytes);
    assert_eq!(check(&builder, PACK_BYTES_MAX - 1024), Ok(()));
    for size_bytes in [PACK_BYTES_MAX, u64::MAX] {
        assert_eq!(check(&builder, size_bytes), Err(Refused::TooLarge));
    }
    builder
        .add(b"a", &description, Bytes::from(vec![0; 1024]))
        .unwrap();
    assert_eq!(check(&builder, PACK_BYTES_MAX - 1024), Err(Refused::Full));
    assert_eq!(check(&builder, PACK_BYTES_MAX - 4096), Ok(()));
}

#[test]
fn a_refused_object_leaves_the_builder_as_it_was() {
    let mut builder = PackBuilder::default();
    builder.add(b"a", &small(), Bytes::from_static(b"first")).unwrap();
    let mut refused = |key: &[u8], description: &Description| {
        let bytes = Bytes::from_static(b"bytes");
        let checked = builder.check(key, description, bytes.len() as u64);
        assert_eq!(checked, builder.add(key, description, bytes));
        checked.unwrap_err()
    };
    assert_eq!(refused(b"a", &small()), Refused::SameKey);
    assert_eq!(refused(b"", &small()), Refused::Key);
    assert_eq!(refused(&[b'k'; KEY_BYTES_MAX + 1], &small()), Refused::Key);
    let too_long = Description {
        etag: "e".repeat(64 << 10),
        ..small()
    };
    assert_eq!(refused(b"k", &too_long), Refused::Description);
    for parts in [
        vec![part(1, 4)],
        vec![part(2, 4), part(1, 1)],
        vec![part(1, 4), part(1, 1)],
    ] {
        assert_eq!(refused(b"k", &Description { parts, ..small() }), Refused::Parts);
    }
    let overflowing = vec![part(1, u64::MAX), part(2, 6)];
    assert_eq!(
        refused(
            b"k",
            &Description {
                parts: overflowing,
                ..small()
            }
        ),
        Refused::Parts
    );
    let pack = builder.finish();
    let members = read(&pack.pieces.concat()).unwrap();
    assert_eq!((members.len(), members[0].is_made_of(b"first")), (1, true));
}

#[test]
fn the_longest_key_is_taken() {
    let mut builder = PackBuilder::default();
    let key = [b'k'; KEY_BYTES_MAX];
    builder.add(&key, &small(), Bytes::new()).unwrap();
    let members = read(&builder.finish().pieces.concat()).unwrap();
    assert_eq!(members[0].key, key[..]);
}
