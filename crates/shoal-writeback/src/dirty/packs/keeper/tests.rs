//! The keeper at a lake that fails, beside other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use shoal_net::clock;
use shoal_net::endpoint::s3::SendOptions;
use shoal_pack::table::{Names, Packed, Row};
use shoal_pack::{Description, PackBuilder};
use shoal_registry::roots::{Purpose, Root};
use shoal_registry::session::new_id;
use shoal_s3::etag;
use shoal_s3::identity::{Identities, Identity};
use shoal_s3::range::ByteRange;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use super::{Keeper, NotKept, Watch};
use crate::dirty::packs::at_lake::get_range;
use crate::dirty::packs::tests::lab::{Lab, Objects};
use crate::tier::tests::scripted::Answer;

const FENCE: Duration = Duration::from_millis(100);

/// A keeper of the lab's map.
struct Bed {
    lab: Arc<Lab>,
    keeper: Keeper,
    watch: Watch,
}

impl Bed {
    async fn new() -> Self {
        let lab = Arc::new(Lab::fenced(FENCE).await);
        let map = lab.map(&lab.disk("keeper"));
        let identities = Identities::new([Identity::new("AK", "secret"), Identity::new("OTHER", "secret")]);
        Self {
            lab,
            keeper: Keeper::new(map, Arc::new(identities)),
            watch: Watch::default(),
        }
    }

    /// Keeps the map once, as if enough time had passed since the last survey.
    async fn keep(&mut self) -> Result<(), NotKept> {
        self.watch.rests_until = Instant::now();
        self.keeper.keep(&mut self.watch).await
    }

    /// Keeps the map until after what was named is removed.
    async fn keep_on(&mut self) {
        self.keep().await.unwrap();
        sleep(FENCE * 2).await;
        self.keep().await.unwrap();
        self.keep().await.unwrap();
    }

    /// Writes a pack of these objects of 100 bytes. Returns their rows.
    async fn put_pack(&self, id: Ulid, keys: &[&str], writer: &str) -> BTreeMap<String, Row> {
        let mut builder = PackBuilder::default();
        for key in keys {
            let bytes = bytes_of(key);
            let description = Description {
                sequence: 1,
                id: new_id(),
                writer: writer.into(),
                modified: clock::utc_now(),
                etag: etag::of_md5(&Md5::digest(&bytes)),
                headers: HeaderMap::new(),
                of_reads: HeaderMap::new(),
                parts: Vec::new(),
            };
            builder.add(key.as_bytes(), &description, bytes).unwrap();
        }
        let pack = builder.finish();
        let put = self.lab.at_lake();
        put.put_pack(&self.lab.client(), id, pack.pieces, SendOptions::default())
            .await
            .unwrap();
        let rows = pack.members.iter().map(|member| {
            let key = String::from_utf8(member.key.to_vec()).unwrap();
            (key, Row::Packed(Packed::new(id, member)))
        });
        rows.collect()
    }

    /// Packs objects, and commits their table.
    async fn pack(&self, keys: &[&str]) -> Ulid {
        let id = new_id();
        let rows = self.put_pack(id, keys, "AK").await;
        let rows: Vec<_> = rows.iter().map(|(key, row)| (&**key, row.clone())).collect();
        self.lab.commit(&rows).await;
        id
    }

    async fn root(&self) -> Root {
        let root = self.lab.roots.read(&Lab::map_name()).await;
        root.unwrap().unwrap()
    }

    async fn unname(&self, keys: &[&str]) {
        let rows: Vec<_> = keys
            .iter()
            .map(|key| (*key, Row::Tombstone { sequence: 2 }))
            .collect();
        self.lab.commit(&rows).await;
    }

    /// Returns the object that the map finds, once its bytes are the right ones.
    async fn find(&self, key: &str) -> Option<Packed> {
        let found = self
            .keeper
            .map
            .newest()
            .await
            .unwrap()
            .map
            .get(key.as_bytes())
            .unwrap()?;
        let (client, pack) = (self.lab.client(), self.lab.at_lake().pack(found.pack));
        let range = ByteRange::new(found.range.start, found.range.end);
        let read = get_range(&client, &pack, range, HeaderMap::new()).await.unwrap();
        assert_eq!(read, bytes_of(key), "{key}");
        assert_eq!(
            found.description().unwrap().etag,
            etag::of_md5(&Md5::digest(&read))
        );
        Some(found)
    }

    /// Returns the keys of objects at the lake that contain this.
    fn at_lake(&self, part: &str) -> Vec<String> {
        let objects = self.lab.lake.objects.lock();
        objects.keys().filter(|key| key.contains(part)).cloned().collect()
    }

    fn has_pack(&self, pack: Ulid) -> bool {
        !self.at_lake(&pack.to_string()).is_empty()
    }
}

fn bytes_of(key: &str) -> Bytes {
    key.repeat(100).into()
}

