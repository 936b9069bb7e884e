//! Reads and changes the entries of a registry's names.
//!
//! Every change is one transaction on condition that the entry is unchanged since the node last read it. On a
//! conflict the node reads it again and decides again. If a response is lost, the outcome is unknown until
//! the next read shows it; otherwise the caller gets [`ChangeError::OutcomeUnknown`].
//!
//! The same transaction updates the lists of [`NodeList`], so that a node finds its work after a crash
//! without scanning all names.

mod contents;
mod deaths;
mod found;
mod lists;
mod receipted;
mod restoring;
mod stored;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ulid::Ulid;

pub use self::contents::ByteCount;
pub(crate) use self::contents::content_change;
pub use self::deaths::Death;
use self::deaths::Deaths;
pub use self::lists::{DirtyPage, Listed, NamePage};
pub(crate) use self::receipted::StoredReceipt;
pub use self::restoring::Restored;
pub(crate) use self::stored::{StoredEntry, decoded, encoded};
use crate::engine::{Change, Condition, Engine, EngineError, Outcome, Revision, Stored, Transaction};
use crate::entry::{Busy, Entry, Kind, NotBegun, Owner};
use crate::keys::{MapName, Name, NodeList};
use crate::moment::Moment;
use crate::receipts::{ReceiptError, ReceiptStore, Receipts};
use crate::session::new_id;
use crate::version::{DirtyVersion, Trash};

/// Number of attempts of a write. An attempt that conflicts lost to another change of the name.
const WRITE_TRIES: usize = 64;

/// The names of one registry, as one node sees them. Clones share the engine and what is counted.
#[derive(Clone, Debug)]
pub struct Names {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) node: u64,
    pub(crate) deaths: Arc<Deaths>,
    content_bytes: Arc<ByteCount>,
    receipts: Option<Arc<dyn ReceiptStore>>,
    /// The time after which an unanswered request to the lake, or transaction, no longer takes effect.
    pub(crate) fence: Duration,
}

/// An entry, and the revision of its last change.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry; an empty one if none is stored.
    pub entry: Entry<DirtyVersion>,
    /// The receipts of its versions.
    pub(crate) receipts: Receipts,
    revision: Option<Revision>,
    /// When the node began to read it.
    looked: Moment,
}

/// An entry, and a map of packed objects that is at least as new.
#[derive(Clone, Debug)]
pub struct FoundWithNumber {
    /// The entry.
    pub found: Found,
    /// The number of the newest table of the map; `None` if the map has no tables.
    pub number: Option<u64>,
}

/// A change of a name that this node has begun at the lake.
#[derive(Clone, Debug)]
pub struct BegunChange {
    /// The name.
    pub name: Name,
    /// The change, as recorded in the entry.
    pub busy: Busy,
    /// The entry with the change in it. Ending the change reads the entry again only if it has changed since.
    found: Found,
    /// True if there was no entry before, and no earlier attempt to begin may still be committed.
    was_nothing: bool,
}

/// The dirty object that a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedObject {
    /// The one that exists when the change begins, if any.
    Current,
    /// This one, or none.
    Exactly(Option<Ulid>),
}

/// A change did not happen, or its outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The change may have happened, and may have been followed by another one.
    #[error("it is not known whether the registry took the change")]
    OutcomeUnknown,
    /// The change has not happened: each attempt conflicted with another change of the name.
    #[error("other changes of the object came first each time")]
    Contended,
    /// The change has not happened: the id of the version is not greater than this one, which is current. The
    /// clock of the other node is ahead.
    #[error("a version with a greater id is current")]
    Outdated(Ulid),
    /// The change has not happened, because a receipt could not be stored or removed.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
}

impl ChangeError {
    /// Converts the error of an attempt. `unsure` is true if an earlier attempt may have happened.
    pub(crate) fn from_engine(error: EngineError, unsure: bool) -> Self {
        if unsure {
            Self::OutcomeUnknown
        } else {
            error.into()
        }
    }
}

/// A change of a name at the lake cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The registry could not record it.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// This node's session has ended.
    #[error("the registry has not heard from this node for too long")]
    NoSession,
    /// Another change of the name is in flight.
    #[error("another change of the object is on its way to the lake")]
    Busy(Busy),
    /// The dirty object is no longer the expected one.
    #[error("the object was written in the meantime")]
    Changed,
}

impl From<EngineError> for BeginError {
    fn from(error: EngineError) -> Self {
        Self::Change(error.into())
    }
}

/// The end of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lake has carried the change out: the dirty object that it was about is no longer dirty.
    Done,
    /// The lake has refused the change, or was not asked.
    Refused,
    /// The lake may have carried the change out, but certainly no longer will.
    GivenUp,
}

/// The result of ending a change, for the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The change ended as reported.
    Ended,
    /// Another node has ended the change, because this node's session had ended.
    TakenOver,
}

