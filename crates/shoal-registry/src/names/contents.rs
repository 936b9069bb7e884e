//! The bytes of small objects, which the registry keeps itself (dissertation 4.6.1).
//!
//! They have a key of their own beside the entry, so that lists do not bring them, and a change of the entry
//! does not write them again. One transaction writes or removes both. The value begins with the id of the
//! object: a reader of the entry and then of the bytes sees if another object has come in between.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ulid::Ulid;

use super::stored::FORMAT;
use super::{Found, Names};
use crate::engine::{Change, EngineError};
use crate::keys::Name;
use crate::version::{Content, DirtyVersion};

/// Bytes before the content: the format, and the id of the object.
const HEAD_BYTES: usize = 1 + size_of::<Ulid>();

/// A number of stored bytes, as far as this node knows it: those of the last survey of all nodes, and its own
/// writes and removals since.
#[derive(Debug, Default)]
pub struct ByteCount(AtomicU64);

impl ByteCount {
    /// Adds written bytes.
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts removed bytes.
    pub fn remove(&self, bytes: u64) {
        let less = |stored: u64| Some(stored.saturating_sub(bytes));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Sets the number after a survey.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Names {
    /// Returns the bytes of all inline objects, of all nodes.
    pub fn content_bytes(&self) -> &std::sync::Arc<ByteCount> {
        &self.content_bytes
    }

    /// Reads the bytes of an inline object. If the registry has lost them, the object has none, and cannot be
    /// read.
    pub(super) async fn with_content(&self, name: &Name, mut found: Found) -> Result<Found, EngineError> {
        loop {
            let Some(version) = found.entry.current.as_mut().filter(|version| version.is_inline()) else {
                return Ok(found);
            };
            let stored = self.engine.get(&name.content_key()).await?;
            version.content = stored.and_then(|stored| content_of(version, &stored.value));
            if version.content.is_some() {
                return Ok(found);
            }
            let now = self.find_entry(name).await?;
            if now.revision == found.revision {
                return Ok(found);
            }
            found = now;
        }
    }

    /// Counts the bytes of a committed change.
    pub(crate) fn count_content(&self, before: Option<&DirtyVersion>, after: Option<&DirtyVersion>) {
        let [before, after] = [before, after].map(|version| {
            let inline = version.filter(|version| version.is_inline());
            inline.map_or(0, |version| version.size_bytes)
        });
        self.content_bytes.add(after);
        self.content_bytes.remove(before);
    }
}

/// Returns the change of the bytes beside an entry when its dirty object changes.
pub(crate) fn content_change(
    name: &Name,
    before: Option<&DirtyVersion>,
    after: Option<&DirtyVersion>,
) -> Option<Change> {
    match (before, after) {
        (Some(before), Some(after)) if before.id == after.id => None,
        (_, Some(after)) if after.is_inline() => {
            let Content(content) = after
                .content
                .as_ref()
                .expect("an inline object is written with its bytes");
            debug_assert_eq!(content.len() as u64, after.size_bytes, "a content is whole");
            let value = [&[FORMAT], &after.id.to_bytes()[..], content].concat();
            Some(Change::put(name.content_key(), value.into()))
        }
        (Some(before), _) if before.is_inline() => Some(Change::delete(name.content_key())),
        _ => None,
    }
}

/// Returns the bytes in a value, if they are those of this object.
fn content_of(version: &DirtyVersion, value: &Bytes) -> Option<Content> {
    let head = [&[FORMAT], &version.id.to_bytes()[..]].concat();
    let content = value.starts_with(&head).then(|| value.slice(HEAD_BYTES..))?;
    Some(Content(content))
}

#[cfg(test)]
mod tests {
    use super::ByteCount;

    #[test]
    fn no_more_bytes_are_removed_than_are_known() {
        let stored = ByteCount::default();
        stored.add(5);
        stored.remove(7);
        assert_eq!(stored.bytes(), 0);
    }
}
