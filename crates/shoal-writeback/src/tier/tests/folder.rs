//! The folder store: the conformance suite, and failing disks.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::conformance::conforms;
use super::{Arc, ByteStore, Opened, StoreError, body, data, get, keys, new_key, piece, put, whole};
use crate::tier::folder::{FolderOp, FolderStore};
use crate::tier::probe;
use crate::tier::store::PutError;

async fn open() -> Opened {
    let folder = TempDir::new().unwrap();
    let store = FolderStore::open(folder.path().join("new/tier")).await.unwrap();
    Opened {
        store: Arc::new(store),
        _rest: Box::new(folder),
    }
}

conforms!(open);

/// A store whose operations fail on request of the test.
struct Failing {
    folder: TempDir,
    store: FolderStore,
    fails: Arc<Mutex<Vec<(FolderOp, i32)>>>,
}

impl Failing {
    async fn open() -> Self {
        let fails: Arc<Mutex<Vec<(FolderOp, i32)>>> = Arc::default();
        let fault = {
            let fails = Arc::clone(&fails);
            move |op| match fails.lock().iter().find(|(fails, _)| *fails == op) {
                Some((_, errno)) => Err(io::Error::from_raw_os_error(*errno)),
                None => Ok(()),
            }
        };
        let folder = TempDir::new().unwrap();
        let mut store = FolderStore::open(folder.path().into()).await.unwrap();
        store.fail_by(Arc::new(fault));
        Self { folder, store, fails }
    }

    fn fail(&self, operations: &[(FolderOp, i32)]) {
        *self.fails.lock() = operations.to_vec();
    }
}

/// Returns all files below a folder, except the clock.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.file_name().unwrap() != "clock" {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn a_piece_outlives_the_process_that_wrote_it() {
    let folder = TempDir::new().unwrap();
    let (key, bytes) = (new_key(), data(1 << 20));
    put(
        &FolderStore::open(folder.path().into()).await.unwrap(),
        &key,
        &bytes,
    )
    .await;
    let store = FolderStore::open(folder.path().into()).await.unwrap();
    assert!(get(&store, &key, 0, bytes.len()).await.unwrap() == bytes);
    assert_eq!(files(folder.path()).len(), 1);
}

#[tokio::test]
async fn a_key_is_written_once() {
    let opened = open().await;
    let key = new_key();
    put(&*opened.store, &key, &data(10)).await;
    let again = opened.store.put(&key, 5, whole(&data(5))).await;
    assert!(
        matches!(again, Err(PutError::Store(StoreError::Refused(_)))),
        "{again:?}"
    );
    assert!(get(&*opened.store, &key, 0, 10).await.unwrap() == data(10));
}

#[tokio::test]
async fn flipped_bits_are_errors_for_their_readers_only() {
    let opened = Failing::open().await;
    let (key, bytes) = (new_key(), data(3 * (256 << 10)));
    put(&opened.store, &key, &bytes).await;
    let path = files(opened.folder.path()).remove(0);
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let at = (256 << 10) + 1000;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    let read = get(&opened.store, &key, 0, bytes.len()).await;
    assert!(matches!(read, Err(StoreError::Damaged(_))), "{read:?}");
    let copied = opened
        .store
        .copy(&piece(&key, bytes.len() as u64), &new_key())
        .await;
    assert!(matches!(copied, Err(StoreError::Damaged(_))), "{copied:?}");
    assert_eq!(files(opened.folder.path()).len(), 1, "no copy of damaged bytes");
    let beside = get(&opened.store, &key, 0, 256 << 10).await.unwrap();
    assert!(beside == bytes[..256 << 10]);

    file.write_all_at(&byte, at).unwrap();
    assert!(get(&opened.store, &key, 0, bytes.len()).await.unwrap() == bytes);
    let end = file.metadata().unwrap().len();
    file.write_all_at(b"x", end - 40).unwrap();
    let read = get(&opened.store, &key, 0, 1).await;
    assert!(
        matches!(read, Err(StoreError::Damaged(_))),
        "a damaged description: {read:?}"
    );
}