impl Names {
    /// Creates the view of `node` on the names in `engine`. `fence` is the time after which an abandoned
    /// request is no longer carried out by the lake, and an abandoned transaction no longer committed by the
    /// engine. An entry that becomes empty is kept for longer than `fence`, unless all that it ever held is a
    /// change that was refused.
    pub fn new(engine: Arc<dyn Engine>, node: u64, fence: Duration) -> Self {
        Self {
            engine,
            node,
            deaths: Arc::default(),
            content_bytes: Arc::default(),
            receipts: None,
            fence,
        }
    }

    /// Returns the same names with receipts in this store.
    #[must_use]
    pub fn with_receipts(mut self, receipts: Arc<dyn ReceiptStore>) -> Self {
        self.receipts = Some(receipts);
        self
    }

    /// Returns the time after which an unanswered request or transaction no longer takes effect.
    pub fn fence(&self) -> Duration {
        self.fence
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Takes the recent deaths of dirty objects that were overwritten or removed through these names, except
    /// those whose transaction got no response.
    pub fn take_deaths(&self) -> VecDeque<Death> {
        self.deaths.take()
    }

    /// Reads the entry of a name, with the bytes of an inline object. Linearizable.
    ///
    /// # Errors
    ///
    /// The registry does not answer. The lake's response must not be used instead.
    pub async fn find(&self, name: &Name) -> Result<Found, EngineError> {
        let found = self.find_entry(name).await?;
        self.with_content(name, found).await
    }

    /// Reads the entry of a name as [`find`](Self::find) does, and the number of a map: as of one moment, or
    /// the number later.
    ///
    /// # Errors
    ///
    /// The registry does not answer. The response of the lake or of a map must not be used instead.
    pub async fn find_with_number(&self, name: &Name, map: &MapName) -> Result<FoundWithNumber, EngineError> {
        let looked = Moment::now();
        let keys = [name.entry_key(), map.number_key()];
        let values = self.engine.get_together(&keys).await?;
        let [entry, number] = <[_; 2]>::try_from(values).expect("each key has an answer");
        let entry = Found::of(entry, looked)?;
        let (revision, number) = (entry.revision, number_of(number)?);
        let found = self.with_content(name, entry).await?;
        let number = if found.revision == revision {
            number
        } else {
            // A newer entry was read with its bytes.
            self.number(map).await?
        };
        Ok(FoundWithNumber { found, number })
    }

    /// Reads the number of a map.
    pub(crate) async fn number(&self, map: &MapName) -> Result<Option<u64>, EngineError> {
        number_of(self.engine.get(&map.number_key()).await?)
    }

    /// Reads the entry of a name, without the bytes of an inline object.
    pub(crate) async fn find_entry(&self, name: &Name) -> Result<Found, EngineError> {
        let looked = Moment::now();
        Found::of(self.engine.get(&name.entry_key()).await?, looked)
    }

    /// Returns true if the entry of a name has not changed since it was found. A 404 of the lake is valid
    /// only if this holds after it. Returns false if no entry was found and the fence has passed since,
    /// because an entry may have been created and removed in the meantime.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn is_as_found(&self, name: &Name, found: &Found) -> Result<bool, EngineError> {
        let now = self.find_entry(name).await?;
        let may_have_come_and_gone = found.revision.is_none() && found.looked.elapsed() >= self.fence;
        Ok(now.revision == found.revision && !may_have_come_and_gone)
    }

    /// Makes `version` the current object of the name, which commits a write; or its tombstone, which commits
    /// a removal. Its receipt is stored before, if there are receipts.
    ///
    /// # Errors
    ///
    /// The object was not written, or the outcome is unknown.
    pub async fn write(&self, name: &Name, version: DirtyVersion) -> Result<(), ChangeError> {
        let receipt = self.with_receipt(name, &version).await?;
        match self.write_version(name, version, receipt).await {
            Ok(()) => Ok(()),
            Err(why) => Err(self.take_back(receipt, why).await),
        }
    }

