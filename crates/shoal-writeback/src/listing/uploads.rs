//! Merges the uploads that tiers keep into the lake's page of a listing of uploads.
//!
//! Both are ordered by key, then by creation time. Each continues from a position of its own, and the node's
//! markers encode both positions. S3 rejects foreign markers, so the node asks the lake to continue after one
//! of the lake's own uploads. In this way no upload is omitted or repeated, whatever order the lake lists its
//! own in.

use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use shoal_s3::operation::Query;
use shoal_s3::time::rfc3339;
use shoal_s3::xml::Element;

use super::page::{Entry, ListPage, MOST, UPLOADS};
use crate::dirty::{BEHIND_PREFIX, Scope, all_of, bytes_in};
use crate::dirty::{ChecksumSpec, Upload, UploadId, UploadPosition};

/// Prefix of the node's own markers. No upload id begins with it.
const MARKER: &str = "shoal-behind-";

/// A request for a listing of uploads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadListing {
    /// The keys to list.
    pub scope: Scope,
    /// The markers in the client's request.
    markers: Markers,
    reached: Reached,
    most: Option<usize>,
}

/// The end of a page, as S3 expresses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Markers {
    key: Vec<u8>,
    /// The upload id; empty if the page ended after all uploads of the key.
    id: String,
}

/// The positions that earlier pages have reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reached {
    lake: Markers,
    kept: Option<UploadPosition>,
}

/// An entry that the lake does not have.
struct Line {
    entry: Entry,
    /// The position of the listing after this entry.
    place: UploadPosition,
}

impl UploadListing {
    /// Parses a request.
    pub fn parse(query: &Query) -> Self {
        let key = bytes_in(query, "key-marker");
        // S3 ignores an upload id without a key.
        let id = query.get("upload-id-marker").filter(|_| !key.is_empty());
        let markers = Markers {
            key,
            id: id.unwrap_or_default().into(),
        };
        Self {
            scope: Scope::parse(query),
            reached: Reached::of(&markers),
            markers,
            most: query.get("max-uploads").and_then(|most| most.parse().ok()),
        }
    }

    /// Returns true if the request continues from a position that only this cluster's nodes know.
    pub fn goes_on(&self) -> bool {
        self.markers.are_ours()
    }

    /// Returns true if the client asks for no entries.
    pub fn is_empty(&self) -> bool {
        self.most == Some(0)
    }

    /// Returns the position of the last kept upload on earlier pages.
    pub fn behind(&self) -> Option<&UploadPosition> {
        self.reached.kept.as_ref()
    }

    /// Returns the query for the lake: the client's, starting after the lake's own uploads that were shown.
    pub fn query(&self, asked: &Query) -> Query {
        let Markers { key, id } = &self.reached.lake;
        let markers = [("key-marker", &**key), ("upload-id-marker", id.as_bytes())];
        let markers = markers.map(|(name, value)| (name, Some(value).filter(|value| !value.is_empty())));
        asked.clone().with(&markers)
    }

    /// Merges kept uploads, which must be in order, into the lake's page. Returns `None` if the lake's
    /// response is not a page.
    pub fn merge(&self, xml: &[u8], kept: &[Arc<Upload>]) -> Option<String> {
        let mut page = ListPage::parse(&UPLOADS, xml).ok()?;
        let mut kept = self.lines(&page, kept).into_iter().peekable();
        let mut lake = self
            .not_shown(std::mem::take(&mut page.entries))
            .into_iter()
            .peekable();
        let mut reached = self.reached.clone();
        let most = page.most().or(self.most).unwrap_or(MOST);
        while page.entries.len() < most {
            let Some(entry) = next(&mut lake, &mut kept, page.is_truncated, &mut reached) else {
                break;
            };
            page.entries.push(entry);
        }
        if lake.peek().is_none() && page.is_truncated {
            reached.lake = Markers::next_of(&page).unwrap_or(reached.lake);
        }
        page.is_truncated |= lake.peek().is_some() || kept.peek().is_some();
        Some(page.write(&self.endings(&page, &reached)))
    }

