//! A map that the registry has lost is taken from the lake.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use shoal_net::clock;
use shoal_net::endpoint::s3::SendOptions;
use shoal_pack::table::{Packed, Row};
use shoal_pack::{Description, PackBuilder};
use shoal_registry::roots::{Purpose, RebuildError};
use shoal_registry::session::new_id;
use tokio::time::sleep;
use ulid::Ulid;

use super::lab::{Lab, Objects, row};
use crate::dirty::packs::PackMap;
use crate::dirty::packs::rebuild::{NotRebuilt, Rebuilt};

const FENCE: Duration = Duration::from_millis(100);

/// Returns the lake of a lab with a registry that has lost everything.
async fn lost(lab: Lab) -> Lab {
    let other = Lab::fenced(FENCE).await;
    *other.lake.objects.lock() = lab.lake.objects.lock().clone();
    other
}

fn node(lab: &Lab) -> Arc<PackMap> {
    lab.map(&lab.disk("node"))
}

async fn finds(map: &Arc<PackMap>, key: &str) -> Option<Packed> {
    map.newest().await.unwrap().map.get(key.as_bytes()).unwrap()
}

/// Writes a pack of an object to the lake. Returns its row.
async fn put_pack(lab: &Lab, pack: Ulid, key: &str, sequence: u64) -> Row {
    let description = Description {
        sequence,
        id: new_id(),
        writer: "AK".into(),
        modified: clock::utc_now(),
        etag: "\"e\"".into(),
        headers: HeaderMap::new(),
        of_reads: HeaderMap::new(),
        parts: Vec::new(),
    };
    let mut builder = PackBuilder::default();
    builder
        .add(key.as_bytes(), &description, Bytes::from_static(b"1"))
        .unwrap();
    let new = builder.finish();
    let (at_lake, client) = (lab.at_lake(), lab.client());
    let put = at_lake.put_pack(&client, pack, new.pieces, SendOptions::default());
    put.await.unwrap();
    Row::Packed(Packed::new(pack, &new.members[0]))
}

#[tokio::test]
async fn the_newest_table_is_the_whole_map_and_brings_no_removed_object_back() {
    let lab = Lab::fenced(FENCE).await;
    lab.commit(&[("data/a", row("data/a", b"1")), ("data/b", row("data/b", b"1"))])
        .await;
    let sequence = 3 << 48 | 9;
    lab.commit(&[("data/b", Row::Tombstone { sequence })]).await;
    let lab = lost(lab).await;
    let map = node(&lab);
    map.newest().await.unwrap_err();
    let whole = Rebuilt {
        tables: 2,
        damaged_packs: 0,
    };
    assert_eq!(map.rebuild(false).await.unwrap(), whole);
    assert!(finds(&map, "data/a").await.is_some() && finds(&map, "data/b").await.is_none());
    let root = lab.roots.read(&Lab::map_name()).await.unwrap().unwrap();
    assert_eq!(
        (root.number, root.next, root.rebuilds),
        (2, 3, 4),
        "new objects are the newest"
    );
    lab.commit(&[("data/c", row("data/c", b"1"))]).await;
    assert!(finds(&map, "data/c").await.is_some());
    // Once is enough.
    let again = map.rebuild(false).await.unwrap_err();
    assert!(
        matches!(again, NotRebuilt::Registry(RebuildError::NotOlder { .. })),
        "{again}"
    );
}

#[tokio::test]
async fn a_registry_from_a_backup_gets_the_tables_that_it_lacks() {
    let lab = Lab::fenced(FENCE).await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let backup = lost(lab).await;
    let map = node(&backup);
    map.rebuild(false).await.unwrap();
    let root = backup.roots.read(&Lab::map_name()).await.unwrap().unwrap();
    backup
        .put_table(root.next, &[("data/b", row("data/b", b"1"))], &root.tables)
        .await;
    let map = backup.map(&backup.disk("other"));
    map.newest().await.unwrap_err();
    map.rebuild(false).await.unwrap();
    assert!(finds(&map, "data/a").await.is_some() && finds(&map, "data/b").await.is_some());
}