    async fn write_version(
        &self,
        name: &Name,
        version: DirtyVersion,
        receipt: Option<StoredReceipt>,
    ) -> Result<(), ChangeError> {
        let began = Moment::now();
        // Most names have no entry, so the first attempt assumes that and saves a read.
        let mut found = Found::nothing(began);
        // True if an earlier attempt may have happened, or may still happen.
        let mut unsure = false;
        for _ in 0..WRITE_TRIES {
            let receipts = match self.receipts_after(&found, &version, receipt).await {
                Ok(receipts) => receipts,
                Err(_) if unsure => return Err(ChangeError::OutcomeUnknown),
                Err(error) => return Err(error),
            };
            let next = StoredEntry {
                entry: found.entry.written(version.clone()),
                receipts,
            };
            let mut changes = vec![Change::put(
                version.list().key(version.node, version.id),
                name.to_bytes(),
            )];
            changes.extend(self.discard(found.entry.current.as_ref()));
            let may_try_again = match self.replace(name, &found, Some(&next), changes).await {
                Ok(Outcome::Committed(_)) => {
                    self.deaths.note(found.entry.current.as_ref());
                    return Ok(());
                }
                // The conflict may be with an earlier attempt.
                Ok(Outcome::Conflict) => !unsure,
                Err(EngineError::Unknown(_)) => {
                    unsure = true;
                    true
                }
                Err(error) if !unsure => return Err(error.into()),
                Err(_) => false,
            };
            let now = self.find_entry(name).await;
            let now = now.map_err(|error| ChangeError::from_engine(error, unsure))?;
            if now.entry.current_id() == Some(version.id) {
                return Ok(());
            }
            // Only an unchanged entry proves that no earlier attempt has happened. If one still happens
            // before the next attempt, that one conflicts; if after it, the late one conflicts with the new
            // entry, which is kept for at least the fence.
            let is_unchanged = now.revision == found.revision && began.elapsed() < self.fence;
            if !may_try_again || unsure && !is_unchanged {
                return Err(ChangeError::OutcomeUnknown);
            }
            found = now;
        }
        Err(if unsure {
            ChangeError::OutcomeUnknown
        } else {
            ChangeError::Contended
        })
    }

    /// Begins a change of the name at the lake. `known` is a recently read entry: if it is still current, it
    /// need not be read again.
    ///
    /// # Errors
    ///
    /// The change has not begun. After [`ChangeError::OutcomeUnknown`], an entry may have it nevertheless;
    /// the node finds it in its list and gives it up.
    pub async fn begin(
        &self,
        name: &Name,
        kind: Kind,
        of: ChangedObject,
        owner: Owner,
        token: Ulid,
        known: Option<Found>,
    ) -> Result<BegunChange, BeginError> {
        let mut is_fresh = known.is_none();
        // True if an earlier attempt may have happened, or may still happen.
        let mut unsure = false;
        let mut found = match known {
            Some(known) => known,
            None => self.find_entry(name).await?,
        };
        loop {
            if let Some(begun) = BegunChange::in_entry(name, &found, token) {
                return Ok(begun);
            }
            let busy = Busy {
                kind,
                owner,
                token,
                of: match of {
                    ChangedObject::Current => found.entry.current_id(),
                    ChangedObject::Exactly(of) => of,
                },
            };
            let next = match found.entry.begun(busy) {
                Ok(entry) => StoredEntry {
                    entry,
                    receipts: found.receipts.clone(),
                },
                // The known entry may be stale.
                Err(_) if !is_fresh => {
                    found = self.find_entry(name).await?;
                    is_fresh = true;
                    continue;
                }
                Err(NotBegun::Busy(other)) => return Err(BeginError::Busy(other)),
                Err(NotBegun::Changed) => return Err(BeginError::Changed),
            };
            let listed = Change::put(NodeList::Busy.key(owner.node, token), name.to_bytes());
            found = match self.replace(name, &found, Some(&next), vec![listed]).await {
                Ok(Outcome::Committed(revision)) => {
                    return Ok(BegunChange {
                        name: name.clone(),
                        busy,
                        was_nothing: found.revision.is_none() && !unsure,
                        found: Found {
                            entry: next.entry,
                            receipts: next.receipts,
                            revision: Some(revision),
                            looked: found.looked,
                        },
                    });
                }
                Ok(Outcome::Conflict) => self.find_entry(name).await?,
                Err(EngineError::Unknown(_)) => {
                    unsure = true;
                    let now = self.find_entry(name).await;
                    now.map_err(|_| ChangeError::OutcomeUnknown)?
                }
                Err(error) => return Err(error.into()),
            };
            is_fresh = true;
        }
    }

