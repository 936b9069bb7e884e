//! Merges dirty objects into the lake's page of a listing.
//!
//! A page starts after one name and ends with another. The dirty objects between the two are merged into it,
//! and entries in excess of its size move to the next page. Pages must therefore start at names, not at the
//! lake's tokens: the node's own tokens encode a name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use shoal_s3::operation::Query;
use shoal_s3::time::rfc3339;
use shoal_s3::xml::Element;

use super::page::{Entry, ListPage, MOST, OBJECTS};
use crate::dirty::{Manifest, Scope, bytes_in};

/// Prefix of the node's own tokens.
const TOKEN: &str = "shoal-";

/// A request for a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The keys to list.
    pub scope: Scope,
    /// The last name of the previous page.
    pub after: Vec<u8>,
    /// True if the client asks for the owner of each object. Only version 2 of the API can ask.
    pub shows_owners: bool,
    is_version2: bool,
    /// The token that the client sent.
    token: Option<String>,
    start_after: Option<String>,
    most: Option<usize>,
}

/// Returns the query in a form whose pages are ordered by name, because only those can be merged. With
/// `allow-unordered`, Ceph lists in the order of its shards; it refuses that together with a delimiter.
pub fn in_order(asked: &Query) -> Query {
    if asked
        .get("delimiter")
        .is_some_and(|delimiter| !delimiter.is_empty())
    {
        return asked.clone();
    }
    asked.clone().with(&[("allow-unordered", None)])
}

impl Listing {
    /// Parses a request. Returns `None` if it continues from a token of the lake.
    pub fn parse(query: &Query) -> Option<Self> {
        let is_version2 = query.get("list-type") == Some("2");
        let token = query.get("continuation-token").filter(|_| is_version2);
        let start_after = query.get("start-after").filter(|_| is_version2);
        let after = match (token, is_version2) {
            // An empty token means the beginning, if the lake accepts it.
            (Some(""), _) => Vec::new(),
            (Some(token), _) => URL_SAFE_NO_PAD.decode(token.strip_prefix(TOKEN)?).ok()?,
            (None, true) => bytes_in(query, "start-after"),
            (None, false) => bytes_in(query, "marker"),
        };
        Some(Self {
            scope: Scope::parse(query),
            after,
            shows_owners: is_version2 && query.get("fetch-owner") == Some("true"),
            is_version2,
            token: token.map(Into::into),
            start_after: start_after.map(Into::into),
            most: query.get("max-keys").and_then(|most| most.parse().ok()),
        })
    }

    /// Returns the number of names on a page, and one more to show if others follow.
    pub fn names_max(&self) -> usize {
        self.most.unwrap_or(MOST).saturating_add(1)
    }

    /// Returns true if the request continues from a page that a node merged.
    pub fn goes_on(&self) -> bool {
        self.token.as_ref().is_some_and(|token| !token.is_empty())
    }

    /// Returns true if the client asks for no entries.
    pub fn is_empty(&self) -> bool {
        self.most == Some(0)
    }

    /// Returns the query for the lake: the client's, starting after the same name.
    pub fn query(&self, asked: &Query) -> Query {
        if !self.is_version2 {
            return asked.clone();
        }
        let after = if self.goes_on() {
            self.scope.behind(&self.after)
        } else {
            self.after.clone()
        };
        let from = ("start-after", (!self.after.is_empty()).then_some(&*after));
        if self.goes_on() {
            asked.clone().with(&[from, ("continuation-token", None)])
        } else {
            asked.clone().with(&[from])
        }
    }

    /// Merges dirty objects into the lake's page. Returns `None` if the lake's response is not a page.
    pub fn merge(&self, xml: &[u8], dirty: &[Arc<Manifest>]) -> Option<String> {
        let mut page = ListPage::parse(&OBJECTS, xml).ok()?;
        let time_ending = time_ending(&page);
        let end = page.entries.last().filter(|_| page.is_truncated);
        let end = end.map(|last| last.name.clone());
        let is_here = |manifest: &&Arc<Manifest>| {
            let key = &manifest.name.key;
            end.as_deref()
                .is_none_or(|end| **key <= *end || self.scope.group(key) == Some(end))
        };
        let of_lake = std::mem::take(&mut page.entries).into_iter();
        let of_tier = dirty.iter().filter(is_here);
        let of_tier = of_tier.filter_map(|manifest| self.entry(&page, time_ending, manifest));
        // Of two entries with the same name, the later one stays: the tier's.
        let entries = of_lake.chain(of_tier).map(|entry| (entry.name.clone(), entry));
        let entries: BTreeMap<_, _> = entries.collect();
        page.entries = entries.into_values().collect();
        let most = page.most().or(self.most).unwrap_or(usize::MAX);
        if page.entries.len() > most {
            page.entries.truncate(most);
            page.is_truncated = true;
        }
        Some(page.write(&self.endings(&page)))
    }