/// Objects of a pack of which the last one is to live.
const FOUR: [&str; 4] = ["data/a", "data/b", "data/c", "data/d"];

#[tokio::test]
async fn eight_tables_become_one_and_are_removed_once_no_node_needs_them() {
    let mut bed = Bed::new().await;
    let keys: Vec<_> = (0..8).map(|number| format!("data/{number}")).collect();
    for key in &keys[..7] {
        bed.pack(&[key]).await;
    }
    bed.keep().await.unwrap();
    assert_eq!(bed.root().await.tables.len(), 7);
    bed.pack(&[&keys[7]]).await;
    bed.unname(&[&keys[0]]).await;
    bed.keep().await.unwrap();
    let merged = bed.root().await;
    let numbers: Vec<_> = merged.tables.iter().map(|table| table.number).collect();
    assert_eq!(numbers, [10, 1], "the newest eight of nine");
    assert_eq!(
        bed.find(&keys[0]).await,
        None,
        "the tombstone stays before the oldest table"
    );
    for key in &keys[1..] {
        assert!(bed.find(key).await.is_some());
    }
    assert_eq!(
        bed.at_lake("/map/").len(),
        10,
        "nodes may use a map that lists them"
    );
    bed.keep_on().await;
    assert_eq!(bed.at_lake("/map/").len(), 2);
    let requests = bed.lab.lake.requests().len();
    bed.keep().await.unwrap();
    assert_eq!(
        bed.lab.lake.requests().len(),
        requests,
        "an idle map costs nothing"
    );
}

#[tokio::test]
async fn the_oldest_tables_lose_their_tombstones_as_they_are_merged() {
    let mut bed = Bed::new().await;
    bed.pack(&["data/a"]).await;
    for _ in 0..7 {
        bed.unname(&["data/a"]).await;
    }
    bed.keep().await.unwrap();
    let map = bed.keeper.map.newest().await.unwrap().map;
    let rows: Vec<_> = map
        .tables()
        .iter()
        .map(|table| table.rows(Names::default()).count())
        .collect();
    assert_eq!(rows, [0]);
}

#[tokio::test]
async fn a_pack_that_is_mostly_dead_is_rewritten_and_removed_after_twice_fence() {
    let mut bed = Bed::new().await;
    let pack = bed.pack(&FOUR).await;
    bed.unname(&FOUR[..1]).await;
    bed.keep().await.unwrap();
    assert_eq!(
        bed.find("data/d").await.unwrap().pack,
        pack,
        "most of it is alive"
    );
    bed.unname(&FOUR[1..3]).await;
    bed.keep().await.unwrap();
    let moved = bed.find("data/d").await.unwrap();
    assert_ne!(moved.pack, pack);
    assert_eq!(moved.sequence, 1);
    bed.keep().await.unwrap();
    assert!(bed.has_pack(pack), "a node may read it by an older map");
    bed.keep_on().await;
    assert!(!bed.has_pack(pack) && bed.has_pack(moved.pack));
    assert_eq!(bed.find("data/d").await.unwrap().pack, moved.pack);
}

