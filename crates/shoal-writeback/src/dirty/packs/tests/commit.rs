//! Tables of two nodes at a lake that loses requests and answers, is late, or lists late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use shoal_pack::table::TableBuilder;
use shoal_registry::roots::Purpose;

use super::lab::{Lab, answer, row};
use crate::dirty::packs::{MapChange, MapError, NotCommitted, PackMap};
use crate::tier::tests::scripted::Answer;

const FENCE: Duration = Duration::from_millis(200);

/// Number of tables of each node.
const TABLES: usize = 8;

async fn commit(lab: &Lab, map: &Arc<PackMap>, key: &str) -> Result<(), NotCommitted> {
    let permit = lab.roots.session().permit().unwrap();
    let (key, row) = (key.to_owned(), row(key, b"1"));
    let change = move |_: &_| {
        let mut table = TableBuilder::default();
        table.add(key.as_bytes(), &row)?;
        Ok(MapChange::Add(table))
    };
    map.commit(Purpose::Packing, &permit, change).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_two_nodes_are_committed_or_not_whatever_becomes_of_requests_and_answers() {
    let lab = Lab::fenced(FENCE).await;
    let objects = Arc::clone(&lab.lake.objects);
    let (puts, heads) = (AtomicUsize::new(0), AtomicUsize::new(0));
    lab.lake.fails(move |asked| {
        if asked.method == "HEAD" && heads.fetch_add(1, Ordering::Relaxed) == 0 {
            return Some(Answer::new(503));
        }
        if asked.method != "PUT" {
            return None;
        }
        match puts.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => return None,
            1 => drop(answer(&objects, asked)),
            2 => {
                let (objects, asked) = (Arc::clone(&objects), asked.clone());
                thread::spawn(move || {
                    thread::sleep(FENCE / 2);
                    answer(&objects, &asked);
                });
            }
            _ => {}
        }
        Some(Answer::new(500))
    });
    let nodes = ["one", "other"].map(|node| (node, lab.map(&lab.disk(node))));
    let work = nodes.each_ref().map(|(node, map)| {
        let lab = &lab;
        async move {
            let mut committed = Vec::new();
            for number in 0..TABLES {
                let key = format!("data/{node}-{number}");
                committed.push((commit(lab, map, &key).await.is_ok(), key));
            }
            committed
        }
    });
    let outcomes = futures_util::future::join_all(work).await.concat();
    let count = outcomes.iter().filter(|(is_committed, _)| *is_committed).count();
    assert_eq!(count, 2 * TABLES * 3 / 4, "the others have not reached the lake");
    for (node, map) in &nodes {
        let map = map.newest().await.unwrap().map;
        for (is_committed, key) in &outcomes {
            let is_found = map.get(key.as_bytes()).unwrap().is_some();
            assert_eq!(is_found, *is_committed, "{key} at node {node}");
        }
    }
    let root = lab.roots.read(&Lab::map_name()).await.unwrap().unwrap();
    assert_eq!((root.tables.len(), root.reservation), (count, None));
}

/// The registry has lost the root, and the lake does not list its newest table yet.
#[tokio::test]
async fn no_map_begins_over_tables_that_the_lake_lists_late() {
    let lab = Lab::fenced(FENCE).await;
    lab.put_table(1, &[("data/a", row("data/a", b"1"))], &[]).await;
    let map = lab.map(&lab.disk("node"));
    lab.lake.lists(&Arc::default());
    assert!(map.newest().await.unwrap().root.is_none());
    lab.lake.works();
    let before = lab.lake.objects.lock().clone();
    let error = commit(&lab, &map, "data/b").await.unwrap_err();
    assert!(
        matches!(error, NotCommitted::Map(MapError::Lost { table: 1, .. })),
        "{error}"
    );
    assert_eq!(*lab.lake.objects.lock(), before);
    assert_eq!(lab.roots.read(&Lab::map_name()).await, Ok(None));
}
