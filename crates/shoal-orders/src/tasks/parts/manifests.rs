//! The lists of objects and the documents of plans that this node keeps for tasks: one file each, apart from
//! the records that all nodes know.

use std::collections::{BTreeSet, HashMap};
use std::io::SeekFrom;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use shoal_net::http::connection::ClientBody;
use shoal_policy::admission::Refusal;
use shoal_s3::object::ObjectName;
use shoal_store::{FileRoom, Store};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::task::spawn_blocking;
use ulid::Ulid;

use super::manifest::{BYTES_MAX, Lines, ManifestError, read_name};
use super::messages::MANIFEST_PART_BYTES;

/// Room is taken for this many bytes at a time, for a list that comes at once and for one that grows.
const STEP_BYTES: u64 = 1 << 20;
const GROWTH_BYTES: u64 = 64 << 10;

/// Lists on the disk of this node.
pub struct Manifests {
    folder: PathBuf,
    store: Arc<Store>,
    /// The lists that are here, with the room that they take.
    kept: Mutex<HashMap<u128, Kept>>,
    /// The number of lists that were begun since the node began.
    begun: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    bytes: u64,
    room_bytes: u64,
    rooms: Vec<FileRoom>,
}

impl Kept {
    fn new(bytes: u64, room: FileRoom) -> Self {
        Self {
            bytes,
            room_bytes: bytes,
            rooms: vec![room],
        }
    }
}

/// A list that is being written. A list that is not finished is removed.
struct Writing {
    path: PathBuf,
    file: File,
    room: FileRoom,
    held_bytes: u64,
    bytes: u64,
    bytes_max: u64,
}

/// A document that is on this disk, and is removed unless it is kept.
pub struct Spooled(Writing);

