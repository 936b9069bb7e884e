//! Objects of a task that are read from blocks of their packs.
//!
//! A pack is an object of the lake like others, so its blocks come through their homes: one request brings
//! many objects to the cluster. The blocks are a means only, which the node that runs the task removes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderMap, StatusCode};
use shoal_cache::fetch::Fetcher;
use shoal_cache::lake::{LakeRefusal, PackPlace, Wanted};
use shoal_cache::obtain::Obtain;
use shoal_cache::read_context::ReadContext;
use shoal_cache::single_flight::FetchError;
use shoal_policy::{Layer, ObjectId};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_store::{Absence, RemovalReason};
use tokio::task::yield_now;

use super::PackedLake;
use super::member::NotAnswered;
use super::reads::not_read;
use crate::dirty::packs::{NotRead, PackedObject};
use crate::dirty::unversioned;

/// The number of packs about which the lake is asked at a time.
const ASKED_AT_ONCE: usize = 16;

/// The number of names that are looked up before other work of the node has a turn.
const LOOKED_UP_AT_ONCE: usize = 256;

/// The number of times that a block is fetched for one object: a disk may lose it.
const TRIES: u32 = 2;

/// The objects of one pack that a task wants.
struct WantedInPack {
    pack: ObjectName,
    /// By their first bytes.
    shares: BTreeMap<u64, Share>,
}

/// An object that a task wants, in its pack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    /// Its numbers among all objects that the task wants, which may name one twice.
    numbers: Vec<usize>,
    /// Its bytes of the pack.
    range: Range<u64>,
    /// The bytes that it takes there, its headers included.
    bytes_in_pack: u64,
}

impl PackedLake {
    pub(super) async fn places_in_packs(
        &self,
        caller: &Caller,
        wanted: &[Wanted<'_>],
    ) -> Vec<Option<PackPlace>> {
        let mut packs: HashMap<ObjectId, WantedInPack> = HashMap::new();
        for (number, wanted) in wanted.iter().enumerate() {
            if number % LOOKED_UP_AT_ONCE == LOOKED_UP_AT_ONCE - 1 {
                yield_now().await;
            }
            // If the map is not read, the read of the object finds out why.
            let name = unversioned(wanted.name);
            let Some(map) = self.packs().of(&name) else {
                continue;
            };
            let member = self.member(map, &name).await.ok().flatten();
            if let Some(member) = member.filter(|member| is_wanted(&member.object, wanted)) {
                let object = &member.object;
                let pack = object.pack_name.id(self.fetcher.parts.lake.url());
                let wanted = packs.entry(pack).or_insert_with(|| WantedInPack {
                    pack: object.pack_name.clone(),
                    shares: BTreeMap::new(),
                });
                let share = wanted.shares.entry(object.range.start).or_insert_with(|| Share {
                    numbers: Vec::new(),
                    range: object.range.clone(),
                    bytes_in_pack: object.bytes_in_pack,
                });
                share.numbers.push(number);
            }
        }
        // One object alone is never worth a block.
        let several = packs.into_values().filter(|wanted| wanted.shares.len() > 1);
        let asked = stream::iter(several).map(|wanted| async move {
            let version = self.pack_version(caller, &wanted.pack).await.ok()?;
            Some((version, wanted.shares))
        });
        let mut asked = std::pin::pin!(asked.buffer_unordered(ASKED_AT_ONCE));
        let mut places = vec![None; wanted.len()];
        while let Some(answer) = asked.next().await {
            let Some((pack, shares)) = answer else { continue };
            for Share { numbers, range, .. } in worth_blocks(&pack, shares.into_values().collect()) {
                let (pack, start) = (pack.object, range.start);
                for number in numbers {
                    places[number] = Some(PackPlace { pack, start });
                }
            }
        }
        places
    }

    /// Reads a packed object from blocks of its pack in the name of the caller of `context`. Returns `None`
    /// if it is to be read alone: the store does not keep the blocks, or does not get them.
    ///
    /// # Errors
    ///
    /// The lake refuses the pack to the caller, or does not have it.
    pub(super) async fn read_from_blocks(
        &self,
        object: &PackedObject,
        context: &ReadContext,
    ) -> Result<Option<Bytes>, NotAnswered> {
        let (fetcher, caller) = (&self.fetcher, &context.caller);
        let version = match self.pack_version(caller, &object.pack_name).await {
            Ok(version) => version,
            Err(LakeRefusal::Refused { status, .. }) => return Err(not_read(status).into()),
            Err(LakeRefusal::Trouble(_) | LakeRefusal::Uncacheable(_)) => return Ok(None),
        };
        let account = fetcher.parts.lake.account_for(caller);
        let name = Some(object.pack_name.clone());
        let of_pack = ReadContext::of_peer(account, caller.clone(), name, HeaderMap::new());
        let pack = PackBlocks {
            fetcher,
            version,
            context: Arc::new(of_pack.with_purpose(context.purpose.clone())),
        };
        Ok(pack.read(object).await?)
    }
}

/// The blocks of a pack, as one caller reads them.
struct PackBlocks<'a> {
    fetcher: &'a Arc<Fetcher>,
    version: Arc<Version>,
    context: Arc<ReadContext>,
}

