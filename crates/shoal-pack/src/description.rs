//! All that a pack says of an object besides its key and its bytes.

use std::time::SystemTime;

use http::HeaderMap;
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers, write_time};
use time::OffsetDateTime;
use ulid::Ulid;

/// The times that ZIP can express, in seconds since 1970: the years 1980 to 2107.
const DOS_SECONDS: (u64, u64) = (315_532_800, 4_354_819_198);

/// All that a pack says of an object besides its key and its bytes: enough to answer reads of the object, and
/// to write it under its own name with the same ETag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Orders the versions of one key across packs: the greatest is the newest.
    pub sequence: u64,
    /// The unique id of the write.
    pub id: Ulid,
    /// The access key of the identity that wrote the object.
    pub writer: String,
    /// The time that reads return as `Last-Modified`.
    pub modified: SystemTime,
    /// The ETag, quotes included.
    pub etag: String,
    /// The headers that a PUT of the object sends to the lake, checksums among them.
    pub headers: HeaderMap,
    /// Headers that a read returns although the writer did not send them.
    pub of_reads: HeaderMap,
    /// The parts in which the object was uploaded, in order. Empty if it was written in one piece.
    pub parts: Vec<Part>,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number that the client gave the part.
    pub number: u16,
    /// The size of the part in bytes.
    pub size_bytes: u64,
    /// The MD5 of the part.
    pub md5: [u8; 16],
    /// The checksum of the part, by the algorithm of its upload. Empty without one.
    pub checksum: Vec<u8>,
}

impl Description {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.id.to_bytes());
        write_bytes(&mut out, self.writer.as_bytes());
        write_time(&mut out, Some(self.modified));
        write_bytes(&mut out, self.etag.as_bytes());
        write_headers(&mut out, &self.headers);
        write_headers(&mut out, &self.of_reads);
        out.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        for part in &self.parts {
            out.extend_from_slice(&part.number.to_le_bytes());
            out.extend_from_slice(&part.size_bytes.to_le_bytes());
            out.extend_from_slice(&part.md5);
            write_bytes(&mut out, &part.checksum);
        }
        out
    }

    /// Inverse of [`Self::encode`]. All bytes must belong to the description.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let description = Self {
            sequence: reader.u64()?,
            id: Ulid::from_bytes(reader.array()?),
            writer: reader.text()?.to_owned(),
            modified: reader.time()?.ok_or(Malformed)?,
            etag: reader.text()?.to_owned(),
            headers: reader.headers()?,
            of_reads: reader.headers()?,
            parts: (0..reader.u32()?)
                .map(|_| Part::decode(&mut reader))
                .collect::<Result<_, _>>()?,
        };
        reader.rest().is_empty().then_some(description).ok_or(Malformed)
    }

    /// Returns true if the parts, if there are any, have ascending numbers and add up to the object.
    pub(crate) fn has_parts_of(&self, size_bytes: u64) -> bool {
        let mut sizes = self.parts.iter().map(|part| part.size_bytes);
        self.parts.is_empty()
            || self.parts.is_sorted_by(|one, next| one.number < next.number)
                && sizes.try_fold(0, u64::checked_add) == Some(size_bytes)
    }

    /// Returns the time of the object as ZIP expresses it, in UTC: the date, then the time in steps of two
    /// seconds. Times that ZIP cannot express become the nearest that it can.
    pub(crate) fn dos_time(&self) -> u32 {
        let since_1970 = self.modified.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since_1970.map_or(0, |since| since.as_secs());
        let seconds = seconds.clamp(DOS_SECONDS.0, DOS_SECONDS.1);
        let at =
            OffsetDateTime::from_unix_timestamp(seconds.cast_signed()).expect("years up to 2107 are dates");
        let (hour, minute, second) = at.to_hms();
        let date = (at.year() - 1980).cast_unsigned() << 9
            | u32::from(u8::from(at.month())) << 5
            | u32::from(at.day());
        date << 16 | u32::from(hour) << 11 | u32::from(minute) << 5 | (u32::from(second) / 2)
    }
}

impl Part {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            number: u16::from_le_bytes(reader.array()?),
            size_bytes: reader.u64()?,
            md5: reader.array()?,
            checksum: reader.bytes()?.to_vec(),
        })
    }
}
