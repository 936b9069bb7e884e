//! Pins and unpins objects, and persists the pins across restarts.
//!
//! Pins are written to the journal first, so an object that is not in it is not pinned. The journal's lock
//! must be taken before all other locks of the store.

pub(crate) mod file_room;
pub mod journal;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use shoal_base::clock;
use shoal_base::moment::millis_since_1970;
use shoal_policy::admission::Refusal;
use shoal_policy::{BlockId, ObjectId};

use self::file_room::FileRoom;
use self::journal::{Journal, JournalError};
use super::files::blocking::run_blocking;
use super::ground::Ground;
use super::ledger::Kept;
use super::ledger::pin_orders::PinOrder;

/// The number of objects unpinned per acquisition of the lock.
const BATCH: usize = 256;

/// The maximum number of objects in one record of the journal.
const RECORD_OBJECTS: usize = 4096;

/// Bytes per pair of object and pin in the journal.
const PAIR_BYTES: u64 = 16;

/// The pins of a store: objects whose blocks are exempt from eviction.
#[derive(Debug)]
pub struct Pinning {
    ground: Arc<Ground>,
    journal: Mutex<Option<Journal>>,
}

/// A record of the journal.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Pinned {
        order: PinOrder,
        until_ms: u64,
        objects: Vec<ObjectId>,
    },
    Unpinned {
        before: PinOrder,
        objects: Vec<ObjectId>,
    },
    Ended(PinOrder),
}

impl Pinning {
    pub(super) fn new(ground: &Arc<Ground>) -> Self {
        Self {
            ground: Arc::clone(ground),
            journal: Mutex::new(None),
        }
    }

