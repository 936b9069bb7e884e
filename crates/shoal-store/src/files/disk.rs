//! The files of the store: layout, writing, reading and removal.
//!
//! ```text
//! shoal-store            marker that identifies the folder; locked while a node uses it
//! blocks/00 … blocks/ff  one file per large block, named after it
//! segments/              files of many small blocks, named by their numbers
//! aside/                 files being written, under temporary names; emptied at start
//! quarantine/            the last few files that were damaged or strange
//! node/                  files of the node that are no blocks; their room counts
//! ```
//!
//! Every read, write, rename and removal of a store file, except for the marker, calls [`Disk::check`] first,
//! where tests inject failures: here, in `segment_file` and in `location`. Directory listings and mappings
//! have no such check.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::OFlags;
use shoal_base::hex;
use shoal_policy::{BlockId, VersionId};

use super::error::StoreError;
use super::folder::{self, FolderLock, MARKER};
use super::footer::{Footer, FooterError, Tail};
use super::place::SegmentNumber;
use super::segment::SegmentError;

/// Number of folders over which blocks are distributed.
pub(crate) const FOLDERS: u16 = 256;

/// Number of locks on file names.
const NAME_LOCKS: usize = 64;

/// Estimated disk space of a directory entry: file systems keep directories about half full.
const NAME_BYTES: u64 = 128;

/// Files of up to this many disk blocks need no indirect block.
const DIRECT_BLOCKS: u64 = 4;

/// Number of bytes read first from the end of a file; most footers fit.
const FOOTER_GUESS_BYTES: u64 = 4096;

/// A disk operation, passed to [`DiskFault`] before it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Write a block's bytes to a file under a temporary name.
    Write,
    /// Rename a written file to its final name.
    Publish,
    /// Read a footer or a block.
    Read,
    /// Unlink or move a file.
    Remove,
    /// Check whether the disk works again.
    Probe,
}

/// Called before each operation, which fails if this returns an error. Tests use it to inject disk failures.
pub type DiskFault = dyn Fn(DiskOp) -> io::Result<()> + Send + Sync;

/// The folder of a store.
pub(crate) struct Disk {
    root: PathBuf,
    /// Size of a disk block in bytes.
    unit_bytes: u64,
    fault: Option<Arc<DiskFault>>,
    /// Publishing and unlinking the same name must not overlap.
    names: [Mutex<()>; NAME_LOCKS],
    /// The last field, so that the folder is unlocked only after everything else was dropped.
    _lock: FolderLock,
}

/// A file that still has a temporary name.
#[derive(Debug)]
pub(crate) struct TempFile {
    pub(crate) number: u64,
    pub(crate) file: File,
    /// Disk space of the file.
    pub(crate) allocated_bytes: u64,
}

/// Why a block could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Footer(#[from] FooterError),
    #[error("{0}")]
    Segment(#[from] SegmentError),
    #[error("it is another block")]
    OtherBlock,
    #[error("the data's checksum is wrong")]
    Checksum,
}

impl Disk {
    /// Locks the folder `root` and creates missing subfolders. Operations fail if `fault` returns an error.
    ///
    /// # Errors
    ///
    /// Fails if the folder is in use, is not a store of this format, or cannot be used.
    pub(crate) fn open(root: &Path, fault: Option<Arc<DiskFault>>) -> Result<Self, StoreError> {
        let lock = folder::lock(root)?;
        let unit_bytes = create_folders(root)
            .and_then(|()| Ok(rustix::fs::statvfs(root)?.f_frsize.max(512)))
            .map_err(StoreError::io(root, "create its folders"))?;
        Ok(Self {
            root: root.into(),
            unit_bytes,
            fault,
            names: std::array::from_fn(|_| Mutex::new(())),
            _lock: lock,
        })
    }