    /// Returns the lake's entries that were not shown before. `MinIO` ignores markers if there is no prefix,
    /// and lists everything again.
    fn not_shown(&self, mut entries: Vec<Entry>) -> Vec<Entry> {
        let is_last_shown = |entry: &Entry| Markers::behind(entry) == self.reached.lake;
        let shown = entries.iter().position(is_last_shown).map_or(0, |last| last + 1);
        entries.split_off(shown)
    }

    /// Returns entries for the kept uploads that were not shown before, grouped by common prefix.
    fn lines(&self, page: &ListPage, kept: &[Arc<Upload>]) -> Vec<Line> {
        let kept = kept.iter().filter(|upload| !self.is_shown(upload));
        let lines = kept.map(|upload| match self.scope.group(&upload.name.key) {
            Some(group) => Line {
                entry: page.group(group),
                place: UploadPosition::behind_all_of(group),
            },
            None => Line {
                entry: entry(page, upload),
                place: UploadPosition::of(upload),
            },
        });
        let mut lines: Vec<_> = lines.collect();
        lines.dedup_by(|line, last| line.entry.is_prefix && line.entry.name == last.entry.name);
        lines
    }

    fn is_shown(&self, upload: &Upload) -> bool {
        let group = self.scope.group(&upload.name.key);
        self.reached
            .kept
            .as_ref()
            .is_some_and(|place| group == Some(&*place.key) || !place.is_before(upload))
    }

    /// Returns the elements that delimit the page.
    fn endings(&self, page: &ListPage, reached: &Reached) -> Vec<(&'static str, String)> {
        let mut endings = vec![
            ("KeyMarker", page.encode(&self.markers.key)),
            ("UploadIdMarker", self.markers.id.clone()),
        ];
        if page.is_truncated {
            let last = page.entries.last().map(|last| &last.name);
            let last = last.unwrap_or(&reached.lake.key);
            endings.push(("NextKeyMarker", page.encode(last)));
            endings.push(("NextUploadIdMarker", reached.to_marker()));
        }
        endings.push(("IsTruncated", page.is_truncated.to_string()));
        endings
    }
}

/// Returns the next entry of either source, or of both for a common prefix that has keys in both. If the
/// lake's page `is_cut`, kept uploads beyond its last entry are left to the next page, because the lake may
/// have more uploads before them.
fn next(
    lake: &mut Peekable<IntoIter<Entry>>,
    kept: &mut Peekable<IntoIter<Line>>,
    is_cut: bool,
    reached: &mut Reached,
) -> Option<Entry> {
    let ours = kept.next_if(|line| {
        lake.peek()
            .map_or(!is_cut, |other| order(&line.entry) <= order(other))
    });
    let is_same = |line: &Line, other: &Entry| other.is_prefix && other.name == line.entry.name;
    let theirs = lake.next_if(|other| ours.as_ref().is_none_or(|line| is_same(line, other)));
    if let Some(entry) = &theirs {
        reached.lake = Markers::behind(entry);
    }
    if let Some(line) = &ours {
        reached.kept = Some(line.place.clone());
    }
    theirs.or(ours.map(|line| line.entry))
}

/// Returns the sort key of an entry. Times in the same format sort as text.
fn order(entry: &Entry) -> (&[u8], Option<String>) {
    (&entry.name, entry.text("Initiated"))
}

impl Markers {
    /// Returns true if a node of this cluster issued the upload id, so that the lake does not know it.
    fn are_ours(&self) -> bool {
        self.id.starts_with(MARKER) || self.id.parse::<UploadId>().is_ok()
    }