#[tokio::test]
async fn a_file_that_was_cut_is_an_error() {
    let opened = Failing::open().await;
    let key = new_key();
    put(&opened.store, &key, &data(100_000)).await;
    let path = files(opened.folder.path()).remove(0);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let whole_bytes = file.metadata().unwrap().len();
    for file_bytes in [whole_bytes - 1, whole_bytes - 100, 50_000, 31, 0] {
        file.set_len(file_bytes).unwrap();
        // A file system that lost the last bytes may have kept the length.
        for file_bytes in [file_bytes, whole_bytes] {
            file.set_len(file_bytes).unwrap();
            for end in [0, 1, 100_000] {
                let read = get(&opened.store, &key, 0, end).await;
                assert!(
                    matches!(read, Err(StoreError::Damaged(_))),
                    "{file_bytes}: {read:?}"
                );
            }
        }
    }
    assert_eq!(keys(&opened.store, 10).await, [key], "it can be swept");
}

#[tokio::test]
async fn a_full_disk_is_named_and_nothing_stays_on_it() {
    let opened = Failing::open().await;
    for operation in [
        FolderOp::Create,
        FolderOp::Write,
        FolderOp::SyncFile,
        FolderOp::Publish,
        FolderOp::SyncFolder,
    ] {
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EIO] {
            opened.fail(&[(operation, errno)]);
            let failed = opened.store.put(&new_key(), 10, whole(&data(10))).await;
            match (&failed, errno) {
                (Err(PutError::Store(StoreError::Unavailable(_))), libc::EIO) => {}
                (Err(PutError::Store(StoreError::Full(_))), errno) if errno != libc::EIO => {}
                _ => panic!("{operation:?} {errno}: {failed:?}"),
            }
            opened.fail(&[]);
            assert_eq!(files(opened.folder.path()), [] as [PathBuf; 0], "{operation:?}");
        }
    }
    put(&opened.store, &new_key(), &data(10)).await;
}

/// The environment variable with a folder on a small file system.
const SMALL_FOLDER: &str = "SHOAL_TEST_SMALL_FOLDER";

#[test]
fn a_disk_that_really_is_full_keeps_what_it_has() {
    let can_mount = Command::new("unshare").args(["--mount", "true"]).status();
    if !can_mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this user cannot mount a small disk");
        return;
    }
    let folder = TempDir::new().unwrap();
    let small = format!(r#"mount -t tmpfs -o size=6m none "${SMALL_FOLDER}" && exec "$0" "$@""#);
    let mut alone = Command::new("unshare");
    alone.args(["--mount", "sh", "-c", &small]);
    alone.arg(std::env::current_exe().unwrap());
    alone.args(["--exact", "tier::tests::folder::fills_a_small_disk"]);
    let ended = alone.env(SMALL_FOLDER, folder.path()).status().unwrap();
    assert!(ended.success(), "{ended}");
}

/// Runs in the child process of the test above; does nothing if no folder is given.
#[tokio::test]
async fn fills_a_small_disk() {
    let Some(small) = std::env::var_os(SMALL_FOLDER) else {
        return;
    };
    let folder = TempDir::new_in(small).unwrap();
    let store = FolderStore::open(folder.path().into()).await.unwrap();
    let (mut kept, bytes) = (Vec::new(), data(1 << 20));
    let failed = loop {
        let key = new_key();
        match store.put(&key, 1 << 20, whole(&bytes)).await {
            Ok(_) => kept.push(key),
            Err(error) => break error,
        }
        assert!(kept.len() < 10, "the file system is not small");
    };
    assert!(
        matches!(failed, PutError::Store(StoreError::Full(_))),
        "{failed:?}"
    );
    assert_eq!(files(folder.path()).len(), kept.len());
    assert_eq!(keys(&store, 100).await.len(), kept.len());
    for key in &kept {
        assert!(get(&store, key, 0, 1 << 20).await.unwrap() == bytes);
    }
    store.remove(&kept[..1]).await.unwrap();
    put(&store, &new_key(), &bytes).await;
}