impl PackBlocks<'_> {
    async fn read(&self, object: &PackedObject) -> Result<Option<Bytes>, NotRead> {
        let Range { start, end } = object.range;
        if end > self.version.size_bytes {
            return Err(NotRead::Wrong("a pack that is too short".into()));
        }
        let mut bytes = BytesMut::with_capacity((end - start) as usize);
        for index in blocks_of(&self.version, &object.range) {
            let Some(block) = self.block(index).await? else {
                return Ok(None);
            };
            let first = u64::from(index) * self.version.block_bytes;
            let part = start.max(first) - first..end.min(first + self.version.block_bytes) - first;
            bytes.extend_from_slice(&block[part.start as usize..part.end as usize]);
        }
        if shoal_pack::crc32(&bytes) != object.crc32 {
            // The lake may have other bytes, or another request may be answered better.
            tracing::warn!(pack = ?object.pack_name, "an object in blocks of its pack is read again, alone");
            return Ok(None);
        }
        Ok(Some(bytes.freeze()))
    }

    /// Returns a block, which is fetched unless it is on the disk of this node; `None` if the disk does not
    /// keep it long enough to serve others.
    async fn block(&self, index: u32) -> Result<Option<Bytes>, NotRead> {
        let (block, store) = (self.version.block(index), &self.fetcher.parts.store);
        for _ in 0..TRIES {
            // The blocks of a pack are used once by each of its objects, which is no reason to keep them.
            if store.contains(block)
                && let Some(bytes) = store.load(block, false).await
            {
                return Ok(Some(bytes));
            }
            if store.absence(block).is_some_and(has_no_room) {
                return Ok(None);
            }
            let obtain = Obtain::FromHomes(Layer::L1);
            let joined = self.fetcher.join(&self.version, index, &self.context, obtain);
            let Some(waiter) = joined else { continue };
            match waiter.is_stored().await {
                Ok(true) => {}
                Err(FetchError::Status(status)) if is_definite(status) => return Err(not_read(status)),
                Ok(false) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Returns true if a packed object is the version that a task wants, and has bytes.
fn is_wanted(object: &PackedObject, wanted: &Wanted<'_>) -> bool {
    object.version.id == wanted.version && object.version.size_bytes > 0
}

/// Returns true if the store had no room for a block. The next object would need the block again.
fn has_no_room(absence: Absence) -> bool {
    match absence {
        Absence::Refused(_) => true,
        Absence::Removed(reason) => matches!(
            reason,
            RemovalReason::Room | RemovalReason::Copied | RemovalReason::Pushed
        ),
    }
}

fn is_definite(status: StatusCode) -> bool {
    NotRead::Refused(status).is_definite() && status != StatusCode::PRECONDITION_FAILED
}

/// Returns the blocks of a pack that have these bytes, of which there are some.
fn blocks_of(pack: &Version, range: &Range<u64>) -> Range<u32> {
    debug_assert!(!range.is_empty(), "an empty object is in no block");
    (range.start / pack.block_bytes) as u32..range.end.div_ceil(pack.block_bytes) as u32
}

/// Returns those of the wanted objects of a pack that are read from its blocks.
///
/// A block is read if the wanted objects are at least half of its bytes, or of the bytes of all blocks. So at
/// most twice the bytes are read that the objects and their headers take in the pack. An object is read from
/// blocks if all blocks that have some of it are read, and if that saves requests.
fn worth_blocks(pack: &Version, mut wanted: Vec<Share>) -> Vec<Share> {
    let last_byte = pack.size_bytes;
    wanted.retain(|share| share.range.end <= last_byte);
    let mut of_blocks: HashMap<u32, u64> = HashMap::new();
    for Share {
        range, bytes_in_pack, ..
    } in &wanted
    {
        let mut headers = bytes_in_pack.saturating_sub(range.end - range.start);
        for index in blocks_of(pack, range) {
            let first = u64::from(index) * pack.block_bytes;
            let part = range.end.min(first + pack.block_bytes) - range.start.max(first);
            *of_blocks.entry(index).or_default() += part + std::mem::take(&mut headers);
        }
    }
    let all: u64 = of_blocks.values().sum();
    let is_read = |index: u32| {
        let of_block = of_blocks.get(&index).copied().unwrap_or_default();
        2 * all >= pack.size_bytes || 2 * of_block >= pack.block_len(index)
    };
    wanted.retain(|share| blocks_of(pack, &share.range).all(is_read));
    let read: BTreeSet<u32> = wanted
        .iter()
        .flat_map(|share| blocks_of(pack, &share.range))
        .collect();
    if read.len() >= wanted.len() {
        wanted.clear();
    }
    wanted
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use proptest::prelude::{any, proptest};
    use shoal_policy::ObjectId;

    use super::*;

    const BLOCK: u64 = 1 << 12;

    fn pack(size_bytes: u64) -> Version {
        let (object, etag) = (ObjectId([3; 16]), "\"e\"");
        Version {
            id: Version::id_of(object, etag, size_bytes),
            object,
            etag: etag.into(),
            size_bytes,
            block_bytes: BLOCK,
            last_modified: None,
            headers: HeaderMap::new(),
        }
    }

    /// Objects of a size in a row, as the packer writes them, behind this byte.
    fn row(first: u64, count: usize, size: u64, headers: u64) -> Vec<Share> {
        let starts = (0..count as u64).map(|number| first + number * (size + headers));
        let shares = starts.enumerate().map(|(number, start)| Share {
            numbers: vec![number],
            range: start..start + size,
            bytes_in_pack: size + 2 * headers,
        });
        shares.collect()
    }

    fn read(size_bytes: u64, wanted: Vec<Share>) -> Vec<usize> {
        let read = worth_blocks(&pack(size_bytes), wanted);
        read.into_iter().flat_map(|share| share.numbers).collect()
    }

    #[test]
    fn objects_that_are_half_of_a_block_are_read_from_it_and_fewer_are_read_alone() {
        let large = 100 * BLOCK;
        assert_eq!(read(large, row(0, 8, BLOCK / 16, 0)).len(), 8);
        assert!(read(large, row(0, 7, BLOCK / 16, 0)).is_empty());
        assert!(read(large, row(BLOCK, 7, BLOCK / 16, 8)).is_empty());
        assert_eq!(
            read(large, row(BLOCK, 7, BLOCK / 16, 19)).len(),
            7,
            "headers count"
        );
        // Twelve in the first block, four in the next one: those of the second are too few.
        let first = row(BLOCK / 4, 16, BLOCK / 16, 0);
        assert_eq!(read(large, first), (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn an_object_in_two_blocks_is_read_alone_unless_both_are_read() {
        let large = 100 * BLOCK;
        let from = |count| row(BLOCK / 2 - 10, count, BLOCK / 16, 0);
        assert_eq!(read(large, from(9)), (0..8).collect::<Vec<_>>());
        assert_eq!(read(large, from(17)).len(), 17);
    }

    #[test]
    fn a_pack_of_which_half_is_wanted_is_read_with_the_block_that_is_mostly_its_directory() {
        let (tiny, headers) = (64, 200);
        let wanted = row(0, 100, tiny, headers);
        let data_bytes = 100 * (tiny + headers);
        let size_bytes = data_bytes + 100 * headers;
        assert_eq!(read(size_bytes, wanted.clone()).len(), 100);
        assert_eq!(read(size_bytes, wanted[..55].to_vec()).len(), 55);
        assert!(read(size_bytes, wanted[97..].to_vec()).is_empty());
    }

    #[test]
    fn blocks_are_not_read_where_that_saves_no_request() {
        let large = 100 * BLOCK;
        assert!(read(large, row(0, 3, BLOCK, 0)).is_empty());
        assert!(read(large, row(0, 1, BLOCK, 0)).is_empty());
        assert_eq!(read(large, row(0, 3, BLOCK * 2 / 3, 0)), [0, 1, 2]);
        assert_eq!(read(BLOCK, row(0, 2, BLOCK / 4, 0)), [0, 1]);
    }

    proptest! {
        #[test]
        fn at_most_twice_the_bytes_of_the_objects_are_read(
            sizes in proptest::collection::vec((1..3 * BLOCK, any::<bool>()), 0..80),
            headers in 0..BLOCK / 8,
        ) {
            let (mut start, mut wanted, mut takes) = (0, Vec::new(), 0);
            for (number, (size, is_wanted)) in sizes.iter().copied().enumerate() {
                let range = start + headers..start + headers + size;
                start = range.end;
                let bytes_in_pack = size + 2 * headers;
                if is_wanted {
                    takes += bytes_in_pack;
                    wanted.push(Share { numbers: vec![number], range, bytes_in_pack });
                }
            }
            let pack = pack(start + headers * sizes.len() as u64);
            let requests = wanted.len();
            let read = worth_blocks(&pack, wanted);
            let blocks = read.iter().flat_map(|share| blocks_of(&pack, &share.range));
            let blocks: BTreeSet<u32> = blocks.collect();
            let bytes: u64 = blocks.iter().map(|index| pack.block_len(*index)).sum();
            assert!(bytes <= 2 * takes, "{bytes} of {takes}");
            assert!(requests - read.len() + blocks.len() <= requests);
            for share in &read {
                assert!(blocks_of(&pack, &share.range).all(|index| blocks.contains(&index)));
            }
        }
    }
}
