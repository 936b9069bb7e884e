//! The records of ZIP as packs have them (APPNOTE 4.3), written and read.
//!
//! There is one way to write each. So a reader extracts the fields that vary, writes the record again, and
//! compares.

use bytes::BufMut as _;
use crc_fast::{CrcAlgorithm, Digest};
use shoal_base::encoding::{Malformed, Reader, write_bytes};

use crate::tail::Damaged;
use crate::{DIRECTORY_BYTES_MAX, MEMBERS_MAX};

/// The bytes of a local header without its name.
pub(crate) const LOCAL_BYTES: usize = 30;
/// The bytes of an entry without its name and extra field.
pub(crate) const ENTRY_BYTES: usize = 46;
/// The bytes of an extra field without key and description.
pub(crate) const EXTRA_BYTES: usize = 9;
/// The bytes of the end record with its comment.
pub(crate) const END_BYTES: usize = END_RECORD_BYTES + COMMENT.len() + CHECKSUM_BYTES;

const END_RECORD_BYTES: usize = 22;
const CHECKSUM_BYTES: usize = 16;

const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
const ENTRY_SIGNATURE: u32 = 0x0201_4b50;
const END_SIGNATURE: u32 = 0x0605_4b50;

/// Unix, so that readers look at permissions and at nothing else, and the version of most writers.
const MADE_BY: u16 = u16::from_le_bytes([20, 3]);
const VERSION_NEEDED: u16 = 20;
/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;
const STORED: u16 = 0;
/// A regular file with mode 0644; a folder with mode 0755, which DOS marks, too.
const FILE: u32 = 0o100_644 << 16;
const FOLDER: u32 = 0o40_755 << 16 | 0x10;

/// The id of our extra field: `SH`.
const EXTRA_ID: u16 = u16::from_le_bytes(*b"SH");

/// The format of extra fields, as a number and as the comment of a pack shows it.
const FORMAT: u8 = 1;
const COMMENT: &[u8; 52] = b"Shoal pack, format 1; CRC-64/NVME of its directory: ";
const COMMENT_FORMAT_AT: usize = 19;

/// The fields that differ from one member to the next, in its two headers.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a [u8],
    /// The key, if it is not the name; else empty.
    pub(crate) other_key: &'a [u8],
    pub(crate) description: &'a [u8],
    pub(crate) dos_time: u32,
    pub(crate) crc32: u32,
    pub(crate) size_bytes: u32,
    /// The offset of the local header.
    pub(crate) header_at: u32,
}

impl<'a> Entry<'a> {
    /// The key of the member.
    pub(crate) fn key(&self) -> &'a [u8] {
        if self.other_key.is_empty() {
            self.name
        } else {
            self.other_key
        }
    }

    pub(crate) fn write_local(&self, out: &mut Vec<u8>) {
        out.put_u32_le(LOCAL_SIGNATURE);
        self.write_shared(out, 0);
        out.extend_from_slice(self.name);
    }

    /// Writes the entry of the directory.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let extra_bytes = EXTRA_BYTES + self.other_key.len() + self.description.len();
        out.put_u32_le(ENTRY_SIGNATURE);
        out.put_u16_le(MADE_BY);
        self.write_shared(out, extra_bytes);
        // No comment, the first disk, no internal attributes.
        out.put_bytes(0, 6);
        out.put_u32_le(if self.name.ends_with(b"/") { FOLDER } else { FILE });
        out.put_u32_le(self.header_at);
        out.extend_from_slice(self.name);
        out.put_u16_le(EXTRA_ID);
        out.put_u16_le((extra_bytes - 4) as u16);
        out.push(FORMAT);
        write_bytes(out, self.other_key);
        out.extend_from_slice(self.description);
    }

    fn write_shared(&self, out: &mut Vec<u8>, extra_bytes: usize) {
        out.put_u16_le(VERSION_NEEDED);
        out.put_u16_le(FLAGS);
        out.put_u16_le(STORED);
        out.put_u32_le(self.dos_time);
        out.put_u32_le(self.crc32);
        out.put_u32_le(self.size_bytes);
        out.put_u32_le(self.size_bytes);
        out.put_u16_le(self.name.len() as u16);
        out.put_u16_le(extra_bytes as u16);
    }

    /// Reads from an entry of the directory the fields that vary, and passes over the others.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        reader.take(12)?;
        let (dos_time, crc32, size_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.take(4)?;
        let name_bytes = usize::from(u16::from_le_bytes(reader.array()?));
        let extra_bytes = usize::from(u16::from_le_bytes(reader.array()?));
        reader.take(10)?;
        let header_at = reader.u32()?;
        let name = reader.take(name_bytes)?;
        let mut extra = Reader::new(reader.take(extra_bytes)?);
        extra.take(5)?;
        Ok(Self {
            name,
            other_key: extra.bytes()?,
            description: extra.rest(),
            dos_time,
            crc32,
            size_bytes,
            header_at,
        })
    }
}

/// The place of a directory, from the end of its pack.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) members: u16,
    pub(crate) directory_bytes: u32,
    pub(crate) directory_at: u32,
}

impl End {
    /// Returns the end of a pack with this directory.
    pub(crate) fn bytes(self, directory: &[u8]) -> [u8; END_BYTES] {
        let record = self.record();
        let parts = [&record[..], COMMENT, &checksum(directory, &record)].concat();
        parts
            .try_into()
            .expect("an end has a record, a comment and a checksum")
    }

    /// Reads the fields that vary from the end of a pack. Its other bytes are right if [`Self::bytes`]
    /// returns the same.
    pub(crate) fn read(bytes: &[u8; END_BYTES]) -> Result<Self, Damaged> {
        let (record, rest) = bytes.split_at(END_RECORD_BYTES);
        let format = rest[COMMENT_FORMAT_AT];
        let mut comment = *COMMENT;
        comment[COMMENT_FORMAT_AT] = format;
        if !rest.starts_with(&comment) || !format.is_ascii_digit() {
            return Err(Damaged::End);
        }
        if format != COMMENT[COMMENT_FORMAT_AT] {
            return Err(Damaged::Format(format - b'0'));
        }
        let end = Self::of_record(record).expect("a record has all fields");
        let is_within =
            u64::from(end.directory_bytes) <= DIRECTORY_BYTES_MAX && usize::from(end.members) <= MEMBERS_MAX;
        is_within.then_some(end).ok_or(Damaged::TooLarge)
    }

    fn record(self) -> [u8; END_RECORD_BYTES] {
        let mut record = [0; END_RECORD_BYTES];
        let mut out = &mut record[..];
        out.put_u32_le(END_SIGNATURE);
        // The first disk has the directory.
        out.put_u32_le(0);
        out.put_u16_le(self.members);
        out.put_u16_le(self.members);
        out.put_u32_le(self.directory_bytes);
        out.put_u32_le(self.directory_at);
        out.put_u16_le((COMMENT.len() + CHECKSUM_BYTES) as u16);
        record
    }

    fn of_record(record: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        reader.take(10)?;
        Ok(Self {
            members: u16::from_le_bytes(reader.array()?),
            directory_bytes: reader.u32()?,
            directory_at: reader.u32()?,
        })
    }
}

/// Returns the checksum of a directory and of the record that places it, in hexadecimal digits.
fn checksum(directory: &[u8], record: &[u8; END_RECORD_BYTES]) -> [u8; CHECKSUM_BYTES] {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(directory);
    digest.update(record);
    let digits = format!("{:016x}", digest.finalize());
    digits.into_bytes().try_into().expect("64 bits are 16 digits")
}
