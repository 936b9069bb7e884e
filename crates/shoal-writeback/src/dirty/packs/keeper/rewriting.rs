//! Moves the living objects of packs to new packs, in the names of their writers.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use shoal_base::encoding::Malformed;
use shoal_base::send_permit::SendPermit;
use shoal_net::clock;
use shoal_net::endpoint::s3::{S3Client, SendOptions};
use shoal_net::link;
use shoal_pack::table::{DamagedBlock, Entry, Map, Names, Packed, Row, TableBuilder};
use shoal_pack::{Description, PackBuilder, Refused, crc32};
use shoal_registry::roots::Purpose;
use shoal_registry::session::new_id;
use shoal_s3::identity::Caller;
use shoal_s3::range::ByteRange;
use tokio::task::spawn_blocking;
use ulid::Ulid;

use super::{Keeper, NotKept};
use crate::dirty::lake_writer::{LakeWriteError, NotWritten};
use crate::dirty::packs::at_lake::{NotRead, open_range};
use crate::dirty::packs::commit::{MapChange, NotCommitted};
use crate::dirty::packs::object::MEND_PACK;
use crate::dirty::record::manifest::location;

/// The living objects of a pack.
struct Living {
    pack: Ulid,
    /// In the order of their keys.
    objects: Vec<Entry<Packed>>,
    /// The bytes that they take in a pack.
    size_bytes: u64,
}

/// An object that is moved.
struct Moving {
    key: Bytes,
    /// Its place so far.
    from: Packed,
    description: Description,
    bytes: Bytes,
}

/// An object that is in a new pack.
struct Moved {
    from: Packed,
    to: Row,
}

