//! Parses a page of the lake's listing into entries, and serializes it. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use shoal_s3::xml::{Document, Element, Malformed};

/// Number of entries on an S3 page if the client asks for no number.
pub(crate) const MOST: usize = 1000;

/// The characters that S3 percent-encodes in a listing with `encoding-type=url`.
const URL_SAFE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'*')
    .remove(b'/');

/// The element names in one kind of listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListingFormat {
    /// The root element.
    root: &'static str,
    /// The element that holds an entry.
    entry: &'static str,
    /// The element that holds the page's maximum number of entries.
    most: &'static str,
    /// The elements that delimit the page. A merged page gets new ones.
    limits: &'static [&'static str],
}

pub(super) const OBJECTS: ListingFormat = ListingFormat {
    root: "ListBucketResult",
    entry: "Contents",
    most: "MaxKeys",
    limits: &[
        "NextMarker",
        "NextContinuationToken",
        "ContinuationToken",
        "KeyCount",
        "StartAfter",
    ],
};

/// Of a bucket that keeps no versions: it has one version of each name.
pub(super) const VERSIONS: ListingFormat = ListingFormat {
    root: "ListVersionsResult",
    entry: "Version",
    most: "MaxKeys",
    limits: &[
        "KeyMarker",
        "VersionIdMarker",
        "NextKeyMarker",
        "NextVersionIdMarker",
    ],
};

pub(super) const UPLOADS: ListingFormat = ListingFormat {
    root: "ListMultipartUploadsResult",
    entry: "Upload",
    most: "MaxUploads",
    limits: &[
        "KeyMarker",
        "UploadIdMarker",
        "NextKeyMarker",
        "NextUploadIdMarker",
    ],
};

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key, or the common prefix.
    pub(super) name: Vec<u8>,
    /// True if the entry is a common prefix.
    pub(super) is_prefix: bool,
    /// The element, with all that the lake put into it.
    pub(super) element: Element,
}

impl Entry {
    /// Returns the text of the first child with this name.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.element.text_of(name)
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListPage {
    format: &'static ListingFormat,
    /// The root element, without its children.
    root: Element,
    /// The children that are not entries, including unknown ones.
    rest: Vec<Element>,
    /// The names and texts of the elements that delimit the lake's page.
    limits: Vec<(String, String)>,
    /// The entries, ordered by name if the lake orders them.
    pub(super) entries: Vec<Entry>,
    /// True if the lake has more entries after the last one.
    pub(super) is_truncated: bool,
    /// True if names are percent-encoded.
    pub(super) is_encoded: bool,
}

impl ListPage {
    /// Parses a page. Fails if the document is not one.
    pub(super) fn parse(format: &'static ListingFormat, xml: &[u8]) -> Result<Self, Malformed> {
        let document = Document::parse(xml)?;
        let (tag, mut reader) = document.answer()?;
        if tag.name() != format.root {
            return Err(Malformed);
        }
        let mut page = Self {
            format,
            root: tag.to_element()?,
            rest: Vec::new(),
            limits: Vec::new(),
            entries: Vec::new(),
            is_truncated: false,
            is_encoded: false,
        };
        let mut lines = Vec::new();
        while let Some(tag) = reader.child()? {
            let element = reader.element(&tag)?;
            match tag.name() {
                "CommonPrefixes" => lines.push((element, "Prefix")),
                name if name == format.entry => lines.push((element, "Key")),
                "IsTruncated" => page.is_truncated = element.text().trim() == "true",
                name if format.limits.contains(&name) => page.limits.push((name.into(), element.text())),
                name => {
                    page.is_encoded |= name == "EncodingType" && element.text().trim() == "url";
                    page.rest.push(element);
                }
            }
        }
        reader.end()?;
        for (element, inner) in lines {
            page.add(element, inner)?;
        }
        page.entries = in_order(page.entries);
        Ok(page)
    }

