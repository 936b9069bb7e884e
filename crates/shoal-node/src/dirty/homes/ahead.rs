//! Blocks that go to their holders while the rest of the write is still coming.
//!
//! Where a block is at home follows from the object and the index
//! ([`Placed`](shoal_policy::fingerprint::Placed)), so it is known before the version is. Until the last byte
//! has come, the version of an object that no client can name *stands in*: each block is stored and offered
//! under that version, and is renamed on every node that holds it once the version is known. A block that
//! was not renamed is offered again. No reader finds the blocks of a write that never ended, and they leave
//! to make room (D3N, IV; dissertation 4.4).

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use shoal_base::chance;
use shoal_policy::admission::Refusal;
use shoal_policy::{NodeId, ObjectId, VersionId};
use shoal_s3::object::Version;
use shoal_store::{Draft, Protection, Store};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::view::View;
use crate::cooperation::Cooperation;

/// Blocks of one object on their way to their holders at a time.
pub(in crate::dirty) const OFFERS: usize = 4;

/// The way of one write's blocks to their holders.
pub(in crate::dirty) struct Ahead {
    store: Arc<Store>,
    cooperation: Arc<Cooperation>,
    stand_in: Arc<Version>,
    turns: Semaphore,
    _protection: Protection,
}

/// What other nodes have of a write by the name that stands in.
#[derive(Debug, Default)]
pub(in crate::dirty) struct Sent(pub(in crate::dirty) HashMap<NodeId, SentTo>);

/// What one node has.
#[derive(Debug)]
pub(in crate::dirty) struct SentTo {
    pub(in crate::dirty) stand_in: VersionId,
    pub(in crate::dirty) indexes: Vec<u32>,
}

/// A block on this disk, whose version is not known yet.
pub(in crate::dirty) enum Kept {
    /// It has no name and stays here.
    Here(Draft),
    /// It stands in, and goes to another node.
    Leaves(Leaving),
}

/// A block on its way to its holder.
pub(in crate::dirty) struct Leaving {
    ahead: Arc<Ahead>,
    index: u32,
    holder: NodeId,
    /// Whether it came there.
    arrival: JoinHandle<bool>,
}

impl Ahead {
    /// A way for the blocks of an object of `size_bytes`; `None` where nobody else could take them.
    pub(in crate::dirty) fn of(
        store: &Arc<Store>,
        cooperation: &Arc<Cooperation>,
        object: ObjectId,
        size_bytes: u64,
        block_bytes: u64,
    ) -> Option<Arc<Self>> {
        if cooperation.is_alone() {
            return None;
        }
        let stand_in = stand_in(object, size_bytes, block_bytes);
        Some(Arc::new(Self {
            store: Arc::clone(store),
            cooperation: Arc::clone(cooperation),
            turns: Semaphore::new(OFFERS),
            _protection: store.protect(stand_in.id),
            stand_in: Arc::new(stand_in),
        }))
    }

    /// Lets a block that is on this disk go where it is to be.
    pub(in crate::dirty) async fn send(self: Arc<Self>, draft: Draft, index: u32) -> Result<Kept, Refusal> {
        let block = self.stand_in.block(index);
        let view = View::of(&self.cooperation);
        let holder = view.holder(block, |node| self.cooperation.can_be_asked(node));
        if holder == view.me {
            return Ok(Kept::Here(draft));
        }
        draft.name(Arc::clone(&self.stand_in), index).await?;
        let this = Arc::clone(&self);
        let arrival = tokio::spawn(async move {
            let _turn = this.turns.acquire().await.expect("turns are never closed");
            this.cooperation.offer(&this.stand_in, index, holder).await
        });
        Ok(Kept::Leaves(Leaving {
            ahead: self,
            index,
            holder,
            arrival,
        }))
    }
}

impl Kept {
    /// The block without a name again, once it is where it goes, which is noted in `sent`. Errors: it is not
    /// here any more.
    pub(in crate::dirty) async fn arrived(self, sent: &mut Sent) -> Result<Draft, Refusal> {
        let Leaving {
            ahead,
            index,
            holder,
            arrival,
        } = match self {
            Self::Here(draft) => return Ok(draft),
            Self::Leaves(leaving) => leaving,
        };
        let stand_in = &ahead.stand_in;
        if arrival.await.unwrap_or(false) {
            let to = sent.0.entry(holder).or_insert_with(|| SentTo {
                stand_in: stand_in.id,
                indexes: Vec::new(),
            });
            to.indexes.push(index);
        }
        ahead.store.unname(stand_in.block(index)).await
    }
}

impl Drop for Ahead {
    /// A write that broke off leaves nothing here.
    fn drop(&mut self) {
        self.store.remove_version(self.stand_in.id);
    }
}

/// A version of an object that has no name, and whose blocks have the places of those of `object`.
fn stand_in(object: ObjectId, size_bytes: u64, block_bytes: u64) -> Version {
    let mut nameless = [0; 16];
    nameless[..8].copy_from_slice(&chance::bits().to_le_bytes());
    nameless[8..].copy_from_slice(&chance::bits().to_le_bytes());
    nameless[..VersionId::OF_THE_OBJECT].copy_from_slice(&object.0[..VersionId::OF_THE_OBJECT]);
    let (object, etag) = (ObjectId(nameless), "\"stand-in\"");
    Version {
        id: Version::id_of(object, etag, size_bytes),
        object,
        etag: etag.into(),
        size_bytes,
        block_bytes,
        last_modified: None,
        headers: HeaderMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::ObjectId;
    use shoal_policy::fingerprint::Placed as _;
    use shoal_s3::object::Version;

    use super::stand_in;

    #[test]
    fn what_stands_in_has_the_places_of_the_object_and_nothing_else_of_it() {
        let object = ObjectId([7; 16]);
        let (one, other) = (stand_in(object, 250, 100), stand_in(object, 250, 100));
        assert_ne!(one.id, other.id, "each write has one of its own");
        assert_ne!(one.object, object, "nobody who asks for the object finds it");
        let id = Version::id_of(object, "\"etag\"", 250);
        for index in 0..3 {
            let block = shoal_policy::BlockId { version: id, index };
            assert_eq!(one.block(index).place(), block.place());
        }
    }
}
