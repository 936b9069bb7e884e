//! `shoal ls`: what of a prefix is cached, and where.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use shoal_base::terminal::table;
use shoal_node::admin::client::{AdminClient, AdminError};
use shoal_orders::{CACHED_OBJECTS_MAX, CachedObject, CachedPage};
use shoal_s3::uri::S3Uri;

use super::admin::{AdminPort, failed};
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{Tone, bytes, counted, print_message, print_result, some_of};

const AFTER_HELP: &str = "\
s3://BUCKET/PREFIX names all objects whose keys begin with PREFIX, as it is written. A line is an object, or a
folder with all objects below it. The columns are: the size at the lake, or in the tier if the lake does not have
the object yet; how much of it at least one node holds; the nodes that hold some of it; the objects of a folder;
and whether an order pins the object, and whether it is dirty.

The lake is listed in the name of an identity of the nodes' configuration.";

/// The time within which a node lists a page and asks the others about it.
const PATIENCE: Duration = Duration::from_mins(1);

/// The number of nodes that a line names.
const NODES_SHOWN: usize = 4;

/// List what of a prefix is cached, and on which nodes
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ls {
    /// The beginning of the keys
    #[arg(value_name = "s3://BUCKET/PREFIX")]
    uri: S3Uri,
    /// List each object, and not folders
    #[arg(long)]
    recursive: bool,
    /// Look at this many objects at most
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Access key of the identity in whose name the lake is listed; needed if the nodes know several
    #[arg(long = "as", id = "identity", value_name = "ACCESS_KEY")]
    identity: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminPort,
}

/// Objects and folders, in the order of their keys.
#[derive(Debug, Serialize)]
struct Listing {
    uri: String,
    entries: Vec<Entry>,
    /// True if there are more objects, so that the last entry may be a part of a folder.
    cut_off: bool,
    /// Nodes that did not say what they hold.
    silent: BTreeSet<String>,
}

/// An object, or all objects of a folder.
#[derive(Debug, Default, Serialize)]
struct Entry {
    /// The key, or the beginning of the keys up to and with the slash.
    key: String,
    folder: bool,
    objects: u64,
    size_bytes: u64,
    cached_bytes: u64,
    /// Bytes by node.
    nodes: BTreeMap<String, u64>,
    /// Objects that an order pins.
    pinned: u64,
    /// Objects that the lake does not have yet.
    dirty: u64,
}

impl Ls {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let client = self.admin.client()?.within(PATIENCE);
            let listing = self.list(&client).await;
            let listing = listing.map_err(failed(format!("{} cannot be listed", self.uri)))?;
            print_result(self.json, &listing, || self.to_text(&listing));
            for node in &listing.silent {
                let what = format!("{node} did not say what it holds: its blocks do not count as cached");
                print_message(Tone::Warning, &what, None);
            }
            if listing.entries.is_empty() {
                print_message(Tone::Note, &format!("no key begins with {}", self.uri), None);
            }
            if listing.cut_off {
                let what = format!("cut off after {}", counted(self.limit, "object"));
                let hint =
                    "--limit N looks at more; what the last folder shows is of the objects up to there";
                print_message(Tone::Warning, &what, Some(hint));
            }
            Ok(())
        })
    }

    async fn list(&self, client: &AdminClient) -> Result<Listing, AdminError> {
        let mut listing = Listing {
            uri: self.uri.to_string(),
            entries: Vec::new(),
            cut_off: false,
            silent: BTreeSet::new(),
        };
        let (mut left, mut after) = (self.limit, None);
        loop {
            // One more object than the limit shows whether it cuts anything off.
            let page: CachedPage = client.post(&self.path(left.max(1), after.as_deref())).await?;
            if left == 0 {
                listing.cut_off = !page.objects.is_empty();
                return Ok(listing);
            }
            listing.silent.extend(page.silent);
            left = left.saturating_sub(page.objects.len() as u64);
            for object in page.objects {
                listing.add(object, &self.uri.key, self.recursive);
            }
            after = page.next;
            if after.is_none() {
                return Ok(listing);
            }
        }
    }

    fn path(&self, limit: u64, after: Option<&str>) -> String {
        let uri = self.uri.to_string();
        let limit = limit.min(CACHED_OBJECTS_MAX as u64).to_string();
        let identity = self.identity.as_deref().map(|identity| ("identity", identity));
        let after = after.map(|after| ("after", after));
        let parameters = [Some(("uri", &*uri)), Some(("limit", &*limit)), identity, after];
        let parameters = parameters.into_iter().flatten();
        let parameters = parameters
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            .collect::<Vec<_>>();
        format!("/cached?{}", parameters.join("&"))
    }

    fn to_text(&self, listing: &Listing) -> String {
        if listing.entries.is_empty() {
            return String::new();
        }
        let head = ["size", "cached", "nodes", "objects", "state", "name"].map(str::to_owned);
        // As `aws s3 ls`: whole keys only where they may be in several folders.
        let folder = self.uri.key.rfind('/').map_or(0, |slash| slash + 1);
        let shown = if self.recursive { 0 } else { folder };
        let rows = listing.entries.iter().map(|entry| entry.row(shown));
        table(std::iter::once(head).chain(rows))
    }
}

