//! The interface of a node for the worker: it carries changes out at the lake, and removes bytes from the
//! tier's store.

use std::sync::Arc;

use ulid::Ulid;

use super::flushing::Flushing;
use super::rounds::Packing;
#[cfg(doc)]
use super::{REMOVALS_MAX, ROUND_MAX};
use crate::changes::LakeChange;
use crate::engine::EngineError;
use crate::keys::{MapName, Name};
use crate::names::BeginError;
use crate::roots::MapTable;
use crate::version::DirtyVersion;

/// The operations of a node on the lake and on the tier's store that the worker needs.
pub trait Lake: Send + Sync + 'static {
    /// Writes a dirty object to the lake. The implementation must check [`LakeChange::permit`] at the point
    /// where the bytes of each request leave the process.
    ///
    /// # Errors
    ///
    /// [`NotFlushed::Lake`] or [`NotFlushed::Refused`] only if the lake will certainly not have the object.
    fn flush(
        &self,
        name: &Name,
        version: &DirtyVersion,
        change: &LakeChange,
    ) -> impl Future<Output = Result<(), NotFlushed>> + Send;

    /// Removes the names of tombstones, at most [`REMOVALS_MAX`], at the lake. Returns the outcome of each,
    /// in their order; the permission of each change is checked as for a flush.
    fn remove(&self, removals: &[Flushing]) -> impl Future<Output = Vec<Result<(), NotFlushed>>> + Send;

    /// Returns how the objects below the rule of a name are packed; `None` if each goes to the lake alone.
    fn packing(&self, name: &Name) -> Option<Packing>;

    /// Returns true if an object that is due stays, because a run still reads it.
    fn holds(&self, id: Ulid, name: &Name) -> bool;

    /// Brings objects of one map to the lake, at most [`ROUND_MAX`], packed or one by one. Returns the
    /// outcome of each, in their order, once a number that was reserved for them in the root of the map is no
    /// longer reserved; the permission of each change is checked as for a flush.
    fn pack(
        &self,
        map: &MapName,
        objects: &[Flushing],
    ) -> impl Future<Output = Vec<Result<(), NotFlushed>>> + Send;

    /// Returns the map that the table with this reserved number lists, newest first, if the lake has the
    /// table. No request to write it is in flight any more.
    ///
    /// # Errors
    ///
    /// The reason why the lake does not say, for the log.
    fn reserved_table(
        &self,
        map: &MapName,
        number: u64,
    ) -> impl Future<Output = Result<Option<Vec<MapTable>>, String>> + Send;

    /// Removes the bytes under a key of the tier's store. Returns true if they are gone.
    fn discard(&self, key: &str) -> impl Future<Output = bool> + Send;
}

/// The object is still dirty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFlushed {
    /// The flush could not begin in the registry.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The lake does not have the object, and will not.
    #[error("{0}")]
    Lake(Arc<str>),
    /// The lake refuses the object, and will until an operator or a client intervenes.
    #[error("{0}")]
    Refused(Arc<str>),
    /// The lake did not answer, and may have the object or still get it.
    #[error("{0}")]
    Unknown(Arc<str>),
}

impl From<EngineError> for NotFlushed {
    fn from(error: EngineError) -> Self {
        Self::Begin(error.into())
    }
}
