//! Promises about the reader of packs: it never panics, members lie in the pack one after the other, and a
//! pack of what was read says the same.

use bytes::Bytes;
use shoal_pack::{KEY_BYTES_MAX, Member, PackBuilder, Reading, read_tail};

use super::crc64::crc64_nvme;

/// The bytes of the comment, of the checksum at its end, and of the end record before it.
const COMMENT: usize = 68;
const CHECKSUM: usize = 16;
const RECORD: usize = 22;

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    check_pack(data);
    // An attacker makes the checksum fit.
    if let Some(sealed) = sealed(data) {
        check_pack(&sealed);
    }
}

fn check_pack(pack: &[u8]) {
    let pack_bytes = pack.len() as u64;
    let Ok(Reading::Members(members)) = read_tail(pack_bytes, pack) else {
        return;
    };
    // A tail that is too short names the bytes that suffice.
    let mut tail_bytes = 0;
    while let Reading::Needs { tail_bytes: needed } = read(pack, tail_bytes) {
        assert!(tail_bytes < needed && needed <= pack_bytes);
        tail_bytes = needed;
    }
    assert!(matches!(read(pack, tail_bytes), Reading::Members(read) if read == members));
    let mut end = 0;
    for member in &members {
        assert!(end < member.range.start && member.range.start <= member.range.end);
        assert!((1..=KEY_BYTES_MAX).contains(&member.key.len()));
        end = member.range.end;
    }
    assert!(end <= pack_bytes - tail_bytes);
    check_again(pack, &members);
}

fn read(pack: &[u8], tail_bytes: u64) -> Reading {
    let tail = &pack[pack.len() - tail_bytes as usize..];
    read_tail(pack.len() as u64, tail).unwrap()
}

/// Builds a pack of the members that were read.
fn check_again(pack: &[u8], members: &[Member]) {
    let mut builder = PackBuilder::default();
    for member in members {
        let bytes = Bytes::copy_from_slice(&pack[member.range.start as usize..member.range.end as usize]);
        builder.add(&member.key, &member.description(), bytes).unwrap();
    }
    let again = builder.finish();
    let bytes = again.pieces.concat();
    assert_eq!(
        read(&bytes, bytes.len() as u64),
        Reading::Members(again.members.clone())
    );
    assert_eq!(again.members.len(), members.len());
    for (one, other) in again.members.iter().zip(members) {
        assert_eq!((&one.key, one.description()), (&other.key, other.description()));
    }
}

/// Returns the bytes with the checksum that a directory at the place of their end record would have.
fn sealed(data: &[u8]) -> Option<Vec<u8>> {
    let (before, _) = data.split_at(data.len().checked_sub(CHECKSUM)?);
    let record = before.len().checked_sub(COMMENT - CHECKSUM + RECORD)?;
    let size = u32::from_le_bytes(*before[record + 12..].first_chunk()?) as usize;
    let directory = &before[record.checked_sub(size)?..record + RECORD];
    Some([before, format!("{:016x}", crc64_nvme(directory)).as_bytes()].concat())
}