impl Manifests {
    /// The lists that an earlier process left in this folder of `store`.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or listed.
    pub fn open(store: &Arc<Store>, folder: &str) -> std::io::Result<Self> {
        let folder = store.node_folder().join(folder);
        std::fs::create_dir_all(&folder)?;
        let mut kept = HashMap::new();
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let bytes = entry.metadata()?.len();
            let id = entry
                .file_name()
                .to_str()
                .and_then(|name| Ulid::from_string(name).ok());
            let mut room = store.file_room();
            match id {
                Some(id) if room.hold(bytes).is_ok() => drop(kept.insert(id.0, Kept::new(bytes, room))),
                _ => std::fs::remove_file(entry.path())?,
            }
        }
        Ok(Self {
            folder,
            store: Arc::clone(store),
            kept: Mutex::new(kept),
            begun: AtomicU64::new(0),
        })
    }

    /// The lists that are here.
    pub fn ids(&self) -> BTreeSet<u128> {
        self.kept.lock().keys().copied().collect()
    }

    /// The size of a list that is here, in bytes.
    pub fn size(&self, id: u128) -> Option<u64> {
        self.kept.lock().get(&id).map(|kept| kept.bytes)
    }

    /// Takes a list in as an operator sends it. Returns the number of its objects, and its size in bytes.
    ///
    /// # Errors
    ///
    /// The list is not one, does not come in full, or cannot be kept. Nothing is left of it then.
    pub async fn receive(&self, id: u128, mut body: ClientBody) -> Result<(u64, u64), ManifestError> {
        let mut writing = self.begin(id).await?;
        let received = async {
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            while let Some(bytes) = next_bytes(&mut body).await? {
                lines.push(&bytes, &mut out)?;
                writing = writing.add(&mut out).await?;
            }
            lines.end(&mut out)?;
            writing = writing.add(&mut out).await?;
            Ok((lines.objects, writing))
        };
        let (objects, writing) = received.await?;
        let bytes = self.finish(id, writing).await?;
        Ok((objects, bytes))
    }

    /// Takes a short list in, as nodes keep it. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The list cannot be kept.
    pub async fn take(&self, id: u128, mut lines: Vec<u8>) -> Result<u64, ManifestError> {
        let writing = self.begin(id).await?.add(&mut lines).await?;
        self.finish(id, writing).await
    }

    /// Adds lines to a list that is here, as nodes keep it. Returns its size in bytes. No two callers may add
    /// to one list at a time.
    ///
    /// # Errors
    ///
    /// The lines cannot be kept. The list is as it was then.
    pub async fn append(&self, id: u128, lines: &[u8]) -> Result<u64, ManifestError> {
        let lost = || ManifestError::NotKept("it is not on this disk any more".into());
        let known = |kept: &Kept| (kept.bytes, kept.room_bytes);
        let (bytes, room_bytes) = self.kept.lock().get(&id).map(known).ok_or_else(lost)?;
        let grown = bytes + lines.len() as u64;
        if grown > BYTES_MAX {
            return Err(ManifestError::TooLong);
        }
        let more = grown.saturating_sub(room_bytes);
        let more_room = match more {
            0 => None,
            more => {
                let more = more.next_multiple_of(GROWTH_BYTES);
                Some((more, self.room(more).await?))
            }
        };
        let file = OpenOptions::new().append(true).open(self.path(id)).await;
        let mut file = file.map_err(not_kept)?;
        let written = async {
            file.write_all(lines).await?;
            file.flush().await
        };
        if let Err(error) = written.await {
            let _ = file.set_len(bytes).await;
            return Err(not_kept(error));
        }
        let mut all = self.kept.lock();
        let kept = all.get_mut(&id).ok_or_else(lost)?;
        kept.bytes = grown;
        if let Some((more, room)) = more_room {
            kept.room_bytes += more;
            kept.rooms.push(room);
        }
        Ok(grown)
    }

    /// Room for this many bytes. Blocks may have to leave for it.
    async fn room(&self, bytes: u64) -> Result<FileRoom, ManifestError> {
        let mut room = self.store.file_room();
        let held = spawn_blocking(move || room.hold(bytes).map(|()| room));
        let held = held.await.map_err(not_kept)?;
        held.map_err(no_room)
    }

    /// Writes a document of at most `bytes_max` down as it comes, before anything is known about it.
    ///
    /// # Errors
    ///
    /// The document does not come in full, is too long, or cannot be written.
    pub async fn spool(&self, mut body: ClientBody, bytes_max: u64) -> Result<Spooled, ManifestError> {
        let mut writing = self.begin(0).await?;
        writing.bytes_max = bytes_max;
        while let Some(bytes) = next_bytes(&mut body).await? {
            writing = writing.add(&mut bytes.to_vec()).await?;
        }
        writing.file.flush().await.map_err(not_kept)?;
        Ok(Spooled(writing))
    }

    /// Keeps a document under an id.
    ///
    /// # Errors
    ///
    /// The document cannot be kept.
    pub async fn keep(&self, id: u128, spooled: Spooled) -> Result<(), ManifestError> {
        self.finish(id, spooled.0).await.map(drop)
    }

    /// Takes a list of `bytes` from another node, part by part: `part` returns the bytes from an offset on.
    ///
    /// # Errors
    ///
    /// The list does not come in full, or cannot be kept.
    pub async fn copy<P: Future<Output = Option<Bytes>>>(
        &self,
        id: u128,
        bytes: u64,
        part: impl Fn(u64) -> P,
    ) -> Result<(), ManifestError> {
        let broken_off = || ManifestError::BrokenOff("the other node does not have all of it".into());
        let mut writing = self.begin(id).await?;
        while writing.bytes < bytes {
            let part = part(writing.bytes).await.filter(|part| !part.is_empty());
            writing = writing.add(&mut part.ok_or_else(broken_off)?.to_vec()).await?;
        }
        if writing.bytes != bytes {
            return Err(broken_off());
        }
        self.finish(id, writing).await.map(drop)
    }

    /// Some bytes of a list, from an offset on; none at its end. `None` if the list is not here.
    pub async fn part(&self, id: u128, offset: u64) -> Option<Bytes> {
        self.size(id)?;
        let mut file = File::open(self.path(id)).await.ok()?;
        file.seek(SeekFrom::Start(offset)).await.ok()?;
        let mut bytes = Vec::new();
        file.take(MANIFEST_PART_BYTES)
            .read_to_end(&mut bytes)
            .await
            .ok()?;
        Some(bytes.into())
    }

    /// The objects on at most `most` lines from an offset on, and where the next line begins. No objects at
    /// the end of the list.
    ///
    /// # Errors
    ///
    /// The list is not here, or cannot be read.
    pub async fn names(
        &self,
        id: u128,
        offset: u64,
        most: usize,
    ) -> Result<(Vec<ObjectName>, u64), ManifestError> {
        let lost = || ManifestError::NotKept("it is not on this disk any more".into());
        let part = self.part(id, offset).await.ok_or_else(lost)?;
        let (mut names, mut next) = (Vec::new(), offset);
        for line in part.split_inclusive(|byte| *byte == b'\n').take(most) {
            // The last line of a part may be cut; the next part begins with it.
            let Some(line) = line.strip_suffix(b"\n") else {
                break;
            };
            next += line.len() as u64 + 1;
            names.push(read_name(line).ok_or_else(|| ManifestError::NotKept("it is damaged".into()))?);
        }
        if names.is_empty() && !part.is_empty() {
            return Err(ManifestError::NotKept("it is damaged".into()));
        }
        Ok((names, next))
    }

    /// Removes a list.
    pub async fn remove(&self, id: u128) {
        if self.kept.lock().contains_key(&id) {
            let _ = fs::remove_file(self.path(id)).await;
            self.kept.lock().remove(&id);
        }
    }

    async fn begin(&self, id: u128) -> Result<Writing, ManifestError> {
        // Two tasks may need one list at a time: each writes a copy of its own. One that no process finished
        // is removed at the next start.
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}.{number}.part", Ulid(id)));
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path).await.map_err(not_kept)?;
        Ok(Writing {
            path,
            file,
            room: self.store.file_room(),
            held_bytes: 0,
            bytes: 0,
            bytes_max: BYTES_MAX,
        })
    }

    async fn finish(&self, id: u128, writing: Writing) -> Result<u64, ManifestError> {
        let (path, room, bytes) = writing.flushed().await?;
        fs::rename(&path, self.path(id)).await.map_err(not_kept)?;
        self.kept.lock().insert(id, Kept::new(bytes, room));
        Ok(bytes)
    }

    fn path(&self, id: u128) -> PathBuf {
        self.folder.join(Ulid(id).to_string())
    }
}