    /// Locks the name of this block against publishing and unlinking by other threads.
    pub(crate) fn lock_name(&self, block: BlockId) -> MutexGuard<'_, ()> {
        self.names[usize::from(folder_of(block)) % NAME_LOCKS].lock()
    }

    /// Returns an upper bound of the disk space of a file of this length: its disk blocks, an indirect block
    /// and its directory entry.
    pub(crate) fn charge_bytes(&self, file_bytes: u64) -> u64 {
        let blocks = file_bytes.div_ceil(self.unit_bytes);
        let listing = u64::from(blocks > DIRECT_BLOCKS);
        (blocks + listing) * self.unit_bytes + NAME_BYTES
    }

    /// Returns the disk space of files that always exist: folders, the marker, and occasionally a probe.
    pub(crate) fn fixed_bytes(&self) -> io::Result<u64> {
        let named = ["", MARKER, "aside", "quarantine", "blocks", "segments", "node"].map(String::from);
        let numbered = (0..FOLDERS).map(|number| format!("blocks/{number:02x}"));
        let room = |path| Ok(allocated_bytes(&fs::metadata(self.root.join(path))?));
        let there: u64 = named
            .into_iter()
            .chain(numbered)
            .map(room)
            .sum::<io::Result<u64>>()?;
        Ok(there + self.charge_bytes(self.unit_bytes))
    }

    /// Writes a file under a temporary name. [`Disk::unlink`] removes the remains of a failed write.
    pub(crate) fn write_temp(&self, number: u64, pieces: &[Bytes], footer: &[u8]) -> io::Result<TempFile> {
        self.check(DiskOp::Write)?;
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.temp_path(number))?;
        write_all(&mut file, pieces, footer)?;
        let allocated_bytes = allocated_bytes(&file.metadata()?);
        Ok(TempFile {
            number,
            file,
            allocated_bytes,
        })
    }

    /// Appends to a file that has a temporary name.
    pub(crate) fn append(&self, file: &TempFile, bytes: &[u8]) -> io::Result<()> {
        self.check(DiskOp::Write)?;
        (&file.file).write_all(bytes)
    }

    /// Renames a written block to its final name, replacing any file of that name.
    pub(crate) fn publish(&self, file: &TempFile, block: BlockId) -> io::Result<()> {
        self.check(DiskOp::Publish)?;
        fs::rename(self.temp_path(file.number), self.block_path(block))
    }

    pub(crate) fn remove_block(&self, block: BlockId) -> io::Result<()> {
        self.unlink(&self.block_path(block))
    }

    /// Opens the file of a block and reads its footer.
    pub(crate) fn open_file(&self, block: BlockId) -> Result<(File, Footer), ReadError> {
        self.check(DiskOp::Read)?;
        let file = open(&self.block_path(block))?;
        let footer = read_footer(&file, file.metadata()?.len())?;
        Ok((file, footer))
    }

    /// Moves a damaged or unrecognised file of the store into the quarantine folder.
    pub(crate) fn move_to_quarantine(&self, path: &Path, name: &str) -> io::Result<()> {
        self.check(DiskOp::Remove)?;
        fs::rename(path, self.quarantine_path(name))
    }

    /// Writes a file of the quarantine.
    pub(crate) fn write_to_quarantine(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.check(DiskOp::Write)?;
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.quarantine_path(name));
        file?.write_all(bytes)
    }

    /// Checks that the disk accepts and keeps a few bytes. Recreates missing folders.
    pub(crate) fn probe(&self) -> io::Result<()> {
        self.check(DiskOp::Probe)?;
        create_folders(&self.root)?;
        let path = self.root.join("aside/probe");
        let result = File::create(&path).and_then(|mut file| {
            file.write_all(&vec![0x5a; self.unit_bytes as usize])?;
            // Sync, because a failing disk reports errors only when the bytes are really written.
            file.sync_data()
        });
        match (result, fs::remove_file(&path)) {
            (Err(error), _) | (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(())) => Ok(()),
        }
    }

    pub(crate) fn unlink(&self, path: &Path) -> io::Result<()> {
        self.check(DiskOp::Remove)?;
        match fs::remove_file(path) {
            // A missing file is no error. A directory does not belong to the store and is left alone.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                ) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    pub(crate) fn folder(&self, number: u16) -> PathBuf {
        self.root.join(format!("blocks/{number:02x}"))
    }

    pub(crate) fn temp_folder(&self) -> PathBuf {
        self.root.join("aside")
    }

    /// The folder in which an earlier build kept records of dirty objects.
    pub(crate) fn unflushed_folder(&self) -> PathBuf {
        self.root.join("dirty")
    }

    /// The folder for the node's files other than blocks.
    pub(crate) fn node_folder(&self) -> PathBuf {
        self.root.join("node")
    }

    pub(crate) fn quarantine_folder(&self) -> PathBuf {
        self.root.join("quarantine")
    }

    pub(crate) fn block_path(&self, block: BlockId) -> PathBuf {
        self.folder(folder_of(block)).join(file_name(block))
    }

    pub(crate) fn temp_path(&self, number: u64) -> PathBuf {
        self.root.join(format!("aside/{number:016x}"))
    }

    pub(crate) fn quarantine_path(&self, name: &str) -> PathBuf {
        self.quarantine_folder().join(name)
    }

    /// The folder of the segments.
    pub(crate) fn segment_folder(&self) -> PathBuf {
        self.root.join("segments")
    }

    pub(crate) fn segment_path(&self, number: SegmentNumber) -> PathBuf {
        self.segment_folder().join(segment_name(number))
    }

    /// The path of a segment that is being created.
    pub(crate) fn temp_segment_path(&self, number: SegmentNumber) -> PathBuf {
        self.root.join(format!("aside/segment-{number:08x}"))
    }

    /// Fails if a test wants the operation to fail.
    pub(crate) fn check(&self, op: DiskOp) -> io::Result<()> {
        self.fault.as_ref().map_or(Ok(()), |fault| fault(op))
    }
}

