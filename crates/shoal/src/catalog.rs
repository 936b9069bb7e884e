//! Which version of an object is current, and to whom the lake has said so.
//!
//! A yes of the lake is a *grant*: this caller may read this object, and this version is the current one. How long a
//! grant may be reused is the reader's question ([`crate::freshness`]); a no is never kept. Everything written through
//! this node advances an *epoch*; a grant from before it, also one whose question was still on its way, is void.

use std::hash::BuildHasher;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::{ObjectId, VersionId};

use crate::identity::CallerId;
use crate::object::{ObjectName, Version};

const SHARDS: usize = 16;
/// Versions kept in memory, all shards together; at one to two KiB each this bounds the catalog to about 24 MiB.
const OBJECTS: usize = 16_384;
/// Callers remembered for one object; the one who asked longest ago makes room.
const GRANTS_PER_OBJECT: usize = 64;
/// Names share an epoch by hash: a collision costs a question to the lake, never a wrong answer.
const OBJECT_EPOCHS: usize = 4096;
const BUCKET_EPOCHS: usize = 256;

/// What this node knows about objects; bounded, and safe to lose.
#[derive(Debug)]
pub struct Catalog {
    shards: Vec<Mutex<LruCache<ObjectId, Known>>>,
    object_epochs: Vec<AtomicU64>,
    bucket_epochs: Vec<AtomicU64>,
    hasher: foldhash::fast::RandomState,
}

/// The state of the writes through this node when a question was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    object: u64,
    bucket: u64,
}

#[derive(Debug)]
struct Known {
    version: Arc<Version>,
    checksums: Checksums,
    /// When its headers were learned, counted in writes; `None`: it was written here, and no answer of the lake has told them yet.
    epoch: Option<Epoch>,
    grants: Vec<Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    caller: CallerId,
    at: Instant,
    epoch: Epoch,
}

/// Whether the headers of a version were asked for with `x-amz-checksum-mode: ENABLED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// They were: what is not there, the lake does not have.
    Asked,
    /// They were not: a client that wants them has to ask the lake.
    Unasked,
}

/// A version the catalog holds, current or not.
#[derive(Clone, Debug)]
pub struct Remembered {
    /// The version.
    pub version: Arc<Version>,
    /// Whether its checksum headers are known.
    pub checksums: Checksums,
    /// The object may have been written since its headers were learned. Its ETag does not tell: the same bytes with
    /// other metadata have the same one.
    pub overtaken: bool,
}

