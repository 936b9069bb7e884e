//! Selects the parts of an object: matches the list in a completion with the uploaded parts. Pure.

use std::sync::Arc;

use http::HeaderMap;
use shoal_net::clock;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::etag;

use super::part::{Part, Upload};
use crate::dirty::record::acknowledged::Acknowledged;
use crate::dirty::record::checksums::Checksum;
use crate::dirty::record::manifest::Record;
use crate::dirty::record::part_layout::PartLayout;

/// The smallest size that S3 allows for any part but the last.
pub const PART_BYTES_MIN: u64 = 5 << 20;

/// A part in the client's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPart {
    /// The number of the part.
    pub number: u16,
    /// The ETag of the part, with or without quotes.
    pub etag: String,
    /// The checksum of the part, if the client sent it.
    pub checksum: Option<Checksum>,
}

/// Returns the uploaded parts that a list names.
///
/// # Errors
///
/// The list is empty or not in order, or one of its parts is missing, differs or is too small.
pub fn select(listed: &[ListedPart], uploaded: &[Arc<Part>]) -> Result<Vec<Arc<Part>>, S3Error> {
    if listed.is_empty() {
        let message = "You must specify at least one part.";
        return Err(S3Error::new(ErrorCode::MalformedXml, message));
    }
    if !listed.is_sorted_by(|one, other| one.number < other.number) {
        let message = "The list of parts was not in ascending order. Parts must be ordered by part number.";
        return Err(S3Error::new(ErrorCode::InvalidPartOrder, message));
    }
    let other = |number| {
        let message = format!(
            "Part {number} could not be found, or its entity tag or checksum is not that of the part that was uploaded."
        );
        S3Error::new(ErrorCode::InvalidPart, message)
    };
    let parts: Vec<_> = listed
        .iter()
        .map(|listed| find(listed, uploaded).ok_or_else(|| other(listed.number)))
        .collect::<Result<_, _>>()?;
    let (_, but_last) = parts.split_last().expect("the list is not empty");
    match but_last.iter().find(|part| part.size_bytes < PART_BYTES_MIN) {
        Some(small) => {
            let number = small.number;
            let message =
                format!("Your proposed upload is smaller than the minimum allowed size: part {number}.");
            Err(S3Error::new(ErrorCode::EntityTooSmall, message))
        }
        None => Ok(parts),
    }
}

fn find(listed: &ListedPart, uploaded: &[Arc<Part>]) -> Option<Arc<Part>> {
    let at = uploaded
        .binary_search_by_key(&listed.number, |part| part.number)
        .ok()?;
    let part = &uploaded[at];
    let is_same_etag = part.etag().trim_matches('"') == listed.etag.trim_matches('"');
    let is_same_checksum = match (&listed.checksum, &part.checksum) {
        (Some(listed), Some(known)) if listed.algorithm == known.algorithm => listed == known,
        _ => true,
    };
    (is_same_etag && is_same_checksum).then(|| Arc::clone(part))
}

/// Returns the record of the object that an upload makes of these parts.
pub(in crate::dirty) fn record_of(upload: &Upload, parts: &[Arc<Part>]) -> Record {
    let with_bytes = parts.iter().filter(|part| part.size_bytes > 0);
    let pieces = with_bytes.map(|part| part.digests.clone()).collect();
    let sums = parts.iter().map(|part| {
        let checksum = part.checksum.as_ref();
        (part.md5, checksum.map_or(&[][..], |checksum| &checksum.digest))
    });
    Record {
        writer: Arc::clone(&upload.writer),
        etag: etag(parts).into(),
        modified: clock::utc_now(),
        headers: upload.headers.clone(),
        of_reads: checksums(upload, parts),
        part_layout: PartLayout::from_parts(parts.iter().map(|part| (part.number, part.size_bytes))),
        acknowledged: Acknowledged::new(pieces, &sums.collect::<Vec<_>>()),
    }
}

/// Returns the ETag of an object made of these parts: the MD5 of their MD5s, and the number of parts.
fn etag(parts: &[Arc<Part>]) -> String {
    etag::of_parts(parts.iter().map(|part| part.md5))
}

/// Returns the checksum headers of an object made of these parts.
fn checksums(upload: &Upload, parts: &[Arc<Part>]) -> HeaderMap {
    let digests = parts.iter().map(|part| {
        let checksum = part.checksum.as_ref()?;
        Some((&checksum.digest[..], part.size_bytes))
    });
    let digests: Option<Vec<_>> = digests.collect();
    let headers = upload.checksum_spec().zip(digests);
    let headers = headers.map(|(spec, digests)| spec.headers_of_object(&digests));
    headers.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shoal_s3::payload::Algorithm;

    use super::super::part::tests::{part, uploaded};
    use super::{ListedPart, etag, select};
    use crate::dirty::Checksum;

    fn listed(number: u16, digit: &str) -> ListedPart {
        ListedPart {
            number,
            etag: digit.repeat(32),
            checksum: None,
        }
    }

    #[test]
    fn a_list_is_held_against_what_was_uploaded() {
        let numbers = |list: &[ListedPart]| {
            let selected = select(list, &uploaded()).map_err(|error| error.to_string());
            selected.map(|parts| parts.iter().map(|part| part.number).collect::<Vec<_>>())
        };
        let refused = |list: &[ListedPart], code: &str, detail: &str| {
            let error = numbers(list).unwrap_err();
            assert!(error.starts_with(code) && error.contains(detail), "{error}");
        };
        let (one, two, four) = (listed(1, "a"), listed(2, "b"), listed(4, "c"));
        assert_eq!(
            numbers(&[one.clone(), four.clone()]),
            Ok(vec![1, 4]),
            "others are left out"
        );
        assert_eq!(
            numbers(&[one.clone(), two.clone()]),
            Ok(vec![1, 2]),
            "the last one may be small"
        );
        refused(&[one.clone(), two, four.clone()], "EntityTooSmall: ", ": part 2.");
        refused(&[four, one.clone()], "InvalidPartOrder: ", "");
        refused(&[one.clone(), one.clone()], "InvalidPartOrder: ", "");
        refused(&[listed(3, "a")], "InvalidPart: ", "Part 3 could not be found");
        refused(&[listed(1, "b")], "InvalidPart: ", "Part 1 could not be found");
        refused(&[], "MalformedXML: ", "at least one part");
        let mut quoted = one;
        quoted.etag = format!("\"{}\"", quoted.etag);
        assert_eq!(numbers(&[quoted]), Ok(vec![1]));
    }

    #[test]
    fn a_checksum_that_is_listed_must_be_that_of_the_part() {
        let with = |digest: u8| ListedPart {
            checksum: Some(Checksum {
                algorithm: Algorithm::Crc32,
                digest: vec![0, 0, 0, digest],
            }),
            ..listed(1, "a")
        };
        assert!(select(&[with(1)], &uploaded()).is_ok());
        let error = select(&[with(2)], &uploaded()).unwrap_err();
        assert!(error.message.starts_with("Part 1 could not be found"), "{error}");
    }

    #[test]
    fn the_etag_is_the_md5_of_the_md5s_and_their_number() {
        // md5sum of sixteen bytes 0xaa and sixteen 0xcc
        let parts = [part(1, 0xaa, 1), part(4, 0xcc, 1)].map(Arc::new);
        assert_eq!(etag(&parts), "\"77549e87687787edcb25f531fdce533a-2\"");
    }
}
