//! Merges the objects that a layer above the lake knows into the lake's page of a listing.
//!
//! A page starts after one name and ends with another. The objects between the two are merged into it, and
//! entries in excess of its size move to the next page. Pages must therefore start at names, not at the
//! lake's tokens: the node's own tokens encode a name. Removed names are left out; the lake is asked for a
//! full page then, so that few pages are short.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use shoal_s3::operation::Query;
use shoal_s3::xml::ListedObject;

use super::api::Api;
use super::newer::NewerNames;
use super::page::{Entry, ListPage, MOST};
use crate::dirty::{Scope, bytes_in};

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
    api: Api,
    /// The token that the client sent.
    token: Option<String>,
    /// The name that the client's pages start after.
    start_after: Option<String>,
    most: Option<usize>,
}

/// A page for a client.
#[derive(Debug)]
pub struct Merged {
    /// The document.
    pub document: String,
    /// If it has no entry, and more may follow: the position behind which they are.
    pub nothing_until: Option<Vec<u8>>,
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
        let api = Api::of(query);
        let is_version2 = api == Api::Version2;
        let token = query.get("continuation-token").filter(|_| is_version2);
        let start_after = query.get(api.marker());
        let after = match token {
            // An empty token means the beginning, if the lake accepts it.
            Some("") => Vec::new(),
            Some(token) => URL_SAFE_NO_PAD.decode(token.strip_prefix(TOKEN)?).ok()?,
            None => bytes_in(query, api.marker()),
        };
        Some(Self {
            scope: Scope::parse(query),
            after,
            shows_owners: is_version2 && query.get("fetch-owner") == Some("true"),
            api,
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

    /// Returns true if the client asks for versions.
    pub fn is_of_versions(&self) -> bool {
        self.api == Api::OfVersions
    }

    /// Returns true if the client asks for no entries.
    pub fn is_empty(&self) -> bool {
        self.most == Some(0)
    }

    /// Returns the same request from a later position on.
    #[must_use]
    pub fn from(&self, after: Vec<u8>) -> Self {
        Self {
            after,
            ..self.clone()
        }
    }

    /// Returns the query for the lake: the client's, starting after the same name. The page is a full one if
    /// names are left out of it.
    pub fn query(&self, asked: &Query, newer: &NewerNames) -> Query {
        let is_short = self.most.is_some_and(|most| most < MOST);
        let asked = &if is_short && newer.removed().next().is_some() {
            asked
                .clone()
                .with(&[("max-keys", Some(MOST.to_string().as_bytes()))])
        } else {
            asked.clone()
        };
        let marker = self.api.marker();
        if self.api != Api::Version2 {
            let is_same = self.after == bytes_in(asked, marker);
            let from = (marker, Some(&*self.after));
            return match self.api {
                _ if is_same => asked.clone(),
                Api::OfVersions => asked.clone().with(&[from, ("version-id-marker", None)]),
                _ => asked.clone().with(&[from]),
            };
        }
        let is_first = !self.goes_on() && self.after == bytes_in(asked, marker);
        let after = if is_first {
            self.after.clone()
        } else {
            self.scope.behind(&self.after)
        };
        let from = (marker, (!self.after.is_empty()).then_some(&*after));
        if is_first {
            asked.clone().with(&[from])
        } else {
            asked.clone().with(&[from, ("continuation-token", None)])
        }
    }

    /// Merges newer names into the lake's page. Returns `None` if the lake's response is not the page that
    /// was asked for.
    pub fn merge(&self, xml: &[u8], newer: &NewerNames) -> Option<Merged> {
        let mut page = ListPage::parse(self.api.format(), xml).ok()?;
        let time_ending = time_ending(&page);
        let end = page.entries.last().filter(|_| page.is_truncated);
        let end = end.map(|last| newer.end_of(&last.name)).into_iter();
        let end = end.chain(newer.until.clone()).min();
        let is_here = |key: &[u8]| {
            end.as_deref()
                .is_none_or(|end| *key <= *end || self.scope.group(key) == Some(end))
        };
        let of_lake = std::mem::take(&mut page.entries).into_iter();
        let of_lake = of_lake.filter(|entry| is_here(&entry.name) && !newer.hides(&entry.name));
        let newer_ones = newer.objects().filter(|object| is_here(&object.key));
        let newer_ones = newer_ones.filter_map(|object| self.entry(&page, time_ending, object));
        // Of two entries with the same name, the later one stays: the newer.
        let entries = of_lake.chain(newer_ones).map(|entry| (entry.name.clone(), entry));
        let mut entries: BTreeMap<_, _> = entries.collect();
        // An entry of the same name as one behind a common prefix is the prefix.
        for key in newer.removed().filter(|key| self.scope.group(key).is_none()) {
            entries.remove(key);
        }
        page.entries = entries.into_values().collect();
        let most = [page.most(), self.most].into_iter().flatten().min();
        let most = most.unwrap_or(usize::MAX);
        page.is_truncated |= end.is_some();
        let mut next = end;
        if page.entries.len() > most {
            page.entries.truncate(most);
            page.is_truncated = true;
            next = None;
        }
        // The lake may have been asked for more.
        page.repeat("MaxKeys", &most.to_string());
        if let Some(marker) = self.start_after.as_ref().filter(|_| self.api == Api::Version1) {
            let marker = page.encode(marker.as_bytes());
            page.repeat("Marker", &marker);
        }
        // The last entry names the position, unless names behind it are left out. Clients do not see where
        // hidden ones are.
        let last = page.entries.last().map(|last| last.name.clone());
        let nothing_until = next.clone().filter(|_| last.is_none());
        if nothing_until.as_ref().is_some_and(|until| *until <= self.after) {
            // The lake has not begun behind the position, and would not end.
            return None;
        }
        let next = match (last, next) {
            (Some(last), Some(end)) if self.scope.behind(&last) < end && !newer.hides(&end) => Some(end),
            (last, end) => last.or(end),
        };
        let next = next.filter(|_| page.is_truncated);
        Some(Merged {
            document: page.write(&self.endings(&page, next.as_deref())),
            nothing_until,
        })
    }

    /// Returns the entry of a newer object or of its common prefix, or `None` if an earlier page has shown
    /// it.
    fn entry(&self, page: &ListPage, time_ending: Option<&str>, object: &ListedObject) -> Option<Entry> {
        let key = &object.key;
        let group = self.scope.group(key);
        if group == Some(&*self.after) || *key <= self.after {
            return None;
        }
        Some(match group {
            Some(group) => page.group(group),
            None => Entry {
                name: key.clone(),
                is_prefix: false,
                element: page.element(self.api.element(&page.encode(key), time_ending, object)),
            },
        })
    }

    /// Returns the elements at the end of a page before `next`, in the client's version of the API.
    fn endings(&self, page: &ListPage, next: Option<&[u8]>) -> Vec<(&'static str, String)> {
        let mut endings = vec![("IsTruncated", page.is_truncated.to_string())];
        let start_after = self.start_after.as_ref();
        let start_after = start_after.map(|start_after| page.encode(start_after.as_bytes()));
        let next_key = next.map(|next| page.encode(next));
        match self.api {
            Api::Version1 => endings.extend(next_key.map(|next| ("NextMarker", next))),
            Api::Version2 => {
                endings.push(("KeyCount", page.entries.len().to_string()));
                if let Some(token) = &self.token {
                    endings.push(("ContinuationToken", token.clone()));
                }
                if let Some(next) = next {
                    let token = URL_SAFE_NO_PAD.encode(next);
                    endings.push(("NextContinuationToken", format!("{TOKEN}{token}")));
                }
                endings.extend(start_after.map(|start_after| ("StartAfter", start_after)));
            }
            Api::OfVersions => {
                endings.push(("KeyMarker", start_after.unwrap_or_default()));
                // Some clients need both.
                let is_more = next_key.is_some();
                endings.extend(next_key.map(|next| ("NextKeyMarker", next)));
                endings.extend(is_more.then(|| ("NextVersionIdMarker", "null".into())));
            }
        }
        endings
    }
}

/// Returns the end of times on the lake's page if it is always the same one: `.000Z`, as AWS writes it, or
/// `Z` without a fraction, as versitygw does. `MinIO` and Ceph write milliseconds. Newer objects are listed
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

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use shoal_s3::operation::Query;
    use shoal_s3::xml::ListedObject;

    use super::{ListPage, Listing, NewerNames, in_order};
    use crate::listing::Newer;
    use crate::listing::page::{OBJECTS, VERSIONS};

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
        let asked = Query::parse(Some(query)).unwrap();
        listing.query(&asked, &NewerNames::default()).to_string()
    }