    /// Returns the markers with which the lake continues after one of its entries.
    fn behind(entry: &Entry) -> Self {
        let behind = if entry.is_prefix { BEHIND_PREFIX } else { "" };
        Self {
            key: [&entry.name, behind.as_bytes()].concat(),
            id: entry.text("UploadId").unwrap_or_default(),
        }
    }

    /// Returns the markers at the end of the lake's page.
    fn next_of(page: &ListPage) -> Option<Self> {
        let key = page.limit("NextKeyMarker").map(|text| page.decode(text))?;
        let id = page.limit("NextUploadIdMarker").map(str::to_owned);
        (!key.is_empty()).then(|| Self {
            key,
            id: id.unwrap_or_default(),
        })
    }
}

impl Reached {
    /// Returns the positions that a client's markers denote.
    fn of(markers: &Markers) -> Self {
        if let Some(reached) = Self::of_marker(&markers.id) {
            return reached;
        }
        let key = &markers.key;
        let kept = match &*markers.id {
            _ if key.is_empty() => None,
            // The lake issued this id on a page that was not merged, so all kept uploads of this key are
            // newer.
            id if !id.is_empty() && !markers.are_ours() => Some(UploadPosition::before_all_of(key)),
            _ => Some(UploadPosition::behind_all_of(key)),
        };
        let mut lake = markers.clone();
        if markers.are_ours() {
            lake.id.clear();
        }
        Self { lake, kept }
    }

