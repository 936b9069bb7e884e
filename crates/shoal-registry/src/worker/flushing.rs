//! Changes of many names that begin and end together, each in its own entry.

use futures_util::stream::{self, StreamExt};
use ulid::Ulid;

use super::{Lake, NotFlushed, Worker, ended};
use crate::changes::{ChangedObject, LakeChange};
use crate::entry::Kind;
use crate::keys::Name;
use crate::names::BeginError;
use crate::version::DirtyVersion;

/// Number of changes that begin or end in parallel.
pub(super) const PARALLEL: usize = 64;

/// A dirty object or a tombstone whose change has begun.
#[derive(Debug)]
pub struct Flushing {
    /// The object or the tombstone, with the bytes of an inline object.
    pub version: DirtyVersion,
    /// The change of its name.
    pub change: LakeChange,
}

/// The reason why the change of a listed object has not begun.
pub(super) enum NotStarted {
    /// Something else is current under the name.
    Gone,
    Failed(NotFlushed),
}

impl From<BeginError> for NotStarted {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Changed => Self::Gone,
            error => Self::Failed(error.into()),
        }
    }
}

impl<L: Lake> Worker<L> {
    /// Begins the changes of listed objects, or of listed tombstones. Those that do not begin are recorded,
    /// and retried.
    pub(super) async fn begin_listed(&self, listed: Vec<(Ulid, Name)>, is_tombstone: bool) -> Vec<Flushing> {
        let mut flushing = Vec::with_capacity(listed.len());
        for ((id, name), begun) in listed.iter().zip(self.begin_all(listed.clone()).await) {
            match begun {
                Ok(begun) => flushing.push(begun),
                Err(NotStarted::Gone) => drop(self.state.lock().failed.remove(id)),
                Err(NotStarted::Failed(error)) => self.note(*id, name, is_tombstone, &Err(error)),
            }
        }
        flushing
    }

    /// Begins a change for each of these objects, in their order, without waiting for other changes.
    pub(super) async fn begin_all(&self, listed: Vec<(Ulid, Name)>) -> Vec<Result<Flushing, NotStarted>> {
        let begun = listed.into_iter().map(|(id, name)| self.begin_one(id, name));
        stream::iter(begun).buffered(PARALLEL).collect().await
    }

    pub(super) async fn begin_one(&self, id: Ulid, name: Name) -> Result<Flushing, NotStarted> {
        let found = self.changes.names.find(&name).await;
        let found = found.map_err(|error| NotStarted::Failed(error.into()))?;
        let version = found.entry.current.clone().filter(|version| version.id == id);
        let version = version.ok_or(NotStarted::Gone)?;
        let of = ChangedObject::Exactly(Some(id));
        let change = self
            .changes
            .try_to_begin(&name, Kind::Flush, of, Some(found))
            .await?;
        Ok(Flushing { version, change })
    }
}

/// Ends changes with what the lake has made of them. Returns the outcome of each, in their order.
pub(super) async fn end_all(
    mut flushing: Vec<Flushing>,
    outcomes: Vec<Result<(), NotFlushed>>,
) -> Vec<(Ulid, Name, Result<(), NotFlushed>)> {
    assert_eq!(outcomes.len(), flushing.len(), "each change has an outcome");
    let done = flushing
        .iter_mut()
        .zip(&outcomes)
        .filter(|(_, flushed)| flushed.is_ok());
    let mut done: Vec<_> = done.map(|(flushing, _)| &mut flushing.change).collect();
    LakeChange::remove_receipts(&mut done).await;
    let ends = flushing.into_iter().zip(outcomes);
    let ends = ends.map(|(Flushing { version, change }, flushed)| async move {
        let name = change.name().clone();
        (version.id, name, ended(change, flushed).await)
    });
    stream::iter(ends).buffered(PARALLEL).collect().await
}