    /// Returns the entry of a dirty object or of its common prefix, or `None` if an earlier page has shown
    /// it.
    fn entry(&self, page: &ListPage, time_ending: Option<&str>, manifest: &Manifest) -> Option<Entry> {
        let key = &manifest.name.key;
        let group = self.scope.group(key);
        if group == Some(&*self.after) || **key <= *self.after {
            return None;
        }
        Some(match group {
            Some(group) => page.group(group),
            None => Entry {
                name: key.to_vec(),
                is_prefix: false,
                element: page.element(contents(&page.encode(key), time_ending, manifest)),
            },
        })
    }

    /// Returns the elements at the end of the page, in the client's version of the API.
    fn endings(&self, page: &ListPage) -> Vec<(&'static str, String)> {
        let mut endings = vec![("IsTruncated", page.is_truncated.to_string())];
        let last = page.entries.last().filter(|_| page.is_truncated);
        if self.is_version2 {
            endings.push(("KeyCount", page.entries.len().to_string()));
            if let Some(token) = &self.token {
                endings.push(("ContinuationToken", token.clone()));
            }
            if let Some(last) = last {
                let token = URL_SAFE_NO_PAD.encode(&last.name);
                endings.push(("NextContinuationToken", format!("{TOKEN}{token}")));
            }
            if let Some(start_after) = &self.start_after {
                endings.push(("StartAfter", page.encode(start_after.as_bytes())));
            }
        } else if let Some(last) = last {
            endings.push(("NextMarker", page.encode(&last.name)));
        }
        endings
    }
}

/// Returns the end of times on the lake's page if it is always the same one: `.000Z`, as AWS writes it, or
/// `Z` without a fraction, as versitygw does. `MinIO` and Ceph write milliseconds. Dirty objects are listed
/// in the same format, because tools compare the times of objects across listings.
fn time_ending(page: &ListPage) -> Option<&'static str> {
    let mut times = page.entries.iter().filter_map(|entry| entry.text("LastModified"));
    let ending = |time: &str| match time.trim().split_once('.') {
        None => Some("Z"),
        Some((_, "000Z")) => Some(".000Z"),
        Some(_) => None,
    };
    let first = ending(&times.next()?)?;
    times.all(|time| ending(&time) == Some(first)).then_some(first)
}

fn time_text(time: SystemTime, ending: Option<&str>) -> String {
    let text = rfc3339(time);
    match ending.zip(text.split_once('.')) {
        Some((ending, (seconds, _))) => format!("{seconds}{ending}"),
        None => text,
    }
}