impl std::fmt::Debug for Manifests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifests")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

impl Spooled {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub async fn read(&self) -> Result<Vec<u8>, ManifestError> {
        fs::read(&self.0.path).await.map_err(not_kept)
    }
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Spooled").field(&self.0.path).finish()
    }
}

impl Writing {
    /// Writes lines, and empties `out`.
    async fn add(mut self, out: &mut Vec<u8>) -> Result<Self, ManifestError> {
        self.bytes += out.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(ManifestError::TooLong);
        }
        if self.bytes > self.held_bytes {
            self.held_bytes = self.bytes.next_multiple_of(STEP_BYTES);
            self = self.with_room().await?;
        }
        self.file.write_all(out).await.map_err(not_kept)?;
        out.clear();
        Ok(self)
    }

    /// Takes room for as many bytes as it wants to hold. Blocks may have to leave for it.
    async fn with_room(mut self) -> Result<Self, ManifestError> {
        let held = spawn_blocking(move || {
            let held = self.room.hold(self.held_bytes);
            (self, held)
        });
        let (this, held) = held.await.map_err(not_kept)?;
        held.map_err(no_room)?;
        Ok(this)
    }

    /// Ends the writing. Returns the file, its room, and its size.
    async fn flushed(mut self) -> Result<(PathBuf, FileRoom, u64), ManifestError> {
        self.file.flush().await.map_err(not_kept)?;
        self.held_bytes = self.bytes;
        let mut this = self.with_room().await?;
        // From now on the file is not this one's to remove.
        let path = std::mem::take(&mut this.path);
        let room = std::mem::replace(&mut this.room, FileRoom::none());
        Ok((path, room, this.bytes))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The next bytes of a body; `None` at its end.
async fn next_bytes(body: &mut ClientBody) -> Result<Option<Bytes>, ManifestError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ManifestError::BrokenOff(error.to_string()))?;
        if let Ok(bytes) = frame.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

fn no_room(why: Refusal) -> ManifestError {
    ManifestError::NotKept(format!("the store has no room ({})", why.as_str()))
}

fn not_kept(error: impl std::fmt::Display) -> ManifestError {
    ManifestError::NotKept(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use bytes::Bytes;
    use shoal_store::{Store, StoreConfig};
    use tokio::sync::Notify;

    use super::Manifests;

    #[tokio::test]
    async fn two_copies_of_one_list_at_a_time_do_not_spoil_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            path: folder.path().into(),
            capacity_bytes: 64 << 20,
            block_bytes: 64 << 10,
            ..StoreConfig::default()
        };
        let (store, _) = Store::open(&config, 1 << 20, 1).unwrap();
        let manifests = Manifests::open(&store, "manifests").unwrap();
        let list = (0..100).fold(String::new(), |mut list, number| {
            writeln!(list, "b/{number:03}").unwrap();
            list
        });
        let (bytes, half) = (list.len() as u64, list.len() / 2);
        let parts = |offset: u64| {
            let rest = &list.as_bytes()[offset as usize..];
            Bytes::copy_from_slice(&rest[..half.min(rest.len())])
        };
        let (first_has_half, second_has_begun, first_is_here) = (Notify::new(), Notify::new(), Notify::new());
        let first = async {
            let part = async |offset: u64| {
                if offset > 0 {
                    first_has_half.notify_one();
                    second_has_begun.notified().await;
                }
                Some(parts(offset))
            };
            let copied = manifests.copy(7, bytes, part).await;
            let names = manifests.names(7, 0, 1_000).await;
            first_is_here.notify_one();
            (copied, names)
        };
        let second = async {
            first_has_half.notified().await;
            let part = async |offset: u64| {
                if offset == 0 {
                    second_has_begun.notify_one();
                    first_is_here.notified().await;
                }
                Some(parts(offset))
            };
            manifests.copy(7, bytes, part).await
        };
        let ((copied, names), copied_again) = tokio::join!(first, second);
        copied.unwrap();
        assert_eq!(names.unwrap().0.len(), 100);
        copied_again.unwrap();
        assert_eq!(manifests.names(7, 0, 1_000).await.unwrap().0.len(), 100);
        let files = std::fs::read_dir(&manifests.folder).unwrap();
        assert_eq!(files.count(), 1, "nothing is left of the copies");
    }
}