impl Default for Catalog {
    fn default() -> Self {
        let per_shard = NonZeroUsize::new(OBJECTS / SHARDS).expect("a shard holds something");
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            shards: (0..SHARDS)
                .map(|_| Mutex::new(LruCache::new(per_shard)))
                .collect(),
            object_epochs: zeros(OBJECT_EPOCHS),
            bucket_epochs: zeros(BUCKET_EPOCHS),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Catalog {
    /// The version last seen, to ask the lake about in `epoch`.
    pub fn remembered(&self, object: ObjectId, epoch: Epoch) -> Option<Remembered> {
        let mut shard = self.shard(object).lock();
        shard.get(&object).map(|known| known.remembered(epoch))
    }

    /// The current version, if the lake said yes to this caller less than `reuse` ago and nothing was written since.
    pub fn granted(
        &self,
        caller: CallerId,
        object: ObjectId,
        epoch: Epoch,
        reuse: Duration,
        now: Instant,
    ) -> Option<Remembered> {
        let mut shard = self.shard(object).lock();
        let known = shard.get(&object)?;
        let grant = known.grants.iter().find(|grant| grant.caller == caller)?;
        let holds = grant.epoch == epoch && now.saturating_duration_since(grant.at) < reuse;
        holds.then(|| known.remembered(epoch))
    }

    /// Notes what the lake said to `caller` in answer to a question asked at `asked_at`, in `epoch`.
    ///
    /// An answer that a write has overtaken is dropped: the caller may use it for the read it was asked for, nobody
    /// may reuse it.
    pub fn learn(
        &self,
        caller: CallerId,
        name: &ObjectName,
        version: &Arc<Version>,
        checksums: Checksums,
        (epoch, asked_at): (Epoch, Instant),
    ) {
        if self.epoch(name) != epoch {
            return;
        }
        let mut shard = self.shard(version.object).lock();
        let grant = Grant {
            caller,
            at: asked_at,
            epoch,
        };
        match shard.get_mut(&version.object) {
            Some(known) if known.version.id == version.id => {
                known.version = Arc::clone(version);
                known.checksums = checksums;
                known.epoch = Some(epoch);
                known.grants.retain(|other| other.caller != caller);
                if known.grants.len() == GRANTS_PER_OBJECT {
                    known.grants.remove(0);
                }
                known.grants.push(grant);
            }
            // Grants of another version say nothing about this one.
            _ => {
                let known = Known {
                    version: Arc::clone(version),
                    checksums,
                    epoch: Some(epoch),
                    grants: vec![grant],
                };
                shard.put(version.object, known);
            }
        }
    }

    /// Notes a version that was written here, unless another one is known: who reads the object then asks the lake for its headers and not for
    /// its bytes. It is nobody's permission.
    pub fn introduce(&self, version: &Arc<Version>) {
        let mut shard = self.shard(version.object).lock();
        if !shard.contains(&version.object) {
            let known = Known {
                version: Arc::clone(version),
                checksums: Checksums::Unasked,
                epoch: None,
                grants: Vec::new(),
            };
            shard.put(version.object, known);
        }
    }

    /// Drops an object of which the lake says that it is gone, if this is still the version we knew.
    pub fn drop_version(&self, object: ObjectId, version: VersionId) {
        let mut shard = self.shard(object).lock();
        if shard
            .peek(&object)
            .is_some_and(|known| known.version.id == version)
        {
            shard.pop(&object);
        }
    }

    /// The epoch that a question about this object belongs to.
    pub fn epoch(&self, name: &ObjectName) -> Epoch {
        Epoch {
            object: self.object_epoch(name).load(Ordering::Acquire),
            bucket: self.bucket_epoch(&name.bucket).load(Ordering::Acquire),
        }
    }

    /// Voids every grant for the object (whatever its `versionId`).
    pub fn forget_object(&self, name: &ObjectName) {
        self.object_epoch(name).fetch_add(1, Ordering::AcqRel);
    }

    /// Voids every grant for the bucket's objects.
    pub fn forget_bucket(&self, bucket: &str) {
        self.bucket_epoch(bucket).fetch_add(1, Ordering::AcqRel);
    }

    fn object_epoch(&self, name: &ObjectName) -> &AtomicU64 {
        let slot = self.hasher.hash_one((&name.bucket, &name.key)) as usize % OBJECT_EPOCHS;
        &self.object_epochs[slot]
    }

    fn bucket_epoch(&self, bucket: &str) -> &AtomicU64 {
        &self.bucket_epochs[self.hasher.hash_one(bucket) as usize % BUCKET_EPOCHS]
    }

    fn shard(&self, object: ObjectId) -> &Mutex<LruCache<ObjectId, Known>> {
        &self.shards[usize::from(object.0[0]) % SHARDS]
    }
}

impl Known {
    fn remembered(&self, epoch: Epoch) -> Remembered {
        Remembered {
            version: Arc::clone(&self.version),
            checksums: self.checksums,
            overtaken: self.epoch != Some(epoch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: CallerId = CallerId(0);
    const BOB: CallerId = CallerId(1);
    const FOREVER: Duration = Duration::MAX;

    struct Story {
        catalog: Catalog,
        name: ObjectName,
        now: Instant,
    }

    impl Story {
        fn new() -> Self {
            let name = ObjectName {
                bucket: "b".into(),
                key: b"k".as_slice().into(),
                version: None,
            };
            Self {
                catalog: Catalog::default(),
                name,
                now: crate::clock::instant(),
            }
        }

        fn version(&self, etag: &str) -> Arc<Version> {
            let object = self.name.id("lake");
            Arc::new(Version {
                id: Version::id_of(object, etag, 1),
                object,
                etag: etag.into(),
                size_bytes: 1,
                block_bytes: 4,
                last_modified: None,
                headers: http::HeaderMap::new(),
            })
        }

        fn learn(&self, caller: CallerId, etag: &str) {
            let asked = (self.catalog.epoch(&self.name), self.now);
            self.catalog
                .learn(caller, &self.name, &self.version(etag), Checksums::Unasked, asked);
        }

        fn granted(&self, caller: CallerId, reuse: Duration, later: Duration) -> bool {
            let epoch = self.catalog.epoch(&self.name);
            self.catalog
                .granted(caller, self.name.id("lake"), epoch, reuse, self.now + later)
                .is_some()
        }
    }

    #[test]
    fn a_grant_is_one_callers_and_ends_with_its_time() {
        let story = Story::new();
        story.learn(ALICE, "1");
        assert!(story.granted(ALICE, FOREVER, Duration::from_secs(9999)));
        assert!(
            !story.granted(BOB, FOREVER, Duration::ZERO),
            "a yes to Alice is no yes to Bob"
        );
        assert!(story.granted(ALICE, Duration::from_secs(30), Duration::from_secs(29)));
        assert!(!story.granted(ALICE, Duration::from_secs(30), Duration::from_secs(30)));
        assert!(
            !story.granted(ALICE, Duration::ZERO, Duration::ZERO),
            "revalidate reuses nothing"
        );
    }

    #[test]
    fn a_write_through_us_voids_grants_but_keeps_the_version_to_ask_about() {
        let story = Story::new();
        story.learn(ALICE, "1");
        story.catalog.forget_object(&story.name);
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
        let remembered = story
            .catalog
            .remembered(story.name.id("lake"), story.catalog.epoch(&story.name));
        assert!(remembered.is_some_and(|remembered| remembered.overtaken));
        story.learn(ALICE, "1");
        story.catalog.forget_bucket("b");
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
    }

    #[test]
    fn an_answer_that_a_write_overtook_is_not_kept() {
        let story = Story::new();
        let asked = (story.catalog.epoch(&story.name), story.now);
        story.catalog.forget_object(&story.name);
        story
            .catalog
            .learn(ALICE, &story.name, &story.version("1"), Checksums::Unasked, asked);
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
    }

    #[test]
    fn a_new_version_takes_the_grants_of_the_old_one_away() {
        let story = Story::new();
        story.learn(ALICE, "1");
        story.learn(BOB, "2");
        assert!(
            !story.granted(ALICE, FOREVER, Duration::ZERO),
            "Alice was told about another version"
        );
        assert!(story.granted(BOB, FOREVER, Duration::ZERO));
    }

    #[test]
    fn a_version_that_was_written_is_one_to_ask_about_and_nobodys_permission() {
        let story = Story::new();
        let remembered = || {
            let epoch = story.catalog.epoch(&story.name);
            story.catalog.remembered(story.name.id("lake"), epoch).unwrap()
        };
        story.catalog.introduce(&story.version("1"));
        assert_eq!(&*remembered().version.etag, "1");
        assert!(remembered().overtaken, "its headers are the lake's to tell");
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
        story.learn(ALICE, "1");
        assert!(!remembered().overtaken);
        story.catalog.introduce(&story.version("2"));
        assert_eq!(
            &*remembered().version.etag,
            "1",
            "what the lake has said is known better"
        );
        assert!(story.granted(ALICE, FOREVER, Duration::ZERO));
    }

    #[test]
    fn grants_of_one_object_are_bounded() {
        let story = Story::new();
        for caller in 0..=GRANTS_PER_OBJECT as u32 {
            story.learn(CallerId(caller), "1");
        }
        assert!(!story.granted(CallerId(0), FOREVER, Duration::ZERO));
        assert!(story.granted(CallerId(1), FOREVER, Duration::ZERO));
    }
}