impl Listing {
    /// Adds the next object below `prefix`: to its folder, unless each object is an entry.
    fn add(&mut self, object: CachedObject, prefix: &str, is_recursive: bool) {
        let below = object.key.get(prefix.len()..).unwrap_or_default();
        let slash = below.find('/').filter(|_| !is_recursive);
        let folder = slash.map(|slash| &object.key[..=prefix.len() + slash]);
        let key = folder.unwrap_or(&object.key);
        let is_folder = folder.is_some();
        let is_same = |last: &Entry| is_folder && last.folder && last.key == key;
        if !self.entries.last().is_some_and(is_same) {
            self.entries.push(Entry {
                key: key.to_owned(),
                folder: is_folder,
                ..Entry::default()
            });
        }
        let entry = self.entries.last_mut().expect("an entry was found or added");
        entry.objects += 1;
        entry.size_bytes += object.size_bytes;
        entry.cached_bytes += object.cached_bytes;
        entry.pinned += u64::from(object.pinned);
        entry.dirty += u64::from(object.dirty);
        for (node, bytes) in object.nodes {
            *entry.nodes.entry(node).or_default() += bytes;
        }
    }
}

impl Entry {
    /// Returns the cells of its line. The key is shown without its first bytes up to `from`.
    fn row(&self, from: usize) -> [String; 6] {
        let key = self.key.get(from..).filter(|key| !key.is_empty());
        [
            bytes(self.size_bytes),
            percent(self.cached_bytes, self.size_bytes),
            nodes(&self.nodes),
            if self.folder {
                self.objects.to_string()
            } else {
                String::new()
            },
            self.state(),
            key.unwrap_or(&self.key).to_owned(),
        ]
    }

    fn state(&self) -> String {
        let states = [(self.pinned, "pinned"), (self.dirty, "dirty")];
        let states: Vec<_> = if self.folder {
            some_of(&states).collect()
        } else {
            let those = states.into_iter().filter(|(count, _)| *count > 0);
            those.map(|(_, state)| state.to_owned()).collect()
        };
        states.join(", ")
    }
}

/// Formats a part of a whole, rounded down, so that only all of it is 100%, and only nothing 0%.
fn percent(part: u64, whole: u64) -> String {
    match (u128::from(part) * 100).checked_div(whole.into()) {
        None => "-".into(),
        Some(0) if part > 0 => "<1%".into(),
        Some(percent) => format!("{percent}%"),
    }
}

fn nodes(nodes: &BTreeMap<String, u64>) -> String {
    let shown = nodes.keys().take(NODES_SHOWN).cloned().collect::<Vec<_>>();
    match nodes.len().saturating_sub(NODES_SHOWN) {
        0 => shown.join(", "),
        others => format!("{} and {}", shown.join(", "), counted(others, "other")),
    }
}

