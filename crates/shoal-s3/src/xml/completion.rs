//! The list of parts that completes a multipart upload.

use super::{Document, Element, Malformed, Reader, set};

/// The highest part number in S3.
pub const PARTS_MAX: usize = 10_000;

/// The parts that a request lists, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// One entry for each element `Part`.
    pub parts: Vec<ListedPart>,
}

/// One part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPart {
    /// Its number.
    pub number: u16,
    /// Its ETag as the client sent it, with or without quotes.
    pub etag: String,
    /// Element name (such as `ChecksumCRC32`) and text of its checksum, if listed.
    pub checksum: Option<(String, String)>,
}

impl Completion {
    /// Parses the body of a request.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if this is not such a document, or if it lists more than [`PARTS_MAX`] parts.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let document = Document::parse(bytes)?;
        let mut reader = document.request("CompleteMultipartUpload")?;
        let mut parts = Vec::new();
        while let Some(tag) = reader.child()? {
            if tag.name() != "Part" || parts.len() == PARTS_MAX {
                return Err(Malformed);
            }
            parts.push(ListedPart::read(&mut reader)?);
        }
        reader.end()?;
        Ok(Self { parts })
    }

    /// The body of an equivalent request.
    pub fn write(&self) -> String {
        let parts = self.parts.iter().map(|part| {
            let element = Element::new("Part")
                .with_leaf("PartNumber", part.number.to_string())
                .with_leaf("ETag", &part.etag);
            let checksum = part.checksum.iter();
            element.with_all(checksum.map(|(name, text)| Element::leaf(name, text)))
        });
        Element::root("CompleteMultipartUpload")
            .with_all(parts)
            .to_document()
    }
}

impl ListedPart {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (mut number, mut etag, mut checksum) = (None, None, None);
        while let Some(tag) = reader.child()? {
            let text = reader.text()?;
            let text = text.trim();
            match tag.name() {
                "PartNumber" => set(&mut number, text.parse().map_err(|_| Malformed)?)?,
                "ETag" => set(&mut etag, text.into())?,
                // An empty element names nothing.
                name if name.starts_with("Checksum") && text.is_empty() => {}
                name if name.starts_with("Checksum") => set(&mut checksum, (name.into(), text.into()))?,
                _ => return Err(Malformed),
            }
        }
        Ok(Self {
            number: number.ok_or(Malformed)?,
            etag: etag.ok_or(Malformed)?,
            checksum,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Completion, ListedPart};

    fn part(number: u16, etag: &str, checksum: Option<&str>) -> ListedPart {
        ListedPart {
            number,
            etag: etag.into(),
            checksum: checksum.map(|text| ("ChecksumCRC32".into(), text.into())),
        }
    }

    #[test]
    fn a_list_is_read_in_the_spellings_of_clients() {
        let list = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n \
            <Part><ETag>&quot;e1&quot;</ETag><PartNumber>1</PartNumber></Part><Part>\n<PartNumber> 2 </PartNumber>\
            <ETag>e<!-- -->2</ETag><ChecksumSHA1/><ChecksumCRC32>AAAAAQ==</ChecksumCRC32></Part></CompleteMultipartUpload>";
        let parts = vec![part(1, "\"e1\"", None), part(2, "e2", Some("AAAAAQ=="))];
        assert_eq!(Completion::read(list.as_bytes()), Ok(Completion { parts }));
    }

    #[test]
    fn a_document_that_is_no_list_of_parts_is_refused() {
        let in_part = |inside: &str| {
            format!("<CompleteMultipartUpload><Part>{inside}</Part></CompleteMultipartUpload>")
        };
        let (number, etag) = ("<PartNumber>1</PartNumber>", "<ETag>e</ETag>");
        assert!(Completion::read(in_part(&format!("{number}{etag}")).as_bytes()).is_ok());
        for inside in [
            number.to_owned(),
            etag.to_owned(),
            format!("{number}{number}{etag}"),
            format!("{number}{etag}{etag}"),
            format!("{number}{etag}<Size>1</Size>"),
            format!("{etag}<PartNumber>x</PartNumber>"),
            format!("{etag}<PartNumber>65536</PartNumber>"),
            format!("{number}{etag}<ChecksumCRC32>a</ChecksumCRC32><ChecksumSHA1>b</ChecksumSHA1>"),
        ] {
            let list = in_part(&inside);
            assert!(Completion::read(list.as_bytes()).is_err(), "{list}");
        }
        for list in [
            "",
            "<Delete></Delete>",
            "<CompleteMultipartUpload><Part>",
            "<CompleteMultipartUpload>x</CompleteMultipartUpload>",
        ] {
            assert!(Completion::read(list.as_bytes()).is_err(), "{list}");
        }
    }

    proptest! {
        #[test]
        fn a_list_is_read_as_it_was_written(parts in proptest::collection::vec((any::<u16>(), "[!-~]{0,9}", proptest::option::of("[!-~]{1,9}")), 0..9)) {
            let parts = parts.iter().map(|(number, etag, checksum)| part(*number, etag, checksum.as_deref()));
            let list = Completion { parts: parts.collect() };
            prop_assert_eq!(Completion::read(list.write().as_bytes()), Ok(list));
        }
    }
}
