//! A store of bytes in a folder: one file for each piece, with checksums that are verified on every read.
//!
//! A piece is written under a temporary name, synced, and then renamed: after a crash it is either complete
//! or absent.

mod layout;
mod piece_file;

use std::collections::BinaryHeap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use scopeguard::{ScopeGuard, guard};
use shoal_net::endpoint::BoxError;
use shoal_s3::range::ByteRange;

#[cfg(test)]
pub(super) use self::layout::FolderFault;
pub(super) use self::layout::FolderOp;
use self::layout::Layout;
use self::piece_file::{Damage, Tail, end_of};
use super::Piece;
use super::digests::{CHUNK_BYTES, ChunkDigester, ChunkDigests};
use super::exact_body::exactly;
use super::probe;
use super::store::{
    ByteStore, ByteStream, KeyPage, ListedPiece, PieceMd5, ProbeError, PutError, StoreError, check_copy,
    check_key, check_size, other_length,
};

/// Number of bytes to collect from a body before a thread writes them.
const BATCH_BYTES: usize = 1 << 20;

/// Size of the buffer in which small frames of a body are joined.
const BUFFER_BYTES: usize = 128 << 10;

/// A store of pieces in a folder.
pub struct FolderStore {
    layout: Arc<Layout>,
}

impl FolderStore {
    /// Opens the store in a folder, which is created if it does not exist. Removes what a crash left behind.
    ///
    /// # Errors
    ///
    /// The folder cannot be created, read or written.
    pub async fn open(folder: PathBuf) -> Result<Self, ProbeError> {
        let place = describe(&folder);
        let opening = move || Layout::open(&folder).map_err(|error| failed("open it", &error));
        let opened = run_blocking(opening).await;
        let layout = opened.map_err(|error| probe::unusable(&place, "cannot be used", &error))?;
        Ok(Self {
            layout: Arc::new(layout),
        })
    }

    /// Lets operations fail from now on when `fault` returns an error.
    #[cfg(test)]
    pub(super) fn fail_by(&mut self, fault: Arc<FolderFault>) {
        Arc::get_mut(&mut self.layout)
            .expect("nothing uses the store")
            .fault = Some(fault);
    }

    async fn put_piece(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<(), PutError> {
        check_key(key)?;
        check_size(size_bytes)?;
        let layout = Arc::clone(&self.layout);
        let mut piece = unfinished(run_blocking(move || NewPiece::create(layout)).await?);
        let mut body = exactly(size_bytes, body);
        loop {
            let batch = match next_batch(&mut body).await {
                Ok(batch) => batch,
                Err(error) => {
                    // Dropping the piece, on either thread, removes it.
                    let _ = change(piece, |_| Ok(())).await;
                    return Err(PutError::Body(error));
                }
            };
            if batch.is_empty() {
                break;
            }
            let written = change(piece, move |mut piece| piece.write(&batch).map(|()| piece));
            piece = unfinished(written.await?);
        }
        let key = key.to_owned();
        Ok(change(piece, move |piece| piece.publish(&key)).await?)
    }

    async fn stored_piece(&self, key: &str) -> Result<StoredPiece, StoreError> {
        let (layout, key) = (Arc::clone(&self.layout), key.to_owned());
        run_blocking(move || StoredPiece::open(layout, &key)).await
    }
}

#[async_trait]
impl ByteStore for FolderStore {
    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<PieceMd5, PutError> {
        let md5 = Arc::<Mutex<Md5>>::default();
        let taken = Arc::clone(&md5);
        let body = body.inspect_ok(move |bytes| taken.lock().update(bytes));
        self.put_piece(key, size_bytes, body.boxed()).await?;
        Ok(std::mem::take(&mut *md5.lock()).finalize().into())
    }

    async fn get(&self, key: &str, range: ByteRange) -> Result<ByteStream, StoreError> {
        check_key(key)?;
        let piece = self.stored_piece(key).await?;
        let size_bytes = piece.digests.size_bytes();
        if range.start > range.end || range.end > size_bytes {
            return Err(probe::beyond_the_piece(range, size_bytes));
        }
        Ok(piece.stream(range))
    }

    /// Copies by reading and rewriting all bytes: this verifies them, and the tail of a piece depends on its
    /// key. No MD5 is needed: the files have checksums of their own.
    async fn copy(&self, from: &Piece, to: &str) -> Result<(), StoreError> {
        check_copy(from, to)?;
        let size_bytes = from.size_bytes;
        let piece = self.stored_piece(&from.key).await?;
        if piece.digests.size_bytes() != size_bytes {
            return Err(other_length(size_bytes, piece.digests.size_bytes()));
        }
        let whole = ByteRange::new(0, size_bytes);
        let copied = self.put_piece(to, size_bytes, piece.stream(whole)).await;
        copied.map_err(|error| match error {
            PutError::Store(error) => error,
            PutError::Body(error) => match error.downcast::<StoreError>() {
                Ok(error) => *error,
                Err(error) => StoreError::Unavailable(error.to_string()),
            },
        })
    }