#[cfg(test)]
mod tests {
    use super::{CachedObject, Entry, Listing, nodes, percent};

    fn object(key: &str, cached_bytes: u64) -> CachedObject {
        CachedObject {
            key: key.into(),
            size_bytes: 10,
            cached_bytes,
            nodes: [("n0".to_owned(), cached_bytes)].into(),
            pinned: cached_bytes == 10,
            dirty: cached_bytes == 1,
        }
    }

    fn listing(prefix: &str, is_recursive: bool, keys: &[&str]) -> Listing {
        let mut listing = Listing {
            uri: String::new(),
            entries: Vec::new(),
            cut_off: false,
            silent: [].into(),
        };
        for key in keys {
            listing.add(object(key, 4), prefix, is_recursive);
        }
        listing
    }

    fn keys(listing: &Listing) -> Vec<(&str, u64)> {
        let entries = listing.entries.iter();
        entries.map(|entry| (&*entry.key, entry.objects)).collect()
    }

    #[test]
    fn objects_are_grouped_as_a_listing_with_a_delimiter_groups_them() {
        let all = ["a", "a/", "a/b", "a/c/d", "a/c/e", "ab/f", "ä/g"];
        let expected = [("a", 1), ("a/", 4), ("ab/", 1), ("ä/", 1)];
        assert_eq!(keys(&listing("", false, &all)), expected);
        let below = ["a/", "a/b", "a/c/d", "a/c/e"];
        let expected = [("a/", 1), ("a/b", 1), ("a/c/", 2)];
        assert_eq!(keys(&listing("a/", false, &below)), expected);
        assert_eq!(
            keys(&listing("a", false, &["a", "a/b", "a/c"])),
            [("a", 1), ("a/", 2)]
        );
        assert_eq!(keys(&listing("a/", true, &below)).len(), 4);
        assert_eq!(keys(&listing("", false, &["/", "//", "/a"])), [("/", 3)]);
    }

    #[test]
    fn a_folder_adds_up_its_objects() {
        let mut listing = listing("", false, &["a/b"]);
        listing.add(object("a/c", 10), "", false);
        listing.add(object("a/d", 1), "", false);
        let shown = listing.entries[0].row(0);
        assert_eq!(shown, ["30 B", "50%", "n0", "3", "1 pinned, 1 dirty", "a/"]);
    }

    #[test]
    fn an_object_is_shown_by_its_key_below_the_folder_that_is_listed() {
        let mut listing = listing("a/", false, &["a/"]);
        listing.add(object("a/bc", 10), "a/b", false);
        assert_eq!(listing.entries[0].row(2), ["10 B", "40%", "n0", "", "", "a/"]);
        assert_eq!(
            listing.entries[1].row(2),
            ["10 B", "100%", "n0", "", "pinned", "bc"]
        );
        let nowhere = Entry::default().row(0);
        assert_eq!(nowhere, ["0 B", "-", "", "", "", ""]);
    }

    #[test]
    fn only_all_is_a_hundred_percent_and_only_nothing_is_none() {
        let cases = [
            (0, 5, "0%"),
            (1, 1000, "<1%"),
            (999, 1000, "99%"),
            (7, 7, "100%"),
            (0, 0, "-"),
        ];
        for (part, whole, expected) in cases {
            assert_eq!(percent(part, whole), expected);
        }
        assert_eq!(percent(u64::MAX, u64::MAX), "100%");
    }

    #[test]
    fn a_line_names_a_few_nodes() {
        let named = |count: u64| nodes(&(0..count).map(|node| (format!("n{node}"), 1)).collect());
        assert_eq!(named(0), "");
        assert_eq!(named(4), "n0, n1, n2, n3");
        assert_eq!(named(5), "n0, n1, n2, n3 and 1 other");
        assert_eq!(named(9), "n0, n1, n2, n3 and 5 others");
    }
}
