//! Bytes that are no pack, or no longer, are refused with the reason.

use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::Index;

use super::{all_bytes, description, part, read, sample};
use crate::records::{END_BYTES, End, Entry};
use crate::{Damaged, Description, EntryProblem, KEY_BYTES_MAX, MEMBERS_MAX, Member, Reading, read_tail};

/// Gives the pack an end that fits its directory.
fn seal(pack: &mut Vec<u8>, end: End) {
    pack.truncate(pack.len() - END_BYTES);
    let directory = pack[end.directory_at as usize..].to_vec();
    pack.extend_from_slice(&end.bytes(&directory));
}

fn end_of(pack: &[u8]) -> End {
    End::read(pack.last_chunk().unwrap()).unwrap()
}

/// A pack of zeros with these entries.
fn forged(data_bytes: u32, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut pack = vec![0; data_bytes as usize];
    for entry in entries {
        entry.write(&mut pack);
    }
    let end = End {
        members: entries.len() as u16,
        directory_bytes: pack.len() as u32 - data_bytes,
        directory_at: data_bytes,
    };
    pack.extend_from_slice(&[0; END_BYTES]);
    seal(&mut pack, end);
    pack
}

fn problem(data_bytes: u32, entries: &[Entry<'_>]) -> Option<(usize, EntryProblem)> {
    match read(&forged(data_bytes, entries)) {
        Ok(_) => None,
        Err(Damaged::Entry { number, problem }) => Some((number, problem)),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn an_entry_that_contradicts_the_format_is_named() {
    let description = description(1);
    let (encoded, dos_time) = (description.encode(), description.dos_time());
    let in_parts = Description {
        parts: vec![part(1, 3)],
        ..description
    };
    let in_parts = in_parts.encode();
    // Headers of 31 bytes: a name of one byte.
    let a = Entry {
        name: b"a",
        other_key: b"",
        description: &encoded,
        dos_time,
        crc32: 7,
        size_bytes: 2,
        header_at: 0,
    };
    let b = Entry {
        name: b"b",
        header_at: 33,
        ..a
    };
    assert_eq!(problem(66, &[a, b]), None);

    let second = |entry| problem(66, &[a, entry]);
    assert_eq!(second(Entry { name: b"a", ..b }), Some((1, EntryProblem::Order)));
    assert_eq!(second(Entry { name: b"A", ..b }), Some((1, EntryProblem::Order)));
    for header_at in [0, 32, 34, u32::MAX] {
        assert_eq!(second(Entry { header_at, ..b }), Some((1, EntryProblem::Place)));
    }
    for size_bytes in [3, u32::MAX] {
        assert_eq!(second(Entry { size_bytes, ..b }), Some((1, EntryProblem::Place)));
    }
    assert_eq!(second(Entry { dos_time: 0, ..b }), Some((1, EntryProblem::Field)));
    let longer = [&encoded[..], b"x"].concat();
    for description in [&encoded[1..], &longer] {
        assert_eq!(
            second(Entry { description, ..b }),
            Some((1, EntryProblem::Description))
        );
    }
    assert_eq!(
        second(Entry {
            description: &in_parts,
            ..b
        }),
        Some((1, EntryProblem::Parts))
    );
    assert_eq!(second(Entry { name: b"", ..b }), Some((1, EntryProblem::Key)));
    let long = [b'k'; KEY_BYTES_MAX + 1];
    assert_eq!(second(Entry { name: &long, ..b }), Some((1, EntryProblem::Key)));
    for name in ["../b", "_renamed/00001-b", "b/"] {
        assert_eq!(
            second(Entry {
                name: name.as_bytes(),
                ..b
            }),
            Some((1, EntryProblem::Name))
        );
    }
    for name in ["b", "c", "_renamed/00002-b", "_renamed/00001-c"] {
        let renamed = Entry {
            name: name.as_bytes(),
            other_key: b"b",
            ..b
        };
        assert_eq!(second(renamed), Some((1, EntryProblem::Name)));
    }
}

#[test]
fn a_count_or_a_place_that_does_not_fit_is_named() {
    let pack = all_bytes(&sample());
    let end = end_of(&pack);
    let sealed = |end| {
        let mut pack = pack.clone();
        seal(&mut pack, end);
        read(&pack)
    };
    assert!(sealed(end).is_ok());
    assert_eq!(sealed(End { members: 2, ..end }), Err(Damaged::Leftover));
    let cut_off = Damaged::Entry {
        number: 3,
        problem: EntryProblem::CutOff,
    };
    for members in [4, MEMBERS_MAX as u16] {
        assert_eq!(sealed(End { members, ..end }), Err(cut_off));
    }
    assert_eq!(
        sealed(End {
            members: u16::MAX,
            ..end
        }),
        Err(Damaged::TooLarge)
    );
    assert_eq!(
        sealed(End {
            directory_bytes: u32::MAX,
            ..end
        }),
        Err(Damaged::TooLarge)
    );
    assert_eq!(
        sealed(End {
            directory_bytes: 0,
            ..end
        }),
        Err(Damaged::Length)
    );
    let moved = End {
        directory_at: end.directory_at + 1,
        directory_bytes: end.directory_bytes - 1,
        ..end
    };
    assert!(matches!(sealed(moved), Err(Damaged::Entry { number: 0, .. })));
    // A gap between the last member and the directory.
    assert_eq!(read(&forged(1, &[])), Err(Damaged::Leftover));
    // Bytes behind the last entry.
    let mut longer = pack.clone();
    longer.insert(pack.len() - END_BYTES, 0);
    seal(
        &mut longer,
        End {
            directory_bytes: end.directory_bytes + 1,
            ..end
        },
    );
    assert_eq!(read(&longer), Err(Damaged::Leftover));
}

#[test]
fn the_end_of_another_zip_file_is_no_other_format() {
    let pack = all_bytes(&sample());
    let format_at = pack.len() - END_BYTES + 22 + 19;
    for (format, expected) in [
        (b'2', Damaged::Format(2)),
        (b'0', Damaged::Format(0)),
        (b'x', Damaged::End),
    ] {
        let mut pack = pack.clone();
        pack[format_at] = format;
        assert_eq!(read(&pack), Err(expected));
    }
    assert_eq!(read(&[&b"PK\x05\x06"[..], &[0; 18]].concat()), Err(Damaged::End));
    // A pack cannot be smaller than what was read of it.
    assert_eq!(read_tail(pack.len() as u64 - 1, &pack), Err(Damaged::End));
}

#[test]
fn a_pack_that_was_cut_or_extended_at_either_end_is_refused() {
    let pack = all_bytes(&sample());
    for cut in 1..=pack.len() {
        assert_eq!(read(&pack[..pack.len() - cut]), Err(Damaged::End));
        let expected = if pack.len() - cut < END_BYTES {
            Damaged::End
        } else {
            Damaged::Length
        };
        assert_eq!(read(&pack[cut..]), Err(expected));
    }
    assert_eq!(read(&[&pack[..], b"\0"].concat()), Err(Damaged::End));
    assert_eq!(read(&[b"\0", &pack[..]].concat()), Err(Damaged::Length));
    assert_eq!(read(&[&pack[..], &pack].concat()), Err(Damaged::Length));
}

#[test]
fn each_bit_of_the_directory_and_of_the_end_is_checked() {
    let sample = sample();
    let pack = all_bytes(&sample);
    let directory_at = pack.len() - sample.pieces.last().unwrap().len();
    for at in directory_at..pack.len() {
        for bit in 0..8 {
            let mut pack = pack.clone();
            pack[at] ^= 1 << bit;
            assert!(read(&pack).is_err(), "bit {bit} of byte {at}");
        }
    }
}

/// Panics if members of a pack that was accepted lie anywhere but one after the other in the pack.
fn check_members(members: &[Member], pack_bytes: usize) {
    let mut end = 0;
    for member in members {
        assert!(end < member.range.start && member.range.start <= member.range.end);
        end = member.range.end;
        assert!((1..=KEY_BYTES_MAX).contains(&member.key.len()));
        let _ = member.description();
    }
    assert!(members.is_sorted_by(|one, next| one.key < next.key));
    assert!(end as usize + END_BYTES <= pack_bytes);
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_need_more(bytes in vec(any::<u8>(), 0..300), more in 0..1000_u64) {
        let reading = read_tail(bytes.len() as u64 + more, &bytes);
        assert!(matches!(reading, Err(Damaged::End) | Ok(Reading::Needs { .. })));
    }

    /// An attacker makes the checksum fit.
    #[test]
    fn any_directory_with_its_checksum_is_refused_or_has_members_in_their_places(
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let sample = sample();
        let mut pack = all_bytes(&sample);
        let (length, end) = (pack.len() - END_BYTES, end_of(&pack));
        let directory = &mut pack[end.directory_at as usize..length];
        for (at, byte) in changes {
            directory[at.index(directory.len())] = byte;
        }
        seal(&mut pack, end);
        if let Ok(members) = read(&pack) {
            check_members(&members, pack.len());
        }
    }

    #[test]
    fn any_end_with_its_checksum_is_refused_or_has_members_in_their_places(
        members in any::<u16>(),
        directory_at in 0..2000_u32,
    ) {
        let mut pack = all_bytes(&sample());
        let directory_at = directory_at.min((pack.len() - END_BYTES) as u32);
        let directory_bytes = (pack.len() - END_BYTES) as u32 - directory_at;
        seal(&mut pack, End { members, directory_bytes, directory_at });
        if let Ok(members) = read(&pack) {
            check_members(&members, pack.len());
        }
    }
}
