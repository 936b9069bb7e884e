//! Pins and unpins objects, and remembers across restarts which are pinned.
//!
//! The journal comes first: an object that it lacks is not pinned. While its lock is held, other locks of the
//! store may be taken; while they are held, its lock may not.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::{BlockId, ObjectId};

use super::Store;
use super::blocking::run_blocking;
use super::eviction_log::EvictionLog;
use super::file_room::FileRoom;
use super::health::DiskHealth;
use super::journal::{Journal, JournalError};
use super::ledger::{Kept, Ledger};
use super::pins::PinOrder;

/// The number of objects that are unpinned under one lock.
const BATCH: usize = 256;

/// The most objects in one record of the journal.
const RECORD_OBJECTS: usize = 4096;

/// Bytes of one pair of an object and an order in the journal.
const PAIR_BYTES: u64 = 16;

/// Pins objects.
pub(super) struct Pinning {
    ledger: Arc<Ledger>,
    health: Arc<DiskHealth>,
    eviction_log: Arc<EvictionLog>,
    journal: Mutex<Option<Journal>>,
}

/// The pins of a store, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinCounts {
    /// Objects that are pinned, whether they have blocks here or not.
    pub objects: u64,
    /// Room that pinned blocks take, in bytes.
    pub bytes: u64,
    /// Room that they may take.
    pub bytes_max: u64,
}

