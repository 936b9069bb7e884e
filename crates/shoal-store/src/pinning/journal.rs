//! An append-only file of records that is rewritten when most of it is obsolete.
//!
//! ```text
//! | length u32 | CRC u64 | record | length u32 | ...
//! ```
//!
//! Nothing is synced, as for blocks, so a power failure may lose the end of the file. Reading stops at the
//! first record that is incomplete or fails its checksum.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::file_room::FileRoom;
pub use crate::files::error::JournalError;
use crate::files::footer::Checksum;

/// The largest record in bytes.
pub const RECORD_BYTES_MAX: usize = 4 << 20;

/// Bytes before each record.
const HEAD_BYTES: usize = 12;

/// Smaller journals are not rewritten.
const SMALL_BYTES: u64 = 64 << 10;

/// A journal that is open for appending.
pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    room: FileRoom,
}

impl Journal {
    /// Opens or creates the journal at `path`, and calls `each` for each of its records.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or the store has no room for it.
    pub fn open(path: &Path, mut room: FileRoom, mut each: impl FnMut(&[u8])) -> Result<Self, JournalError> {
        remove_aside(&aside(path));
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let length = file.metadata()?.len();
        let mut reader = BufReader::new(&file);
        let (mut bytes, mut record) = (0, Vec::new());
        while read_record(&mut reader, &mut record, length - bytes)? {
            bytes += (HEAD_BYTES + record.len()) as u64;
            each(&record);
        }
        if bytes < length {
            tracing::warn!(path = %path.display(), lost_bytes = length - bytes, "the end of a journal was torn off");
            file.set_len(bytes)?;
        }
        room.hold(bytes).map_err(JournalError::NoRoom)?;
        Ok(Self {
            path: path.into(),
            file,
            bytes,
            room,
        })
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// Fails if there is no room or the disk fails. The journal is then unchanged.
    pub fn append(&mut self, record: &[u8]) -> Result<(), JournalError> {
        let framed = framed(record);
        self.room
            .hold(self.bytes + framed.len() as u64)
            .map_err(JournalError::NoRoom)?;
        if let Err(error) = (&self.file).write_all(&framed) {
            // Truncate, because a partial record would hide all later ones.
            self.file.set_len(self.bytes)?;
            self.room.hold(self.bytes).map_err(JournalError::NoRoom)?;
            return Err(error.into());
        }
        self.bytes += framed.len() as u64;
        Ok(())
    }

    /// Returns true if the journal should be rewritten, given that only `live_bytes` of it are current.
    pub const fn is_mostly_dead(&self, live_bytes: u64) -> bool {
        self.bytes > SMALL_BYTES && self.bytes / 2 > live_bytes
    }

    /// Replaces the contents by these records.
    ///
    /// # Errors
    ///
    /// Fails if there is no room or the disk fails. The journal is then unchanged.
    pub fn rewrite(&mut self, records: impl IntoIterator<Item = Vec<u8>>) -> Result<(), JournalError> {
        let aside = aside(&self.path);
        let written = self.write_aside(&aside, records);
        let renamed = written.and_then(|written| {
            fs::rename(&aside, &self.path)?;
            Ok(written)
        });
        let ended = renamed.map(|(file, bytes)| (self.file, self.bytes) = (file, bytes));
        if ended.is_err() {
            remove_aside(&aside);
        }
        // Only one of the two files is left.
        let room = self.room.hold(self.bytes).map_err(JournalError::NoRoom);
        ended.and(room)
    }

    /// Writes these records to a new file. Returns it and its size.
    fn write_aside(
        &mut self,
        aside: &Path,
        records: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<(File, u64), JournalError> {
        remove_aside(aside);
        let mut file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(aside)?;
        let mut bytes = 0;
        for record in records {
            let framed = framed(&record);
            bytes += framed.len() as u64;
            // Both files exist until the rename.
            self.room.hold(self.bytes + bytes).map_err(JournalError::NoRoom)?;
            file.write_all(&framed)?;
        }
        Ok((file, bytes))
    }
}

/// Returns the path of the new file that will replace the journal at `path`.
fn aside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Removes the remains of an interrupted rewrite. On failure the next rewrite tries again.
fn remove_aside(aside: &Path) {
    if let Err(error) = fs::remove_file(aside)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %aside.display(), %error, "a file of a journal cannot be removed");
    }
}

