//! The lists of objects and the documents of plans that this node keeps for tasks: one file each, apart from
//! the records of all nodes.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use http::StatusCode;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use shoal_net::http::connection::ClientBody;
use shoal_s3::object::ObjectName;
use shoal_store::{FileRoom, Store};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;
use ulid::Ulid;

use super::manifest::{BYTES_MAX, Lines, read_name, too_long};
use super::messages::MANIFEST_PART_BYTES;
use crate::tasks::records::files::ManifestFacts;
use crate::tasks::refusal::TaskRefusal;

/// Lists and documents on the disk of this node.
pub struct OrderFiles {
    folder: PathBuf,
    store: Arc<Store>,
    kept: Mutex<HashMap<u128, KeptFile>>,
}

/// A file that is here, and the room that it takes.
struct KeptFile {
    bytes: u64,
    room: Arc<Mutex<FileRoom>>,
}

/// A file that is being written. It is removed unless it is kept, by the next start at the latest.
pub struct NewFile {
    file: NamedTempFile,
    room: FileRoom,
    bytes: u64,
    bytes_max: u64,
}

impl OrderFiles {
    /// Opens the files that an earlier process left in this folder of `store`.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or listed.
    pub fn open(store: &Arc<Store>, folder: &str) -> io::Result<Self> {
        let folder = store.node_folder().join(folder);
        fs::create_dir_all(&folder)?;
        let mut kept = HashMap::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let bytes = entry.metadata()?.len();
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| Ulid::from_string(name).ok());
            let mut room = FileRoom::new(store);
            match id {
                Some(id) if room.hold(bytes).is_ok() => drop(kept.insert(id.0, KeptFile::new(bytes, room))),
                _ => fs::remove_file(entry.path())?,
            }
        }
        Ok(Self {
            folder,
            store: Arc::clone(store),
            kept: Mutex::new(kept),
        })
    }

    /// Returns the ids of the orders whose files are here.
    pub fn ids(&self) -> BTreeSet<u128> {
        self.kept.lock().keys().copied().collect()
    }

    /// Returns the size of a file in bytes; `None` if it is not here.
    pub fn size(&self, id: u128) -> Option<u64> {
        self.kept.lock().get(&id).map(|kept| kept.bytes)
    }

    /// Receives a list as an operator sends it.
    ///
    /// # Errors
    ///
    /// The list is not one, does not come in full, or cannot be kept. Nothing is left of it then.
    pub async fn receive(&self, id: u128, body: ClientBody) -> Result<ManifestFacts, TaskRefusal> {
        let (mut file, mut lines) = (self.begin(BYTES_MAX).await?, Lines::default());
        let mut body = body.into_data_stream();
        while let Some(bytes) = body.try_next().await.map_err(broken_off)? {
            file = file.add(lines.push(&bytes)?).await?;
        }
        file = file.add(lines.end()?).await?;
        let (objects, bytes) = (lines.objects, self.keep(id, file).await?);
        Ok(ManifestFacts { objects, bytes })
    }

    /// Keeps a short list, as nodes keep it. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The list cannot be kept.
    pub async fn take(&self, id: u128, lines: Vec<u8>) -> Result<u64, TaskRefusal> {
        let file = self.begin(BYTES_MAX).await?.add(lines).await?;
        self.keep(id, file).await
    }

    /// Adds lines to a list that is here, as nodes keep it. Returns its size in bytes. No two callers may add
    /// to one list at a time.
    ///
    /// # Errors
    ///
    /// The lines cannot be kept. The list is unchanged then.
    pub async fn append(&self, id: u128, lines: Vec<u8>) -> Result<u64, TaskRefusal> {
        let known = |kept: &KeptFile| (kept.bytes, Arc::clone(&kept.room));
        let (bytes, room) = self.kept.lock().get(&id).map(known).ok_or_else(lost)?;
        let grown = bytes + lines.len() as u64;
        if grown > BYTES_MAX {
            return Err(too_long());
        }
        let path = self.path(id);
        on_disk(move || {
            let mut room = room.lock();
            let added = room.hold(grown).map_err(no_room).and_then(|()| {
                let file = OpenOptions::new().append(true).open(path);
                let added = file.and_then(|mut file| {
                    // A caller that went away may have left lines that nobody counted.
                    file.set_len(bytes)?;
                    file.write_all(&lines).inspect_err(|_| drop(file.set_len(bytes)))
                });
                added.map_err(not_kept)
            });
            if added.is_err() {
                // Less room is always there.
                let _ = room.hold(bytes);
            }
            added
        })
        .await?;
        self.kept.lock().get_mut(&id).ok_or_else(lost)?.bytes = grown;
        Ok(grown)
    }

    /// Writes a document of at most `bytes_max` to the disk as it comes, before anything is known about it.
    ///
    /// # Errors
    ///
    /// The document does not come in full, is too long, or cannot be written.
    pub async fn spool(&self, body: ClientBody, bytes_max: u64) -> Result<NewFile, TaskRefusal> {
        let (mut file, mut body) = (self.begin(bytes_max).await?, body.into_data_stream());
        while let Some(bytes) = body.try_next().await.map_err(broken_off)? {
            file = file.add(bytes.into()).await?;
        }
        Ok(file)
    }

    /// Copies a file of `bytes` from another node, part by part: `part` returns the bytes from an offset on.
    ///
    /// # Errors
    ///
    /// The file does not come in full, or cannot be kept.
    pub async fn copy<P: Future<Output = Option<Vec<u8>>>>(
        &self,
        id: u128,
        bytes: u64,
        part: impl Fn(u64) -> P,
    ) -> Result<(), TaskRefusal> {
        let incomplete = || broken_off("the other node does not have all of it");
        let mut file = self.begin(BYTES_MAX).await?;
        while file.bytes < bytes {
            let part = part(file.bytes).await.filter(|part| !part.is_empty());
            file = file.add(part.ok_or_else(incomplete)?).await?;
        }
        if file.bytes != bytes {
            return Err(incomplete());
        }
        self.keep(id, file).await.map(drop)
    }

    /// Reads some bytes of a file, from an offset on; none at its end. Returns `None` if the file is not
    /// here.
    pub async fn part(&self, id: u128, offset: u64) -> Option<Vec<u8>> {
        let left = self.size(id)?.saturating_sub(offset);
        let path = self.path(id);
        let read = on_disk(move || {
            let mut bytes = vec![0; left.min(MANIFEST_PART_BYTES) as usize];
            let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset));
            read.map(|()| bytes).map_err(not_kept)
        });
        read.await.ok()
    }

    /// Reads a whole document. Returns `None` if it is not here.
    pub async fn read(&self, id: u128) -> Option<Vec<u8>> {
        let path = self.path(id);
        let read = on_disk(|| fs::read(path).map_err(not_kept));
        read.await.ok()
    }

    /// Reads the objects on at most `most` lines from an offset on. Returns them, and where the next line
    /// begins; no objects at the end of the list.
    ///
    /// # Errors
    ///
    /// The list is not here, or cannot be read.
    pub async fn names(
        &self,
        id: u128,
        offset: u64,
        most: usize,
    ) -> Result<(Vec<ObjectName>, u64), TaskRefusal> {
        let damaged = || not_kept("it is damaged");
        let part = self.part(id, offset).await.ok_or_else(lost)?;
        let (mut names, mut next) = (Vec::new(), offset);
        for line in part.split_inclusive(|byte| *byte == b'\n').take(most) {
            // The last line of a part may be cut; the next part begins with it.
            let Some(line) = line.strip_suffix(b"\n") else {
                break;
            };
            next += line.len() as u64 + 1;
            names.push(read_name(line).ok_or_else(damaged)?);
        }
        if names.is_empty() && !part.is_empty() {
            return Err(damaged());
        }
        Ok((names, next))
    }

    /// Removes a file.
    pub async fn remove(&self, id: u128) {
        let path = self.path(id);
        if self.size(id).is_some() {
            let _ = on_disk(|| fs::remove_file(path).map_err(not_kept)).await;
            self.kept.lock().remove(&id);
        }
    }

    async fn begin(&self, bytes_max: u64) -> Result<NewFile, TaskRefusal> {
        let (folder, room) = (self.folder.clone(), FileRoom::new(&self.store));
        let file = on_disk(|| NamedTempFile::new_in(folder).map_err(not_kept));
        Ok(NewFile {
            file: file.await?,
            room,
            bytes: 0,
            bytes_max,
        })
    }

    /// Keeps a new file as that of an order. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub async fn keep(&self, id: u128, file: NewFile) -> Result<u64, TaskRefusal> {
        let path = self.path(id);
        let NewFile {
            file, room, bytes, ..
        } = file;
        on_disk(|| file.persist(path).map_err(not_kept)).await?;
        self.kept.lock().insert(id, KeptFile::new(bytes, room));
        Ok(bytes)
    }

    fn path(&self, id: u128) -> PathBuf {
        self.folder.join(Ulid(id).to_string())
    }
}

