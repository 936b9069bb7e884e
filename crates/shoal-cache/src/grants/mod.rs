//! Remembers the current version of each object, and which callers the lake has granted it to.
//!
//! A positive answer of the lake is a *grant*: this caller may read this object, and this version is current.
//! The reader decides how long a grant may be reused ([`crate::grants::freshness`]). A refusal is never
//! stored; it revokes the caller's grant. Every write through this node advances an *epoch*, which voids
//! earlier grants, including those whose answer was still in flight.

pub mod freshness;

use std::hash::BuildHasher;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use lru::LruCache;
use parking_lot::Mutex;
use shoal_directory::names::Tokens;
use shoal_policy::ObjectId;
use shoal_s3::identity::CallerId;
use shoal_s3::object::{ObjectName, Version};

const SHARDS: usize = 16;
/// Versions kept in memory, in all shards together; at one to two KiB each this bounds [`Grants`] to about 24
/// MiB.
const OBJECTS: usize = 16_384;
/// Callers remembered per object; the least recently granted one is dropped first.
const GRANTS_PER_OBJECT: usize = 64;
/// Names share an epoch by hash: a collision costs a request to the lake, never a wrong answer.
const OBJECT_EPOCHS: usize = 4096;
const BUCKET_EPOCHS: usize = 256;
/// Counters of refusals are shared in the same way: a collision only prevents an answer from being
/// remembered.
const REFUSALS: usize = 4096;

/// Grants, and the most recent version of each object; bounded, and safe to lose.
#[derive(Debug)]
pub struct Grants {
    shards: Vec<Mutex<LruCache<ObjectId, KnownObject>>>,
    object_epochs: Vec<AtomicU64>,
    bucket_epochs: Vec<AtomicU64>,
    refusals: Vec<AtomicU64>,
    hasher: foldhash::fast::RandomState,
}

/// Epochs when the lake was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Epoch {
    object: u64,
    bucket: u64,
}

/// State when the lake was asked about an object. It accompanies the answer, to detect that a write or a
/// refusal has overtaken it.
#[derive(Clone, Copy, Debug)]
pub struct QuestionStamp {
    at: Instant,
    epoch: Epoch,
    /// Number of times that the lake had refused this object to this caller.
    refusals: u64,
    /// The tokens of the object, if it is coherent and they were known.
    pub tokens: Option<Tokens>,
}

#[derive(Debug)]
struct KnownObject {
    version: Arc<Version>,
    checksums: Checksums,
    grants: Vec<Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    caller: CallerId,
    at: Instant,
    epoch: Epoch,
    tokens: Option<Tokens>,
}

impl QuestionStamp {
    /// Returns the stamp with the tokens that a coherent object had beforehand.
    #[must_use]
    pub fn with_tokens(self, tokens: Option<Tokens>) -> Self {
        Self { tokens, ..self }
    }
}

/// How the headers of a version were requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// With `x-amz-checksum-mode: ENABLED`: they include every checksum that the lake has.
    Requested,
    /// Without: a client that wants checksums must ask the lake.
    NotRequested,
}

/// Returns true if the lake's answer refuses this object to this caller.
pub fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND
    )
}

