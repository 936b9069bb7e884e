//! A disk that fails: reads fall through, fills pause, a successful probe resumes them.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_policy::admission::Refusal;

use super::{BLOCK, Lab, ROOMY, RemovalReason, data, evictions, put, put_all, refusals, until, version};
use crate::Health;
use crate::files::disk::{DiskFault, DiskOp};
use crate::upkeep::opening;

/// Operations that fail, each with its errno.
#[derive(Clone, Default)]
struct Faults(Arc<Mutex<Vec<(DiskOp, i32)>>>);

impl Faults {
    fn set(&self, faults: &[(DiskOp, i32)]) {
        *self.0.lock() = faults.to_vec();
    }

    fn hook(&self) -> Arc<DiskFault> {
        let faults = Arc::clone(&self.0);
        Arc::new(
            move |op| match faults.lock().iter().find(|(failing, _)| *failing == op) {
                Some((_, errno)) => Err(io::Error::from_raw_os_error(*errno)),
                None => Ok(()),
            },
        )
    }
}

#[tokio::test]
async fn folders_that_were_taken_away_are_made_again_by_the_probe() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (gone, new) = (version(1, "a", BLOCK), version(2, "a", BLOCK));
    put_all(&store, &gone).await;
    std::fs::remove_dir_all(lab.config.path.join("blocks")).unwrap();
    assert_eq!(put(&store, &new, 0).await.unwrap_err(), Refusal::Paused);
    let Health::Paused { why } = store.health() else {
        panic!("the disk is marked")
    };
    assert!(why.starts_with("name a block: "), "{why}");
    assert_eq!(
        store.resident(gone.block(0), true).unwrap(),
        data(&gone, 0),
        "what is mapped is served"
    );
    assert_eq!(store.probe(), Health::Serving);
    assert_eq!(put(&store, &new, 0).await.unwrap(), data(&new, 0));
    assert_eq!(store.health(), Health::Serving);
}

#[tokio::test]
async fn a_disk_that_fails_in_several_ways_shows_the_first() {
    let (lab, faults) = (Lab::new(ROOMY), Faults::default());
    let store = lab.open_failing(faults.hook());
    faults.set(&[(DiskOp::Publish, libc::EROFS), (DiskOp::Probe, libc::EIO)]);
    let block = version(1, "a", BLOCK);
    assert_eq!(put(&store, &block, 0).await.unwrap_err(), Refusal::Paused);
    let first = store.health();
    assert!(matches!(&first, Health::Paused { why } if why.starts_with("name a block: ")));
    assert_eq!(store.probe(), first);
}

#[tokio::test]
async fn a_folder_in_the_place_of_a_block_costs_that_block_and_is_kept() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (obstructed, other) = (version(1, "a", BLOCK), version(2, "a", BLOCK));
    std::fs::create_dir(lab.path(&obstructed, 0)).unwrap();
    assert_eq!(
        put(&store, &obstructed, 0).await.unwrap_err(),
        Refusal::Obstructed
    );
    put_all(&store, &other).await;
    let store = lab.reopen(store).await.0;
    std::fs::remove_file(lab.path(&other, 0)).unwrap();
    std::fs::create_dir(lab.path(&other, 0)).unwrap();
    assert!(store.load(other.block(0), true).await.is_none());
    assert_eq!(
        store.health(),
        Health::Serving,
        "the disk is not to blame, and takes others"
    );
    assert!(lab.path(&obstructed, 0).is_dir());
    assert_eq!(
        lab.quarantine(),
        1,
        "what came in a block's place is kept for a look"
    );
}

#[tokio::test]
async fn a_disk_that_takes_no_writes_pauses_fills_and_still_serves_until_a_probe_succeeds() {
    for op in [DiskOp::Write, DiskOp::Publish] {
        for errno in [libc::ENOSPC, libc::EIO, libc::EROFS] {
            let (lab, faults) = (Lab::new(ROOMY), Faults::default());
            let store = lab.open_failing(faults.hook());
            let (here, absent) = (version(1, "a", BLOCK), version(2, "a", BLOCK));
            put_all(&store, &here).await;
            let before = store.counters();

            faults.set(&[(op, errno), (DiskOp::Probe, errno)]);
            assert_eq!(put(&store, &absent, 0).await.unwrap_err(), Refusal::Paused);
            let Health::Paused { why } = store.health() else {
                panic!("the disk is marked")
            };
            assert!(
                why.contains(&io::Error::from_raw_os_error(errno).to_string()),
                "{why}"
            );
            assert_eq!(store.counters().io_errors, 1);
            assert_eq!(
                store.resident(here.block(0), true).unwrap(),
                data(&here, 0),
                "what is here is served"
            );
            assert_eq!(put(&store, &absent, 0).await.unwrap_err(), Refusal::Paused);
            assert_eq!(store.counters().io_errors, 1, "the disk is left in peace");
            assert_eq!(refusals(&store, Refusal::Paused), 2);
            assert_eq!(
                store.counters().taken_bytes,
                before.taken_bytes,
                "no room is lost"
            );
            assert!(matches!(store.probe(), Health::Paused { .. }));

            faults.set(&[]);
            assert_eq!(store.probe(), Health::Serving);
            assert_eq!(put(&store, &absent, 0).await.unwrap(), data(&absent, 0));
        }
    }
}

