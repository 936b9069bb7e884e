//! Packs small dirty objects on their way to the lake (dissertation 4.5.5; decision 0048): those of one
//! writer into packs, and the rows of all packs of a round into one table of the map.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{HeaderMap, StatusCode};
use shoal_net::clock;
use shoal_net::endpoint::s3::SendOptions;
use shoal_pack::table::{Packed, Row, TableBuilder};
use shoal_pack::{Description, PackBuilder};
use shoal_registry::changes::LakeChange;
use shoal_registry::roots::{Purpose, ReserveError, Root};
use shoal_registry::session::new_id;
use shoal_registry::worker::{Flushing, NotFlushed};

use super::cleaner::Cleaner;
use crate::dirty::lake_writer::{LakeWrite, LakeWriteError, NotWritten, Uploaded};
use crate::dirty::packs::{MapChange, NotCommitted, PackMap, description};
use crate::dirty::record::keys::registry_name;
use crate::dirty::record::manifest::Manifest;

/// Number of packs that are in memory, and on their way to the lake, at a time.
const PACKS_PARALLEL: usize = 2;

/// Number of objects that are read, or written under their own names, at a time.
const OBJECTS_PARALLEL: usize = 8;

type Flushed = Result<(), NotFlushed>;

/// An object of a round that goes into a pack.
struct Packable<'a> {
    /// Its position in the round.
    at: usize,
    change: &'a LakeChange,
    manifest: Manifest,
    description: Description,
}

/// Objects of a round, by what became of them.
#[derive(Default)]
struct Sorted<'a> {
    /// They are in packs that the lake has.
    packed: Vec<Member<'a>>,
    /// They are to be written under their own names.
    alone: Vec<usize>,
    outcomes: BTreeMap<usize, Flushed>,
}

/// A pack that is being planned.
#[derive(Default)]
struct Open<'a> {
    objects: Vec<Packable<'a>>,
    size_bytes: u64,
}

/// An object in a pack that the lake has.
struct Member<'a> {
    object: Packable<'a>,
    row: Row,
}

impl Cleaner {
    /// Brings objects of one map to the lake: small ones in packs, the others under their own names. Returns
    /// the outcome of each, in their order.
    pub(super) async fn pack_all(&self, map: &Arc<PackMap>, objects: &[Flushing]) -> Vec<Flushed> {
        let root = match map.newest().await {
            Ok(newest) => newest.root_or_default(),
            Err(error) => {
                let why = NotFlushed::Lake(error.to_string().into());
                return objects.iter().map(|_| Err(why.clone())).collect();
            }
        };
        let mut sorted = Sorted::default();
        let packs = if map.takes_objects().await {
            self.plan(map, objects, &root, &mut sorted)
        } else {
            sorted.alone.extend(0..objects.len());
            Vec::new()
        };
        let written: Vec<_> = packs.into_iter().map(|pack| self.write_pack(map, pack)).collect();
        let written: Vec<_> = stream::iter(written)
            .buffer_unordered(PACKS_PARALLEL)
            .collect()
            .await;
        for pack in written {
            sorted.packed.extend(pack.packed);
            sorted.alone.extend(pack.alone);
            sorted.outcomes.extend(pack.outcomes);
        }
        self.name_packed(map, &mut sorted).await;
        let alone = take(&mut sorted.alone).into_iter().map(|at| async move {
            let Flushing { version, change } = &objects[at];
            (at, self.flush_alone(version, change).await)
        });
        let alone: Vec<_> = alone.collect();
        let alone: Vec<_> = stream::iter(alone)
            .buffer_unordered(OBJECTS_PARALLEL)
            .collect()
            .await;
        sorted.outcomes.extend(alone);
        debug_assert_eq!(sorted.outcomes.len(), objects.len(), "each object has an outcome");
        sorted.outcomes.into_values().collect()
    }