#[tokio::test]
async fn a_disk_that_fails_to_read_is_an_error() {
    let opened = Failing::open().await;
    let key = new_key();
    put(&opened.store, &key, &data(10)).await;
    opened.fail(&[(FolderOp::Read, libc::EIO), (FolderOp::Remove, libc::EIO)]);
    let read = get(&opened.store, &key, 0, 10).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    let removed = opened.store.remove(std::slice::from_ref(&key)).await;
    assert!(matches!(removed, Err(StoreError::Unavailable(_))), "{removed:?}");
    let probed = probe::probe(&opened.store).await.unwrap_err();
    assert!(
        probed.to_string().contains("hint: check that the store runs"),
        "{probed}"
    );
}

#[tokio::test]
async fn what_a_crash_left_unfinished_is_removed_at_the_next_start() {
    let opened = Failing::open().await;
    // The file can be neither published nor removed, as after a crash.
    opened.fail(&[(FolderOp::Publish, libc::EIO), (FolderOp::Remove, libc::EIO)]);
    let key = new_key();
    opened.store.put(&key, 10, whole(&data(10))).await.unwrap_err();
    assert_eq!(files(opened.folder.path()).len(), 1);
    assert_eq!(get(&opened.store, &key, 0, 10).await, Err(StoreError::Missing));
    assert!(keys(&opened.store, 10).await.is_empty());
    let store = FolderStore::open(opened.folder.path().into()).await.unwrap();
    assert_eq!(files(opened.folder.path()), [] as [PathBuf; 0]);
    put(&store, &key, &data(10)).await;
}

#[tokio::test]
async fn a_node_that_starts_spares_what_others_are_writing_to_the_same_folder() {
    let folder = TempDir::new().unwrap();
    let first = FolderStore::open(folder.path().into()).await.unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let slow = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let key = new_key();
    let writing = {
        let key = Arc::clone(&key);
        tokio::spawn(async move { first.put(&key, 2 << 20, Box::pin(slow)).await })
    };
    sender.send(Ok(data(1 << 20))).await.unwrap();
    while files(folder.path()).is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = FolderStore::open(folder.path().into()).await.unwrap();
    sender.send(Ok(data(1 << 20))).await.unwrap();
    drop(sender);
    writing.await.unwrap().unwrap();
    assert!(get(&second, &key, 1 << 20, 2 << 20).await.unwrap() == data(1 << 20));
}

#[tokio::test]
async fn a_dropped_put_leaves_no_file() {
    let opened = Failing::open().await;
    let key = new_key();
    let endless = futures_util::stream::repeat_with(|| Ok(data(1 << 16)));
    let put = opened.store.put(&key, 1 << 32, Box::pin(endless));
    let dropped = tokio::time::timeout(Duration::from_millis(50), put).await;
    assert!(dropped.is_err());
    for _ in 0..500 {
        if files(opened.folder.path()).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("its file stays");
}

#[tokio::test]
async fn memory_is_no_place_for_a_tier() {
    let Ok(folder) = TempDir::new_in("/dev/shm") else {
        return;
    };
    let store = FolderStore::open(folder.path().into()).await.unwrap();
    let refused = probe::probe(&store).await.unwrap_err().to_string();
    assert!(
        refused.contains("in memory") && refused.contains("\nhint: "),
        "{refused}"
    );
}

#[tokio::test]
async fn a_folder_that_cannot_be_created_is_refused_with_a_hint() {
    let error = FolderStore::open("/proc/self/tier".into()).await.unwrap_err();
    let told = error.to_string();
    assert!(
        told.starts_with("the folder /proc/self/tier cannot be used: "),
        "{told}"
    );
    assert!(told.contains("\nhint: "), "{told}");
}

#[tokio::test]
async fn files_that_are_not_pieces_are_left_alone() {
    let opened = Failing::open().await;
    let folder = opened.folder.path();
    fs::write(folder.join("notes.txt"), "x").unwrap();
    fs::write(folder.join("pieces/00/notes.txt"), "x").unwrap();
    let listed = keys(&opened.store, 10).await;
    assert!(listed.is_empty(), "{listed:?}");
    let empty = opened.store.put(&new_key(), 0, body(Vec::new())).await;
    empty.unwrap();
    drop(FolderStore::open(folder.into()).await.unwrap());
    assert_eq!(files(folder).len(), 3);
}
