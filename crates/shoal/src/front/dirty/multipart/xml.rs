//! What is read and written about uploads, as S3 spells it. Pure.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::dirty::{
    Checksum, Completed, ListedPart, Part, Upload, UploadId, described, element_name, escape, unescape,
};
use crate::encoding::Malformed;
use crate::front::access_log::rfc3339;
use crate::front::operation::Query;
use crate::front::payload::Algorithm;
use crate::object::ObjectName;

const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// S3 shows no more parts at a time.
const PAGE_PARTS_MAX: usize = 1000;

/// The list that completes an upload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListedParts(pub(super) Vec<ListedPart>);

/// Which parts are to be shown.
pub(super) struct PartPage {
    marker: u16,
    most: usize,
}

/// The answer that begins an upload.
pub(super) fn begun(name: &ObjectName, id: UploadId) -> String {
    let named = named(name);
    format!(
        "{DECLARATION}<InitiateMultipartUploadResult {NAMESPACE}>{named}<UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
    )
}

/// The answer to a part that was copied.
pub(super) fn copied(part: &Part) -> String {
    let modified = part.version.last_modified.map(rfc3339).unwrap_or_default();
    let checksum = part.checksum().map(|checksum| checksum.element());
    format!(
        "{DECLARATION}<CopyPartResult {NAMESPACE}><LastModified>{modified}</LastModified><ETag>{}</ETag>{}</CopyPartResult>",
        escape(&part.version.etag),
        checksum.unwrap_or_default(),
    )
}

/// The answer that completes one.
pub(super) fn completed(name: &ObjectName, location: &str, completed: &Completed) -> String {
    let mut checksums = String::new();
    for (header, value) in &completed.checksums {
        let element = match Algorithm::of_header(header.as_str()) {
            Some(algorithm) => element_name(algorithm),
            None => "ChecksumType".into(),
        };
        let value = escape(value.to_str().unwrap_or_default());
        let _ = write!(checksums, "<{element}>{value}</{element}>");
    }
    format!(
        "{DECLARATION}<CompleteMultipartUploadResult {NAMESPACE}><Location>{}</Location>{}<ETag>{}</ETag>{checksums}</CompleteMultipartUploadResult>",
        escape(location),
        named(name),
        escape(&completed.etag),
    )
}

fn named(name: &ObjectName) -> String {
    let key = escape(&String::from_utf8_lossy(&name.key));
    format!("<Bucket>{}</Bucket><Key>{key}</Key>", escape(&name.bucket))
}

impl ListedParts {
    /// Reads the body of the request; `None`: it is no such list.
    pub(super) fn parse(xml: &str) -> Option<Self> {
        let is_list = xml.contains("<CompleteMultipartUpload") && xml.contains("</CompleteMultipartUpload>");
        let parts = xml.split("<Part>").skip(1).map(|rest| {
            let (part, _) = rest.split_once("</Part>")?;
            Some(ListedPart {
                number: text(part, "PartNumber")?.trim().parse().ok()?,
                etag: text(part, "ETag")?.trim().into(),
                checksum: checksum(part).ok()?,
            })
        });
        let parts = parts.collect::<Option<_>>()?;
        is_list.then_some(Self(parts))
    }
}

/// The checksum that an element names, if it names one. Errors: what it names is no checksum.
fn checksum(element: &str) -> Result<Option<Checksum>, Malformed> {
    for algorithm in Algorithm::CHECKSUMS {
        if let Some(value) = text(element, &element_name(algorithm)) {
            let digest = algorithm.parse(value.trim().as_bytes()).ok_or(Malformed)?;
            return Ok(Some(Checksum { algorithm, digest }));
        }
    }
    Ok(None)
}

fn text(element: &str, name: &str) -> Option<String> {
    let (_, rest) = element.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(unescape(text))
}

