//! The XML of requests and responses about uploads, as S3 defines it. Pure.

use std::sync::Arc;

use http::HeaderMap;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Query;
use shoal_s3::payload::Algorithm;
use shoal_s3::time::rfc3339;
use shoal_s3::xml::{Completion, Element, Malformed};

use crate::dirty::{Checksum, Completed, ListedPart, Part, Upload, UploadId, element_name};
use crate::listing::described;

/// The largest number of parts on a page in S3.
const PAGE_PARTS_MAX: usize = 1000;

/// Returns the response to `CreateMultipartUpload`.
pub(super) fn begun(name: &ObjectName, id: UploadId) -> Element {
    Element::root("InitiateMultipartUploadResult")
        .with_all(named(name))
        .with_leaf("UploadId", id.to_string())
}

/// Returns the response to `UploadPartCopy`.
pub(super) fn copied(part: &Part) -> Element {
    Element::root("CopyPartResult").with_all(elements_of(part))
}

/// Returns the response to `CompleteMultipartUpload`.
pub(super) fn completed(name: &ObjectName, location: &str, completed: &Completed) -> Element {
    Element::root("CompleteMultipartUploadResult")
        .with_leaf("Location", location)
        .with_all(named(name))
        .with_leaf("ETag", &completed.etag)
        .with_all(checksum_elements(&completed.checksums))
}

/// Returns an XML element for each checksum header of an object.
pub(crate) fn checksum_elements(headers: &HeaderMap) -> Vec<Element> {
    let checksums = headers.iter().filter_map(|(header, value)| {
        let element = match Algorithm::of_header(header.as_str()) {
            Some(algorithm) => element_name(algorithm),
            None if header == "x-amz-checksum-type" => "ChecksumType".into(),
            None => return None,
        };
        Some(Element::leaf(&element, value.to_str().unwrap_or_default()))
    });
    checksums.collect()
}

fn named(name: &ObjectName) -> [Element; 2] {
    [
        Element::leaf("Bucket", &name.bucket),
        Element::leaf("Key", &String::from_utf8_lossy(&name.key)),
    ]
}

/// Parses the list of parts in a completion.
pub(super) fn listed(body: &[u8]) -> Result<Vec<ListedPart>, Malformed> {
    let read = Completion::read(body)?.parts.into_iter().map(|part| {
        let checksum = part.checksum.map(|(name, text)| read_checksum(&name, &text));
        Ok(ListedPart {
            number: part.number,
            etag: part.etag,
            checksum: checksum.transpose()?,
        })
    });
    read.collect()
}

fn read_checksum(name: &str, text: &str) -> Result<Checksum, Malformed> {
    let mut known = Algorithm::CHECKSUMS.into_iter();
    let algorithm = known.find(|algorithm| element_name(*algorithm) == name);
    let algorithm = algorithm.ok_or(Malformed)?;
    let digest = algorithm.parse(text.as_bytes()).ok_or(Malformed)?;
    Ok(Checksum { algorithm, digest })
}

/// Returns the page of an upload's parts that a query asks for: those behind its marker, at most its number.
/// Returns `None` if a value of the query is not a number.
pub(super) fn listed_parts(query: &Query, upload: &Upload, uploaded: &[Arc<Part>]) -> Option<Element> {
    let text = |name| query.get(name).filter(|text| !text.is_empty());
    let marker = text("part-number-marker").map_or(Some(0), |marker| marker.parse().ok())?;
    let most = text("max-parts").map_or(Some(PAGE_PARTS_MAX), |most| most.parse().ok())?;
    let behind = uploaded.partition_point(|part| part.number <= marker);
    let most = most.min(PAGE_PARTS_MAX);
    let shown: Vec<_> = uploaded[behind..].iter().take(most).collect();
    let is_truncated = behind + shown.len() < uploaded.len();
    let last = shown.last().map_or(marker, |part| part.number);
    let parts = shown.into_iter().map(|part| {
        Element::new("Part")
            .with_leaf("PartNumber", part.number.to_string())
            .with_leaf("Size", part.size_bytes.to_string())
            .with_all(elements_of(part))
    });
    let page = Element::root("ListPartsResult")
        .with_all(named(&upload.name))
        .with_all(described(upload))
        .with_leaf("PartNumberMarker", marker.to_string())
        .with_leaf("NextPartNumberMarker", last.to_string())
        .with_leaf("MaxParts", most.to_string())
        .with_leaf("IsTruncated", is_truncated.to_string())
        .with_all(parts);
    Some(page)
}

/// Returns the elements that describe the bytes of a part.
fn elements_of(part: &Part) -> Vec<Element> {
    let mut elements = vec![
        Element::leaf("LastModified", &rfc3339(part.modified)),
        Element::leaf("ETag", &part.etag()),
    ];
    elements.extend(part.checksum.as_ref().map(Checksum::element));
    elements
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use shoal_s3::object::ObjectName;

    use super::{completed, listed};
    use crate::dirty::{Completed, ListedPart};

    #[test]
    fn a_list_is_read_with_the_checksums_that_are_known() {
        let list = "<CompleteMultipartUpload><Part><ETag>\"e1\"</ETag><PartNumber>1</PartNumber></Part>\
            <Part><PartNumber>2</PartNumber><ETag>e2</ETag><ChecksumCRC32>AAAAAQ==</ChecksumCRC32></Part></CompleteMultipartUpload>";
        let parts = listed(list.as_bytes()).unwrap();
        let first = ListedPart {
            number: 1,
            etag: "\"e1\"".into(),
            checksum: None,
        };
        assert_eq!(parts[0], first);
        assert_eq!((parts[1].number, &*parts[1].etag), (2, "e2"));
        assert_eq!(parts[1].checksum.as_ref().unwrap().digest, [0, 0, 0, 1]);
        for (from, to) in [
            ("AAAAAQ==", "!"),
            ("ChecksumCRC32", "ChecksumCRC1"),
            ("ETag", "Tag"),
        ] {
            assert!(listed(list.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn the_answer_to_a_completion_escapes_what_it_tells() {
        let name = ObjectName {
            bucket: "b".into(),
            key: b"a<b".as_slice().into(),
            version: None,
        };
        let mut checksums = HeaderMap::new();
        checksums.insert("x-amz-checksum-crc32", "AAAAAA==-2".parse().unwrap());
        checksums.insert("x-amz-checksum-type", "COMPOSITE".parse().unwrap());
        let of = Completed {
            etag: "\"e-2\"".into(),
            checksums,
            through: "".into(),
        };
        let xml = completed(&name, "http://h/b/a%3Cb", &of).to_document();
        for part in [
            "<Key>a&lt;b</Key>",
            "<ETag>&quot;e-2&quot;</ETag>",
            "<ChecksumCRC32>AAAAAA==-2</ChecksumCRC32>",
            "<ChecksumType>COMPOSITE</ChecksumType>",
        ] {
            assert!(xml.contains(part), "{xml}");
        }
    }
}
