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
use super::ground::Ground;
use super::ground::blocking::run_blocking;
use super::ledger::pin_orders::{Group, PinOrder, Pins};
use super::ledger::{Kept, State};

/// The number of objects unpinned per acquisition of the lock.
const BATCH: usize = 256;

/// The maximum number of objects in one record of the journal.
const RECORD_OBJECTS: usize = 4096;

/// Bytes per pair of object and pin in the journal.
const PAIR_BYTES: u64 = 16;

/// The pins of a store: objects whose blocks are exempt from eviction.
pub struct Pinning {
    ground: Arc<Ground>,
    journal: Mutex<Option<Journal>>,
}

/// A record of the journal.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Pinned {
        group: Group,
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
        let until_ms = millis_since_1970(until);
        let group = Group { order, until_ms };
        self.change(
            objects,
            move |pins, object| !pins.has(group, object),
            move |objects| Line::Pinned { group, objects },
            move |state, object| state.pin(group, object),
        )
        .await
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
        self.change(
            objects,
            move |pins, object| pins.groups_of(object).any(|group| group.order < before),
            move |objects| Line::Unpinned { before, objects },
            move |state, object| state.unpin(object, before),
        )
        .await
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
        let mut orders: Vec<_> = state.pins.groups().keys().map(|group| group.order).collect();
        orders.dedup();
        orders
    }

    /// The orders that pin an object, each with its expiry.
    pub fn orders_of(&self, object: ObjectId) -> Vec<(PinOrder, SystemTime)> {
        let state = self.ground.ledger.lock();
        let expiry = |group: Group| UNIX_EPOCH + Duration::from_millis(group.until_ms);
        let groups = state.pins.groups_of(object);
        groups.map(|group| (group.order, expiry(group))).collect()
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
            Some(Line::Pinned { group, objects }) if group.until_ms > now_ms => {
                for object in objects {
                    // A pin beyond the limit is refused again.
                    let _ = ledger.lock().pins.add(group, object);
                }
            }
            Some(Line::Unpinned { before, objects }) => {
                for object in objects {
                    ledger.lock().unpin(object, before);
                }
            }
            Some(Line::Ended(order)) => self.end_all(|pins| pins.first_of(order)),
            Some(Line::Pinned { .. }) | None => {}
        })?;
        *self.journal.lock() = Some(journal);
        Ok(())
    }

    /// Changes pins of objects: those that `changes` selects are written to the journal as a `line`, then the
    /// change is applied to all of them. Returns the blocks of each that are concerned.
    async fn change(
        self: &Arc<Self>,
        objects: Vec<ObjectId>,
        changes: impl Fn(&Pins, ObjectId) -> bool + Send + 'static,
        line: impl Fn(Vec<ObjectId>) -> Line + Send + 'static,
        apply: impl Fn(&mut State, ObjectId) -> Kept + Send + 'static,
    ) -> Result<Vec<Kept>, Refusal> {
        let pinning = Arc::clone(self);
        let changed = run_blocking(move || {
            let ledger = &pinning.ground.ledger;
            let mut journal = pinning.journal.lock();
            let mut blocks = Vec::with_capacity(objects.len());
            for part in objects.chunks(RECORD_OBJECTS) {
                let changed = part.iter().copied();
                let changed = changed.filter(|object| changes(&ledger.lock().pins, *object));
                let changed: Vec<ObjectId> = changed.collect();
                if !changed.is_empty() {
                    pinning.write(&mut journal, &line(changed))?;
                }
                blocks.extend(part.iter().map(|object| apply(&mut ledger.lock(), *object)));
            }
            pinning.compact(&mut journal);
            Ok(blocks)
        });
        changed.await.unwrap_or(Err(Refusal::Exhausted))
    }

    fn end_now(&self, order: PinOrder) {
        if self.ground.ledger.lock().pins.first_of(order).is_none() {
            return;
        }
        let mut journal = self.journal.lock();
        let _ = self.write(&mut journal, &Line::Ended(order));
        self.end_all(|pins| pins.first_of(order));
        self.compact(&mut journal);
    }

    /// Removes expired pins. Their expiry is in the journal already.
    pub(super) fn end_due(&self) {
        let now_ms = millis_since_1970(clock::utc_now());
        if self.ground.ledger.lock().pins.first_due(now_ms).is_none() {
            return;
        }
        let mut journal = self.journal.lock();
        self.end_all(|pins| pins.first_due(now_ms));
        self.compact(&mut journal);
    }

    /// Ends the pins of groups until there is no `next`. Other threads get the lock between batches.
    fn end_all(&self, next: impl Fn(&Pins) -> Option<Group>) {
        loop {
            let mut state = self.ground.ledger.lock();
            let Some(group) = next(&state.pins) else { return };
            state.end_pins(group, BATCH);
        }
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
        let groups: Vec<(Group, Vec<ObjectId>)> = {
            let ledger = self.ground.ledger.lock();
            let groups = ledger.pins.groups().iter();
            groups
                .map(|(group, objects)| (*group, objects.iter().copied().collect()))
                .collect()
        };
        let lines = groups.iter().flat_map(|(group, objects)| {
            let parts = objects.chunks(RECORD_OBJECTS).map(<[ObjectId]>::to_vec);
            parts.map(|objects| Line::Pinned {
                group: *group,
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
            Self::Pinned { group, objects } => {
                out.push(b'P');
                out.extend_from_slice(&group.order.0.to_le_bytes());
                out.extend_from_slice(&group.until_ms.to_le_bytes());
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
                    group: Group {
                        order: PinOrder(u128::from_le_bytes(*order)),
                        until_ms: u64::from_le_bytes(*until_ms),
                    },
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

    use super::{Group, Line, PinOrder};

    #[test]
    fn lines_read_back_unchanged() {
        let objects = vec![ObjectId([1; 16]), ObjectId([2; 16])];
        let order = PinOrder(u128::MAX - 7);
        for line in [
            Line::Pinned {
                group: Group { order, until_ms: 77 },
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
