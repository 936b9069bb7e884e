//! Puts a pack together.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::description::Description;
use crate::names::{self, Candidate, RENAMED_BYTES_MAX};
use crate::records::{END_BYTES, ENTRY_BYTES, EXTRA_BYTES, End, Entry, LOCAL_BYTES};
use crate::{DIRECTORY_BYTES_MAX, KEY_BYTES_MAX, MEMBERS_MAX, Member, PACK_BYTES_MAX, crc32};

/// Collects the members of a pack.
#[derive(Debug, Default)]
pub struct PackBuilder {
    members: BTreeMap<Bytes, Pending>,
    room: Room,
}

/// A pack that is ready to be sent.
#[derive(Debug)]
pub struct Pack {
    /// The size of the pack in bytes: the sum of its pieces.
    pub size_bytes: u64,
    /// The bytes of the pack, in order. Those of members are the ones that were added, not a copy.
    pub pieces: Vec<Bytes>,
    /// The members, sorted by their keys.
    pub members: Vec<Member>,
}

/// The reason why an object is not added to a pack. The builder is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Never the answer of an empty builder.
    #[error("the pack is full; begin another one")]
    Full,
    /// No pack has room for the object.
    #[error("no pack has room for an object of this size; write it under its own name")]
    TooLarge,
    /// ZIP has 65,535 bytes for the extra field of a member.
    #[error("its headers and parts are too long for a member of a pack; write it under its own name")]
    Description,
    /// S3 has no such key.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes")]
    Key,
    /// The parts are out of order, or do not add up to the object.
    #[error("its parts are not those of an object of this size")]
    Parts,
    /// A pack has one version of an object.
    #[error("the pack has an object with this key already")]
    SameKey,
}

/// A member whose place is not known yet.
#[derive(Debug)]
struct Pending {
    description: Vec<u8>,
    dos_time: u32,
    crc32: u32,
    bytes: Bytes,
}

/// The bytes of a pack, if each member had the longest name that it may get.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    data_bytes: u64,
    directory_bytes: u64,
}

impl PackBuilder {
    /// Checks that an object of this size could be added now, without its bytes.
    pub fn check(&self, key: &[u8], description: &Description, size_bytes: u64) -> Result<(), Refused> {
        self.admit(key, description, size_bytes).map(drop)
    }

    /// Adds an object.
    pub fn add(&mut self, key: &[u8], description: &Description, bytes: Bytes) -> Result<(), Refused> {
        let (encoded, room) = self.admit(key, description, bytes.len() as u64)?;
        let member = Pending {
            description: encoded,
            dos_time: description.dos_time(),
            crc32: crc32(&bytes),
            bytes,
        };
        self.members.insert(Bytes::copy_from_slice(key), member);
        self.room = room;
        Ok(())
    }

    /// Returns the pack of the objects that were added.
    pub fn finish(self) -> Pack {
        let keys = self.members.iter().map(|(key, member)| Candidate {
            key,
            is_empty: member.bytes.is_empty(),
        });
        let new_names = names::new_names(&keys.collect::<Vec<_>>());
        let mut pieces = Vec::with_capacity(2 * self.members.len() + 1);
        let mut members = Vec::with_capacity(self.members.len());
        let (mut directory, mut at) = (Vec::new(), 0);
        for ((key, member), new_name) in self.members.into_iter().zip(new_names) {
            let entry = Entry {
                name: new_name.as_deref().map_or(&key, str::as_bytes),
                other_key: if new_name.is_some() { &key } else { &[] },
                description: &member.description,
                dos_time: member.dos_time,
                crc32: member.crc32,
                size_bytes: member.bytes.len() as u32,
                header_at: at as u32,
            };
            let mut header = Vec::with_capacity(LOCAL_BYTES + entry.name.len());
            entry.write_local(&mut header);
            entry.write(&mut directory);
            let start = at + header.len() as u64;
            at = start + member.bytes.len() as u64;
            pieces.push(header.into());
            if !member.bytes.is_empty() {
                pieces.push(member.bytes);
            }
            members.push(Member {
                key,
                range: start..at,
                crc32: member.crc32,
                description: member.description.into(),
            });
        }
        let end = End {
            members: members.len() as u16,
            directory_bytes: directory.len() as u32,
            directory_at: at as u32,
        };
        directory.extend_from_slice(&end.bytes(&directory));
        let size_bytes = at + directory.len() as u64;
        pieces.push(directory.into());
        Pack {
            size_bytes,
            pieces,
            members,
        }
    }

    /// Returns the encoded description, and the room that the pack takes with the object.
    fn admit(
        &self,
        key: &[u8],
        description: &Description,
        size_bytes: u64,
    ) -> Result<(Vec<u8>, Room), Refused> {
        let encoded = description.encode();
        let extra_bytes = EXTRA_BYTES + key.len() + encoded.len();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Refused::Key);
        }
        if extra_bytes > usize::from(u16::MAX) {
            return Err(Refused::Description);
        }
        if !description.has_parts_of(size_bytes) {
            return Err(Refused::Parts);
        }
        if self.members.contains_key(key) {
            return Err(Refused::SameKey);
        }
        let name_bytes = key.len().max(RENAMED_BYTES_MAX);
        let header_bytes = (LOCAL_BYTES + name_bytes) as u64;
        let entry_bytes = (ENTRY_BYTES + name_bytes + extra_bytes) as u64;
        let data_bytes = self.room.data_bytes + header_bytes;
        let room = Room {
            data_bytes: data_bytes.saturating_add(size_bytes),
            directory_bytes: self.room.directory_bytes + entry_bytes,
        };
        let pack_bytes = room
            .data_bytes
            .saturating_add(room.directory_bytes + END_BYTES as u64);
        let fits = self.members.len() < MEMBERS_MAX
            && room.directory_bytes <= DIRECTORY_BYTES_MAX
            && pack_bytes <= PACK_BYTES_MAX;
        match (fits, self.members.is_empty()) {
            (true, _) => Ok((encoded, room)),
            (false, false) => Err(Refused::Full),
            (false, true) => Err(Refused::TooLarge),
        }
    }
}