impl KeptFile {
    fn new(bytes: u64, room: FileRoom) -> Self {
        let room = Arc::new(Mutex::new(room));
        Self { bytes, room }
    }
}

impl NewFile {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub async fn read(&self) -> Result<Vec<u8>, TaskRefusal> {
        let path = self.file.path().to_owned();
        on_disk(|| fs::read(path).map_err(not_kept)).await
    }

    /// Adds bytes to its end. Blocks may have to leave for them.
    async fn add(mut self, bytes: Vec<u8>) -> Result<Self, TaskRefusal> {
        on_disk(move || {
            self.bytes += bytes.len() as u64;
            if self.bytes > self.bytes_max {
                return Err(too_long());
            }
            self.room.hold(self.bytes).map_err(no_room)?;
            self.file.write_all(&bytes).map_err(not_kept)?;
            Ok(self)
        })
        .await
    }
}

/// Does work that may wait for the disk.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TaskRefusal> + Send + 'static,
) -> Result<T, TaskRefusal> {
    spawn_blocking(work).await.map_err(not_kept)?
}

fn no_room(why: impl Display) -> TaskRefusal {
    not_kept(format!("the store has no room ({why})"))
}

fn not_kept(error: impl Display) -> TaskRefusal {
    let why = format!("the node cannot keep the list: {error}");
    TaskRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
}

