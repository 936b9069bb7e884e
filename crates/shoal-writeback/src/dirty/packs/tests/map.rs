//! Which map reads get, and what they get without one.

use std::sync::Arc;
use std::time::Duration;

use shoal_net::endpoint::s3::SendOptions;
use shoal_pack::table::{Map, Row};
use shoal_registry::Moment;
use shoal_registry::roots::Purpose;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use super::lab::{Lab, of_root, row};
use crate::dirty::packs::{Look, MapError, PackMap};
use crate::tier::tests::scripted::Answer;

/// Returns true if the map finds an object of this name.
fn finds(map: &Map, key: &str) -> bool {
    map.get(key.as_bytes()).unwrap().is_some()
}

/// A lookup that began now.
fn look(number: Option<u64>, has_entry: bool) -> Look {
    let at = Moment::now();
    Look {
        number,
        has_entry,
        at,
    }
}

fn damage(error: &MapError) -> (u64, &str) {
    match error {
        MapError::Table {
            table,
            why,
            is_damage: true,
            ..
        } => (*table, why),
        error => panic!("{error}"),
    }
}

fn node(lab: &Lab) -> Arc<PackMap> {
    lab.map(&lab.disk("node"))
}

#[tokio::test]
async fn without_tables_the_map_is_empty_and_the_lake_is_listed_once() {
    let lab = Lab::new().await;
    let map = node(&lab);
    for _ in 0..3 {
        let newest = map.newest().await.unwrap();
        assert!(newest.root.is_none() && newest.map.tables().is_empty());
    }
    assert_eq!(lab.lake.asked("GET", "list-type"), 1);
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    assert!(finds(&map.newest().await.unwrap().map, "data/a"));
    assert_eq!(
        lab.lake.asked("GET", "list-type"),
        1,
        "a map that begins is not lost"
    );
}

#[tokio::test]
async fn tables_without_a_root_are_an_error_until_the_map_is_rebuilt() {
    let lab = Lab::new().await;
    let table = lab.put_table(3, &[("data/a", row("data/a", b"1"))], &[]).await;
    let map = node(&lab);
    let lost = map.current().await.unwrap_err();
    assert!(matches!(lost, MapError::Lost { table: 3, .. }), "{lost}");
    assert!(lost.to_string().contains("s3://b/data/") && lost.to_string().contains("shoal pack rebuild"));
    assert!(map.trouble().is_some());
    map.newest().await.unwrap_err();
    lab.roots
        .rebuild(&Lab::map_name(), &[of_root(&table)], 1)
        .await
        .unwrap();
    assert!(finds(&map.current().await.unwrap(), "data/a"));
    assert!(map.trouble().is_none());
}

#[tokio::test]
async fn a_table_that_the_registry_has_not_numbered_is_an_error_and_a_reserved_one_is_none() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let reserved = lab
        .roots
        .reserve(&Lab::map_name(), Purpose::Packing)
        .await
        .unwrap();
    lab.put_table(reserved.number(), &[("data/b", row("data/b", b"1"))], &[])
        .await;
    let map = lab.map(&lab.disk("first")).newest().await.unwrap().map;
    assert!(finds(&map, "data/a") && !finds(&map, "data/b"));
    lab.put_table(reserved.number() + 1, &[], &[]).await;
    let lost = lab.map(&lab.disk("second")).newest().await.unwrap_err();
    assert!(matches!(lost, MapError::Lost { table: 3, .. }), "{lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_reserved_while_the_lake_is_listed_is_none() {
    let lab = Arc::new(Lab::new().await);
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    let committing = Arc::clone(&lab);
    lab.lake.fails(move |asked| {
        let is_first = asked.target.contains("list-type") && committing.lake.objects.lock().len() == 1;
        if is_first {
            let rows = [("data/b", row("data/b", b"1"))];
            block_in_place(|| Handle::current().block_on(committing.commit(&rows)));
        }
        None
    });
    let newest = map.newest().await.unwrap();
    assert!(finds(&newest.map, "data/b"), "the root was read again");
    assert_eq!(newest.root.unwrap().number, 2);
}

#[tokio::test]
async fn a_registry_that_does_not_answer_or_a_lake_that_does_not_list_is_no_empty_map() {
    let lab = Lab::new().await;
    lab.lake.fails(|_| Some(Answer::new(403)));
    let refused = node(&lab).current().await.unwrap_err();
    assert!(matches!(refused, MapError::Unlisted { .. }), "{refused}");
    assert!(refused.to_string().contains("pack_as"), "{refused}");
}

#[tokio::test]
async fn each_table_is_read_once_by_a_node() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    map.newest().await.unwrap();
    lab.commit(&[("data/b", row("data/b", b"1"))]).await;
    for _ in 0..3 {
        let newest = map.newest().await.unwrap().map;
        assert!(finds(&newest, "data/a") && finds(&newest, "data/b"));
    }
    assert_eq!(lab.lake.asked("GET", "/map/"), 2);
}