    /// Newer objects; a key with a minus sign before it is removed.
    fn newer(keys: &[&str]) -> NewerNames {
        let name = |key: &&str| match key.strip_prefix('-') {
            Some(key) => Newer::Removed(key.into()),
            None => Newer::Object(ListedObject {
                key: (*key).into(),
                etag: "\"e\"".into(),
                size_bytes: 1,
                last_modified: Some(UNIX_EPOCH),
                is_dirty: false,
            }),
        };
        NewerNames {
            names: keys.iter().map(name).collect(),
            ..NewerNames::default()
        }
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

    fn merged(listing: &Listing, page: &str, newer: &NewerNames) -> String {
        listing.merge(page.as_bytes(), newer).unwrap().document
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
    fn a_newer_object_stands_where_the_lake_would_show_it() {
        let listing = listing("list-type=2&prefix=");
        let merged = merged(
            &listing,
            &page(9, false, &["b", "d"]),
            &newer(&["a", "c", "d", "e"]),
        );
        assert_eq!(shown(&listing, &merged).0, ["a", "b", "c", "d", "e"]);
        assert!(
            merged.contains("<Key>d</Key><LastModified"),
            "it is newer: {merged}"
        );
        assert!(merged.contains("<KeyCount>5</KeyCount>"));
    }

    #[test]
    fn each_name_is_on_one_page_and_no_page_is_too_long() {
        let first = listing("list-type=2&max-keys=2");
        let all = newer(&["a", "c", "e"]);
        let merged = self::merged(&first, &page(2, true, &["b", "d"]), &all);
        let (names, next) = shown(&first, &merged);
        assert_eq!(names, ["a", "b"]);
        let second = next.unwrap();
        assert_eq!(
            told(&second, "list-type=2&max-keys=2&continuation-token=x"),
            "list-type=2&max-keys=2&start-after=b"
        );
        let merged = self::merged(&second, &page(2, false, &["d", "f"]), &all);
        let (names, next) = shown(&second, &merged);
        assert_eq!(names, ["c", "d"]);
        let third = next.unwrap();
        let merged = self::merged(&third, &page(2, false, &["f"]), &all);
        let (names, next) = shown(&third, &merged);
        assert_eq!((names, next), (vec!["e".to_owned(), "f".to_owned()], None));
    }

    #[test]
    fn keys_behind_a_delimiter_are_one_prefix_shown_once() {
        let first = listing("list-type=2&delimiter=/&max-keys=2");
        let all = newer(&["a/x", "a/y", "c/z", "d"]);
        let merged = self::merged(&first, &page(2, true, &["a/", "b"]), &all);
        assert_eq!(shown(&first, &merged).0, ["a/", "b"]);
        let merged = self::merged(&first, &page(2, false, &[]), &all);
        let (names, next) = shown(&first, &merged);
        assert_eq!(names, ["a/", "c/"]);
        let second = next.unwrap();
        assert_eq!(
            told(&second, ""),
            "start-after=c%2F%F4%8F%BF%BF",
            "the lake does not show the prefix again"
        );
        let merged = self::merged(&second, &page(2, false, &[]), &all);
        assert_eq!(shown(&second, &merged).0, ["d"]);
    }

    #[test]
    fn version_1_goes_on_by_markers() {
        let listing = listing("marker=b&max-keys=1");
        let merged = merged(&listing, &page(1, false, &["d"]), &newer(&["a", "b", "c"]));
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
        let merged = merged(&listing, &page(9, false, &["b"]), &newer(&["a"]));
        assert_eq!(shown(&listing, &merged).0, ["a", "b"]);
        assert!(merged.contains("<ContinuationToken/>"), "{merged}");
    }

    #[test]
    fn a_removed_name_is_left_out_and_no_page_ends_before_the_last_name() {
        let first = listing("list-type=2&max-keys=2");
        let removed = newer(&["-a", "b", "-c", "-d"]);
        let asked = Query::parse(Some("list-type=2&max-keys=2")).unwrap();
        assert_eq!(
            first.query(&asked, &removed).to_string(),
            "list-type=2&max-keys=1000"
        );
        let full = merged(&first, &page(1000, false, &["a", "c", "e", "f"]), &removed);
        let (names, next) = shown(&first, &full);
        assert_eq!(
            (names, next.unwrap().after),
            (vec!["b".into(), "e".into()], b"e".into())
        );
        assert!(full.contains("<MaxKeys>2</MaxKeys>"), "{full}");
        // The page of the lake ends with names that are left out.
        let short = merged(&first, &page(1000, true, &["b", "c", "d"]), &removed);
        let (names, next) = shown(&first, &short);
        assert_eq!((names, next.unwrap().after), (vec!["b".into()], b"d".into()));
        let nothing = first.merge(page(1000, true, &["a"]).as_bytes(), &newer(&["-a"]));
        assert_eq!(nothing.unwrap().nothing_until, Some(b"a".into()));
        let last = first.merge(page(1000, false, &["a"]).as_bytes(), &newer(&["-a"]));
        assert_eq!(last.unwrap().nothing_until, None);
    }

    #[test]
    fn a_page_ends_where_the_newer_names_that_were_read_end() {
        let first = listing("list-type=2&max-keys=9");
        let read = NewerNames {
            until: Some(b"c".into()),
            ..newer(&["-a", "-c"])
        };
        let page = merged(&first, &page(1000, false, &["a", "b", "c", "d"]), &read);
        let (names, next) = shown(&first, &page);
        let next = next.unwrap();
        assert_eq!((names, &*next.after), (vec!["b".into()], &b"c"[..]));
        assert_eq!(told(&next, ""), "start-after=c");
    }

    #[test]
    fn versions_of_a_bucket_that_keeps_none_are_its_objects() {
        let asked = "versions&max-keys=2&key-marker=a&version-id-marker=null";
        let listing = listing(asked);
        assert_eq!(told(&listing, asked), asked, "the lake begins there, too");
        let lake = "<ListVersionsResult><MaxKeys>2</MaxKeys><IsTruncated>true</IsTruncated>\
            <KeyMarker>a</KeyMarker><NextKeyMarker>d</NextKeyMarker><NextVersionIdMarker>null</NextVersionIdMarker>\
            <Version><Key>b</Key><VersionId>null</VersionId></Version><Version><Key>d</Key></Version>\
            </ListVersionsResult>";
        let merged = merged(&listing, lake, &newer(&["a", "c"]));
        let page = ListPage::parse(&VERSIONS, merged.as_bytes()).unwrap();
        let names: Vec<_> = page.entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, [b"b", b"c"]);
        assert!(
            page.entries
                .iter()
                .all(|entry| entry.text("VersionId").as_deref() == Some("null"))
        );
        assert_eq!(
            (page.limit("KeyMarker"), page.limit("NextKeyMarker")),
            (Some("a"), Some("c"))
        );
        assert_eq!(page.limit("NextVersionIdMarker"), Some("null"));
        assert_eq!(
            told(&listing.from(b"c".into()), asked),
            "versions&max-keys=2&key-marker=c"
        );
    }

    #[test]
    fn a_removed_name_leaves_its_common_prefix() {
        let grouped = listing("list-type=2&delimiter=/");
        let newer = newer(&["-a", "a/x", "-a/y", "-b/"]);
        let page = merged(&grouped, &page(9, false, &["a", "a/", "b/"]), &newer);
        assert_eq!(shown(&grouped, &page).0, ["a/", "b/"]);
    }

    #[test]
    fn hidden_names_are_on_no_page_and_no_page_of_them_is_read_twice() {
        let first = listing("list-type=2");
        let hiding = NewerNames {
            hidden: vec![b"p/.shoal-pack/".into()],
            ..newer(&["p/.a"])
        };
        let lake = ["o", "p/.shoal-pack/1", "p/.shoal-pack/2"];
        let xml = merged(&first, &page(3, true, &lake), &hiding);
        let (names, next) = shown(&first, &xml);
        assert_eq!(names, ["o", "p/.a"]);
        assert_eq!(
            next.unwrap().after,
            b"p/.a",
            "a client is not shown where they are"
        );
        let nothing = first
            .merge(page(2, true, &lake[1..]).as_bytes(), &hiding)
            .unwrap();
        assert_eq!(nothing.nothing_until, None, "p/.a is on it");
        let hiding = NewerNames {
            names: Vec::new(),
            ..hiding
        };
        let nothing = first
            .merge(page(2, true, &lake[1..]).as_bytes(), &hiding)
            .unwrap();
        let position = "p/.shoal-pack/\u{10ffff}";
        assert_eq!(nothing.nothing_until, Some(position.into()));
        // The last page has none.
        let nothing = first
            .merge(page(2, false, &lake[1..]).as_bytes(), &hiding)
            .unwrap();
        assert_eq!(nothing.nothing_until, None);
        let grouped = listing("list-type=2&delimiter=/&prefix=p/");
        let xml = merged(&grouped, &page(9, false, &["p/.shoal-pack/", "p/a/"]), &hiding);
        assert_eq!(shown(&grouped, &xml).0, ["p/a/"]);
    }
}