fn contents(key: &str, time_ending: Option<&str>, manifest: &Manifest) -> Element {
    let version = &manifest.version;
    let modified = version.last_modified.map(|time| time_text(time, time_ending));
    Element::new("Contents")
        .with_leaf("Key", key)
        .with_leaf("LastModified", modified.unwrap_or_default())
        .with_leaf("ETag", &version.etag)
        .with_leaf("Size", version.size_bytes.to_string())
        .with_leaf("StorageClass", "STANDARD")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shoal_s3::operation::Query;

    use super::{ListPage, Listing, Manifest, OBJECTS, in_order};
    use crate::dirty::testing::manifest;

    #[test]
    fn pages_below_a_rule_are_in_the_order_of_names() {
        for (asked, expected) in [
            (
                "list-type=2&allow-unordered=true&max-keys=6",
                "list-type=2&max-keys=6",
            ),
            ("allow-unordered=true&delimiter=", "delimiter="),
            ("prefix=a", "prefix=a"),
            (
                "allow-unordered=true&delimiter=%2F",
                "allow-unordered=true&delimiter=%2F",
            ),
        ] {
            let query = in_order(&Query::parse(Some(asked)).unwrap());
            assert_eq!(query.to_string(), expected);
        }
    }

    fn listing(query: &str) -> Listing {
        Listing::parse(&Query::parse(Some(query)).unwrap()).unwrap()
    }

    /// Returns the query that the lake gets for the client's `query`.
    fn told(listing: &Listing, query: &str) -> String {
        listing.query(&Query::parse(Some(query)).unwrap()).to_string()
    }

    fn dirty(keys: &[&str]) -> Vec<Arc<Manifest>> {
        keys.iter().map(|key| Arc::new(manifest(key))).collect()
    }

    fn page(most: usize, truncated: bool, keys: &[&str]) -> String {
        let entry = |key: &&str| match key.strip_suffix('/') {
            Some(_) => format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"),
            None => format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>"),
        };
        let entries: String = keys.iter().map(entry).collect();
        format!(
            "<ListBucketResult><MaxKeys>{most}</MaxKeys><IsTruncated>{truncated}</IsTruncated>{entries}</ListBucketResult>"
        )
    }

    /// Returns the names on a page in order, and the request for the next page.
    fn shown(listing: &Listing, xml: &str) -> (Vec<String>, Option<Listing>) {
        let page = ListPage::parse(&OBJECTS, xml.as_bytes()).unwrap();
        let names = page
            .entries
            .iter()
            .map(|entry| String::from_utf8(entry.name.clone()).unwrap());
        let between = |name: &str| {
            let (_, rest) = xml.split_once(&format!("<{name}>"))?;
            rest.split_once("</").map(|(text, _)| text.to_owned())
        };
        assert_eq!(
            page.is_truncated,
            between("IsTruncated").as_deref() == Some("true")
        );
        let next = between("NextContinuationToken").map(|token| {
            let delimiter = String::from_utf8(listing.scope.delimiter.clone()).unwrap();
            self::listing(&format!(
                "list-type=2&delimiter={delimiter}&continuation-token={token}"
            ))
        });
        (names.collect(), next)
    }

    #[test]
    fn a_dirty_object_stands_where_the_lake_would_show_it() {
        let listing = listing("list-type=2&prefix=");
        let merged = listing
            .merge(
                page(9, false, &["b", "d"]).as_bytes(),
                &dirty(&["a", "c", "d", "e"]),
            )
            .unwrap();
        assert_eq!(shown(&listing, &merged).0, ["a", "b", "c", "d", "e"]);
        assert!(
            merged.contains("<Key>d</Key><LastModified"),
            "what is dirty is newer: {merged}"
        );
        assert!(merged.contains("<KeyCount>5</KeyCount>"));
    }

    #[test]
    fn each_name_is_on_one_page_and_no_page_is_too_long() {
        let first = listing("list-type=2&max-keys=2");
        let all = dirty(&["a", "c", "e"]);
        let merged = first.merge(page(2, true, &["b", "d"]).as_bytes(), &all).unwrap();
        let (names, next) = shown(&first, &merged);
        assert_eq!(names, ["a", "b"]);
        let second = next.unwrap();
        assert_eq!(
            told(&second, "list-type=2&max-keys=2&continuation-token=x"),
            "list-type=2&max-keys=2&start-after=b"
        );
        let merged = second
            .merge(page(2, false, &["d", "f"]).as_bytes(), &all)
            .unwrap();
        let (names, next) = shown(&second, &merged);
        assert_eq!(names, ["c", "d"]);
        let third = next.unwrap();
        let merged = third.merge(page(2, false, &["f"]).as_bytes(), &all).unwrap();
        let (names, next) = shown(&third, &merged);
        assert_eq!((names, next), (vec!["e".to_owned(), "f".to_owned()], None));
    }

    #[test]
    fn keys_behind_a_delimiter_are_one_prefix_shown_once() {
        let first = listing("list-type=2&delimiter=/&max-keys=2");
        let all = dirty(&["a/x", "a/y", "c/z", "d"]);
        let merged = first.merge(page(2, true, &["a/", "b"]).as_bytes(), &all).unwrap();
        assert_eq!(shown(&first, &merged).0, ["a/", "b"]);
        let merged = first.merge(page(2, false, &[]).as_bytes(), &all).unwrap();
        let (names, next) = shown(&first, &merged);
        assert_eq!(names, ["a/", "c/"]);
        let second = next.unwrap();
        assert_eq!(
            told(&second, ""),
            "start-after=c%2F%F4%8F%BF%BF",
            "the lake does not show the prefix again"
        );
        let merged = second.merge(page(2, false, &[]).as_bytes(), &all).unwrap();
        assert_eq!(shown(&second, &merged).0, ["d"]);
    }

    #[test]
    fn version_1_goes_on_by_markers() {
        let listing = listing("marker=b&max-keys=1");
        let merged = listing
            .merge(page(1, false, &["d"]).as_bytes(), &dirty(&["a", "b", "c"]))
            .unwrap();
        assert!(merged.contains("<NextMarker>c</NextMarker>"), "{merged}");
        assert!(!merged.contains("<Key>b</Key>") && !merged.contains("<Key>d</Key>"));
        assert_eq!(told(&listing, "marker=b&max-keys=1"), "marker=b&max-keys=1");
    }

    #[test]
    fn a_token_of_the_lake_is_the_lakes() {
        let parse = |query| Listing::parse(&Query::parse(Some(query)).unwrap());
        assert_eq!(parse("list-type=2&continuation-token=abc"), None);
        assert_eq!(parse("list-type=2&continuation-token=shoal-!"), None);
        assert!(parse("list-type=2&start-after=a").is_some());
    }

    #[test]
    fn an_empty_token_begins_where_the_lake_begins() {
        let question = "list-type=2&continuation-token=";
        let listing = listing(question);
        assert_eq!(
            told(&listing, question),
            question,
            "whether it is one the lake says"
        );
        let merged = listing
            .merge(page(9, false, &["b"]).as_bytes(), &dirty(&["a"]))
            .unwrap();
        assert_eq!(shown(&listing, &merged).0, ["a", "b"]);
        assert!(merged.contains("<ContinuationToken/>"), "{merged}");
    }
}
