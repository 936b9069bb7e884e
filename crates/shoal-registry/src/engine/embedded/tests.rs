//! A disk that loses power, fails and fills up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;
use tempfile::TempDir;

use super::folder::Folder;
use super::witness::Witness;
use super::{Embedded, OpenError};
use crate::engine::{Change, Engine, EngineError, Outcome, Range, Revision, Transaction};

/// A file that notes what reaches it, and fails on command.
#[derive(Debug)]
struct Watched {
    file: FileBackend,
    log: Arc<Mutex<Vec<Step>>>,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    write: AtomicBool,
    sync: AtomicBool,
    full: AtomicBool,
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > self.file.len()? && self.faults.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.log.lock().push(Step::SetLen(len));
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.faults.sync.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk does not answer"));
        }
        self.log.lock().push(Step::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.faults.write.swap(false, Ordering::Relaxed) {
            return Err(io::Error::other("a sector cannot be written"));
        }
        self.log.lock().push(Step::Write(offset, data.to_vec()));
        self.file.write(offset, data)
    }
}

struct Bed {
    folder: TempDir,
    log: Arc<Mutex<Vec<Step>>>,
    faults: Arc<Faults>,
    /// The file before the first step.
    before: Vec<u8>,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        drop(Embedded::open(folder.path()).unwrap());
        let before = fs::read(folder.path().join("registry.redb")).unwrap();
        Self {
            folder,
            log: Arc::default(),
            faults: Arc::default(),
            before,
        }
    }

    fn open(&self) -> Result<Embedded, OpenError> {
        let (log, faults) = (Arc::clone(&self.log), Arc::clone(&self.faults));
        let open = move |file: File| {
            let (log, faults) = (Arc::clone(&log), Arc::clone(&faults));
            let file = FileBackend::new(file)?;
            Ok(Box::new(Watched { file, log, faults }) as Box<dyn StorageBackend>)
        };
        Embedded::open_in(Folder::lock_with(self.folder.path(), Box::new(open))?)
    }

    /// The file after a loss of power before step `end`: of what was not synced, any part may be there.
    fn after_power_loss(&self, end: usize, chance: &mut Chance) -> Vec<u8> {
        let log = self.log.lock();
        let synced = log[..end]
            .iter()
            .rposition(|step| matches!(step, Step::Sync))
            .unwrap_or(0);
        let mut file = self.before.clone();
        for (position, step) in log[..end].iter().enumerate() {
            let (applied, sectors) = if position < synced {
                (true, usize::MAX)
            } else {
                chance.part()
            };
            match step {
                Step::SetLen(len) if applied => file.resize(*len as usize, 0),
                Step::Write(offset, data) if applied => {
                    let data = &data[..data.len().min(sectors.saturating_mul(512))];
                    let offset = *offset as usize;
                    file.resize(file.len().max(offset + data.len()), 0);
                    file[offset..offset + data.len()].copy_from_slice(data);
                }
                _ => {}
            }
        }
        file
    }
}

/// Chance that repeats itself.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// Whether a step reaches the disk, and how many of its sectors.
    fn part(&mut self) -> (bool, usize) {
        match self.below(4) {
            0 => (false, 0),
            1 => (true, self.below(8)),
            _ => (true, usize::MAX),
        }
    }
}

type State = BTreeMap<Bytes, Bytes>;

async fn state(engine: &Embedded) -> State {
    let all = Range {
        prefix: Bytes::new(),
        after: Bytes::new(),
        limit: usize::MAX,
    };
    let page = engine.range(all).await.unwrap();
    page.entries
        .into_iter()
        .map(|(key, stored)| (key, stored.value))
        .collect()
}

fn put(key: usize, value: usize) -> Transaction {
    let key = Bytes::from(format!("key-{key}"));
    let value = Bytes::from(vec![value as u8; value * 7]);
    Change::put(key, value).into()
}

async fn revision_of(engine: &Embedded, transaction: Transaction) -> Revision {
    match engine.commit(transaction).await.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict => panic!("there is no condition"),
    }
}