    fn to_marker(&self) -> String {
        let bytes = postcard::to_stdvec(self).expect("memory takes any marker");
        format!("{MARKER}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Inverse of [`Reached::to_marker`].
    fn of_marker(marker: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(marker.strip_prefix(MARKER)?).ok()?;
        all_of(&bytes).ok()
    }
}

fn entry(page: &ListPage, upload: &Upload) -> Entry {
    let key = &upload.name.key;
    let element = Element::new("Upload")
        .with_leaf("Key", page.encode(key))
        .with_all(described(upload))
        .with_leaf("Initiated", rfc3339(upload.begun));
    Entry {
        name: key.to_vec(),
        is_prefix: false,
        element: page.element(element),
    }
}

/// Returns the elements that describe an upload in every listing, except its key.
pub fn described(upload: &Upload) -> Vec<Element> {
    let person = |name| {
        Element::new(name)
            .with_leaf("ID", &upload.writer)
            .with_leaf("DisplayName", &upload.writer)
    };
    let mut described = vec![
        Element::leaf("UploadId", &upload.id.to_string()),
        person("Initiator"),
        person("Owner"),
        Element::leaf("StorageClass", "STANDARD"),
    ];
    if let Some(ChecksumSpec { algorithm, kind }) = upload.checksum_spec() {
        let algorithm = algorithm.as_str().to_uppercase();
        described.push(Element::leaf("ChecksumAlgorithm", &algorithm));
        described.push(Element::leaf("ChecksumType", kind.as_str()));
    }
    described
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::proptest;
    use shoal_s3::operation::Query;

    use super::{Element, ListPage, MARKER, UPLOADS, Upload, UploadListing, described};
    use crate::dirty::testing::begun;

    /// An upload of the lake: its key, its id, and the hour in which it was begun.
    type Own = (&'static str, &'static str, u64);

    fn listing(query: &str) -> UploadListing {
        UploadListing::parse(&Query::parse(Some(query)).unwrap())
    }

    /// Returns the query that the lake gets for the client's `query`.
    fn told(listing: &UploadListing, query: &str) -> String {
        listing.query(&Query::parse(Some(query)).unwrap()).to_string()
    }

    /// Returns a page of a lake that lists in this order, after the query's markers, which must be the lake's
    /// own.
    fn page_of(lake: &[Own], query: &str, most: usize) -> String {
        let query = Query::parse(Some(query)).unwrap();
        let marker = (query.get("key-marker"), query.get("upload-id-marker"));
        let from = match marker {
            (None, None) => 0,
            marker => {
                1 + lake
                    .iter()
                    .position(|(key, id, _)| marker == (Some(*key), Some(*id)))
                    .unwrap()
            }
        };
        let shown = &lake[from..lake.len().min(from + most)];
        let is_truncated = from + shown.len() < lake.len();
        let entry = |(key, id, hour): &Own| {
            format!(
                "<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>1970-01-01T{hour:02}:00:00.000Z</Initiated></Upload>"
            )
        };
        let entries: String = shown.iter().map(entry).collect();
        let next = shown.last().filter(|_| is_truncated).map(|(key, id, _)| {
            format!("<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>")
        });
        format!(
            "<ListMultipartUploadsResult><MaxUploads>{most}</MaxUploads><IsTruncated>{is_truncated}</IsTruncated>{}{entries}</ListMultipartUploadsResult>",
            next.unwrap_or_default()
        )
    }

    /// Returns the ids on all pages, in order. `lake` answers a query with the given maximum number of
    /// entries.
    fn shown(lake: impl Fn(&str, usize) -> String, kept: &[Arc<Upload>], most: usize) -> Vec<String> {
        let (mut ids, mut query) = (Vec::new(), format!("uploads&max-uploads={most}"));
        for _ in 0..20 {
            let listing = listing(&query);
            let merged = listing
                .merge(lake(&told(&listing, &query), most).as_bytes(), kept)
                .unwrap();
            let page = ListPage::parse(&UPLOADS, merged.as_bytes()).unwrap();
            assert!(page.entries.len() <= most);
            ids.extend(page.entries.iter().filter_map(|entry| entry.text("UploadId")));
            if !page.is_truncated {
                return ids;
            }
            let limit = |name| page.limit(name).unwrap();
            query = format!(
                "uploads&max-uploads={most}&key-marker={}&upload-id-marker={}",
                limit("NextKeyMarker"),
                limit("NextUploadIdMarker")
            );
        }
        panic!("the pages do not end: {ids:?}");
    }

    fn hour(hour: u64) -> u64 {
        hour * 3600
    }

    #[test]
    fn uploads_of_both_stand_in_one_order_whatever_the_page() {
        let lake = [("a", "z", 1), ("k", "y", 2), ("k", "a", 4), ("m", "b", 0)];
        let kept = [
            begun("b", hour(9), 1),
            begun("k", hour(1), 2),
            begun("k", hour(3), 3),
            begun("z", hour(0), 4),
        ];
        let [b, k1, k3, z] = kept.each_ref().map(|upload| upload.id.to_string());
        let expected = ["z", &b, &k1, "y", &k3, "a", "b", &z];
        for most in 1..=9 {
            let lake = |query: &str, most| page_of(&lake, query, most);
            assert_eq!(shown(lake, &kept, most), expected, "{most} a page");
        }
    }

    /// Ceph RGW lists `k-1` before `k`, and uploads of one key by their ids.
    #[test]
    fn each_upload_is_on_one_page_in_whatever_order_the_lake_lists_its_own() {
        let lake = [
            ("k-1", "c", 5),
            ("k-1", "d", 1),
            ("k", "a", 9),
            ("k", "b", 2),
            ("l", "e", 0),
        ];
        let kept = ["a", "k", "k", "k-0", "k-1", "k-2", "m"];
        let kept: Vec<_> = kept
            .into_iter()
            .zip(3..)
            .map(|(key, at)| begun(key, hour(at), at))
            .collect();
        let mut all: Vec<_> = kept.iter().map(|upload| upload.id.to_string()).collect();
        all.extend(lake.map(|(_, id, _)| id.to_owned()));
        all.sort();
        for most in 1..=13 {
            let page = |query: &str, most| page_of(&lake, query, most);
            let mut shown = shown(page, &kept, most);
            shown.sort();
            assert_eq!(shown, all, "{most} a page");
        }
    }

    /// `MinIO` does when there is no prefix, in the order in which uploads were begun.
    #[test]
    fn a_lake_that_shows_everything_on_every_page_is_shown_once() {
        let lake = [("k", "a", 1), ("a", "b", 2), ("k", "c", 3)];
        let kept = [begun("b", hour(9), 1), begun("k", hour(2), 2), begun("z", 0, 3)];
        let mut all: Vec<_> = kept.iter().map(|upload| upload.id.to_string()).collect();
        all.extend(lake.map(|(_, id, _)| id.to_owned()));
        all.sort();
        for most in 1..=7 {
            let everything = |_: &str, most| page_of(&lake, "", 9).replace(">9<", &format!(">{most}<"));
            let mut shown = shown(everything, &kept, most);
            shown.sort();
            assert_eq!(shown, all, "{most} a page");
        }
    }

    #[test]
    fn a_page_of_the_lake_that_ends_before_what_is_kept_leaves_it_for_the_next_one() {
        let page = page_of(&[("a", "x", 1), ("c", "y", 1)], "", 1);
        let merged = listing("max-uploads=5").merge(
            page.replace("Uploads>1<", "Uploads>5<").as_bytes(),
            &[begun("b", 0, 1)],
        );
        let merged = merged.unwrap();
        assert!(!merged.contains("<Key>b</Key>"), "{merged}");
        assert!(merged.contains("<IsTruncated>true</IsTruncated>"), "{merged}");
    }

    #[test]
    fn the_lake_hears_of_no_marker_that_is_not_its_own() {
        let id = begun("k", 0, 1).id;
        for (asked, heard) in [
            (
                "key-marker=k%2F1&upload-id-marker=2~x&prefix=k",
                "prefix=k&key-marker=k%2F1&upload-id-marker=2~x",
            ),
            ("key-marker=k&max-uploads=1", "max-uploads=1&key-marker=k"),
            ("uploads&upload-id-marker=x", "uploads"),
            (&format!("key-marker=k&upload-id-marker={id}"), "key-marker=k"),
            (
                &format!("key-marker=k&upload-id-marker={MARKER}AAAAAA"),
                "key-marker=k",
            ),
        ] {
            assert_eq!(told(&listing(asked), asked), heard);
        }
        assert!(!listing("key-marker=k&upload-id-marker=2~x").goes_on());
        assert!(listing(&format!("key-marker=k&upload-id-marker={id}")).goes_on());
    }

    #[test]
    fn behind_a_marker_of_the_lake_stands_what_was_begun_since() {
        let kept = [begun("j", 0, 1), begun("k", 0, 2), begun("l", 0, 3)];
        let count = |query| {
            let listing = listing(query);
            let behind = listing.behind().unwrap();
            kept.iter().filter(|upload| behind.is_before(upload)).count()
        };
        assert_eq!(count("key-marker=k&upload-id-marker=2~x"), 2);
        assert_eq!(count("key-marker=k"), 1);
    }

    #[test]
    fn the_fields_of_an_upload_are_escaped() {
        let mut upload = Upload::clone(&begun("k", 0, 1));
        upload.writer = "a<b".into();
        let told = Element::new("Upload").with_all(described(&upload)).to_document();
        assert!(told.contains("<Owner><ID>a&lt;b</ID>"), "{told}");
    }

    proptest! {
        #[test]
        fn any_marker_is_gone_on_with(key in "\\PC{0,9}", id in "(shoal-(behind-)?)?[A-Za-z0-9_-]{0,80}") {
            let query = Query::parse(Some(&format!("key-marker={key}&upload-id-marker={id}")));
            proptest::prop_assume!(query.is_ok());
            let listing = UploadListing::parse(&query.unwrap());
            let merged = listing.merge(page_of(&[("a", "x", 1)], "", 1).as_bytes(), &[begun("k", 0, 1)]);
            proptest::prop_assert!(merged.is_some());
        }
    }
}