impl PartPage {
    /// Reads the question; `None`: it makes no sense.
    pub(super) fn parse(query: &Query) -> Option<Self> {
        let marker = query
            .get("part-number-marker")
            .filter(|marker| !marker.is_empty());
        let most = query.get("max-parts").filter(|most| !most.is_empty());
        Some(Self {
            marker: marker.map_or(Some(0), |marker| marker.parse().ok())?,
            most: most.map_or(Some(PAGE_PARTS_MAX), |most| most.parse().ok())?,
        })
    }

    /// The parts behind the marker, as many as fit.
    pub(super) fn write(&self, upload: &Upload, uploaded: &[Arc<Part>]) -> String {
        let behind = uploaded.partition_point(|part| part.number <= self.marker);
        let most = self.most.min(PAGE_PARTS_MAX);
        let shown: Vec<_> = uploaded[behind..].iter().take(most).collect();
        let is_truncated = behind + shown.len() < uploaded.len();
        let last = shown.last().map_or(self.marker, |part| part.number);
        let mut xml = format!(
            "{DECLARATION}<ListPartsResult {NAMESPACE}>{}{}<PartNumberMarker>{}</PartNumberMarker><NextPartNumberMarker>{last}</NextPartNumberMarker>\
             <MaxParts>{most}</MaxParts><IsTruncated>{is_truncated}</IsTruncated>",
            named(&upload.name),
            described(upload),
            self.marker,
        );
        for part in shown {
            write_part(&mut xml, part);
        }
        xml.push_str("</ListPartsResult>");
        xml
    }
}

fn write_part(xml: &mut String, part: &Part) {
    let modified = part.version.last_modified.map(rfc3339).unwrap_or_default();
    let checksum = part.checksum().map(|checksum| checksum.element());
    let _ = write!(
        xml,
        "<Part><PartNumber>{}</PartNumber><LastModified>{modified}</LastModified><ETag>{}</ETag><Size>{}</Size>{}</Part>",
        part.number,
        escape(&part.version.etag),
        part.size_bytes(),
        checksum.unwrap_or_default(),
    );
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::proptest;

    use super::{ListedParts, completed};
    use crate::dirty::{Completed, ListedPart};
    use crate::object::ObjectName;

    #[test]
    fn a_list_is_read_in_the_spellings_of_clients() {
        let xml = "<CompleteMultipartUpload xmlns=\"x\">\n <Part><ETag>&quot;e1&quot;</ETag><PartNumber>1</PartNumber></Part>\
            <Part>\n<PartNumber> 2 </PartNumber><ETag>e2</ETag><ChecksumCRC32>AAAAAQ==</ChecksumCRC32></Part></CompleteMultipartUpload>";
        let ListedParts(parts) = ListedParts::parse(xml).unwrap();
        let first = ListedPart {
            number: 1,
            etag: "\"e1\"".into(),
            checksum: None,
        };
        assert_eq!(parts[0], first);
        assert_eq!((parts[1].number, &*parts[1].etag), (2, "e2"));
        assert_eq!(parts[1].checksum.as_ref().unwrap().digest, [0, 0, 0, 1]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for xml in [
            "",
            "<Delete></Delete>",
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
            "<CompleteMultipartUpload><Part><PartNumber>x</PartNumber><ETag>e</ETag></Part></CompleteMultipartUpload>",
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>e</ETag><ChecksumCRC32>!</ChecksumCRC32></Part></CompleteMultipartUpload>",
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>e</ETag>",
        ] {
            assert_eq!(ListedParts::parse(xml), None, "{xml}");
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
        let xml = completed(&name, "http://h/b/a%3Cb", &of);
        for part in [
            "<Key>a&lt;b</Key>",
            "<ETag>&quot;e-2&quot;</ETag>",
            "<ChecksumCRC32>AAAAAA==-2</ChecksumCRC32>",
            "<ChecksumType>COMPOSITE</ChecksumType>",
        ] {
            assert!(xml.contains(part), "{xml}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_refused(text in "(<CompleteMultipartUpload>)?(<(Part|PartNumber|ETag)>|</(Part|PartNumber|ETag)>|[a-z0-9&;]{0,4}){0,9}(</CompleteMultipartUpload>)?") {
            let _ = ListedParts::parse(&text);
        }
    }
}
