//! Tables as files of a node.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use shoal_pack::table::Names;
use shoal_store::Store;

use super::lab::{Lab, row};
use crate::dirty::packs::TableFiles;
use crate::dirty::packs::files::NotReceived;

fn folder(disk: &Store) -> PathBuf {
    disk.node_folder().join("packs/map")
}

fn files(disk: &Store) -> Vec<PathBuf> {
    let files = fs::read_dir(folder(disk)).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[tokio::test]
async fn tables_outlive_a_restart_and_nothing_else_does() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    lab.commit(&[("data/b", row("data/b", b"1"))]).await;
    let disk = lab.disk("node");
    lab.map(&disk).current().await.unwrap();
    let kept = files(&disk);
    assert_eq!(kept.len(), 2);
    for other in ["new", ".tmpXYZ", "1-0000000000000000"] {
        fs::write(folder(&disk).join(other), b"anything").unwrap();
    }
    // A file under the name of another table.
    fs::copy(&kept[0], folder(&disk).join("9-0000000000000000")).unwrap();
    let asked = lab.lake.asked("GET", "/map/");
    let map = lab.map(&disk);
    assert_eq!(files(&disk).len(), 2);
    let current = map.current().await.unwrap();
    assert_eq!(current.objects(Names::default()).count(), 2);
    assert_eq!(lab.lake.asked("GET", "/map/"), asked);
}

#[tokio::test]
async fn a_file_that_was_torn_is_brought_again() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let disk = lab.disk("node");
    lab.map(&disk).current().await.unwrap();
    let file = files(&disk).remove(0);
    let whole = fs::read(&file).unwrap();
    for torn in [&whole[..whole.len() - 1], &whole[..0], &vec![0; whole.len()]] {
        fs::remove_file(&file).unwrap();
        fs::write(&file, torn).unwrap();
        let map = lab.map(&disk).current().await.unwrap();
        assert!(map.get(b"data/a").unwrap().is_some());
        assert_eq!(fs::read(&file).unwrap(), whole);
    }
}

#[tokio::test]
async fn a_block_that_went_bad_on_the_disk_is_brought_again_once() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let disk = lab.disk("node");
    lab.map(&disk).current().await.unwrap();
    let file = files(&disk).remove(0);
    let mut torn = fs::read(&file).unwrap();
    torn[0] ^= 1;
    fs::write(&file, torn).unwrap();
    let map = lab.map(&disk);
    let current = map.current().await.unwrap();
    let damaged = current.get(b"data/a").unwrap_err();
    map.forget(&damaged);
    let asked = lab.lake.asked("GET", "/map/");
    let current = map.current().await.unwrap();
    assert!(current.get(b"data/a").unwrap().is_some());
    // The disk may be at fault: the lake is not asked by each read.
    map.forget(&damaged);
    map.current().await.unwrap();
    assert_eq!(lab.lake.asked("GET", "/map/"), asked + 1);
}

#[tokio::test]
async fn tables_that_no_root_lists_leave_the_disk_and_stay_with_their_readers() {
    let lab = Lab::new().await;
    lab.commit(&[("data/a", row("data/a", b"1"))]).await;
    let disk = lab.disk("node");
    let map = lab.map(&disk);
    let taken_before = disk.counters().taken_bytes;
    let before = map.current().await.unwrap();
    let taken = disk.counters().taken_bytes;
    assert!(taken > taken_before);
    let reserved = lab
        .roots
        .reserve(&Lab::map_name(), shoal_registry::roots::Purpose::Upkeep)
        .await
        .unwrap();
    let merged = lab
        .put_table(reserved.number(), &[("data/b", row("data/b", b"1"))], &[])
        .await;
    lab.roots
        .commit(&reserved, vec![super::lab::of_root(&merged)])
        .await
        .unwrap();
    map.newest().await.unwrap();
    assert_eq!(files(&disk).len(), 1);
    assert!(before.get(b"data/a").unwrap().is_some());
    drop(before);
    assert_eq!(disk.counters().taken_bytes, taken, "its room is free again");
}

#[tokio::test]
async fn what_is_no_table_or_too_large_leaves_nothing() {
    let lab = Lab::new().await;
    lab.put_table(1, &[("data/a", row("data/a", b"1"))], &[]).await;
    let whole = lab.lake.objects.lock().values().next().unwrap().clone();
    let disk = lab.disk("node");
    let kept = Arc::new(TableFiles::open(&disk, folder(&disk)).unwrap());
    let taken = disk.counters().taken_bytes;
    let size_bytes = whole.len() as u64;
    let receive = async |size_bytes: u64, bytes: &[u8]| {
        let parts: Vec<_> = bytes.chunks(10).map(Bytes::copy_from_slice).collect();
        let parts = parts.into_iter().map(Ok::<_, std::io::Error>);
        kept.receive(size_bytes, stream::iter(parts)).await
    };
    let mut flipped = whole.clone();
    flipped[0] ^= 1;
    let refused = [
        receive(1 << 40, &whole).await,
        receive(size_bytes - 1, &whole).await,
        receive(size_bytes + 1, &whole).await,
        receive(size_bytes, &flipped).await,
        receive(0, &[]).await,
        receive(3, b"abc").await,
    ];
    let refused = refused.map(Result::unwrap_err);
    assert!(matches!(refused[0], NotReceived::NoRoom(_)), "{}", refused[0]);
    assert!(matches!(refused[1], NotReceived::OtherLength), "{}", refused[1]);
    assert!(matches!(refused[2], NotReceived::OtherLength), "{}", refused[2]);
    assert!(
        matches!(refused[3], NotReceived::DamagedBlock(_)),
        "{}",
        refused[3]
    );
    assert!(matches!(refused[4], NotReceived::Damaged(_)), "{}", refused[4]);
    assert!(matches!(refused[5], NotReceived::Damaged(_)), "{}", refused[5]);
    let broken_off = stream::iter([Ok(Bytes::new()), Err(std::io::Error::other("gone"))]);
    let broken_off = kept.receive(size_bytes, broken_off).await.unwrap_err();
    assert!(matches!(broken_off, NotReceived::BrokenOff(_)));
    assert!(files(&disk).is_empty());
    assert_eq!(disk.counters().taken_bytes, taken);
    let table = receive(size_bytes, &whole).await.unwrap();
    assert!(kept.find(&table.listed()).is_some() && files(&disk).len() == 1);
}
