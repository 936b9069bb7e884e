//! One page of a listing as the lake gives it: taken apart into its entries, and put together again. Pure.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// What S3 leaves as it is in a listing with `encoding-type=url`.
const URL_SAFE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'*')
    .remove(b'/');

/// How one kind of listing spells its pages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spelling {
    /// The element that is the page.
    root: &'static str,
    /// Those that are its entries, by their keys.
    entry: &'static str,
    /// How many entries the lake was asked for.
    most: &'static str,
    /// Where the page begins and ends: whoever puts a page together says that anew.
    limits: &'static [&'static str],
}

pub(super) const OBJECTS: Spelling = Spelling {
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

pub(super) const UPLOADS: Spelling = Spelling {
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

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its key, or the prefix that it stands for.
    pub(super) name: Vec<u8>,
    /// Whether it stands for all keys that begin with its name.
    pub(super) is_prefix: bool,
    /// The element, as it stands in the page.
    pub(super) xml: String,
}

impl Entry {
    /// What stands in the first of its elements of this name.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let (_, rest) = self.xml.split_once(&format!("<{name}>"))?;
        let (text, _) = rest.split_once("</")?;
        Some(unescape(text))
    }
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListPage {
    spelling: &'static Spelling,
    /// Up to the first element.
    opening: String,
    /// Elements that are not entries, by name.
    rest: Vec<(String, String)>,
    /// What the lake says of where the page begins and ends: element and text.
    limits: Vec<(String, String)>,
    /// In the order of their names, as far as the lake keeps to that.
    pub(super) entries: Vec<Entry>,
    /// Whether the lake has more behind the last entry.
    pub(super) is_truncated: bool,
    /// Whether names are percent-encoded.
    pub(super) is_encoded: bool,
}

impl ListPage {
    /// Takes a page apart; `None` when it is not one.
    pub(super) fn parse(spelling: &'static Spelling, xml: &str) -> Option<Self> {
        let root = xml.find(&format!("<{}", spelling.root))?;
        let opening_end = root + xml[root..].find('>')? + 1;
        let mut page = Self {
            spelling,
            opening: xml[..opening_end].into(),
            rest: Vec::new(),
            limits: Vec::new(),
            entries: Vec::new(),
            is_truncated: false,
            is_encoded: xml.contains("<EncodingType>url</EncodingType>"),
        };
        let end = format!("</{}", spelling.root);
        let mut rest = xml[opening_end..].trim_start();
        while !rest.starts_with(&end) {
            let (name, element, behind) = element(rest)?;
            page.take(name, element)?;
            rest = behind.trim_start();
        }
        page.entries = in_order(page.entries);
        Some(page)
    }

    fn take(&mut self, name: &str, element: &str) -> Option<()> {
        let Spelling { entry, limits, .. } = self.spelling;
        match name {
            _ if name == *entry => self.add(element, "Key", false)?,
            "CommonPrefixes" => self.add(element, "Prefix", true)?,
            "IsTruncated" => self.is_truncated = content(element)?.trim() == "true",
            _ if limits.contains(&name) => self.limits.push((name.into(), content(element)?.into())),
            _ => self.rest.push((name.into(), element.into())),
        }
        Some(())
    }

    fn add(&mut self, element: &str, inner: &str, is_prefix: bool) -> Option<()> {
        let start = element.find(&format!("<{inner}>"))? + inner.len() + 2;
        let end = start + element[start..].find(&format!("</{inner}>"))?;
        self.entries.push(Entry {
            name: self.decode(&element[start..end]),
            is_prefix,
            xml: element.into(),
        });
        Some(())
    }

    /// The line that stands for all keys that begin with `prefix`.
    pub(super) fn group(&self, prefix: &[u8]) -> Entry {
        let shown = self.encode(prefix);
        Entry {
            name: prefix.into(),
            is_prefix: true,
            xml: format!("<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>"),
        }
    }

    /// The most entries that the lake was asked for, as it understood it.
    pub(super) fn most(&self) -> Option<usize> {
        let (_, element) = self.rest.iter().find(|(name, _)| name == self.spelling.most)?;
        content(element)?.trim().parse().ok()
    }

    /// What the lake says of where the page begins or ends, as it stands there.
    pub(super) fn limit(&self, name: &str) -> Option<&str> {
        let (_, text) = self.limits.iter().find(|(limit, _)| limit == name)?;
        Some(text)
    }

    /// A name as it stands in a page like this.
    pub(super) fn encode(&self, name: &[u8]) -> String {
        if self.is_encoded {
            percent_encode(name, URL_SAFE).to_string()
        } else {
            escape(&String::from_utf8_lossy(name))
        }
    }

    /// The pair of [`ListPage::encode`].
    pub(super) fn decode(&self, text: &str) -> Vec<u8> {
        let text = unescape(text);
        if self.is_encoded {
            // S3 writes a blank as a plus.
            percent_decode(text.replace('+', " ").as_bytes()).collect()
        } else {
            text.into_bytes()
        }
    }

    /// The page with these elements behind those that were kept.
    pub(super) fn write(&self, endings: &[(&str, String)]) -> String {
        let mut xml = self.opening.clone();
        for (_, element) in &self.rest {
            xml.push_str(element);
        }
        for (name, text) in endings {
            let _ = write!(xml, "<{name}>{text}</{name}>");
        }
        for is_prefix in [false, true] {
            for entry in self.entries.iter().filter(|entry| entry.is_prefix == is_prefix) {
                xml.push_str(&entry.xml);
            }
        }
        let _ = write!(xml, "</{}>", self.spelling.root);
        xml
    }
}

/// Keys and prefixes stand in runs of their own on a page. Either keeps its order, which is the lake's to know.
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

/// The first element of a text: its name, all of it, and what is behind it. No element of a listing holds one of its own name.
fn element(xml: &str) -> Option<(&str, &str, &str)> {
    let inside = xml.strip_prefix('<')?;
    let name_end = inside.find(|c: char| c == '>' || c == '/' || c.is_whitespace())?;
    let name = &inside[..name_end];
    let open_end = xml.find('>')? + 1;
    if name.is_empty() || xml[..open_end].ends_with("/>") {
        return (!name.is_empty()).then(|| (name, &xml[..open_end], &xml[open_end..]));
    }
    let close = format!("</{name}>");
    let end = xml.find(&close)? + close.len();
    Some((name, &xml[..end], &xml[end..]))
}

/// What stands between the tags of an element.
fn content(element: &str) -> Option<&str> {
    let start = element.find('>')? + 1;
    let end = element.rfind("</").unwrap_or(start);
    element.get(start..end)
}

/// A text as it stands between tags.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() => {
                let _ = write!(escaped, "&#{};", u32::from(control));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// The pair of [`escape`], for every spelling that XML knows.
pub fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let known = rest
            .find(';')
            .and_then(|end| Some((character(&rest[1..end])?, end)));
        if let Some((character, end)) = known {
            plain.push(character);
            rest = &rest[end + 1..];
        } else {
            plain.push('&');
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
    plain
}

fn character(reference: &str) -> Option<char> {
    Some(match reference {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        number => {
            let digits = number.strip_prefix('#')?;
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                None => digits.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{ListPage, OBJECTS, escape, unescape};

    const PAGE: &str = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3\"><Name>b</Name><Prefix/>\
        <MaxKeys>2</MaxKeys><IsTruncated>true</IsTruncated>\n  <Contents><Key>b&amp;c</Key><ETag>&quot;e&quot;</ETag>\
        <Size>1</Size><Owner><ID>o</ID></Owner></Contents><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>\
        <NextContinuationToken>t</NextContinuationToken></ListBucketResult>";

    #[test]
    fn a_page_is_taken_apart_and_put_together_again() {
        let mut page = ListPage::parse(&OBJECTS, PAGE).unwrap();
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
        assert_eq!(ListPage::parse(&OBJECTS, &again), Some(page));
        assert!(
            !again.contains("NextContinuationToken"),
            "the end of the page is said anew"
        );
    }

    #[test]
    fn names_that_are_percent_encoded_are_compared_as_they_are() {
        let xml = "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a%2Bb+c/%FF</Key></Contents></ListBucketResult>";
        let page = ListPage::parse(&OBJECTS, xml).unwrap();
        assert_eq!(page.entries[0].name, b"a+b c/\xff");
        assert_eq!(page.encode(b"a+b/\xff"), "a%2Bb/%FF");
    }

    #[test]
    fn what_is_no_listing_is_refused() {
        for xml in [
            "",
            "<Error><Code>NoSuchBucket</Code></Error>",
            "<ListBucketResult>",
            "<ListBucketResult><Contents><Key>a</Key>",
            "<ListBucketResult>text</ListBucketResult>",
            "<ListBucketResult><Contents></Contents></ListBucketResult>",
        ] {
            assert_eq!(ListPage::parse(&OBJECTS, xml), None, "{xml}");
        }
    }

    #[test]
    fn references_stand_for_characters() {
        assert_eq!(unescape("&lt;&#x41;&#66;&apos;&unknown;&"), "<AB'&unknown;&");
    }

    proptest! {
        #[test]
        fn any_text_is_a_page_or_refused(text in "(<ListBucketResult>)?(<[A-Za-z]{0,9}/?>|</[A-Za-z]{1,9}>|[a-z&;]{0,4}){0,9}(</ListBucketResult>)?") {
            let _ = ListPage::parse(&OBJECTS, &text);
        }

        #[test]
        fn what_is_escaped_is_read_back(text in "\\PC{0,40}") {
            assert_eq!(unescape(&escape(&text)), text);
        }
    }
}
