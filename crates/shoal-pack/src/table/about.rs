//! All that a row says of its object besides its place: what is common to many, and what is its own.
//!
//! Objects of one writer and one program have the same names of headers, and most of their values. Those
//! stand once a table; a row keeps the values that differ from object to object.

use bytes::BufMut as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_time};
use ulid::Ulid;

use super::Packed;
use super::records::{read_short, read_varint, write_short, write_varint};
use crate::{Description, Part};

/// Marks of a header in what is common: its value is in each row, or it is here.
const OWN: u8 = 0;
const COMMON: u8 = 1;

/// A description in two parts.
pub(super) struct About {
    pub(super) common: Vec<u8>,
    pub(super) own: Vec<u8>,
}

pub(super) fn encode(description: &Description) -> About {
    let (mut common, mut own) = (Vec::new(), Vec::with_capacity(64));
    write_bytes(&mut common, description.writer.as_bytes());
    own.extend_from_slice(&description.id.to_bytes());
    write_time(&mut own, Some(description.modified));
    write_etag(&mut own, &description.etag);
    let mut about = About { common, own };
    about.write_headers(&description.headers);
    about.write_headers(&description.of_reads);
    let own = &mut about.own;
    write_varint(own, description.parts.len() as u64);
    for part in &description.parts {
        own.put_u16_le(part.number);
        own.put_u64_le(part.size_bytes);
        own.extend_from_slice(&part.md5);
        write_short(own, &part.checksum);
    }
    about
}

/// Inverse of [`encode`]. All bytes must belong to the description, and its parts must add up to the object.
pub(super) fn decode(packed: &Packed) -> Result<Description, Malformed> {
    let (mut common, mut own) = (Reader::new(&packed.common), Reader::new(&packed.own));
    let description = Description {
        sequence: packed.sequence,
        id: Ulid::from_bytes(own.array()?),
        writer: common.text()?.to_owned(),
        modified: own.time()?.ok_or(Malformed)?,
        etag: read_etag(&mut own)?,
        headers: read_headers(&mut common, &mut own)?,
        of_reads: read_headers(&mut common, &mut own)?,
        parts: (0..read_varint(&mut own)?)
            .map(|_| read_part(&mut own))
            .collect::<Result<_, _>>()?,
    };
    let is_whole = common.rest().is_empty() && own.rest().is_empty();
    let size_bytes = packed.range.end - packed.range.start;
    let is_right = is_whole && description.has_parts_of(size_bytes);
    is_right.then_some(description).ok_or(Malformed)
}

/// Reads past what objects have in common, and returns its bytes.
pub(super) fn take_common<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let before = reader.rest();
    reader.text()?;
    // The headers of a PUT, then those of reads.
    for _ in 0..2 {
        for _ in 0..reader.u32()? {
            reader.bytes()?;
            if is_common(reader)? {
                reader.bytes()?;
            }
        }
    }
    Ok(&before[..before.len() - reader.rest().len()])
}

impl About {
    fn write_headers(&mut self, headers: &HeaderMap) {
        self.common.put_u32_le(headers.len() as u32);
        for (name, value) in headers {
            write_bytes(&mut self.common, name.as_str().as_bytes());
            if differs(name) {
                self.common.push(OWN);
                write_short(&mut self.own, value.as_bytes());
            } else {
                self.common.push(COMMON);
                write_bytes(&mut self.common, value.as_bytes());
            }
        }
    }
}

/// Returns true if objects of one program rarely have the same value of this header.
fn differs(name: &HeaderName) -> bool {
    let name = name.as_str();
    let is_checksum = name.starts_with("x-amz-checksum-");
    let is_of_all = matches!(name, "x-amz-checksum-algorithm" | "x-amz-checksum-type");
    name.starts_with("x-amz-meta-") || name == "content-md5" || is_checksum && !is_of_all
}

fn read_headers(common: &mut Reader<'_>, own: &mut Reader<'_>) -> Result<HeaderMap, Malformed> {
    let mut headers = HeaderMap::new();
    for _ in 0..common.u32()? {
        let name = HeaderName::from_bytes(common.bytes()?).map_err(|_| Malformed)?;
        let value = if is_common(common)? {
            common.bytes()?
        } else {
            read_short(own)?
        };
        let value = HeaderValue::from_bytes(value).map_err(|_| Malformed)?;
        headers.try_append(name, value).map_err(|_| Malformed)?;
    }
    Ok(headers)
}

fn is_common(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.array()? {
        [OWN] => Ok(false),
        [COMMON] => Ok(true),
        _ => Err(Malformed),
    }
}

/// Writes 0 and 16 bytes for the ETag of an object that was written in one piece, else the length, 1 added,
/// and the text.
fn write_etag(out: &mut Vec<u8>, etag: &str) {
    if let Some(md5) = md5_of(etag) {
        out.push(0);
        out.put_u128(md5);
    } else {
        write_varint(out, etag.len() as u64 + 1);
        out.extend_from_slice(etag.as_bytes());
    }
}

fn read_etag(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let Some(length) = read_varint(reader)?.checked_sub(1) else {
        return Ok(etag_of(u128::from_be_bytes(reader.array()?)));
    };
    let text = std::str::from_utf8(reader.take(length as usize)?).map_err(|_| Malformed)?;
    let is_shortest = md5_of(text).is_none();
    is_shortest.then(|| text.to_owned()).ok_or(Malformed)
}

fn etag_of(md5: u128) -> String {
    format!("\"{md5:032x}\"")
}

fn md5_of(etag: &str) -> Option<u128> {
    let digits = etag.strip_prefix('"')?.strip_suffix('"')?;
    let md5 = u128::from_str_radix(digits, 16).ok()?;
    (etag_of(md5) == etag).then_some(md5)
}

fn read_part(reader: &mut Reader<'_>) -> Result<Part, Malformed> {
    Ok(Part {
        number: u16::from_le_bytes(reader.array()?),
        size_bytes: reader.u64()?,
        md5: reader.array()?,
        checksum: read_short(reader)?.to_vec(),
    })
}