    /// Pins objects until `until`: all blocks of their newest versions, stored ones and later ones. An object
    /// that an order pins more than once stays until the latest of these times. Returns the blocks of each
    /// that are pinned now.
    ///
    /// # Errors
    ///
    /// Fails if the journal of pins cannot be written. An object whose blocks were not all pinned has
    /// [`Kept::refusal`] set.
    pub async fn pin(
        self: &Arc<Self>,
        order: PinOrder,
        until: SystemTime,
        objects: Vec<ObjectId>,
    ) -> Result<Vec<Kept>, Refusal> {
        let pinning = Arc::clone(self);
        let pinned = run_blocking(move || pinning.pin_now(order, until, &objects)).await;
        pinned.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Removes the pins of objects by orders before `before`. Returns the blocks of each that are no longer
    /// pinned.
    ///
    /// # Errors
    ///
    /// Fails if the journal of pins cannot be written.
    pub async fn unpin(
        self: &Arc<Self>,
        before: PinOrder,
        objects: Vec<ObjectId>,
    ) -> Result<Vec<Kept>, Refusal> {
        let pinning = Arc::clone(self);
        let unpinned = run_blocking(move || pinning.unpin_now(before, &objects)).await;
        unpinned.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Removes all pins of an order before it expires. If the journal cannot be written, they return with the
    /// next start until they expire.
    pub async fn end(self: &Arc<Self>, order: PinOrder) {
        let pinning = Arc::clone(self);
        run_blocking(move || pinning.end_now(order)).await;
    }

    /// The orders whose pins are here.
    pub fn orders(&self) -> Vec<PinOrder> {
        let state = self.ground.ledger.lock();
        let mut orders: Vec<_> = state.pins.all().map(|(order, ..)| order).collect();
        orders.dedup();
        orders
    }

    /// The orders that pin an object, each with its expiry.
    pub fn orders_of(&self, object: ObjectId) -> Vec<(PinOrder, SystemTime)> {
        let orders = self.ground.ledger.lock().pins.orders_of(object).into_iter();
        orders
            .map(|(order, until_ms)| (order, UNIX_EPOCH + Duration::from_millis(until_ms)))
            .collect()
    }

    /// Returns true if an object is pinned.
    pub fn contains(&self, object: ObjectId) -> bool {
        self.ground.ledger.lock().pins.contains(object)
    }

    /// Returns true if a block is stored and pinned.
    pub fn contains_block(&self, block: BlockId) -> bool {
        self.ground.ledger.lock().residency.pins().contains(&block)
    }

    /// Checks that a new block of `bytes` could be pinned. A refusal is logged for
    /// [`Store::absence`](super::Store::absence).
    ///
    /// # Errors
    ///
    /// Fails if pinned blocks would exceed their limit.
    pub fn admits(&self, block: BlockId, bytes: u64) -> Result<(), Refusal> {
        let admitted = self.ground.ledger.lock().residency.pins().admit(bytes);
        admitted.inspect_err(|refusal| self.ground.refused(block, *refusal))
    }

    /// Opens the journal, and restores the pins that have not expired.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub(super) fn recover(&self, path: &Path, room: FileRoom) -> Result<(), JournalError> {
        let now_ms = millis_since_1970(clock::utc_now());
        let ledger = &self.ground.ledger;
        let journal = Journal::open(path, room, |record| match Line::decode(record) {
            Some(Line::Pinned {
                order,
                until_ms,
                objects,
            }) if until_ms > now_ms => {
                for object in objects {
                    // A pin beyond the limit is refused again.
                    let _ = ledger.lock().pins.add(order, until_ms, object);
                }
            }
            Some(Line::Unpinned { before, objects }) => {
                for object in objects {
                    ledger.lock().unpin(object, before);
                }
            }
            Some(Line::Ended(order)) => while !ledger.lock().end_pins(order, BATCH) {},
            Some(Line::Pinned { .. }) | None => {}
        })?;
        *self.journal.lock() = Some(journal);
        Ok(())
    }

    fn pin_now(
        &self,
        order: PinOrder,
        until: SystemTime,
        objects: &[ObjectId],
    ) -> Result<Vec<Kept>, Refusal> {
        let until_ms = millis_since_1970(until);
        let mut journal = self.journal.lock();
        let mut kept = Vec::with_capacity(objects.len());
        for part in objects.chunks(RECORD_OBJECTS) {
            let new = part.iter().copied();
            let pinned_by = |object| self.ground.ledger.lock().pins.orders_of(object);
            let new = new.filter(|object| !pinned_by(*object).contains(&(order, until_ms)));
            let new: Vec<ObjectId> = new.collect();
            if !new.is_empty() {
                let objects = new;
                self.write(
                    &mut journal,
                    &Line::Pinned {
                        order,
                        until_ms,
                        objects,
                    },
                )?;
            }
            kept.extend(
                part.iter()
                    .map(|object| self.ground.ledger.lock().pin(order, until_ms, *object)),
            );
        }
        self.compact(&mut journal);
        Ok(kept)
    }

    fn unpin_now(&self, before: PinOrder, objects: &[ObjectId]) -> Result<Vec<Kept>, Refusal> {
        let mut journal = self.journal.lock();
        let mut freed = Vec::with_capacity(objects.len());
        for part in objects.chunks(RECORD_OBJECTS) {
            let pinned = part.iter().copied();
            let pinned_by = |object| self.ground.ledger.lock().pins.orders_of(object);
            let pinned = pinned.filter(|object| pinned_by(*object).iter().any(|(order, _)| *order < before));
            let objects: Vec<_> = pinned.collect();
            if !objects.is_empty() {
                self.write(&mut journal, &Line::Unpinned { before, objects })?;
            }
            freed.extend(
                part.iter()
                    .map(|object| self.ground.ledger.lock().unpin(*object, before)),
            );
        }
        self.compact(&mut journal);
        Ok(freed)
    }

    fn end_now(&self, order: PinOrder) {
        if !self.ground.ledger.lock().pins.has_order(order) {
            return;
        }
        let mut journal = self.journal.lock();
        let _ = self.write(&mut journal, &Line::Ended(order));
        // Other threads get the lock between batches.
        while !self.ground.ledger.lock().end_pins(order, BATCH) {}
        self.compact(&mut journal);
    }

    /// Removes expired pins. Their expiry is in the journal already.
    pub(super) fn end_due(&self) {
        let now_ms = millis_since_1970(clock::utc_now());
        if !self.ground.ledger.lock().pins.has_due(now_ms) {
            return;
        }
        let mut journal = self.journal.lock();
        while !self.ground.ledger.lock().end_due_pins(now_ms, BATCH) {}
        self.compact(&mut journal);
    }

    fn write(&self, journal: &mut Option<Journal>, line: &Line) -> Result<(), Refusal> {
        let journal = journal.as_mut().ok_or(Refusal::Paused)?;
        journal.append(&line.encode()).map_err(|error| match error {
            JournalError::NoRoom(refusal) => refusal,
            JournalError::Io(error) => self.ground.health.write_failed("write down pins", &error),
        })
    }

    /// Rewrites the journal if most of it is obsolete.
    fn compact(&self, journal: &mut Option<Journal>) {
        let Some(journal) = journal else { return };
        let live_bytes = self.ground.ledger.lock().pins.pairs() as u64 * PAIR_BYTES;
        if !journal.is_mostly_dead(live_bytes) {
            return;
        }
        let pinned: Vec<(PinOrder, u64, Vec<ObjectId>)> = {
            let state = self.ground.ledger.lock();
            let orders = state.pins.all();
            orders
                .map(|(order, until_ms, objects)| (order, until_ms, objects.collect()))
                .collect()
        };
        let lines = pinned.into_iter().flat_map(|(order, until_ms, objects)| {
            let parts: Vec<_> = objects.chunks(RECORD_OBJECTS).map(<[ObjectId]>::to_vec).collect();
            parts.into_iter().map(move |objects| Line::Pinned {
                order,
                until_ms,
                objects,
            })
        });
        if let Err(error) = journal.rewrite(lines.map(|line| line.encode())) {
            tracing::warn!(%error, "the journal of pins stays longer than it has to be");
        }
    }
}

impl Line {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let objects = match self {
            Self::Pinned {
                order,
                until_ms,
                objects,
            } => {
                out.push(b'P');
                out.extend_from_slice(&order.0.to_le_bytes());
                out.extend_from_slice(&until_ms.to_le_bytes());
                &objects[..]
            }
            Self::Unpinned { before, objects } => {
                out.push(b'U');
                out.extend_from_slice(&before.0.to_le_bytes());
                objects
            }
            Self::Ended(order) => {
                out.push(b'E');
                out.extend_from_slice(&order.0.to_le_bytes());
                &[]
            }
        };
        for object in objects {
            out.extend_from_slice(&object.0);
        }
        out
    }

