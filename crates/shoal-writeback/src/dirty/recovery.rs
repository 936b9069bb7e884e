//! Recovers a lost registry from the receipts in its tier's store (dissertation 4.5.4).
//!
//! Nodes do not use the new registry before it is whole (`shoal_registry::engine::checked`): the last step
//! records that it has begun. A recovery that breaks off is run again.
//!
//! The first step waits: for the sessions of nodes that may have lost the old registry just now, and then for
//! the fence. After that, no flush that began under the old registry reaches the lake any more, where it
//! could overwrite a newer one, and each write that was refused for want of the registry has taken its
//! receipt back.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{StreamExt, TryStreamExt};
use serde::Serialize;
use shoal_registry::Name;
use shoal_registry::engine::EngineError;
use shoal_registry::names::{ChangeError, Names};
use shoal_registry::receipts::RECEIPTS;
use shoal_registry::references::Reference;
use shoal_registry::session::new_id;
use shoal_s3::time::rfc3339;
use ulid::{ULID_LEN, Ulid};

use super::stock::receipts::StoredReceipts;
use super::tiers::{SESSION, TierError, open_registry};
use crate::tier::{ByteStore, StoreError, TierConfig};

/// Number of receipts that are read, and of entries that are written, at a time.
const PARALLEL: usize = 32;

/// Number of pieces on a page of the store's listing.
const PAGE: usize = 1000;

/// The most names and keys that a recovery names. The others are counted.
const NAMED_MAX: usize = 100;

/// What a recovery has found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// The receipts that were read.
    pub receipts: u64,
    /// The objects that are dirty in the new registry.
    pub objects: u64,
    /// The removals that the lake has not carried out yet.
    pub removals: u64,
    /// The dirty objects some of whose pieces are missing from the store.
    pub damaged: Listed,
    /// The keys of receipts that cannot be read.
    pub unreadable: Listed,
    /// True if nodes may use the registry now.
    pub is_whole: bool,
}

/// The number of some things, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// How many there are.
    pub count: u64,
    /// At most 100 of them.
    pub first: Vec<String>,
}

impl Listed {
    fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push(what());
        }
    }
}

/// Recovers the registry of a tier. `fence` is the time after which the lake no longer carries out a
/// request that its sender has abandoned. Receipts that cannot be read are left out if `skips_unreadable`;
/// otherwise the registry does not become whole with any.
///
/// # Errors
///
/// The registry is not lost, is in use, or does not answer; or the store does not.
pub async fn recover(
    config: &TierConfig,
    store: &Arc<dyn ByteStore>,
    fence: Duration,
    skips_unreadable: bool,
) -> Result<Recovery, TierError> {
    let failed = |why: &dyn ToString| TierError::new(&config.name, &why.to_string());
    let engine = open_registry(&config.name, &config.registry).await;
    let names = Names::new(engine.map_err(|error| failed(&error))?, 0, Duration::ZERO);
    let registry = |error: EngineError| failed(&error);
    if let Some(began) = names.beginning().await.map_err(registry)? {
        let began = rfc3339(began.datetime());
        return Err(failed(&format!(
            "its registry is not lost: it has been in use since {began}\nhint: set up an empty one first, and write its \
             address into the settings; a registry that a backup brought back must be emptied"
        )));
    }
    if names.is_in_use().await.map_err(registry)? {
        let problem = "a node has a session with its registry\nhint: stop the nodes, and run this again after ten seconds";
        return Err(failed(&problem));
    }
    tokio::time::sleep(SESSION + fence).await;
    let pieces = Pieces::of(store).await.map_err(|error| failed(&error))?;
    let recovered = restore(&names, store, &pieces).await;
    let mut recovery = recovered.map_err(|error| failed(&error))?;
    if recovery.unreadable.count == 0 || skips_unreadable {
        let began = pieces.oldest.unwrap_or_else(new_id);
        names.began(began).await.map_err(registry)?;
        recovery.is_whole = true;
    }
    Ok(recovery)
}

/// The pieces of objects in a store.
struct Pieces {
    keys: HashSet<Arc<str>>,
    /// The id in the oldest key. The registry counts as begun then, so that the sweep removes what is not
    /// needed.
    oldest: Option<Ulid>,
}

impl Pieces {
    async fn of(store: &Arc<dyn ByteStore>) -> Result<Self, StoreError> {
        let (mut keys, mut oldest) = (HashSet::new(), None);
        let mut all = pin!(store.all(PAGE));
        while let Some(piece) = all.try_next().await? {
            let id = piece
                .key
                .len()
                .checked_sub(ULID_LEN)
                .and_then(|start| piece.key.get(start..));
            let id = id.and_then(|id| Ulid::from_string(id).ok());
            oldest = oldest.into_iter().chain(id).min();
            if !piece.key.starts_with(RECEIPTS) {
                keys.insert(piece.key);
            }
        }
        Ok(Self { keys, oldest })
    }
}

/// A recovery cannot go on.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Registry(#[from] ChangeError),
}

async fn restore(
    names: &Names,
    store: &Arc<dyn ByteStore>,
    pieces: &Pieces,
) -> Result<Recovery, RestoreError> {
    let receipts = StoredReceipts::new(Arc::clone(store), false);
    let mut recovery = Recovery::default();
    // The versions whose pieces are missing. Those of replaced versions may be.
    let mut lacking: HashMap<Name, Vec<Ulid>> = HashMap::new();
    let listed = receipts.below(RECEIPTS.into()).map_err(RestoreError::from);
    let read = listed.map(|piece| async {
        let piece = piece?;
        let Ok((name, version)) = receipts.read(&piece).await else {
            return Ok((piece.key, None));
        };
        names.restore(&name, &version).await?;
        Ok::<_, RestoreError>((piece.key, Some((name, version))))
    });
    let mut read = pin!(read.buffer_unordered(PARALLEL));
    while let Some((key, restored)) = read.try_next().await? {
        let Some((name, version)) = restored else {
            recovery.unreadable.add(|| key.to_string());
            continue;
        };
        recovery.receipts += 1;
        if !version.data.iter().all(|key| pieces.keys.contains(key)) {
            lacking.entry(name).or_default().push(version.id);
        }
    }
    count(names, &lacking, &mut recovery).await?;
    Ok(recovery)
}

/// Counts what the registry has now.
async fn count(
    names: &Names,
    lacking: &HashMap<Name, Vec<Ulid>>,
    recovery: &mut Recovery,
) -> Result<(), RestoreError> {
    let mut references = pin!(names.references(PAGE).map_err(ChangeError::from));
    while let Some(reference) = references.try_next().await? {
        let Reference::Object(name, version) = reference else {
            continue;
        };
        if version.is_tombstone {
            recovery.removals += 1;
            continue;
        }
        recovery.objects += 1;
        if lacking.get(&name).is_some_and(|ids| ids.contains(&version.id)) {
            let (bucket, key) = name.parts();
            recovery
                .damaged
                .add(|| format!("s3://{}/{}", bucket.escape_ascii(), key.escape_ascii()));
        }
    }
    Ok(())
}