    /// Divides small objects among packs, each of one writer. The objects are in the order of their writes.
    fn plan<'a>(
        &self,
        map: &PackMap,
        objects: &'a [Flushing],
        root: &Root,
        sorted: &mut Sorted<'a>,
    ) -> Vec<Vec<Packable<'a>>> {
        let config = &map.settings.config;
        let mut open: BTreeMap<Arc<str>, Open<'a>> = BTreeMap::new();
        let mut packs = Vec::new();
        for (at, Flushing { version, change }) in objects.iter().enumerate() {
            if version.size_bytes >= config.below_bytes {
                sorted.alone.push(at);
                continue;
            }
            let manifest = match self.manifest(version, change) {
                Ok(manifest) => manifest,
                Err(error) => {
                    sorted.outcomes.insert(at, Err(error));
                    continue;
                }
            };
            let pack = open.entry(Arc::clone(&manifest.record.writer)).or_default();
            if pack.size_bytes + version.size_bytes > config.pack_bytes {
                packs.push(take(pack).objects);
            }
            let sequence = root.sequence(change.revision());
            pack.size_bytes += version.size_bytes;
            pack.objects.push(Packable {
                at,
                change,
                description: description(&manifest, version.id, sequence),
                manifest,
            });
        }
        packs.extend(open.into_values().map(|pack| pack.objects));
        packs
    }

    /// Writes a pack in the name of the writer of its members.
    async fn write_pack<'a>(&self, map: &PackMap, objects: Vec<Packable<'a>>) -> Sorted<'a> {
        let mut sorted = Sorted::default();
        let mut builder = PackBuilder::default();
        let mut members = BTreeMap::new();
        let reads = objects.into_iter().map(|object| async move {
            let bytes = self.bytes_of(&object).await;
            (object, bytes)
        });
        let reads: Vec<_> = reads.collect();
        let mut reads = std::pin::pin!(stream::iter(reads).buffered(OBJECTS_PARALLEL));
        while let Some((object, bytes)) = reads.next().await {
            let key = &object.manifest.name.key;
            match bytes.map(|bytes| builder.add(key, &object.description, bytes)) {
                Ok(Ok(())) => drop(members.insert(Bytes::copy_from_slice(key), object)),
                // No pack takes its headers, or this one is full.
                Ok(Err(_)) => sorted.alone.push(object.at),
                Err(error) => drop(sorted.outcomes.insert(object.at, Err(error))),
            }
        }
        let Some(first) = members.values().next() else {
            return sorted;
        };
        let (id, pack) = (new_id(), builder.finish());
        let permit = LakeChange::permit_of_all(members.values().map(|object| object.change));
        let written = match self
            .shared
            .writer(&first.manifest.record.writer, &first.manifest.name)
        {
            Ok(writer) => {
                let name = registry_name(&map.at_lake.pack(id));
                let under_way = self.flushes.begin(&name);
                let options = SendOptions {
                    permit: Some(&permit),
                    transfer: Some(&under_way),
                };
                let (client, began) = (self.shared.client(&writer), clock::instant());
                let written = map.at_lake.put_pack(&client, id, pack.pieces, options).await;
                let outcome = written.as_ref().map(|()| &Uploaded::Same);
                self.pacing.flushed(outcome, pack.size_bytes, began);
                written
            }
            Err(unknown) => Err(NotWritten::from(unknown)),
        };
        match written {
            Ok(()) => sorted.packed.extend(pack.members.iter().filter_map(|member| {
                let object = members.remove(&member.key)?;
                let row = Row::Packed(Packed::new(id, member));
                Some(Member { object, row })
            })),
            Err(failure) if is_of_pack(&failure) => {
                sorted.alone.extend(members.values().map(|object| object.at));
            }
            // Nothing names the pack, so it does not matter if the lake has it.
            Err(failure) => {
                let why = NotFlushed::Lake(format!("their pack: {failure}").into());
                let failed = members.values().map(|object| (object.at, Err(why.clone())));
                sorted.outcomes.extend(failed);
            }
        }
        sorted
    }

    /// Returns the bytes of an object.
    async fn bytes_of(&self, object: &Packable<'_>) -> Result<Bytes, NotFlushed> {
        let bytes = object.manifest.bytes(self.store.bytes(), &self.shared.damages);
        let write = LakeWrite {
            manifest: &object.manifest,
            bytes: &(Arc::new(bytes) as _),
            conditions: &HeaderMap::new(),
            permit: &object.change.permit(),
            transfer: None,
        };
        let read = self.shared.read(write).await;
        read.map_err(|error| NotFlushed::Lake(error.to_string().into()))
    }

    /// Commits a table with all objects that are in packs.
    async fn name_packed(&self, map: &Arc<PackMap>, sorted: &mut Sorted<'_>) {
        let packed = take(&mut sorted.packed);
        if packed.is_empty() {
            return;
        }
        let permit = LakeChange::permit_of_all(packed.iter().map(|member| member.object.change));
        let rows = packed.iter().map(|member| {
            let key = Bytes::copy_from_slice(&member.object.manifest.name.key);
            (key, member.row.clone())
        });
        let rows: BTreeMap<_, _> = rows.collect();
        let named = map
            .commit(Purpose::Packing, &permit, move |_| {
                Ok(MapChange::Add(table_of(&rows)?))
            })
            .await;
        for Member { object, .. } in packed {
            let outcome = match &named {
                Ok(_) => {
                    self.flushed(&object.manifest);
                    Ok(())
                }
                Err(error) if is_refusal_of_map(error) => {
                    sorted.alone.push(object.at);
                    continue;
                }
                Err(error) => Err(not_flushed(error)),
            };
            sorted.outcomes.insert(object.at, outcome);
        }
    }
}

pub(super) fn table_of(rows: &BTreeMap<Bytes, Row>) -> Result<TableBuilder, NotCommitted> {
    let mut table = TableBuilder::default();
    for (key, row) in rows {
        table.add(key, row)?;
    }
    Ok(table)
}

/// Returns true if the lake may take the members of a refused pack under their own names: their writer may
/// not write everywhere below the prefix.
fn is_of_pack(failure: &NotWritten) -> bool {
    matches!(
        failure.error,
        LakeWriteError::Refused(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    )
}

/// Returns true if the map takes no objects: it is ending, or the lake refuses its keeper.
fn is_refusal_of_map(error: &NotCommitted) -> bool {
    match error {
        NotCommitted::Reserve(ReserveError::Ending) => true,
        NotCommitted::Lake(failure) => is_of_pack(failure),
        _ => false,
    }
}

pub(super) fn not_flushed(error: &NotCommitted) -> NotFlushed {
    match error {
        NotCommitted::Reserve(ReserveError::Engine(error)) => error.clone().into(),
        NotCommitted::Unknown => NotFlushed::Unknown(error.to_string().into()),
        error => NotFlushed::Lake(error.to_string().into()),
    }
}