#[tokio::test]
async fn a_name_with_an_entry_is_read_by_a_map_as_new_as_its_number_and_others_are_not() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    map.current().await.unwrap();
    let before_the_commit = look(Some(1), true);
    lab.commit(&[("data/b", row("data/b", b"1"))]).await;

    map.seen(look(Some(2), false));
    assert!(
        !finds(&map.current().await.unwrap(), "data/b"),
        "no read waits for it"
    );
    map.seen(look(Some(2), true));
    assert!(finds(&map.current().await.unwrap(), "data/b"));

    // A late answer about an older map needs no other one.
    let requests = lab.lake.requests().len();
    lab.roots.create(&Lab::map_name()).await.unwrap();
    map.seen(before_the_commit);
    assert!(finds(&map.current().await.unwrap(), "data/b"));
    assert_eq!(lab.lake.requests().len(), requests);
}

#[tokio::test]
async fn a_map_that_is_gone_from_the_registry_is_not_used_for_names_with_an_entry() {
    let lab = Lab::new().await;
    let table = lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    assert!(finds(&map.current().await.unwrap(), "data/a"));
    lab.roots.end(&Lab::map_name()).await.unwrap();
    assert!(lab.roots.remove(&Lab::map_name(), 1).await.unwrap());
    map.seen(look(None, true));
    // Its tables may still be at the lake: the registry has given out their numbers.
    assert!(!finds(&map.current().await.unwrap(), "data/a"));
    assert!(map.at_lake.tables().await.unwrap().contains(&table.number));
}

#[tokio::test]
async fn a_map_is_current_for_half_of_fence_after_its_number_was_seen() {
    let fence = Duration::from_secs(4);
    let lab = Lab::fenced(fence).await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    map.current().await.unwrap();
    lab.commit(&[("data/b", row("data/b", b"1"))]).await;
    assert!(
        !finds(&map.current().await.unwrap(), "data/b"),
        "the root is not read"
    );
    sleep(fence * 6 / 10).await;
    assert!(
        finds(&map.current().await.unwrap(), "data/b"),
        "the map is too old"
    );

    sleep(fence * 3 / 10).await;
    map.seen(look(Some(2), false));
    sleep(fence * 3 / 10).await;
    lab.commit(&[("data/c", row("data/c", b"1"))]).await;
    assert!(
        !finds(&map.current().await.unwrap(), "data/c"),
        "the root is not read"
    );
}

#[tokio::test]
async fn a_map_is_kept_current_without_reads() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    let keeping = {
        let map = Arc::clone(&map);
        tokio::spawn(async move { map.keep_current().await })
    };
    map.current().await.unwrap();
    lab.commit(&[("data/b", row("data/b", b"1"))]).await;
    let found = async {
        while !finds(&map.current().await.unwrap(), "data/b") {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(20), found).await.unwrap();
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_one_look_which_goes_on_without_them() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    lab.lake.fails(|asked| {
        if asked.target.contains("/map/") {
            block_in_place(|| std::thread::sleep(Duration::from_millis(500)));
        }
        None
    });
    let reads = (0..8).map(|_| async { timeout(Duration::from_millis(50), map.current()).await.is_err() });
    let gave_up = futures_util::future::join_all(reads).await;
    assert!(gave_up.into_iter().all(|gave_up| gave_up));
    let reads = (0..8).map(|_| map.current());
    for read in futures_util::future::join_all(reads).await {
        assert!(finds(&read.unwrap(), "data/a"));
    }
    assert_eq!(lab.lake.asked("GET", "/map/"), 1);
    assert_eq!(
        lab.lake.asked("GET", "list-type"),
        2,
        "one list, the last page of which is empty"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_replaced_and_removed_meanwhile_is_not_missed() {
    let lab = Arc::new(Lab::new().await);
    let old = lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    let merging = Arc::clone(&lab);
    lab.lake.fails(move |asked| {
        let merge = async {
            let name = Lab::map_name();
            let reserved = merging.roots.reserve(&name, Purpose::Upkeep).await.unwrap();
            let rows = [("data/a", row("data/a", b"1"))];
            let merged = merging.put_table(reserved.number(), &rows, &[]).await;
            merging
                .roots
                .commit(&reserved, vec![of_root(&merged)])
                .await
                .unwrap();
            let name = merging.at_lake().table(old.number);
            merging
                .at_lake()
                .remove(&name, SendOptions::default())
                .await
                .unwrap();
        };
        let is_first = asked.method == "GET" && asked.path().ends_with("0001");
        if is_first {
            block_in_place(|| Handle::current().block_on(merge));
        }
        None
    });
    assert!(finds(&map.current().await.unwrap(), "data/a"));
    assert_eq!(lab.lake.asked("GET", "/map/00000000000000000001"), 1);
    assert!(map.damages.objects().is_empty(), "it was rightly gone");
}

#[tokio::test]
async fn a_table_that_is_gone_or_damaged_at_the_lake_is_named_and_not_asked_for_by_each_read() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let key = "data/.shoal-pack/map/00000000000000000001";
    let whole = lab.lake.objects.lock()[key].clone();
    let other = lab.put_table(1, &[("data/b", row("data/b", b"1"))], &[]).await;
    assert_eq!(other.size_bytes, whole.len() as u64);
    let other = lab.lake.objects.lock()[key].clone();
    let mut flipped = whole.clone();
    flipped[0] ^= 1;
    let cut = whole[..whole.len() - 1].to_vec();
    for (node, bytes) in [None, Some(other), Some(flipped), Some(cut)]
        .into_iter()
        .enumerate()
    {
        match bytes {
            None => drop(lab.lake.objects.lock().remove(key)),
            Some(bytes) => drop(lab.lake.objects.lock().insert(key.into(), bytes)),
        }
        let map = lab.map(&lab.disk(&node.to_string()));
        let asked = lab.lake.asked("GET", key);
        for _ in 0..3 {
            let error = map.current().await.unwrap_err();
            assert_eq!(damage(&error).0, 1);
        }
        assert_eq!(lab.lake.asked("GET", key), asked + 1, "{node}");
        let damages = map.damages.objects();
        assert_eq!(&*damages[0].0, format!("s3://b/{key}"), "{node}");
        assert!(map.trouble().is_some());
    }
}

#[tokio::test]
async fn a_lake_that_is_out_of_order_is_asked_again_and_no_damage() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    lab.lake
        .fails(|asked| asked.target.contains("/map/").then(|| Answer::new(403)));
    let error = map.current().await.unwrap_err();
    assert!(
        matches!(error, MapError::Table { is_damage: false, .. }),
        "{error}"
    );
    assert!(map.damages.objects().is_empty());
    lab.lake.works();
    assert!(finds(&map.current().await.unwrap(), "data/a"));
}