fn framed(record: &[u8]) -> Vec<u8> {
    assert!(record.len() <= RECORD_BYTES_MAX, "records are small");
    let mut framed = Vec::with_capacity(HEAD_BYTES + record.len());
    framed.extend_from_slice(&(record.len() as u32).to_le_bytes());
    framed.extend_from_slice(&Checksum::compute(&[record]).to_le_bytes());
    framed.extend_from_slice(record);
    framed
}

/// Reads a record of at most `left` bytes, head included. Returns `false` if no complete record follows.
fn read_record(reader: &mut impl io::Read, record: &mut Vec<u8>, left: u64) -> io::Result<bool> {
    let mut head = [0; HEAD_BYTES];
    if left < HEAD_BYTES as u64 {
        return Ok(false);
    }
    reader.read_exact(&mut head)?;
    let (length, sum) = head.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    if length > RECORD_BYTES_MAX || left < (HEAD_BYTES + length) as u64 {
        return Ok(false);
    }
    record.resize(length, 0);
    reader.read_exact(record)?;
    Ok(Checksum::compute(&[record]).to_le_bytes() == sum)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{FileRoom, Journal};

    fn open(path: &Path) -> (Journal, Vec<String>) {
        let mut records = Vec::new();
        let each = |record: &[u8]| records.push(String::from_utf8_lossy(record).into_owned());
        let journal = Journal::open(path, FileRoom::none(), each).unwrap();
        (journal, records)
    }

    #[test]
    fn records_are_read_again_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (mut journal, none) = open(&path);
        assert!(none.is_empty());
        for record in ["a", "", "ccc"] {
            journal.append(record.as_bytes()).unwrap();
        }
        drop(journal);
        let (mut journal, records) = open(&path);
        assert_eq!(records, ["a", "", "ccc"]);
        journal.rewrite(["z".into()]).unwrap();
        journal.append(b"y").unwrap();
        drop(journal);
        assert_eq!(open(&path).1, ["z", "y"]);
    }

    #[test]
    fn a_journal_ends_before_the_first_record_that_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let (mut journal, _) = open(&path);
        journal.append(b"first").unwrap();
        journal.append(b"second").unwrap();
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, records) = open(&path);
            assert!(
                records == ["first"] || records.is_empty() && length < 17,
                "{length}"
            );
            journal.append(b"later").unwrap();
            drop(journal);
            assert_eq!(open(&path).1.last().unwrap(), "later", "{length}");
        }
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            let expected: &[&str] = if position < 17 { &[] } else { &["first"] };
            assert_eq!(open(&path).1, expected, "{position}");
        }
    }

    #[test]
    fn a_rewrite_that_fails_leaves_the_journal_as_it_was_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("j"), folder.path().join("moved"));
        let (mut journal, _) = open(&path);
        journal.append(b"first").unwrap();
        let records = ["a", "b"].into_iter().map(|record| {
            if record == "b" {
                // No file can take the place of a folder.
                fs::rename(&path, &moved).unwrap();
                fs::create_dir(&path).unwrap();
            }
            record.as_bytes().to_vec()
        });
        assert!(journal.rewrite(records).is_err());
        journal.append(b"second").unwrap();
        drop(journal);
        assert!(!folder.path().join("j.new").exists());
        assert_eq!(open(&moved).1, ["first", "second"]);
    }

    #[test]
    fn what_a_crash_left_of_a_rewrite_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, left) = (folder.path().join("j"), folder.path().join("j.new"));
        fs::write(&left, "torn").unwrap();
        let (mut journal, _) = open(&path);
        assert!(!left.exists());
        journal.rewrite(["z".into()]).unwrap();
        drop(journal);
        assert_eq!(open(&path).1, ["z"]);
    }

    #[test]
    fn a_journal_of_dead_records_is_to_be_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(&folder.path().join("j"));
        journal.append(&vec![7; 60 << 10]).unwrap();
        assert!(!journal.is_mostly_dead(0), "a small one is not worth it");
        journal.append(&vec![7; 60 << 10]).unwrap();
        assert!(journal.is_mostly_dead(59 << 10) && !journal.is_mostly_dead(100 << 10));
    }
}