#[tokio::test]
async fn a_loss_of_power_at_any_step_loses_nothing_acknowledged() {
    let bed = Bed::new();
    let engine = bed.open().unwrap();
    let mut chance = Chance(7);
    // The keys at each revision, and the step at which it was acknowledged.
    let mut states = BTreeMap::from([(Revision(0), (bed.log.lock().len(), State::new()))]);
    let opened = bed.log.lock().len();
    for _ in 0..60 {
        let mut transaction = put(chance.below(20), chance.below(200));
        let deleted = Bytes::from(format!("other-{}", chance.below(20)));
        transaction.changes.push(match chance.below(2) {
            0 => Change::Delete { key: deleted },
            _ => Change::put(deleted, Bytes::from_static(b"1")),
        });
        let revision = revision_of(&engine, transaction).await;
        let step = bed.log.lock().len();
        states.insert(revision, (step, state(&engine).await));
    }
    drop(engine);
    let steps = bed.log.lock().len();
    for _ in 0..400 {
        let end = opened + chance.below(steps - opened);
        let acknowledged = states.iter().rev().find(|(_, (step, _))| *step <= end).unwrap();
        let acknowledged = *acknowledged.0;
        let lost = tempfile::tempdir().unwrap();
        fs::write(
            lost.path().join("registry.redb"),
            bed.after_power_loss(end, &mut chance),
        )
        .unwrap();
        Witness::create(&lost.path().join("registry.newest"), acknowledged.0).unwrap();
        let engine = Embedded::open(lost.path()).unwrap();
        let found = engine.shared.read(super::database::revision).unwrap();
        assert!(
            found >= acknowledged,
            "{found:?} of {acknowledged:?}, power lost at step {end}"
        );
        assert_eq!(state(&engine).await, states[&found].1, "power lost at step {end}");
    }
}

#[tokio::test]
async fn damaged_files_are_refused_or_hold_everything() {
    let bed = Bed::new();
    let engine = bed.open().unwrap();
    for number in 0..200 {
        revision_of(&engine, put(number % 90, number)).await;
    }
    let expected = state(&engine).await;
    let read =
        |path: &Path| ["registry.redb", "registry.newest"].map(|name| fs::read(path.join(name)).unwrap());
    // Copied as a crash leaves them, and as an orderly end does.
    let crashed = read(bed.folder.path());
    drop(engine);
    let ended = read(bed.folder.path());

    let mut chance = Chance(11);
    let mut refused = 0;
    for round in 0..600 {
        let mut files = if round % 2 == 0 {
            crashed.clone()
        } else {
            ended.clone()
        };
        let damaged = &mut files[usize::from(chance.below(8) == 0)];
        // The head of the file decides which state counts.
        let length = if chance.below(4) == 0 { 320 } else { damaged.len() };
        let place = chance.below(length);
        match chance.below(4) {
            0 => damaged.truncate(place),
            1 => {
                let end = damaged.len().min(place + 512);
                damaged[place..end].fill(0);
            }
            _ => damaged[place] ^= 1 << chance.below(8),
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("registry.redb"), &files[0]).unwrap();
        fs::write(folder.path().join("registry.newest"), &files[1]).unwrap();
        match Embedded::open(folder.path()) {
            Ok(engine) => assert_eq!(state(&engine).await, expected, "round {round}, byte {place}"),
            Err(error) if error.to_string().contains(" is damaged: ") => {
                refused += 1;
                assert_eq!(fs::read(folder.path().join("registry.newest")).unwrap(), files[1]);
            }
            Err(other) => panic!("round {round}, byte {place}: {other}"),
        }
    }
    assert!(refused > 100, "only {refused} of 600 were refused");
}

#[tokio::test]
async fn a_folder_without_one_of_its_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Embedded::open(folder.path()).unwrap();
    revision_of(&engine, put(1, 1)).await;
    drop(engine);
    for name in ["registry.redb", "registry.newest"] {
        let (path, aside) = (folder.path().join(name), folder.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        let refused = Embedded::open(folder.path()).unwrap_err();
        assert!(refused.to_string().contains(" is damaged: "), "{refused}");
        assert!(refused.to_string().contains(name), "{refused}");
        assert!(!path.exists(), "it was made anew");
        fs::write(&path, "").unwrap();
        let refused = Embedded::open(folder.path()).unwrap_err();
        assert!(refused.to_string().contains(" is damaged: "), "{refused}");
        fs::rename(&aside, &path).unwrap();
    }
    assert_eq!(state(&Embedded::open(folder.path()).unwrap()).await.len(), 1);
}

