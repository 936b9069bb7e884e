//! Room for files of the node that are no blocks, such as journals.

use std::path::PathBuf;
use std::sync::Arc;

use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use super::Store;
use super::disk::Disk;
use super::evictor::Evictor;
use super::ledger::Ledger;

/// Room is taken in steps of so many bytes.
const STEP_BYTES: u64 = 16 << 10;

/// The room of one file, given back when it is dropped. The file is then to be gone.
pub struct FileRoom(Option<Held>);

struct Held {
    disk: Arc<Disk>,
    ledger: Arc<Ledger>,
    evictor: Arc<Evictor>,
    steps: Vec<Reservation>,
}

impl FileRoom {
    pub(super) fn new(disk: &Arc<Disk>, ledger: &Arc<Ledger>, evictor: &Arc<Evictor>) -> Self {
        Self(Some(Held {
            disk: Arc::clone(disk),
            ledger: Arc::clone(ledger),
            evictor: Arc::clone(evictor),
            steps: Vec::new(),
        }))
    }

    /// No room: of a file that is not in the folder of a store.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Takes room for a file of `bytes`, or gives back what it does not need any more. Blocks leave for it.
    /// May wait for the disk.
    ///
    /// # Errors
    ///
    /// Refuses if no block may leave.
    pub fn hold(&mut self, bytes: u64) -> Result<(), Refusal> {
        let Some(held) = &mut self.0 else { return Ok(()) };
        let steps = if bytes == 0 {
            0
        } else {
            held.disk.charge_bytes(bytes).div_ceil(STEP_BYTES) as usize
        };
        while held.steps.len() > steps {
            held.ledger
                .cancel(held.steps.pop().expect("there are more than none"));
        }
        while held.steps.len() < steps {
            held.steps.push(held.evictor.reserve(STEP_BYTES)?);
        }
        Ok(())
    }
}

impl Drop for FileRoom {
    fn drop(&mut self) {
        if let Some(held) = &mut self.0 {
            for step in held.steps.drain(..) {
                held.ledger.cancel(step);
            }
        }
    }
}

impl std::fmt::Debug for FileRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = self.0.as_ref().map_or(0, |held| held.steps.len());
        write!(f, "FileRoom of {steps} steps")
    }
}

/// Files of the node that are no blocks.
impl Store {
    /// The folder for files of the node. Room for them is taken from that of the blocks.
    pub fn node_folder(&self) -> PathBuf {
        self.disk.node_folder()
    }

    /// Room for one file in that folder; none at first.
    pub fn file_room(&self) -> FileRoom {
        FileRoom::new(&self.disk, &self.ledger, &self.evictor)
    }
}