    async fn remove(&self, keys: &[Arc<str>]) -> Result<(), StoreError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let (layout, keys) = (Arc::clone(&self.layout), keys.to_vec());
        run_blocking(move || {
            let removed = keys.iter().map(|key| layout.remove(key));
            // All are removed, even after an error.
            let removed = removed.fold(Ok(()), Result::and);
            removed.map_err(|error| failed("remove a piece", &error))
        })
        .await
    }

    /// Every page reads the names of all pieces, so large pages are cheaper than small ones.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<KeyPage, StoreError> {
        let (layout, after) = (Arc::clone(&self.layout), after.map(ToOwned::to_owned));
        run_blocking(move || {
            list(&layout, after.as_deref(), limit).map_err(|error| failed("list it", &error))
        })
        .await
    }

    async fn check_settings(&self) -> Result<(), ProbeError> {
        let (place, layout) = (self.place(), Arc::clone(&self.layout));
        let is_memory = run_blocking(move || {
            is_in_memory(layout.root()).map_err(|error| failed("find out its file system", &error))
        });
        let is_memory = is_memory.await;
        if is_memory.map_err(|error| probe::unusable(&place, "cannot be used", &error))? {
            return Err(ProbeError::unfit(
                format!("{place} cannot be a tier: its file system is in memory, and lost with power"),
                "choose a folder on a disk, or on a file system that several machines keep",
            ));
        }
        Ok(())
    }

    fn place(&self) -> String {
        describe(self.layout.root())
    }
}

impl fmt::Debug for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FolderStore").field(&self.layout.root()).finish()
    }
}

/// A piece under a temporary name. Dropping it removes the file unless it was published.
struct NewPiece {
    layout: Arc<Layout>,
    path: PathBuf,
    file: BufWriter<File>,
    digester: ChunkDigester,
    is_published: bool,
}

impl NewPiece {
    fn create(layout: Arc<Layout>) -> Result<Self, StoreError> {
        let (file, path) = layout.create().map_err(|error| failed("create a file", &error))?;
        Ok(Self {
            layout,
            path,
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            digester: ChunkDigester::default(),
            is_published: false,
        })
    }

    fn write(&mut self, batch: &[Bytes]) -> Result<(), StoreError> {
        self.layout
            .check(FolderOp::Write)
            .and_then(|()| {
                batch.iter().try_for_each(|bytes| {
                    self.digester.update(bytes);
                    self.file.write_all(bytes)
                })
            })
            .map_err(|error| failed("write a piece", &error))
    }

    fn publish(mut self, key: &str) -> Result<(), StoreError> {
        self.publish_durably(key).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::Refused(format!("there is a piece {key} already")),
            _ => failed("make a piece durable", &error),
        })
    }

    fn publish_durably(&mut self, key: &str) -> io::Result<()> {
        let end = end_of(key, &std::mem::take(&mut self.digester).chunks());
        self.layout.check(FolderOp::Write)?;
        self.file.write_all(&end)?;
        self.file.flush()?;
        self.layout.check(FolderOp::SyncFile)?;
        self.file.get_ref().sync_all()?;
        self.layout.publish(&self.path, key)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for NewPiece {
    fn drop(&mut self) {
        if !self.is_published
            && let Err(error) = self.layout.unlink(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished piece stays until the next start");
        }
    }
}

/// A [`NewPiece`] that belongs to a future. If the future is dropped, the file is removed on a thread that
/// may block on the disk.
type Unfinished = ScopeGuard<NewPiece, fn(NewPiece)>;

fn unfinished(piece: NewPiece) -> Unfinished {
    guard(piece, |piece| {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(piece));
        }
    })
}

/// Runs one step of a piece on a blocking thread. A piece whose step fails is removed.
async fn change<T: Send + 'static>(
    piece: Unfinished,
    step: impl FnOnce(NewPiece) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let piece = ScopeGuard::into_inner(piece);
    run_blocking(move || step(piece)).await
}

/// An open piece whose tail has been verified.
struct StoredPiece {
    layout: Arc<Layout>,
    file: File,
    digests: ChunkDigests,
}

