//! Packs are read as they were written, and nothing else is read as a pack.

mod bounds;
mod hostile;
mod round_trips;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use ulid::Ulid;

use crate::{Damaged, Description, Member, Pack, PackBuilder, Part, Reading, read_tail};

/// A description with a value in each field but parts.
pub(crate) fn description(sequence: u64) -> Description {
    Description {
        sequence,
        id: Ulid(7 << 80 | u128::from(sequence)),
        writer: "AKIAEXAMPLE".into(),
        modified: SystemTime::UNIX_EPOCH + Duration::new(1_800_000_001, 250_000_000),
        etag: "\"9e107d9d372bb6826bd81d3542a419d6\"".into(),
        headers: headers(&[("content-type", b"text/plain"), ("x-amz-meta-raw", b"caf\xe9")]),
        of_reads: headers(&[("x-amz-checksum-crc32", b"AAAAAA==")]),
        parts: Vec::new(),
    }
}

pub(crate) fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        let value = HeaderValue::from_bytes(value).unwrap();
        (HeaderName::from_static(name), value)
    });
    pairs.collect()
}

pub(crate) fn part(number: u16, size_bytes: u64) -> Part {
    Part {
        number,
        size_bytes,
        md5: [number as u8; 16],
        checksum: b"sum".to_vec(),
    }
}

/// A pack of these objects, each with a sequence of its own.
fn pack(objects: &[(&[u8], &[u8])]) -> Pack {
    let mut builder = PackBuilder::default();
    for (sequence, (key, bytes)) in objects.iter().enumerate() {
        let description = description(sequence as u64);
        builder
            .add(key, &description, Bytes::copy_from_slice(bytes))
            .unwrap();
    }
    builder.finish()
}

/// Three members: one renamed, one in parts, one empty.
fn sample() -> Pack {
    let mut builder = PackBuilder::default();
    let in_parts = Description {
        parts: vec![part(1, 4), part(3, 2)],
        ..description(2)
    };
    builder
        .add(b"../up", &description(1), Bytes::from_static(b"one"))
        .unwrap();
    builder
        .add(b"data/b", &in_parts, Bytes::from_static(b"second"))
        .unwrap();
    builder.add(b"data/empty", &description(3), Bytes::new()).unwrap();
    builder.finish()
}

fn all_bytes(pack: &Pack) -> Vec<u8> {
    pack.pieces.concat()
}

fn read(bytes: &[u8]) -> Result<Vec<Member>, Damaged> {
    match read_tail(bytes.len() as u64, bytes)? {
        Reading::Members(members) => Ok(members),
        Reading::Needs { tail_bytes } => panic!("{tail_bytes} bytes are needed of {}", bytes.len()),
    }
}