    /// Ends a change. If there was no entry before a refused one, and nothing else has happened to the name
    /// since, the entry is removed, as if the change had never begun. Before the end of a change that is
    /// done, the receipts up to the version that it was about are removed. `lasts` returns true while the
    /// session of the change's owner lasts.
    ///
    /// # Errors
    ///
    /// The entry may still have the change in flight.
    pub async fn end(
        &self,
        change: &BegunChange,
        end: End,
        lasts: impl Fn() -> bool,
    ) -> Result<Ended, ChangeError> {
        let BegunChange {
            name, busy, found, ..
        } = change;
        let next = match end {
            End::Done => Entry::done,
            End::Refused | End::GivenUp => Entry::given_up,
        };
        if end == End::Done {
            self.remove_receipts_of(std::slice::from_ref(change)).await?;
        }
        let alone = (change.was_nothing && end == End::Refused).then_some(found);
        let mut known = Some(found.clone());
        loop {
            let found = match known.take() {
                Some(known) => known,
                None => self.find_entry(name).await?,
            };
            let Some(entry) = next(&found.entry, busy.token) else {
                // While the session lasts, no other node ends the change, so this node has, in a transaction
                // whose response was lost. Afterwards, another node may have flushed the object that was to
                // be removed.
                let is_ended = end != End::Done || busy.of.is_none() || lasts();
                return Ok(if is_ended { Ended::Ended } else { Ended::TakenOver });
            };
            let mut changes = vec![Change::delete(NodeList::Busy.key(busy.owner.node, busy.token))];
            let leaves_nothing = alone.is_some_and(|alone| alone.revision == found.revision);
            if entry.current.is_none() && !leaves_nothing {
                changes.extend(self.discard(found.entry.current.as_ref()));
                changes.push(Change::put(
                    NodeList::Empty.key(self.node, new_id()),
                    name.to_bytes(),
                ));
            }
            let next = StoredEntry {
                entry,
                receipts: match busy.of.filter(|_| end == End::Done) {
                    Some(of) => found.receipts.after(of),
                    None => found.receipts.clone(),
                },
            };
            let left = Some(&next).filter(|_| !leaves_nothing);
            match self.replace(name, &found, left, changes).await {
                Ok(Outcome::Committed(_)) => {
                    let removed = found.entry.current.filter(|_| busy.kind == Kind::Delete);
                    let removed = removed.filter(|_| next.entry.current.is_none());
                    self.deaths.note(removed.as_ref());
                    return Ok(Ended::Ended);
                }
                Ok(Outcome::Conflict) | Err(EngineError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes an empty entry, and its key in a node's list. The entry must have been empty for at least the
    /// fence, so that no read from before still waits for the lake. An entry that has changed since it was
    /// listed stays.
    ///
    /// # Errors
    ///
    /// The entry may remain.
    pub async fn remove_empty(&self, empty: &Listed, node: u64) -> Result<(), EngineError> {
        let key = empty.name.entry_key();
        let condition = Condition {
            key: key.clone(),
            // The transaction that emptied the entry also put it on the list.
            revision: Some(empty.revision),
        };
        let unlist = Change::delete(NodeList::Empty.key(node, empty.id));
        match self
            .commit(vec![condition], vec![Change::delete(key), unlist])
            .await?
        {
            Outcome::Committed(_) => Ok(()),
            Outcome::Conflict => self.unlist(NodeList::Empty, node, &[empty.id]).await,
        }
    }

    async fn replace(
        &self,
        name: &Name,
        found: &Found,
        next: Option<&StoredEntry>,
        mut changes: Vec<Change>,
    ) -> Result<Outcome, EngineError> {
        debug_assert!(
            found.revision.is_some() || found.entry.is_empty(),
            "an entry that is not stored is empty"
        );
        let key = name.entry_key();
        changes.push(match next {
            Some(next) => Change::put(key, next.encoded()),
            None => Change::delete(key),
        });
        let before = found.entry.current.as_ref();
        let after = next.and_then(|next| next.entry.current.as_ref());
        changes.extend(content_change(name, before, after));
        let outcome = self.commit(vec![found.condition(name)], changes).await;
        if let Ok(Outcome::Committed(_)) = &outcome {
            self.count_content(before, after);
        }
        outcome
    }

    pub(crate) async fn commit(
        &self,
        conditions: Vec<Condition>,
        changes: Vec<Change>,
    ) -> Result<Outcome, EngineError> {
        self.engine.commit(Transaction { conditions, changes }).await
    }

    /// Returns the change that puts bytes on this node's trash list.
    pub(crate) fn trashed(&self, trash: &Trash) -> Change {
        Change::put(NodeList::Trash.key(self.node, new_id()), encoded(trash))
    }

    /// Returns the changes that remove an object from the list of dirty ones, and put its bytes on this
    /// node's trash list.
    pub(crate) fn discard(&self, version: Option<&DirtyVersion>) -> impl Iterator<Item = Change> {
        let unlisted = version.map(|version| Change::delete(version.list().key(version.node, version.id)));
        let in_store = version.filter(|version| !version.data.is_empty());
        let trashed = in_store.map(|version| self.trashed(&Trash::Data(version.data.clone())));
        unlisted.into_iter().chain(trashed)
    }
}

/// Returns the number of a map that is stored, if the map has tables.
fn number_of(stored: Option<Stored>) -> Result<Option<u64>, EngineError> {
    let number = stored.map(|stored| <[u8; 8]>::try_from(&stored.value[..]).map(u64::from_be_bytes));
    let refused = |_| EngineError::Refused("the number of a map cannot be read".into());
    number.transpose().map_err(refused)
}