#[tokio::test]
async fn many_small_packs_of_a_writer_become_one() {
    let mut bed = Bed::new().await;
    let mut packs = Vec::new();
    for number in 0..3 {
        let keys: Vec<_> = FOUR.iter().map(|key| format!("{key}{number}")).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        packs.push(bed.pack(&keys).await);
        bed.unname(&keys[..3]).await;
    }
    bed.keep().await.unwrap();
    let mut moved = Vec::new();
    for number in 0..3 {
        moved.push(bed.find(&format!("data/d{number}")).await.unwrap().pack);
    }
    moved.dedup();
    assert!(moved.len() == 1 && !packs.contains(&moved[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_removed_while_its_pack_is_rewritten_stays_removed() {
    let mut bed = Bed::new().await;
    bed.pack(&FOUR).await;
    bed.unname(&FOUR[..3]).await;
    let lab = Arc::clone(&bed.lab);
    bed.lab.lake.fails(move |asked| {
        if asked.method == "PUT" && asked.target.contains(".zip") {
            let gone = [("data/d", Row::Tombstone { sequence: 9 })];
            block_in_place(|| Handle::current().block_on(lab.commit(&gone)));
        }
        None
    });
    bed.keep().await.unwrap();
    bed.lab.lake.works();
    assert_eq!(bed.find("data/d").await, None);
    // The new pack was never named, so it is young garbage; the old one goes.
    bed.keep_on().await;
    assert_eq!(bed.at_lake(".zip").len(), 1);
}

#[tokio::test]
async fn a_pack_that_is_damaged_or_refused_stays_and_is_not_tried_at_once() {
    let mut bed = Bed::new().await;
    let pack = bed.pack(&FOUR).await;
    bed.unname(&FOUR[..3]).await;
    let key = bed.at_lake(".zip").remove(0);
    let right = bed.lab.lake.objects.lock()[&key].clone();
    let at = bed.find("data/d").await.unwrap().range.start as usize;
    bed.lab.lake.objects.lock().get_mut(&key).unwrap()[at] ^= 1;
    for _ in 0..2 {
        bed.watch.surveyed = None;
        bed.keep().await.unwrap();
    }
    let gets = |bed: &Bed| bed.lab.lake.asked("GET", ".zip");
    assert_eq!(gets(&bed), 2, "one by the test, one by the keeper");
    assert_eq!(bed.lab.lake.asked("PUT", ".zip"), 1);
    let damaged = bed.keeper.map.damages.objects();
    assert!(damaged[0].0.contains(&pack.to_string()), "{damaged:?}");

    bed.lab.lake.objects.lock().insert(key, right);
    bed.lab
        .lake
        .fails(|asked| (asked.method == "PUT").then(|| Answer::new(403)));
    bed.watch = Watch::default();
    bed.keep_on().await;
    assert_eq!(bed.lab.lake.asked("PUT", ".zip"), 2);
    bed.lab.lake.works();
    assert_eq!(bed.find("data/d").await.unwrap().pack, pack);
}

#[tokio::test]
async fn a_pack_that_was_never_named_stays_for_a_day() {
    let mut bed = Bed::new().await;
    bed.pack(&["data/a"]).await;
    let (young, old) = (new_id(), Ulid::from_parts(1_577_000_000_000, 1));
    bed.put_pack(young, &["data/b"], "AK").await;
    bed.put_pack(old, &["data/c"], "AK").await;
    bed.keep().await.unwrap();
    assert!(bed.has_pack(old), "it may have been named until now");
    bed.keep_on().await;
    assert!(!bed.has_pack(old) && bed.has_pack(young));
}

#[tokio::test]
async fn no_pack_is_removed_while_the_reservation_of_a_dead_node_may_name_it() {
    let mut bed = Bed::new().await;
    bed.pack(&["data/a"]).await;
    let old = Ulid::from_parts(1_577_000_000_000, 1);
    bed.put_pack(old, &["data/c"], "AK").await;
    let reserved = bed
        .lab
        .roots
        .reserve(&Lab::map_name(), Purpose::Packing)
        .await
        .unwrap();
    bed.lab.put_table(reserved.number(), &[], &[]).await;
    bed.keep_on().await;
    bed.keep_on().await;
    assert!(bed.has_pack(old));
    assert_eq!(bed.at_lake("/map/").len(), 2, "the reserved table stays, too");
    bed.lab.roots.release(&reserved).await;
    bed.keep_on().await;
    assert!(!bed.has_pack(old));
    assert_eq!(bed.at_lake("/map/").len(), 1);
}

#[tokio::test]
async fn nothing_is_removed_if_the_lake_has_a_table_that_the_registry_has_not_given_out() {
    let mut bed = Bed::new().await;
    bed.pack(&["data/a"]).await;
    let pack = bed.pack(&FOUR).await;
    bed.keep().await.unwrap();
    bed.unname(&FOUR).await;
    bed.keep().await.unwrap();
    sleep(FENCE * 2).await;
    bed.lab.put_table(7, &[], &[]).await;
    let error = bed.keep().await.unwrap_err();
    assert!(matches!(error, NotKept::Newer(7)), "{error}");
    assert!(bed.has_pack(pack));
}

#[tokio::test]
async fn a_lake_that_lists_late_loses_nothing() {
    let mut bed = Bed::new().await;
    let old = bed.pack(&FOUR).await;
    bed.keep().await.unwrap();
    let before = Objects::new(Mutex::new(bed.lab.lake.objects.lock().clone()));
    let new = bed.pack(&["data/e"]).await;
    bed.lab.lake.lists(&before);
    bed.keep_on().await;
    assert!(bed.has_pack(old) && bed.has_pack(new));
    bed.lab.lake.works();
    bed.unname(&FOUR).await;
    bed.keep_on().await;
    assert!(!bed.has_pack(old) && bed.has_pack(new));
    // It shows what is gone, and hides what has come.
    bed.lab.lake.lists(&before);
    for _ in 0..2 {
        bed.watch.surveyed = None;
        bed.keep_on().await;
    }
    assert!(bed.find("data/e").await.is_some() && bed.at_lake("/map/").len() == 3);
    bed.lab.lake.works();
    bed.watch.surveyed = None;
    bed.keep_on().await;
    assert_eq!(bed.at_lake(".zip"), bed.at_lake(&new.to_string()));
    assert!(bed.find("data/e").await.is_some());
}

#[tokio::test]
async fn a_map_without_a_root_is_left_alone() {
    let mut bed = Bed::new().await;
    let old = Ulid::from_parts(1_577_000_000_000, 1);
    bed.put_pack(old, &["data/c"], "AK").await;
    bed.keep_on().await;
    assert!(bed.has_pack(old));
}