/// Objects were not moved.
#[derive(Debug, thiserror::Error)]
enum NotMoved {
    #[error("the row of an object cannot be read")]
    Row(#[from] Malformed),
    #[error("an object cannot be read: {0}")]
    Read(#[from] NotRead),
    #[error("an object does not fit into a pack: {0}")]
    Refused(#[from] Refused),
    #[error("the new pack was not written: {0}")]
    Written(#[from] NotWritten),
    #[error(transparent)]
    Committed(#[from] NotCommitted),
    #[error("the session of this node has ended")]
    SessionOver,
}

impl Keeper {
    /// Moves the objects that the map finds in these packs to new ones. Returns the packs that were not
    /// emptied. A later survey removes the others.
    pub(super) async fn rewrite(
        &self,
        map: Arc<Map>,
        packs: BTreeSet<Ulid>,
    ) -> Result<BTreeSet<Ulid>, NotKept> {
        let reading = spawn_blocking(move || living(&map, &packs));
        let living = reading.await.expect("reading rows does not panic");
        let mut of_writers: BTreeMap<String, Vec<Living>> = BTreeMap::new();
        let mut failed = BTreeSet::new();
        for pack in living.map_err(|damaged| self.damaged(damaged))? {
            match pack.objects[0].row.description() {
                Ok(description) => of_writers.entry(description.writer).or_default().push(pack),
                Err(malformed) => self.note(&malformed.into(), [pack.pack], &mut failed),
            }
        }
        for (writer, packs) in of_writers {
            for packs in batches(packs, self.map.settings.config.pack_bytes) {
                self.rewrite_batch(&writer, packs, &mut failed).await;
            }
        }
        Ok(failed)
    }

    /// Rewrites packs of one writer as one.
    async fn rewrite_batch(&self, writer: &str, packs: Vec<Living>, failed: &mut BTreeSet<Ulid>) {
        let (mut moving, mut sources) = (Vec::new(), Vec::new());
        for living in packs {
            let pack = living.pack;
            match self.read(living).await {
                Ok(objects) => {
                    moving.extend(objects);
                    sources.push(pack);
                }
                Err(error) => self.note(&error, [pack], failed),
            }
        }
        if moving.is_empty() {
            return;
        }
        let count = sources.len();
        match self.write(writer, moving).await {
            Ok(()) => {
                let below = self.map.below();
                tracing::info!(below, writer, packs = count, "packs were rewritten");
            }
            Err(error) => self.note(&error, sources, failed),
        }
    }

    fn note(&self, error: &NotMoved, packs: impl IntoIterator<Item = Ulid>, failed: &mut BTreeSet<Ulid>) {
        for pack in packs {
            let pack_name = self.map.at_lake.pack(pack);
            tracing::warn!(pack = ?pack_name, %error, "a pack was not rewritten");
            if let NotMoved::Read(error @ (NotRead::Gone | NotRead::Wrong(_))) = error {
                let pack = location(&pack_name).into();
                self.map.damages.note(&pack, error.to_string(), MEND_PACK);
            }
            failed.insert(pack);
        }
    }

    /// Reads the living objects of a pack by one request.
    async fn read(&self, living: Living) -> Result<Vec<Moving>, NotMoved> {
        let ranges = || living.objects.iter().map(|object| &object.row.range);
        let start = ranges().map(|range| range.start).min().unwrap_or_default();
        let end = ranges().map(|range| range.end).max().unwrap_or_default();
        let bytes = if start == end {
            Bytes::new()
        } else {
            let (client, pack) = (self.map.at_lake.keeper(), self.map.at_lake.pack(living.pack));
            let transfer = link::Purpose::Cleaning.transfer();
            let (range, within) = (ByteRange::new(start, end), SendOptions::within(transfer.as_ref()));
            let sent = open_range(&client, &pack, range, HeaderMap::new(), within).await?;
            sent.bytes
        };
        let moving = living.objects.into_iter().map(|Entry { key, row }| {
            let range = &row.range;
            // A copy, which does not keep the dead bytes in memory.
            let bytes =
                Bytes::copy_from_slice(&bytes[(range.start - start) as usize..(range.end - start) as usize]);
            if crc32(&bytes) != row.crc32 {
                return Err(NotRead::Wrong("bytes that do not match the CRC-32 of an object".into()).into());
            }
            Ok(Moving {
                key,
                description: row.description()?,
                from: row,
                bytes,
            })
        });
        moving.collect()
    }

    /// Writes objects as a new pack, and moves them in the map.
    async fn write(&self, writer: &str, moving: Vec<Moving>) -> Result<(), NotMoved> {
        let unknown = || NotWritten::from(LakeWriteError::UnknownWriter(writer.into()));
        let identity = self
            .identities
            .named(writer, clock::utc_now())
            .ok_or_else(unknown)?;
        let keeper = self.map.at_lake.keeper();
        let client = S3Client {
            account: keeper.endpoint.account_for(&Caller::Identity(identity)),
            ..keeper
        };
        let permit = self.map.roots.session().permit().ok_or(NotMoved::SessionOver)?;
        let (mut builder, mut places, mut moved) = (PackBuilder::default(), BTreeMap::new(), BTreeMap::new());
        for Moving {
            key,
            from,
            description,
            bytes,
        } in moving
        {
            if let Err(refused) = builder.check(&key, &description, bytes.len() as u64) {
                // The headers of members may take more than those of a single pack did.
                if refused != Refused::Full {
                    return Err(refused.into());
                }
                let (builder, places) = (take(&mut builder), take(&mut places));
                moved.extend(self.put(&client, builder, places, &permit).await?);
            }
            builder.add(&key, &description, bytes)?;
            places.insert(key, from);
        }
        moved.extend(self.put(&client, builder, places, &permit).await?);
        let change = move |map: &Map| table_of_moved(map, &moved);
        self.map.commit(Purpose::Upkeep, &permit, change).await?;
        Ok(())
    }

    /// Writes a pack. Returns its objects by their keys; `places` are those that they had so far.
    async fn put(
        &self,
        writer: &S3Client,
        builder: PackBuilder,
        mut places: BTreeMap<Bytes, Packed>,
        permit: &SendPermit,
    ) -> Result<Vec<(Bytes, Moved)>, NotMoved> {
        let (id, pack) = (new_id(), builder.finish());
        let transfer = link::Purpose::Cleaning.transfer();
        let options = SendOptions {
            permit: Some(permit),
            transfer: transfer.as_ref(),
        };
        self.map
            .at_lake
            .put_pack(writer, id, pack.pieces, options)
            .await?;
        let moved = pack.members.iter().map(|member| {
            let from = places.remove(&member.key).expect("each member had a place");
            let to = Row::Packed(Packed::new(id, member));
            (member.key.clone(), Moved { from, to })
        });
        Ok(moved.collect())
    }
}

/// Returns a table of the objects that a map finds where they were moved from: others were changed meanwhile.
fn table_of_moved(map: &Map, moved: &BTreeMap<Bytes, Moved>) -> Result<MapChange, NotCommitted> {
    let (mut table, mut is_empty) = (TableBuilder::default(), true);
    for (key, Moved { from, to }) in moved {
        let found = map.get(key)?;
        if found.is_some_and(|found| (found.pack, &found.range) == (from.pack, &from.range)) {
            table.add(key, to)?;
            is_empty = false;
        }
    }
    Ok(if is_empty {
        MapChange::Nothing
    } else {
        MapChange::Add(table)
    })
}

/// Returns the objects that a map finds in these packs.
fn living(map: &Map, packs: &BTreeSet<Ulid>) -> Result<Vec<Living>, DamagedBlock> {
    let mut living: BTreeMap<Ulid, Living> = BTreeMap::new();
    for object in map.objects(Names::default()) {
        let object = object?;
        let pack = object.row.pack;
        if packs.contains(&pack) {
            let living = living.entry(pack).or_insert_with(|| Living {
                pack,
                objects: Vec::new(),
                size_bytes: 0,
            });
            living.size_bytes += object.row.bytes_in_pack(&object.key);
            living.objects.push(object);
        }
    }
    Ok(living.into_values().collect())
}

/// Divides packs so that the living objects of each batch have at most `bytes_max` bytes, but for a pack that
/// has more by itself.
fn batches(packs: Vec<Living>, bytes_max: u64) -> Vec<Vec<Living>> {
    let mut batches: Vec<Vec<Living>> = Vec::new();
    let mut size_bytes = 0;
    for pack in packs {
        size_bytes += pack.size_bytes;
        if let Some(batch) = batches.last_mut().filter(|_| size_bytes <= bytes_max) {
            batch.push(pack);
        } else {
            size_bytes = pack.size_bytes;
            batches.push(vec![pack]);
        }
    }
    batches
}
