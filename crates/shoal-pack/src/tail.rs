//! Reads the directory of a pack from the end of its bytes, and trusts none of them.

use bytes::Bytes;
use shoal_base::encoding::Reader;

use crate::description::Description;
use crate::names::{self, Candidate};
use crate::records::{END_BYTES, ENTRY_BYTES, End, Entry, LOCAL_BYTES};
use crate::{DIRECTORY_BYTES_MAX, KEY_BYTES_MAX, MEMBERS_MAX, Member};

/// Outcome of reading the tail of a pack.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading {
    /// The members, sorted by their keys. They keep the bytes of the directory, and none of the tail.
    Members(Vec<Member>),
    /// The tail is too short: read again with at least the last `tail_bytes` bytes of the pack.
    Needs {
        /// Greater than the tail that was read; at most [`DIRECTORY_BYTES_MAX`] and the end of a pack.
        tail_bytes: u64,
    },
}

/// The reason why bytes are not accepted as a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// The bytes do not end as a pack does.
    #[error(
        "it does not end as a pack does: it was cut off or changed, something was appended, or it never was one"
    )]
    End,
    /// Another build wrote the pack.
    #[error("it is a pack of format {0}, which this build cannot read; use a newer one")]
    Format(u8),
    /// The directory would be larger than a builder makes it.
    #[error(
        "its end claims more than {MEMBERS_MAX} members, or a directory of more than {DIRECTORY_BYTES_MAX} bytes"
    )]
    TooLarge,
    /// The end does not fit the size of the pack.
    #[error("its end places the directory elsewhere: bytes were removed or added before it")]
    Length,
    /// The directory, or the record of its place, is not the one that was written.
    #[error("its directory does not match the checksum at its end")]
    Checksum,
    /// An entry of the directory contradicts the format.
    #[error("entry {number} of its directory is wrong: {problem}")]
    Entry {
        /// The number of the entry, from 0.
        number: usize,
        /// The contradiction.
        problem: EntryProblem,
    },
    /// There are other bytes than the claimed entries.
    #[error("its directory and its members leave bytes over")]
    Leftover,
}

/// A contradiction in an entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryProblem {
    /// It ends too early, or an inner length exceeds an outer one.
    #[error("it is cut off")]
    CutOff,
    /// The description does not decode.
    #[error("its description does not decode")]
    Description,
    /// A builder would have written other bytes.
    #[error("a field has a value that packs do not use")]
    Field,
    /// Its key is not longer than nothing, or longer than S3's.
    #[error("its key has not 1 to {KEY_BYTES_MAX} bytes")]
    Key,
    /// Keys do not ascend, or one occurs twice.
    #[error("its key does not follow the one before")]
    Order,
    /// The name is not one of the key.
    #[error("its name is not that of its key")]
    Name,
    /// The bytes of the member do not follow those of the one before, or reach into the directory.
    #[error("its bytes overlap others, or leave a gap")]
    Place,
    /// The parts do not add up to the member.
    #[error("its parts do not add up to it")]
    Parts,
}

/// Reads the members of a pack of `pack_bytes` bytes from the last bytes of it.
///
/// Any bytes yield members whose ranges lie in the pack and do not overlap, or an error. Memory: a copy of
/// the directory, which has at most [`DIRECTORY_BYTES_MAX`] bytes, and 100 bytes for each entry in it.
///
/// # Errors
///
/// The bytes are no pack, or not as they were written.
pub fn read_tail(pack_bytes: u64, tail: &[u8]) -> Result<Reading, Damaged> {
    let (end_bytes, tail_bytes) = (END_BYTES as u64, tail.len() as u64);
    if pack_bytes < end_bytes || pack_bytes < tail_bytes {
        return Err(Damaged::End);
    }
    let Some((before, end)) = tail.split_last_chunk() else {
        return Ok(Reading::Needs {
            tail_bytes: end_bytes,
        });
    };
    let place = End::read(end)?;
    let directory_bytes = u64::from(place.directory_bytes);
    if u64::from(place.directory_at) + directory_bytes + end_bytes != pack_bytes {
        return Err(Damaged::Length);
    }
    let Some(start) = before.len().checked_sub(place.directory_bytes as usize) else {
        return Ok(Reading::Needs {
            tail_bytes: directory_bytes + end_bytes,
        });
    };
    let directory = &before[start..];
    if place.bytes(directory) != *end {
        return Err(Damaged::Checksum);
    }
    members(place, &Bytes::copy_from_slice(directory)).map(Reading::Members)
}

fn members(place: End, directory: &Bytes) -> Result<Vec<Member>, Damaged> {
    let mut reader = Reader::new(directory);
    let members_max = directory.len() / ENTRY_BYTES;
    let mut members: Vec<Member> = Vec::with_capacity(members_max.min(place.members.into()));
    let mut header_at = 0;
    for number in 0..usize::from(place.members) {
        let wrong = |problem| Damaged::Entry { number, problem };
        let unread = reader.rest();
        let entry = Entry::read(&mut reader).map_err(|_| wrong(EntryProblem::CutOff))?;
        let written = &unread[..unread.len() - reader.rest().len()];
        check(&entry, number, written).map_err(wrong)?;
        let start = header_at + (LOCAL_BYTES + entry.name.len()) as u64;
        let range = start..start + u64::from(entry.size_bytes);
        if u64::from(entry.header_at) != header_at || range.end > place.directory_at.into() {
            return Err(wrong(EntryProblem::Place));
        }
        header_at = range.end;
        let member = Member {
            key: directory.slice_ref(entry.key()),
            range,
            crc32: entry.crc32,
            description: directory.slice_ref(entry.description),
        };
        if members.last().is_some_and(|last| last.key >= member.key) {
            return Err(wrong(EntryProblem::Order));
        }
        members.push(member);
    }
    let is_all = reader.rest().is_empty() && header_at == u64::from(place.directory_at);
    is_all.then_some(members).ok_or(Damaged::Leftover)
}

/// Checks an entry, the bytes of which are `written`, by itself.
fn check(entry: &Entry<'_>, number: usize, written: &[u8]) -> Result<(), EntryProblem> {
    let description = Description::decode(entry.description).map_err(|_| EntryProblem::Description)?;
    let mut expected = Vec::with_capacity(written.len());
    let dos_time = description.dos_time();
    Entry { dos_time, ..*entry }.write(&mut expected);
    if expected != written {
        return Err(EntryProblem::Field);
    }
    let (key, is_empty) = (entry.key(), entry.size_bytes == 0);
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(EntryProblem::Key);
    }
    let is_named = if entry.other_key.is_empty() {
        names::plain_name(Candidate { key, is_empty }).is_some()
    } else {
        entry.name == names::renamed(number, key).as_bytes()
    };
    if !is_named {
        return Err(EntryProblem::Name);
    }
    let has_parts = description.has_parts_of(entry.size_bytes.into());
    has_parts.then_some(()).ok_or(EntryProblem::Parts)
}