    /// Inverse of [`Line::encode`].
    fn decode(record: &[u8]) -> Option<Self> {
        let (tag, rest) = record.split_first()?;
        let objects = |bytes: &[u8]| {
            let (objects, rest) = bytes.as_chunks::<16>();
            rest.is_empty()
                .then(|| objects.iter().copied().map(ObjectId).collect())
        };
        Some(match tag {
            b'P' => {
                let (order, rest) = rest.split_first_chunk()?;
                let (until_ms, rest) = rest.split_first_chunk()?;
                Self::Pinned {
                    order: PinOrder(u128::from_le_bytes(*order)),
                    until_ms: u64::from_le_bytes(*until_ms),
                    objects: objects(rest)?,
                }
            }
            b'U' => {
                let (before, rest) = rest.split_first_chunk()?;
                Self::Unpinned {
                    before: PinOrder(u128::from_le_bytes(*before)),
                    objects: objects(rest)?,
                }
            }
            b'E' => Self::Ended(PinOrder(u128::from_le_bytes(rest.try_into().ok()?))),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use shoal_policy::ObjectId;

    use super::{Line, PinOrder};

    #[test]
    fn lines_read_back_unchanged() {
        let objects = vec![ObjectId([1; 16]), ObjectId([2; 16])];
        let order = PinOrder(u128::MAX - 7);
        for line in [
            Line::Pinned {
                order,
                until_ms: 77,
                objects: objects.clone(),
            },
            Line::Unpinned {
                before: order,
                objects,
            },
            Line::Ended(order),
        ] {
            assert_eq!(Line::decode(&line.encode()), Some(line));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_line_or_none(bytes in vec(any::<u8>(), 0..80)) {
            if let Some(line) = Line::decode(&bytes) {
                assert_eq!(line.encode(), bytes);
            }
        }
    }
}