impl Default for Grants {
    fn default() -> Self {
        let per_shard = NonZeroUsize::new(OBJECTS / SHARDS).expect("a shard holds something");
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            shards: (0..SHARDS)
                .map(|_| Mutex::new(LruCache::new(per_shard)))
                .collect(),
            object_epochs: zeros(OBJECT_EPOCHS),
            bucket_epochs: zeros(BUCKET_EPOCHS),
            refusals: zeros(REFUSALS),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Grants {
    /// Returns the version last seen, current or not.
    pub fn version(&self, object: ObjectId) -> Option<Arc<Version>> {
        self.known(object).map(|(version, _)| version)
    }

    /// Returns the version last seen, current or not, and how its headers were requested.
    pub fn known(&self, object: ObjectId) -> Option<(Arc<Version>, Checksums)> {
        let mut shard = self.shard(object).lock();
        let known = shard.get(&object)?;
        Some((Arc::clone(&known.version), known.checksums))
    }

    /// Returns a stamp for a request about an object that is about to be sent.
    pub fn stamp(
        &self,
        caller: CallerId,
        name: &ObjectName,
        object: ObjectId,
        now: Instant,
    ) -> QuestionStamp {
        QuestionStamp {
            at: now,
            epoch: self.epoch(name),
            refusals: self.refusals(caller, object).load(Ordering::Acquire),
            tokens: None,
        }
    }

    /// Returns the current version if the lake granted it to this caller less than `reuse` before `stamp`,
    /// and no write has voided the grant: a write through this node or, for a coherent object, through any
    /// node. Also returns if its headers were requested with checksums.
    pub fn granted(
        &self,
        caller: CallerId,
        object: ObjectId,
        stamp: QuestionStamp,
        reuse: Duration,
    ) -> Option<(Arc<Version>, Checksums)> {
        let mut shard = self.shard(object).lock();
        let known = shard.get(&object)?;
        let grant = known.grants.iter().find(|grant| grant.caller == caller)?;
        let holds = grant.epoch == stamp.epoch
            && grant.tokens == stamp.tokens
            && stamp.at.saturating_duration_since(grant.at) < reuse;
        holds.then(|| (Arc::clone(&known.version), known.checksums))
    }

    /// Records that the lake granted the object to `caller`. Other reads may reuse the grant only if
    /// `reusable`.
    ///
    /// An answer that a write or a refusal has overtaken is not recorded: the caller may use it for this read
    /// only.
    pub fn learn(
        &self,
        caller: CallerId,
        name: &ObjectName,
        version: &Arc<Version>,
        checksums: Checksums,
        stamp: QuestionStamp,
        reusable: bool,
    ) {
        let object = version.object;
        let mut shard = self.shard(object).lock();
        // Compared under the lock that a refusal takes after counting itself.
        let refusals = self.refusals(caller, object).load(Ordering::Acquire);
        if self.epoch(name) != stamp.epoch || refusals != stamp.refusals {
            return;
        }
        let known = shard.get_or_insert_mut(object, || KnownObject {
            version: Arc::clone(version),
            checksums,
            grants: Vec::new(),
        });
        if known.version.id != version.id {
            // Grants of another version do not carry over.
            known.grants.clear();
        }
        known.version = Arc::clone(version);
        known.checksums = checksums;
        if reusable {
            known.grants.retain(|other| other.caller != caller);
            if known.grants.len() == GRANTS_PER_OBJECT {
                known.grants.remove(0);
            }
            debug_assert!(known.grants.len() < GRANTS_PER_OBJECT, "grants are bounded");
            known.grants.push(Grant {
                caller,
                at: stamp.at,
                epoch: stamp.epoch,
                tokens: stamp.tokens,
            });
        }
    }

    /// Revokes the caller's grant because the lake has refused the caller. A grant whose answer is still in
    /// flight is older than this refusal, and is dropped.
    pub fn revoke(&self, caller: CallerId, object: ObjectId) {
        self.refusals(caller, object).fetch_add(1, Ordering::AcqRel);
        let mut shard = self.shard(object).lock();
        if let Some(known) = shard.peek_mut(&object) {
            known.grants.retain(|grant| grant.caller != caller);
        }
    }

    /// Returns a function that revokes the caller's grant.
    pub fn revoker(self: &Arc<Self>, caller: CallerId, object: ObjectId) -> Arc<dyn Fn() + Send + Sync> {
        let grants = Arc::clone(self);
        Arc::new(move || grants.revoke(caller, object))
    }

    /// Records a version that was written here, unless one is known. A reader then asks the lake only for the
    /// headers and not for the bytes. Grants nothing to any caller.
    pub fn introduce(&self, version: &Arc<Version>) {
        let mut shard = self.shard(version.object).lock();
        if !shard.contains(&version.object) {
            let known = KnownObject {
                version: Arc::clone(version),
                checksums: Checksums::NotRequested,
                grants: Vec::new(),
            };
            shard.put(version.object, known);
        }
    }

    /// Voids every grant for the object (whatever its `versionId`).
    pub fn invalidate_object(&self, name: &ObjectName) {
        self.object_epoch(name).fetch_add(1, Ordering::AcqRel);
    }

    /// Voids every grant for the bucket's objects.
    pub fn invalidate_bucket(&self, bucket: &str) {
        self.bucket_epoch(bucket).fetch_add(1, Ordering::AcqRel);
    }

    fn epoch(&self, name: &ObjectName) -> Epoch {
        Epoch {
            object: self.object_epoch(name).load(Ordering::Acquire),
            bucket: self.bucket_epoch(&name.bucket).load(Ordering::Acquire),
        }
    }

    fn refusals(&self, caller: CallerId, object: ObjectId) -> &AtomicU64 {
        &self.refusals[self.hasher.hash_one((caller, object)) as usize % REFUSALS]
    }

    fn object_epoch(&self, name: &ObjectName) -> &AtomicU64 {
        let slot = self.hasher.hash_one((&name.bucket, &name.key)) as usize % OBJECT_EPOCHS;
        &self.object_epochs[slot]
    }

    fn bucket_epoch(&self, bucket: &str) -> &AtomicU64 {
        &self.bucket_epochs[self.hasher.hash_one(bucket) as usize % BUCKET_EPOCHS]
    }

    fn shard(&self, object: ObjectId) -> &Mutex<LruCache<ObjectId, KnownObject>> {
        &self.shards[usize::from(object.0[0]) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: CallerId = CallerId(0);
    const BOB: CallerId = CallerId(1);
    const FOREVER: Duration = Duration::MAX;

    struct Story {
        grants: Grants,
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
                grants: Grants::default(),
                name,
                now: shoal_net::clock::instant(),
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
            self.learn_of(caller, etag, self.stamp(caller, Duration::ZERO), true);
        }

        fn learn_of(&self, caller: CallerId, etag: &str, stamp: QuestionStamp, reusable: bool) {
            let version = self.version(etag);
            self.grants.learn(
                caller,
                &self.name,
                &version,
                Checksums::NotRequested,
                stamp,
                reusable,
            );
        }

        fn stamp(&self, caller: CallerId, later: Duration) -> QuestionStamp {
            let object = self.name.id("lake");
            self.grants.stamp(caller, &self.name, object, self.now + later)
        }

        fn known(&self) -> Arc<str> {
            let version = self.grants.version(self.name.id("lake"));
            Arc::clone(&version.unwrap().etag)
        }

        fn granted(&self, caller: CallerId, reuse: Duration, later: Duration) -> bool {
            let stamp = self.stamp(caller, later);
            self.grants
                .granted(caller, self.name.id("lake"), stamp, reuse)
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
        story.grants.invalidate_object(&story.name);
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
        assert_eq!(&*story.known(), "1");
        story.learn(ALICE, "1");
        story.grants.invalidate_bucket("b");
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
    }

    #[test]
    fn an_answer_that_a_write_overtook_is_not_kept() {
        let story = Story::new();
        let stamp = story.stamp(ALICE, Duration::ZERO);
        story.grants.invalidate_object(&story.name);
        story.learn_of(ALICE, "1", stamp, true);
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
    }

    #[test]
    fn a_refusal_ends_one_callers_grant_and_the_yes_that_is_still_on_its_way() {
        let story = Story::new();
        let object = story.name.id("lake");
        story.learn(ALICE, "1");
        story.learn(BOB, "1");
        let stamp = story.stamp(ALICE, Duration::ZERO);
        story.grants.revoke(ALICE, object);
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
        assert!(
            story.granted(BOB, FOREVER, Duration::ZERO),
            "Bob was told nothing"
        );
        story.learn_of(ALICE, "1", stamp, true);
        assert!(
            !story.granted(ALICE, FOREVER, Duration::ZERO),
            "stamp before the refusal"
        );
        story.learn(ALICE, "1");
        assert!(story.granted(ALICE, FOREVER, Duration::ZERO), "stamp after it");
    }

    #[test]
    fn a_yes_to_a_question_of_its_own_kind_teaches_the_version_and_grants_nothing() {
        let story = Story::new();
        story.learn_of(ALICE, "1", story.stamp(ALICE, Duration::ZERO), false);
        assert_eq!(&*story.known(), "1");
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
        story.learn(ALICE, "1");
        story.learn_of(ALICE, "1", story.stamp(ALICE, Duration::ZERO), false);
        assert!(
            story.granted(ALICE, FOREVER, Duration::ZERO),
            "an older yes stands"
        );
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
    fn a_written_version_is_one_to_ask_about_and_permits_no_caller() {
        let story = Story::new();
        story.grants.introduce(&story.version("1"));
        assert_eq!(&*story.known(), "1");
        assert!(!story.granted(ALICE, FOREVER, Duration::ZERO));
        story.learn(ALICE, "1");
        story.grants.introduce(&story.version("2"));
        assert_eq!(&*story.known(), "1", "what the lake has said is known better");
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