fn broken_off(error: impl Display) -> TaskRefusal {
    TaskRefusal::bad(format!("the list broke off: {error}"))
}

fn lost() -> TaskRefusal {
    not_kept("it is not on this disk any more")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use shoal_store::{Store, StoreConfig};
    use tokio::sync::Notify;

    use super::OrderFiles;

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
        let order_files = OrderFiles::open(&store, "manifests").unwrap();
        let list = (0..100).fold(String::new(), |mut list, number| {
            writeln!(list, "b/{number:03}").unwrap();
            list
        });
        let (bytes, half) = (list.len() as u64, list.len() / 2);
        let parts = |offset: u64| {
            let rest = &list.as_bytes()[offset as usize..];
            rest[..half.min(rest.len())].to_vec()
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
            let copied = order_files.copy(7, bytes, part).await;
            let names = order_files.names(7, 0, 1_000).await;
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
            order_files.copy(7, bytes, part).await
        };
        let ((copied, names), copied_again) = tokio::join!(first, second);
        copied.unwrap();
        assert_eq!(names.unwrap().0.len(), 100);
        copied_again.unwrap();
        assert_eq!(order_files.names(7, 0, 1_000).await.unwrap().0.len(), 100);
        let files = std::fs::read_dir(&order_files.folder).unwrap();
        assert_eq!(files.count(), 1, "nothing is left of the copies");
    }
}
