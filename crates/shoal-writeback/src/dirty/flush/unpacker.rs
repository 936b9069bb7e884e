//! Takes objects out of packs: writes them under their own names, and removes names from the map.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderMap;
use shoal_base::encoding::Malformed;
use shoal_pack::table::Row;
use shoal_registry::changes::LakeChange;
use shoal_registry::roots::Purpose;
use shoal_registry::worker::NotFlushed;

use super::cleaner::Cleaner;
use super::packer::{not_flushed, table_of};
use crate::dirty::packs::{BytesInMemory, MapChange, PackMap, PackedObject};
use crate::dirty::record::keys::object_name;

/// Number of objects that are unpacked at a time.
const PARALLEL: usize = 8;

impl Cleaner {
    /// Writes packed objects under their own names, with the same ETags, in their writers' names, and removes
    /// the names from the map together. Nothing is dirty under these names, and their changes have begun.
    /// Returns the outcome of each.
    pub(crate) async fn unpack(
        &self,
        map: &Arc<PackMap>,
        changes: &[LakeChange],
    ) -> Vec<Result<(), NotFlushed>> {
        let writes = changes.iter().map(|change| self.write_unpacked(map, change));
        let writes: Vec<_> = writes.collect();
        let mut outcomes: Vec<_> = stream::iter(writes).buffered(PARALLEL).collect().await;
        let written = changes.iter().zip(&outcomes);
        let written: Vec<_> = written
            .filter(|(_, written)| written.is_ok())
            .map(|(change, _)| change)
            .collect();
        if let Err(error) = self.unname(map, &written).await {
            for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                *outcome = Err(error.clone());
            }
        }
        outcomes
    }

    async fn write_unpacked(&self, map: &Arc<PackMap>, change: &LakeChange) -> Result<(), NotFlushed> {
        let Some(object) = self.packed(map, change).await? else {
            return Ok(());
        };
        let writer = self
            .shared
            .writer(object.writer(), &object.name)
            .map_err(|error| unreadable(&error))?;
        let client = self.shared.client(&writer);
        let bytes = object.bytes(client, HeaderMap::new(), &self.shared.damages);
        let bytes = bytes.whole().await.map_err(|error| unreadable(&error))?;
        let manifest = object
            .manifest(&bytes, &self.shared.naming)
            .map_err(|error| unreadable(&error))?;
        let id = format!("unpacked-{}", object.pack).into();
        let bytes = Arc::new(BytesInMemory { id, bytes }) as _;
        self.write_alone(&manifest, &bytes, change).await
    }

    /// Returns the object that the map has under the name of a change.
    async fn packed(
        &self,
        map: &Arc<PackMap>,
        change: &LakeChange,
    ) -> Result<Option<PackedObject>, NotFlushed> {
        let newest = map.newest().await.map_err(|error| unreadable(&error))?;
        let (_, key) = change.name().parts();
        let Some(row) = newest.map.get(key).map_err(|error| unreadable(&error))? else {
            return Ok(None);
        };
        let name = object_name(change.name())
            .ok_or(Malformed)
            .map_err(|error| unreadable(&error))?;
        let object = PackedObject::new(name, &row, &map.at_lake, &self.shared.naming);
        object.map(Some).map_err(|error| unreadable(&error))
    }

    /// Removes names from the map, if it has them: the lake now has their objects, or none, under their own
    /// names. Their changes have not ended.
    pub(super) async fn unname(&self, map: &Arc<PackMap>, changes: &[&LakeChange]) -> Result<(), NotFlushed> {
        let newest = map.newest().await.map_err(|error| unreadable(&error))?;
        let (root, mut rows) = (newest.root_or_default(), BTreeMap::new());
        for change in changes {
            let (_, key) = change.name().parts();
            let sequence = root.sequence(change.revision());
            if newest.map.get(key).map_err(|error| unreadable(&error))?.is_some() {
                rows.insert(Bytes::copy_from_slice(key), Row::Tombstone { sequence });
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let permit = LakeChange::permit_of_all(changes.iter().copied());
        // No other node changes these names meanwhile, but one may move them to another pack.
        let committed = map.commit(Purpose::Upkeep, &permit, move |_| {
            Ok(MapChange::Add(table_of(&rows)?))
        });
        committed.await.map(drop).map_err(|error| not_flushed(&error))
    }
}

fn unreadable(error: &dyn ToString) -> NotFlushed {
    NotFlushed::Lake(error.to_string().into())
}