    /// Adds an entry for each `inner` child of an element: an element may hold several prefixes.
    fn add(&mut self, element: Element, inner: &str) -> Result<(), Malformed> {
        let names = element.children().filter(|child| child.name() == inner);
        let names: Vec<_> = names.map(|name| self.decode(&name.text())).collect();
        let is_prefix = inner == "Prefix";
        match &names[..] {
            [name] => self.entries.push(Entry {
                name: name.clone(),
                is_prefix,
                element,
            }),
            [_, ..] if is_prefix => {
                let groups = names.iter().map(|name| self.group(name));
                let groups: Vec<_> = groups.collect();
                self.entries.extend(groups);
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }

    /// Returns an entry for a common prefix.
    pub(super) fn group(&self, prefix: &[u8]) -> Entry {
        let element = Element::new("CommonPrefixes").with_leaf("Prefix", self.encode(prefix));
        Entry {
            name: prefix.into(),
            is_prefix: true,
            element: self.element(element),
        }
    }

    /// Returns the element in the namespace of this page.
    pub(super) fn element(&self, element: Element) -> Element {
        element.inside(&self.root)
    }

    /// Returns the maximum number of entries, as the lake understood the request.
    pub(super) fn most(&self) -> Option<usize> {
        let most = self
            .rest
            .iter()
            .find(|element| element.name() == self.format.most)?;
        most.text().trim().parse().ok()
    }

    /// Replaces the text of an element that repeats the request, if the page has it.
    pub(super) fn repeat(&mut self, name: &str, text: &str) {
        for element in &mut self.rest {
            if element.name() == name {
                *element = Element::leaf(name, text).inside(&self.root);
            }
        }
    }

    /// Returns the text of an element that delimits the lake's page.
    pub(super) fn limit(&self, name: &str) -> Option<&str> {
        let (_, text) = self.limits.iter().find(|(limit, _)| limit == name)?;
        Some(text)
    }

    /// Encodes a name as this page does.
    pub(super) fn encode(&self, name: &[u8]) -> String {
        if self.is_encoded {
            percent_encode(name, URL_SAFE).to_string()
        } else {
            String::from_utf8_lossy(name).into_owned()
        }
    }

    /// Inverse of [`ListPage::encode`].
    pub(super) fn decode(&self, text: &str) -> Vec<u8> {
        if self.is_encoded {
            // S3 encodes a space as a plus sign.
            percent_decode(text.replace('+', " ").as_bytes()).collect()
        } else {
            text.as_bytes().into()
        }
    }

    /// Serializes the page, with `endings` as the elements that delimit it.
    pub(super) fn write(&self, endings: &[(&str, String)]) -> String {
        let endings = endings
            .iter()
            .map(|(name, text)| self.element(Element::leaf(name, text)));
        let lines = |is_prefix| {
            let lines = self
                .entries
                .iter()
                .filter(move |entry| entry.is_prefix == is_prefix);
            lines.map(|entry| entry.element.clone())
        };
        self.root
            .clone()
            .with_all(self.rest.iter().cloned())
            .with_all(endings)
            .with_all(lines(false))
            .with_all(lines(true))
            .to_document()
    }
}

/// Merges keys and prefixes, which a page lists separately, keeping the lake's order in each.
fn in_order(entries: Vec<Entry>) -> Vec<Entry> {
    let (prefixes, keys): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.is_prefix);
    let mut all = Vec::with_capacity(prefixes.len() + keys.len());
    let mut prefixes = prefixes.into_iter().peekable();
    for key in keys {
        while let Some(prefix) = prefixes.next_if(|prefix| prefix.name < key.name) {
            all.push(prefix);
        }
        all.push(key);
    }
    all.extend(prefixes);
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{ListPage, OBJECTS};

    const PAGE: &str = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3\"><Name>b</Name><Prefix/>\
        <MaxKeys>2</MaxKeys><IsTruncated>true</IsTruncated>\n  <Contents><Key>b&amp;c</Key><ETag>&quot;e&quot;</ETag>\
        <Size>1</Size><Owner><ID>o</ID></Owner></Contents><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>\
        <NextContinuationToken>t</NextContinuationToken></ListBucketResult>";

    #[test]
    fn a_page_is_taken_apart_and_put_together_again() {
        let mut page = ListPage::parse(&OBJECTS, PAGE.as_bytes()).unwrap();
        let names: Vec<_> = page
            .entries
            .iter()
            .map(|entry| (&entry.name[..], entry.is_prefix))
            .collect();
        assert_eq!(names, [(&b"a/"[..], true), (&b"b&c"[..], false)]);
        assert!(page.is_truncated && page.most() == Some(2));
        let again = page.write(&[("IsTruncated", "true".into())]);
        let limits = vec![("NextContinuationToken".to_owned(), "t".to_owned())];
        assert_eq!(page.limits, limits);
        page.limits.clear();
        assert_eq!(ListPage::parse(&OBJECTS, again.as_bytes()).ok(), Some(page));
        assert!(
            !again.contains("NextContinuationToken"),
            "the end of the page is written again"
        );
    }

    #[test]
    fn names_that_are_percent_encoded_are_compared_as_they_are() {
        let xml = "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a%2Bb+c/%FF</Key></Contents></ListBucketResult>";
        let page = ListPage::parse(&OBJECTS, xml.as_bytes()).unwrap();
        assert_eq!(page.entries[0].name, b"a+b c/\xff");
        assert_eq!(page.encode(b"a+b/\xff"), "a%2Bb/%FF");
    }

    #[test]
    fn a_document_that_is_no_listing_is_refused() {
        for xml in [
            "",
            "<Error><Code>NoSuchBucket</Code></Error>",
            "<ListBucketResult>",
            "<ListBucketResult><Contents><Key>a</Key>",
            "<ListBucketResult>text</ListBucketResult>",
            "<ListBucketResult><Contents></Contents></ListBucketResult>",
        ] {
            assert_eq!(ListPage::parse(&OBJECTS, xml.as_bytes()).ok(), None, "{xml}");
        }
    }

    #[test]
    fn elements_that_a_lake_adds_to_its_pages_stay_on_them() {
        let xml = "<l:ListBucketResult xmlns:l='u'><l:New a=\"b\">n<!-- c --></l:New><l:Contents><l:Key>k<![CDATA[&]]></l:Key>\
            <l:RestoreStatus><l:IsRestoreInProgress>false</l:IsRestoreInProgress></l:RestoreStatus></l:Contents>\
            <l:CommonPrefixes><l:Prefix>a/</l:Prefix><l:Prefix>b/</l:Prefix></l:CommonPrefixes></l:ListBucketResult>";
        let page = ListPage::parse(&OBJECTS, xml.as_bytes()).unwrap();
        let names: Vec<_> = page.entries.iter().map(|entry| &entry.name[..]).collect();
        assert_eq!(names, [&b"a/"[..], b"b/", b"k&"]);
        let again = page.write(&[("KeyCount", "3".into())]);
        for part in [
            "<l:New a=\"b\">n</l:New>",
            "<l:Key>k&amp;</l:Key><l:RestoreStatus><l:IsRestoreInProgress>false</l:IsRestoreInProgress></l:RestoreStatus>",
            "<KeyCount xmlns=\"u\">3</KeyCount>",
            "<CommonPrefixes xmlns=\"u\"><Prefix>b/</Prefix></CommonPrefixes>",
        ] {
            assert!(again.contains(part), "{again}");
        }
        let read = ListPage::parse(&OBJECTS, again.as_bytes()).unwrap();
        assert_eq!(read.limit("KeyCount"), Some("3"));
        assert_eq!(read.entries, page.entries);
    }

    proptest! {
        #[test]
        fn any_text_is_a_page_or_refused(text in "(<ListBucketResult>)?(<[A-Za-z]{0,9}/?>|</[A-Za-z]{1,9}>|[a-z&;]{0,4}){0,9}(</ListBucketResult>)?") {
            let _ = ListPage::parse(&OBJECTS, text.as_bytes());
        }
    }
}
