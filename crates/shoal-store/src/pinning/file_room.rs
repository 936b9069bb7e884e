//! Room for files of the node other than blocks, such as journals.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use crate::Store;
use crate::eviction::evictor::Evictor;
use crate::files::pages::Pages;
use crate::ground::Ground;

/// Room is reserved in multiples of this.
const STEP_BYTES: u64 = 16 << 10;

/// The room reserved for one file. Dropping it releases the room, so the file must be removed first.
pub struct FileRoom(Option<Held>);

struct Held {
    ground: Arc<Ground>,
    evictor: Arc<Evictor>,
    steps: Vec<Reservation>,
}

/// A mapped file and its room, which is released once the file is unmapped.
struct Mapped {
    pages: Pages,
    _room: FileRoom,
}

impl FileRoom {
    /// Creates the room for one file in the [`Store::node_folder`], initially empty.
    pub fn new(store: &Store) -> Self {
        Self(Some(Held {
            ground: Arc::clone(&store.ground),
            evictor: Arc::clone(&store.evictor),
            steps: Vec::new(),
        }))
    }

    /// For a file that is not in the folder of a store: reserves nothing.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Adjusts the reserved room to a file of `bytes`, evicting blocks if necessary. May block on the disk.
    ///
    /// # Errors
    ///
    /// Fails if there is no room and no block can be evicted.
    pub fn hold(&mut self, bytes: u64) -> Result<(), Refusal> {
        let Some(held) = &mut self.0 else { return Ok(()) };
        let steps = if bytes == 0 {
            0
        } else {
            held.ground.disk.charge_bytes(bytes).div_ceil(STEP_BYTES) as usize
        };
        while held.steps.len() > steps {
            held.ground
                .ledger
                .cancel(held.steps.pop().expect("there are more than none"));
        }
        while held.steps.len() < steps {
            held.steps.push(held.evictor.reserve(STEP_BYTES)?);
        }
        Ok(())
    }

    /// Maps the first `length` bytes of the file, which must not be shortened or rewritten any more. The room
    /// is held until the last reference to the bytes is dropped; the file should be removed before. Blocks
    /// while pages are read.
    ///
    /// # Errors
    ///
    /// The file cannot be mapped or read.
    pub fn map(self, file: &File, length: usize) -> io::Result<Bytes> {
        let pages = Pages::unsent(file, length)?;
        pages.populate(0..length)?;
        Ok(Bytes::from_owner(Mapped { pages, _room: self }))
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.pages.as_ref()
    }
}

impl Drop for FileRoom {
    fn drop(&mut self) {
        if let Some(held) = &mut self.0 {
            for step in held.steps.drain(..) {
                held.ground.ledger.cancel(step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::FileRoom;
    use crate::{Store, StoreConfig};

    #[tokio::test]
    async fn a_mapped_file_holds_its_room_until_its_last_reader_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            path: folder.path().join("store"),
            capacity_bytes: 16 << 20,
            block_bytes: 64 << 10,
            ..StoreConfig::default()
        };
        let (store, _) = Store::open(&config, 1 << 20, 1).unwrap();
        let taken_before = store.counters().taken_bytes;
        let path = store.node_folder().join("file");
        fs::write(&path, vec![7; 100_000]).unwrap();
        let mut room = FileRoom::new(&store);
        room.hold(100_000).unwrap();
        let bytes = room.map(&File::open(&path).unwrap(), 100_000).unwrap();
        fs::remove_file(&path).unwrap();
        let read = bytes.slice(99_000..);
        drop(bytes);
        assert_eq!(*read, [7; 1000]);
        assert!(store.counters().taken_bytes >= taken_before + 100_000);
        drop(read);
        assert_eq!(store.counters().taken_bytes, taken_before);
    }
}