/// Returns the allocated disk space of a file.
pub(crate) fn allocated_bytes(metadata: &Metadata) -> u64 {
    // POSIX counts in units of 512 bytes, whatever the disk's own unit is.
    metadata.blocks() * 512
}

pub(crate) fn file_name(block: BlockId) -> String {
    format!("{}-{:08x}", block.version, block.index)
}

/// Returns the folder of a block: the digest's first byte, XOR the index so that a long object fills
/// all folders.
pub(crate) fn folder_of(block: BlockId) -> u16 {
    u16::from(block.version.0[0] ^ block.index.to_le_bytes()[0])
}

/// Inverse of [`file_name`].
pub(crate) fn parse_file_name(name: &OsStr) -> Option<BlockId> {
    let name = name.to_str()?;
    let (version, index) = name.split_once('-')?;
    let block = BlockId {
        version: VersionId(hex::decode(version.as_bytes())?),
        index: u32::from_str_radix(index, 16).ok()?,
    };
    // Only the canonical spelling is valid: capital digits or a sign would give a block a second name.
    (file_name(block) == name).then_some(block)
}

fn segment_name(number: SegmentNumber) -> String {
    format!("{number:08x}")
}

/// Parses the name of a segment's file.
pub(crate) fn parse_segment_name(name: &OsStr) -> Option<SegmentNumber> {
    let name = name.to_str()?;
    let number = SegmentNumber::new(u32::from_str_radix(name, 16).ok()?)?;
    (segment_name(number) == name).then_some(number)
}

/// Parses a file name that is the ID of a version.
pub(crate) fn parse_version(name: &OsStr) -> Option<VersionId> {
    let name = name.to_str()?;
    let version = VersionId(hex::decode(name.as_bytes())?);
    (version.to_string() == name).then_some(version)
}

/// Opens a regular file for reading. Does not block on a pipe and does not follow symbolic links.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true))
}

/// As [`open`], with other access.
pub(crate) fn open_as(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.custom_flags(flags.bits().cast_signed()).open(path)
}

/// Reads the footer at the end of a file of `file_bytes`. The data must be exactly the rest of the file.
pub(crate) fn read_footer(file: &File, file_bytes: u64) -> Result<Footer, ReadError> {
    let mut end = read_end(file, file_bytes, FOOTER_GUESS_BYTES)?;
    let tail = Tail::decode(&end)?;
    if tail.footer_bytes() > end.len() {
        end = read_end(file, file_bytes, tail.footer_bytes() as u64)?;
    }
    let footer = Footer::decode(&end, tail)?;
    if file_bytes.checked_sub(tail.footer_bytes() as u64) != Some(footer.data_bytes) {
        return Err(FooterError::Malformed.into());
    }
    Ok(footer)
}

fn read_end(file: &File, file_bytes: u64, length: u64) -> io::Result<Vec<u8>> {
    let length = length.min(file_bytes);
    let mut end = vec![0; length as usize];
    file.read_exact_at(&mut end, file_bytes - length)?;
    Ok(end)
}

fn write_all(file: &mut File, pieces: &[Bytes], footer: &[u8]) -> io::Result<()> {
    let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    slices.push(IoSlice::new(footer));
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Creates the folders that are missing.
fn create_folders(root: &Path) -> io::Result<()> {
    for folder in ["aside", "quarantine", "blocks", "segments", "node"] {
        create_folder(&root.join(folder))?;
    }
    (0..FOLDERS).try_for_each(|number| create_folder(&root.join(format!("blocks/{number:02x}"))))
}

fn create_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    // Cached objects may be confidential.
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        result => result,
    }
}