/// A line of the journal.
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
    pub(super) fn new(
        ledger: &Arc<Ledger>,
        health: &Arc<DiskHealth>,
        eviction_log: &Arc<EvictionLog>,
    ) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            health: Arc::clone(health),
            eviction_log: Arc::clone(eviction_log),
            journal: Mutex::new(None),
        }
    }

    /// Opens the journal, and takes the pins of earlier processes that have not ended.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub(super) fn recover(&self, path: &Path, room: FileRoom) -> Result<(), JournalError> {
        let now_ms = millis(clock::utc_now());
        let ledger = &self.ledger;
        let journal = Journal::open(path, room, |record| match Line::decode(record) {
            Some(Line::Pinned {
                order,
                until_ms,
                objects,
            }) if until_ms > now_ms => {
                for object in objects {
                    // One that is too many is refused as it was then.
                    let _ = ledger.add_pin(order, until_ms, object);
                }
            }
            Some(Line::Unpinned { before, objects }) => {
                for object in objects {
                    ledger.unpin(object, before);
                }
            }
            Some(Line::Ended(order)) => while !ledger.end_pins(order, BATCH) {},
            Some(Line::Pinned { .. }) | None => {}
        })?;
        *self.journal.lock() = Some(journal);
        Ok(())
    }

    /// Pins objects until the end of their order, and those of their blocks that are here.
    ///
    /// # Errors
    ///
    /// Refuses if the journal cannot be written. An object whose blocks are not all pinned says so itself.
    pub(super) fn pin(
        &self,
        order: PinOrder,
        until: SystemTime,
        objects: &[ObjectId],
    ) -> Result<Vec<Kept>, Refusal> {
        let until_ms = millis(until);
        let mut journal = self.journal.lock();
        let mut kept = Vec::with_capacity(objects.len());
        for part in objects.chunks(RECORD_OBJECTS) {
            let new = part.iter().copied();
            let new = new.filter(|object| !self.ledger.is_pinned_by(*object, order, until_ms));
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
                    .map(|object| self.ledger.pin(order, until_ms, *object)),
            );
        }
        self.compact(&mut journal);
        Ok(kept)
    }

    /// Ends the pins of objects by orders before this one. Returns what was kept of each until now.
    ///
    /// # Errors
    ///
    /// Refuses if the journal cannot be written.
    pub(super) fn unpin(&self, before: PinOrder, objects: &[ObjectId]) -> Result<Vec<Kept>, Refusal> {
        let mut journal = self.journal.lock();
        let mut freed = Vec::with_capacity(objects.len());
        for part in objects.chunks(RECORD_OBJECTS) {
            let pinned = part.iter().copied();
            let pinned = pinned.filter(|object| self.ledger.is_pinned_before(*object, before));
            let objects: Vec<_> = pinned.collect();
            if !objects.is_empty() {
                self.write(&mut journal, &Line::Unpinned { before, objects })?;
            }
            freed.extend(part.iter().map(|object| self.ledger.unpin(*object, before)));
        }
        self.compact(&mut journal);
        Ok(freed)
    }

    /// Ends all pins of an order. If the journal cannot be written, they come back with the next start, until
    /// the order's end.
    pub(super) fn end(&self, order: PinOrder) {
        if !self.ledger.has_order(order) {
            return;
        }
        let mut journal = self.journal.lock();
        let _ = self.write(&mut journal, &Line::Ended(order));
        // Between parts, other threads get the locks.
        while !self.ledger.end_pins(order, BATCH) {}
        self.compact(&mut journal);
    }

    /// Ends the orders whose time has come.
    pub(super) fn end_due(&self) {
        while let Some(order) = self.ledger.due_pins(millis(clock::utc_now())) {
            self.end(order);
        }
    }

    /// Checks whether a block of `bytes` would be kept if its object was pinned.
    ///
    /// # Errors
    ///
    /// Refuses if pinned blocks take all the room that they may.
    pub(super) fn admits(&self, block: BlockId, bytes: u64) -> Result<(), Refusal> {
        let admitted = self.ledger.pins_admit(bytes);
        admitted.inspect_err(|refusal| self.eviction_log.refused(block, *refusal))
    }

    fn write(&self, journal: &mut Option<Journal>, line: &Line) -> Result<(), Refusal> {
        let journal = journal.as_mut().ok_or(Refusal::Paused)?;
        journal.append(&line.encode()).map_err(|error| match error {
            JournalError::NoRoom(refusal) => refusal,
            JournalError::Io(error) => self.health.write_failed("write down pins", &error),
        })
    }

    /// Writes the journal anew if most of it is out of date.
    fn compact(&self, journal: &mut Option<Journal>) {
        let Some(journal) = journal else { return };
        if !journal.is_mostly_dead(self.ledger.pin_pairs() as u64 * PAIR_BYTES) {
            return;
        }
        let lines = self
            .ledger
            .pinned_by_order()
            .into_iter()
            .flat_map(|(order, until_ms, objects)| {
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

/// Milliseconds since 1970.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Pins: objects whose blocks stay, whatever the policy thinks of them.
impl Store {
    /// Pins objects until the end of their order, which is one for all of its objects: blocks of their newest
    /// versions that are here, and those that come. Returns what is kept of each now.
    ///
    /// # Errors
    ///
    /// Refuses if the pins cannot be written down. An object whose blocks are not all pinned says so itself.
    pub async fn pin(
        &self,
        order: PinOrder,
        until: SystemTime,
        objects: Vec<ObjectId>,
    ) -> Result<Vec<Kept>, Refusal> {
        let pinning = Arc::clone(&self.pinning);
        let pinned = run_blocking(move || pinning.pin(order, until, &objects)).await;
        pinned.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Ends the pins of objects before their time, if they are of orders before this one. Returns what is no
    /// longer kept of each.
    ///
    /// # Errors
    ///
    /// Refuses if that cannot be written down.
    pub async fn unpin(&self, before: PinOrder, objects: Vec<ObjectId>) -> Result<Vec<Kept>, Refusal> {
        let pinning = Arc::clone(&self.pinning);
        let unpinned = run_blocking(move || pinning.unpin(before, &objects)).await;
        unpinned.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Ends all pins of an order before their time.
    pub async fn end_pins(&self, order: PinOrder) {
        let pinning = Arc::clone(&self.pinning);
        run_blocking(move || pinning.end(order)).await;
    }

    /// The orders whose pins are here, each with its end.
    pub fn pin_orders(&self) -> Vec<(PinOrder, SystemTime)> {
        let orders = self.ledger.pin_orders();
        orders.into_iter().map(with_time).collect()
    }

    /// The orders that pin an object, each with its end.
    pub fn pins_of(&self, object: ObjectId) -> Vec<(PinOrder, SystemTime)> {
        let orders = self.ledger.pin_orders_of(object);
        orders.into_iter().map(with_time).collect()
    }

    /// Whether an object is pinned.
    pub fn has_pin(&self, object: ObjectId) -> bool {
        self.ledger.has_pin(object)
    }

    /// Whether a block is here and pinned.
    pub fn is_pinned(&self, block: BlockId) -> bool {
        self.ledger.is_pinned(block)
    }

    /// Checks whether a block of `bytes` that is to come could be pinned. A refusal is remembered.
    ///
    /// # Errors
    ///
    /// Refuses if pinned blocks take all the room that they may.
    pub fn admits_pinned(&self, block: BlockId, bytes: u64) -> Result<(), Refusal> {
        self.pinning.admits(block, bytes)
    }
}

fn with_time((order, until_ms): (PinOrder, u64)) -> (PinOrder, SystemTime) {
    (order, UNIX_EPOCH + Duration::from_millis(until_ms))
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
