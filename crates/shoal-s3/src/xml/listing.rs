//! One page of a bucket's objects, as a lake lists them.

use percent_encoding::percent_decode;

use super::{Document, Element, Malformed};

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects, in the order of the page.
    pub objects: Vec<ListedObject>,
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
        let (mut contents, mut is_encoded, mut is_truncated) = (Vec::new(), false, false);
        while let Some(tag) = reader.child()? {
            let element = reader.element(&tag)?;
            match tag.name() {
                "Contents" => contents.push(element),
                "EncodingType" => is_encoded = element.text().trim() == "url",
                "IsTruncated" => is_truncated = element.text().trim() == "true",
                _ => {}
            }
        }
        reader.end()?;
        // A listing that goes on after nothing would go on for ever.
        if is_truncated && contents.is_empty() {
            return Err(Malformed);
        }
        let objects = contents
            .iter()
            .map(|element| ListedObject::parse(element, is_encoded));
        Ok(Self {
            objects: objects.collect::<Result<_, _>>()?,
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
        Ok(Self {
            key,
            etag: element.text_of("ETag").unwrap_or_default(),
            size_bytes: size_bytes.trim().parse().map_err(|_| Malformed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ListedObject, Listing};
    use crate::xml::Malformed;

    fn read(inside: &str) -> Result<Vec<ListedObject>, Malformed> {
        let page = format!("<?xml version=\"1.0\"?><ListBucketResult>{inside}</ListBucketResult>");
        Listing::read(page.as_bytes()).map(|listing| listing.objects)
    }

    #[test]
    fn keys_of_any_bytes_are_read() {
        let contents = "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><Contents>\
            <Key>a+b%2B%0A%ff/c</Key><ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>";
        let expected = ListedObject {
            key: b"a b+\n\xff/c".into(),
            etag: "\"e\"".into(),
            size_bytes: 7,
        };
        assert_eq!(read(contents), Ok(vec![expected]));
        let plain = read("<Contents><Key>a+b%2B</Key><Size> 0 </Size></Contents>").unwrap();
        assert_eq!((&*plain[0].key, &*plain[0].etag), (&b"a+b%2B"[..], ""));
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
