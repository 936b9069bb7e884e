//! One page of a bucket's objects, as a lake lists them.

use std::time::SystemTime;

use percent_encoding::percent_decode;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Document, Element, Malformed};

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects, in the order of the page.
    pub objects: Vec<ListedObject>,
    /// True if the lake says that more objects follow; `None` if it does not say.
    pub is_truncated: Option<bool>,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// The key, decoded.
    pub key: Vec<u8>,
    /// The ETag as the lake wrote it, mostly with quotes; empty if the lake names none.
    pub etag: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The time of its last change, if the lake names one.
    pub last_modified: Option<SystemTime>,
    /// True if the lake does not have it yet. No listing of a lake says so; a tier adds such objects.
    pub is_dirty: bool,
}

impl Listing {
    /// Reads a page, which may have its keys percent-encoded (`encoding-type=url`) and says so.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the document is not a listing, or promises more after no object.
    pub fn read(xml: &[u8]) -> Result<Self, Malformed> {
        let document = Document::parse(xml)?;
        let (tag, mut reader) = document.answer()?;
        if tag.name() != "ListBucketResult" {
            return Err(Malformed);
        }
        let (mut contents, mut is_encoded, mut is_truncated) = (Vec::new(), false, None);
        while let Some(tag) = reader.child()? {
            let element = reader.element(&tag)?;
            match tag.name() {
                "Contents" => contents.push(element),
                "EncodingType" => is_encoded = element.text().trim() == "url",
                "IsTruncated" => is_truncated = Some(element.text().trim() == "true"),
                _ => {}
            }
        }
        reader.end()?;
        // A listing that goes on after nothing would go on for ever.
        if is_truncated == Some(true) && contents.is_empty() {
            return Err(Malformed);
        }
        let objects = contents
            .iter()
            .map(|element| ListedObject::parse(element, is_encoded));
        Ok(Self {
            objects: objects.collect::<Result<_, _>>()?,
            is_truncated,
        })
    }
}

impl ListedObject {
    fn parse(element: &Element, is_encoded: bool) -> Result<Self, Malformed> {
        let key = element.text_of("Key").ok_or(Malformed)?;
        let key = if is_encoded {
            // S3 writes a space as a plus sign.
            percent_decode(key.replace('+', " ").as_bytes()).collect()
        } else {
            key.into_bytes()
        };
        let size_bytes = element.text_of("Size").ok_or(Malformed)?;
        let last_modified = element.text_of("LastModified");
        let last_modified = last_modified.and_then(|time| OffsetDateTime::parse(time.trim(), &Rfc3339).ok());
        Ok(Self {
            key,
            etag: element.text_of("ETag").unwrap_or_default(),
            size_bytes: size_bytes.trim().parse().map_err(|_| Malformed)?,
            last_modified: last_modified.map(Into::into),
            is_dirty: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{ListedObject, Listing};
    use crate::xml::Malformed;

    fn read(inside: &str) -> Result<Vec<ListedObject>, Malformed> {
        let page = format!("<?xml version=\"1.0\"?><ListBucketResult>{inside}</ListBucketResult>");
        Listing::read(page.as_bytes()).map(|listing| listing.objects)
    }

    #[test]
    fn keys_of_any_bytes_are_read() {
        let contents = "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><Contents>\
            <Key>a+b%2B%0A%ff%2Fc</Key><LastModified>1970-01-02T00:00:00.000Z</LastModified>\
            <ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>";
        let expected = ListedObject {
            key: b"a b+\n\xff/c".into(),
            etag: "\"e\"".into(),
            size_bytes: 7,
            last_modified: Some(UNIX_EPOCH + Duration::from_hours(24)),
            is_dirty: false,
        };
        assert_eq!(read(contents), Ok(vec![expected]));
        let plain = read("<Contents><Key>a+b%2B</Key><Size> 0 </Size></Contents>").unwrap();
        assert_eq!((&*plain[0].key, &*plain[0].etag), (&b"a+b%2B"[..], ""));
    }

    #[test]
    fn a_lake_need_not_say_when_an_object_changed_or_whether_more_follow() {
        let page = |inside: &str| {
            let page = format!("<ListBucketResult>{inside}</ListBucketResult>");
            Listing::read(page.as_bytes()).unwrap()
        };
        assert_eq!(page("").is_truncated, None);
        assert_eq!(page("<IsTruncated>false</IsTruncated>").is_truncated, Some(false));
        for time in ["", "<LastModified>now</LastModified>"] {
            let contents = format!("<Contents><Key>a</Key>{time}<Size>1</Size></Contents>");
            assert_eq!(page(&contents).objects[0].last_modified, None, "{time}");
        }
    }

    #[test]
    fn a_page_that_cannot_be_believed_is_refused() {
        for inside in [
            "<IsTruncated>true</IsTruncated>",
            "<Contents><Key>a</Key></Contents>",
            "<Contents><Size>1</Size></Contents>",
            "<Contents><Key>a</Key><Size>-1</Size></Contents>",
            "text",
        ] {
            assert_eq!(read(inside), Err(Malformed), "{inside}");
        }
        assert!(Listing::read(b"<Error/>").is_err());
        assert!(Listing::read(b"<html>").is_err());
    }
}