impl StoredPiece {
    fn open(layout: Arc<Layout>, key: &str) -> Result<Self, StoreError> {
        let unread = |error: io::Error| failed("read a piece", &error);
        let file = layout.open_piece(key).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Missing,
            _ => unread(error),
        })?;
        let file_bytes = file.metadata().map_err(unread)?.len();
        let Some(tail_at) = file_bytes.checked_sub(Tail::BYTES as u64) else {
            return Err(damaged(Damage::NotAPiece));
        };
        let mut tail = [0; Tail::BYTES];
        file.read_exact_at(&mut tail, tail_at).map_err(unread)?;
        let tail = Tail::decode(&tail, file_bytes).map_err(damaged)?;
        let (at, length) = tail.description();
        let mut end = vec![0; length as usize];
        file.read_exact_at(&mut end, at).map_err(unread)?;
        let digests = tail.digests(&end, key).map_err(damaged)?;
        Ok(Self {
            layout,
            file,
            digests,
        })
    }

    /// Streams a range, which must lie within the piece, one chunk at a time.
    fn stream(self, range: ByteRange) -> ByteStream {
        let reading = (Arc::new(self), range);
        stream::try_unfold(reading, |(piece, mut rest)| async move {
            if rest.is_empty() {
                return Ok(None);
            }
            let reading = Arc::clone(&piece);
            let chunk = rest.start / CHUNK_BYTES;
            let bytes = run_blocking(move || reading.read(chunk)).await?;
            let chunk_start = chunk * CHUNK_BYTES;
            let end = rest.end.min(chunk_start + bytes.len() as u64);
            let bytes = bytes.slice((rest.start - chunk_start) as usize..(end - chunk_start) as usize);
            rest.start = end;
            Ok(Some((bytes, (piece, rest))))
        })
        .boxed()
    }

    /// Reads and verifies one chunk.
    fn read(&self, chunk: u64) -> Result<Bytes, StoreError> {
        let mut bytes = vec![0; self.digests.chunk(chunk).len() as usize];
        self.layout
            .check(FolderOp::Read)
            .and_then(|()| self.file.read_exact_at(&mut bytes, chunk * CHUNK_BYTES))
            .map_err(|error| failed("read a piece", &error))?;
        if !self.digests.verify(chunk, &bytes) {
            return Err(damaged(Damage::Data));
        }
        Ok(bytes.into())
    }
}

/// Returns the next bytes of a body, as many as one thread writes at once; empty at its end.
async fn next_batch(body: &mut ByteStream) -> Result<Vec<Bytes>, BoxError> {
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    while batch_bytes < BATCH_BYTES
        && let Some(bytes) = body.next().await
    {
        let bytes = bytes?;
        batch_bytes += bytes.len();
        batch.push(bytes);
    }
    Ok(batch)
}

fn list(layout: &Layout, after: Option<&str>, limit: usize) -> io::Result<KeyPage> {
    let (mut first, mut is_last) = (BinaryHeap::new(), true);
    layout.for_each_key(|key| {
        if after.is_none_or(|after| *key > *after) {
            first.push(key);
            if first.len() > limit {
                // Drop the greatest key: it belongs to a later page.
                first.pop();
                is_last = false;
            }
        }
    })?;
    let now = layout.now()?;
    let mut pieces = Vec::with_capacity(first.len());
    for key in first.into_sorted_vec() {
        // The piece may have been removed concurrently.
        if let Some(metadata) = layout.metadata(&key)? {
            pieces.push(ListedPiece {
                key: key.into(),
                size_bytes: piece_file::size_in(metadata.len()),
                age: now.duration_since(metadata.modified()?).unwrap_or_default(),
            });
        }
    }
    Ok(KeyPage { pieces, is_last })
}

/// Returns true if files in a folder are kept in memory only.
///
/// # Errors
///
/// The folder cannot be examined.
pub fn is_in_memory(folder: &Path) -> io::Result<bool> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(folder)?.f_type & 0xffff_ffff;
    Ok(kind == TMPFS || kind == RAMFS)
}

fn describe(folder: &Path) -> String {
    format!("the folder {}", folder.display())
}

fn damaged(damage: Damage) -> StoreError {
    StoreError::Damaged(damage.to_string())
}

/// Converts a file system error to the store's error.
fn failed(action: &str, error: &io::Error) -> StoreError {
    let message = format!("cannot {action}: {error}");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(message),
        io::ErrorKind::UnexpectedEof => StoreError::Damaged("its file ends too early".into()),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreError::Refused(message),
        _ => StoreError::Unavailable(message),
    }
}

/// Runs work that may block on the disk on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(StoreError::Unavailable("the node is stopping".into())),
    }
}