#[tokio::test]
async fn a_write_that_fails_changes_nothing_and_the_next_one_is_taken() {
    let bed = Bed::new();
    let engine = bed.open().unwrap();
    revision_of(&engine, put(1, 1)).await;
    let before = state(&engine).await;
    bed.faults.write.store(true, Ordering::Relaxed);
    let failed = engine.commit(put(1, 2)).await;
    assert!(matches!(failed, Err(EngineError::Unavailable(_))), "{failed:?}");
    assert_eq!(state(&engine).await, before);
    revision_of(&engine, put(1, 3)).await;
    assert_ne!(state(&engine).await, before);
}

#[tokio::test]
async fn after_a_refused_fsync_nothing_is_answered_until_the_file_is_opened_again() {
    let bed = Bed::new();
    let engine = bed.open().unwrap();
    revision_of(&engine, put(1, 1)).await;
    // The answers are in memory from now on.
    for key in [&b"key-1"[..], b"key-2"] {
        engine.get(key).await.unwrap();
    }
    bed.faults.sync.store(true, Ordering::Relaxed);
    let unknown = engine.commit(put(1, 2)).await;
    assert!(matches!(unknown, Err(EngineError::Unknown(_))), "{unknown:?}");
    bed.faults.sync.store(false, Ordering::Relaxed);
    let broken = engine.commit(put(1, 3)).await;
    assert!(matches!(broken, Err(EngineError::Unavailable(_))), "{broken:?}");
    for key in [&b"key-1"[..], b"key-2"] {
        let unread = engine.get(key).await;
        assert!(matches!(unread, Err(EngineError::Unavailable(_))), "{unread:?}");
    }
    drop(engine);
    let engine = bed.open().unwrap();
    let value = engine.get(b"key-1").await.unwrap().unwrap().value;
    assert!(value == vec![1; 7] || value == vec![2; 14]);
    revision_of(&engine, put(1, 3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn looks_and_pages_never_go_back_while_keys_change() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(folder.path()).unwrap());
    revision_of(&engine, put(0, 1)).await;
    let has_ended = Arc::new(AtomicBool::new(false));
    let readers = (0..3).map(|_| {
        let (engine, has_ended) = (Arc::clone(&engine), Arc::clone(&has_ended));
        tokio::spawn(async move {
            let (mut newest, mut looks) = (Revision(0), 0);
            while !has_ended.load(Ordering::Relaxed) {
                let looked = engine.get(b"key-0").await.unwrap().unwrap().revision;
                let page = Range {
                    prefix: Bytes::from_static(b"key-0"),
                    after: Bytes::new(),
                    limit: 1,
                };
                let listed = engine.range(page).await.unwrap().entries[0].1.revision;
                assert!(
                    newest <= looked && looked <= listed,
                    "{newest:?} {looked:?} {listed:?}"
                );
                newest = listed;
                looks += 1;
            }
            looks
        })
    });
    let readers: Vec<_> = readers.collect();
    for value in 0..200 {
        let changed = revision_of(&engine, put(0, value)).await;
        let looked = engine.get(b"key-0").await.unwrap().unwrap();
        assert_eq!(looked.revision, changed);
    }
    has_ended.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
}

#[tokio::test]
async fn a_full_disk_changes_nothing_until_it_has_room() {
    let bed = Bed::new();
    let engine = bed.open().unwrap();
    bed.faults.full.store(true, Ordering::Relaxed);
    let mut taken = 0;
    let full = loop {
        match engine.commit(put(taken, 200)).await {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 10_000, "the file does not grow");
    };
    assert!(matches!(full, EngineError::Full(_)), "{full}");
    assert_eq!(state(&engine).await.len(), taken);
    bed.faults.full.store(false, Ordering::Relaxed);
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    revision_of(&engine, put(taken, 1)).await;
    assert_eq!(state(&engine).await.len(), taken + 1);
}