#[tokio::test]
async fn the_table_of_a_number_is_the_one_at_the_lake_or_none() {
    let lab = Lab::new().await;
    let older = lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let table = lab
        .put_table(2, &[("data/b", row("data/b", b"1"))], &[of_root(&older)])
        .await;
    let map = node(&lab);
    let found = map.table(2).await.unwrap().unwrap();
    assert_eq!((found.listed(), &found.place().older), (table, &vec![older]));
    assert!(map.table(3).await.unwrap().is_none());
    lab.lake.fails(|_| Some(Answer::new(403)));
    assert!(map.table(4).await.is_err(), "a refusal is no absence");
    // The root does not name it, so it leaves the disk with the next map.
    lab.lake
        .objects
        .lock()
        .remove("data/.shoal-pack/map/00000000000000000002");
    lab.lake.works();
    let newest = map.newest().await.unwrap();
    assert_eq!(newest.map.tables().len(), 1);
}

#[tokio::test]
async fn a_root_that_is_not_the_newest_can_be_loaded() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    let before = map.newest().await.unwrap().root.unwrap();
    lab.commit(&[("data/a", Row::Tombstone { sequence: 2 })]).await;
    assert!(!finds(&map.newest().await.unwrap().map, "data/a"));
    assert!(finds(&map.load(&before).await.unwrap(), "data/a"));
    assert!(
        !finds(&map.current().await.unwrap(), "data/a"),
        "the newest stays"
    );
}

/// Delays the answers about the first table. Returns a notice of the first one.
fn delay(lab: &Lab, time: Duration) -> Arc<Notify> {
    let asked_for = Arc::new(Notify::new());
    let notice = Arc::clone(&asked_for);
    lab.lake.fails(move |asked| {
        if asked.method == "GET" && asked.path().ends_with("0001") {
            notice.notify_one();
            block_in_place(|| std::thread::sleep(time));
        }
        None
    });
    asked_for
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_began_before_is_not_enough() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    let asked_for = delay(&lab, Duration::from_secs(1));
    let looking = {
        let map = Arc::clone(&map);
        tokio::spawn(async move { map.current().await })
    };
    asked_for.notified().await;
    lab.commit(&[("data/b", row("data/b", b"1"))]).await;
    let newest = map.newest().await.unwrap();
    assert!(finds(&newest.map, "data/b"));
    assert!(!finds(&looking.await.unwrap().unwrap(), "data/b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_took_long_to_read_is_not_taken_for_the_newest() {
    let fence = Duration::from_secs(1);
    let lab = Lab::fenced(fence).await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let map = node(&lab);
    let asked_for = delay(&lab, fence);
    let commit = async {
        asked_for.notified().await;
        lab.commit(&[("data/b", row("data/b", b"1"))]).await;
    };
    let (read, ()) = tokio::join!(map.current(), commit);
    assert!(finds(&read.unwrap(), "data/b"));
    assert_eq!(lab.lake.asked("GET", "/map/"), 2);
}