#[tokio::test]
async fn a_block_the_disk_cannot_read_is_a_miss_and_the_disk_is_marked() {
    let (lab, faults) = (Lab::new(ROOMY), Faults::default());
    let store = lab.open_failing(faults.hook());
    let version = version(1, "a", BLOCK * 2);
    put_all(&store, &version).await;
    super::close(store).await;
    let store = lab.open_failing(faults.hook());
    faults.set(&[(DiskOp::Read, libc::EIO)]);
    assert!(store.load(version.block(0), true).await.is_none());
    assert!(!store.contains(version.block(0)), "it is not asked again");
    assert_eq!(evictions(&store, RemovalReason::Unreadable), 1);
    assert!(matches!(store.health(), Health::Paused { .. }));
    faults.set(&[]);
    assert_eq!(
        store.load(version.block(1), true).await.unwrap(),
        data(&version, 1)
    );
    assert_eq!(store.probe(), Health::Serving);
    put(&store, &version, 0).await.unwrap();
}

#[tokio::test]
async fn want_of_descriptors_is_no_failure_of_the_disk() {
    let (lab, faults) = (Lab::new(ROOMY), Faults::default());
    let store = lab.open_failing(faults.hook());
    let (here, absent) = (version(1, "a", BLOCK), version(2, "a", BLOCK));
    put_all(&store, &here).await;
    super::close(store).await;
    let store = lab.open_failing(faults.hook());
    faults.set(&[(DiskOp::Write, libc::EMFILE), (DiskOp::Read, libc::EMFILE)]);
    assert_eq!(put(&store, &absent, 0).await.unwrap_err(), Refusal::Exhausted);
    assert!(store.load(here.block(0), true).await.is_none());
    assert_eq!(store.health(), Health::Serving);
    faults.set(&[]);
    assert_eq!(
        store.load(here.block(0), true).await.unwrap(),
        data(&here, 0),
        "it was not given up"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_unlinked_keeps_its_room_until_it_can() {
    let (lab, faults) = (Lab::new(ROOMY), Faults::default());
    let store = lab.open_failing(faults.hook());
    let version = version(1, "a", BLOCK);
    let empty = store.counters().taken_bytes;
    put_all(&store, &version).await;
    let full = store.counters().taken_bytes;
    faults.set(&[(DiskOp::Remove, libc::EROFS)]);
    store.removal.remove_version(version.id);
    assert!(!store.contains(version.block(0)));
    assert_eq!(store.counters().taken_bytes, full);
    assert!(lab.path(&version, 0).exists());
    faults.set(&[]);
    until("it is unlinked", || store.counters().taken_bytes == empty).await;
    assert!(!lab.path(&version, 0).exists());
}

#[tokio::test]
async fn a_block_stored_again_before_its_old_file_could_be_unlinked_stays() {
    let (lab, faults) = (Lab::new(ROOMY), Faults::default());
    let store = lab.open_failing(faults.hook());
    let version = version(1, "a", BLOCK);
    put_all(&store, &version).await;
    let full = store.counters().taken_bytes;
    faults.set(&[(DiskOp::Remove, libc::EIO)]);
    store.removal.remove_version(version.id);
    // The probe uses another operation, so fills go on although nothing can be unlinked.
    assert_eq!(store.probe(), Health::Serving);
    put_all(&store, &version).await;
    faults.set(&[]);
    until("the old room is free", || store.counters().taken_bytes == full).await;
    assert!(lab.path(&version, 0).exists());
    let (store, _) = lab.reopen(store).await;
    assert_eq!(
        store.load(version.block(0), true).await.unwrap(),
        data(&version, 0)
    );
}

#[tokio::test]
async fn a_start_on_a_disk_that_cannot_read_finds_nothing_and_serves() {
    let (lab, faults) = (Lab::new(ROOMY), Faults::default());
    let store = lab.open_failing(faults.hook());
    let version = version(1, "a", BLOCK * 3);
    put_all(&store, &version).await;
    super::close(store).await;
    faults.set(&[(DiskOp::Read, libc::EIO)]);
    let (store, recovery) = opening::open(&lab.config, 0, 1, lab.conditions(Some(faults.hook()))).unwrap();
    assert_eq!((recovery.blocks, recovery.unreadable), (0, 3));
    assert!(store.load(version.block(0), true).await.is_none());
}