#[tokio::test]
async fn a_map_without_one_of_its_tables_is_not_rebuilt_from_the_others() {
    let lab = Lab::fenced(FENCE).await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    lab.commit(&[("data/b", row("data/b", b"1"))]).await;
    let lab = lost(lab).await;
    let first = lab.at_lake().table(1);
    lab.at_lake()
        .remove(&first, SendOptions::default())
        .await
        .unwrap();
    let error = node(&lab).rebuild(false).await.unwrap_err();
    assert!(error.to_string().contains("--from-packs"), "{error}");
    assert_eq!(lab.roots.read(&Lab::map_name()).await, Ok(None));
}

#[tokio::test]
async fn a_table_that_the_lake_lists_late_is_in_the_map() {
    let lab = Lab::fenced(FENCE).await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let before = Objects::new(Mutex::new(lab.lake.objects.lock().clone()));
    lab.commit(&[("data/a", Row::Tombstone { sequence: 2 })]).await;
    let lab = Arc::new(lost(lab).await);
    lab.lake.lists(&before);
    let late = Arc::clone(&lab);
    let listing = tokio::spawn(async move {
        sleep(FENCE / 2).await;
        late.lake.works();
    });
    let map = node(&lab);
    assert_eq!(map.rebuild(false).await.unwrap().tables, 2);
    listing.await.unwrap();
    assert_eq!(finds(&map, "data/a").await, None, "no removed object comes back");
}

#[tokio::test]
async fn packs_make_a_map_of_the_newest_objects_if_all_tables_are_lost() {
    let lab = Lab::fenced(FENCE).await;
    let map = node(&lab);
    let none = map.rebuild(true).await.unwrap_err();
    assert!(matches!(none, NotRebuilt::NoPacks), "{none}");
    let packs: Vec<_> = (1..=4).map(|time| Ulid::from_parts(time, 0)).collect();
    put_pack(&lab, packs[0], "data/a", 9).await;
    put_pack(&lab, packs[1], "data/a", 8).await;
    put_pack(&lab, packs[2], "data/b", 2 << 48).await;
    put_pack(&lab, packs[3], "data/b", 2 << 48).await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let lab = lost(lab).await;
    let damaged = Ulid::from_parts(5, 0);
    put_pack(&lab, damaged, "data/c", 1).await;
    let key = String::from_utf8(lab.at_lake().pack(damaged).key.to_vec()).unwrap();
    lab.lake.objects.lock().get_mut(&key).unwrap().pop();
    let table = lab.at_lake().table(1);
    lab.at_lake()
        .remove(&table, SendOptions::default())
        .await
        .unwrap();

    let map = node(&lab);
    assert!(matches!(map.rebuild(false).await, Err(NotRebuilt::NoTables)));
    let rebuilt = Rebuilt {
        tables: 1,
        damaged_packs: 1,
    };
    assert_eq!(map.rebuild(true).await.unwrap(), rebuilt);
    let places = [
        finds(&map, "data/a").await.unwrap(),
        finds(&map, "data/b").await.unwrap(),
    ];
    assert_eq!(places.map(|row| row.pack), [packs[0], packs[3]]);
    assert!(finds(&map, "data/c").await.is_none());
    let root = lab.roots.read(&Lab::map_name()).await.unwrap().unwrap();
    assert_eq!(root.rebuilds, 3);
}

#[tokio::test]
async fn packs_replace_tables_that_are_lost_while_the_registry_is_not() {
    let lab = Lab::fenced(FENCE).await;
    let row = put_pack(&lab, Ulid::from_parts(1, 0), "data/a", 1).await;
    lab.commit(&[("data/a", row)]).await;
    let reserved = lab
        .roots
        .reserve(&Lab::map_name(), Purpose::Packing)
        .await
        .unwrap();
    let map = node(&lab);
    let busy = map.rebuild(true).await.unwrap_err();
    assert!(
        matches!(busy, NotRebuilt::Registry(RebuildError::Busy(_))),
        "{busy}"
    );
    lab.roots.release(&reserved).await;
    let table = lab.at_lake().table(1);
    lab.at_lake()
        .remove(&table, SendOptions::default())
        .await
        .unwrap();
    map.newest().await.unwrap_err();
    map.rebuild(true).await.unwrap();
    assert!(finds(&map, "data/a").await.is_some());
}
