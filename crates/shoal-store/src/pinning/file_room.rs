//! Room for files of the node other than blocks, such as journals.

use std::sync::Arc;

use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use crate::Store;
use crate::eviction::evictor::Evictor;
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
