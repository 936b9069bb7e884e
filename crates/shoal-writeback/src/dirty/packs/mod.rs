//! Objects in packs: small objects that the lake has many in one (dissertation 4.5.5, decision 0048).
//!
//! ```text
//! map       the root in the registry ─▶ tables as files of this node ─▶ the pack and range of a name
//! commit    a change of the map ─▶ the next table at the lake ─▶ the root
//! keeper    tables ─▶ fewer tables; packs ─▶ fuller packs; what no node needs ─▶ removed from the lake
//! object    a row of a table ─▶ the version that reads return, and its bytes
//! rebuild   tables, or packs, at the lake ─▶ a root that the registry has lost
//! at_lake   requests about packs and tables
//! ```

mod at_lake;
mod commit;
mod ending;
mod files;
mod keeper;
mod map;
mod object;
mod rebuild;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, pending};
use sha2::{Digest as _, Sha256};
use shoal_base::hex;
use shoal_cache::write::{PackSettings, WriteRules};
use shoal_net::endpoint::Endpoint;
use shoal_registry::MapName;
use shoal_registry::roots::Roots;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::{Caller, Identities};
use shoal_s3::object::ObjectName;
use shoal_store::Store;

pub(crate) use self::at_lake::{NotRead, PacksAtLake, SentRange};
pub(crate) use self::commit::{MapChange, NotCommitted};
pub(crate) use self::files::TableFiles;
pub(crate) use self::keeper::Keeper;
pub(crate) use self::map::{Look, MapError, MapParts, PackMap};
pub(crate) use self::object::{BytesInMemory, MemberBytes, PackedObject, description};
pub(crate) use self::rebuild::Rebuilt;
use crate::tier::Damages;

/// The folder of all maps, in the folder of the node.
const MAPS: &str = "packs";

/// The maps of all rules that pack.
pub(crate) struct Packs {
    rules: WriteRules,
    identities: Arc<Identities>,
    /// By the number of the rule.
    maps: HashMap<usize, Arc<PackMap>>,
    /// The packs and tables that are not as they were written.
    damages: Arc<Damages>,
}

/// The parts of a node that its maps use.
pub(crate) struct PacksParts {
    pub(crate) rules: WriteRules,
    pub(crate) lake: Arc<Endpoint>,
    pub(crate) store: Arc<Store>,
    pub(crate) identities: Arc<Identities>,
    /// The time after which the lake can no longer carry out a request that its sender has abandoned.
    pub(crate) fence: Duration,
}

/// The map of a rule cannot be used.
#[derive(Debug)]
pub(crate) struct PacksError {
    /// The position of the rule's tier in the configuration.
    pub(crate) tier: usize,
    pub(crate) problem: PacksProblem,
}

/// The reason why the map of a rule cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PacksProblem {
    /// `pack_as` names no identity.
    #[error("no [[identity]] has the access key {0}, which pack_as of a rule names")]
    NoKeeper(String),
    /// The disk fails.
    #[error("the files of the map of s3://{bucket} cannot be opened in the cache: {error}")]
    Disk {
        /// The bucket of the rule.
        bucket: String,
        /// The reason.
        error: io::Error,
    },
}

impl Packs {
    /// Opens the maps of all rules that pack. Files of other maps are removed. `roots` are those of the tier
    /// at a position of the configuration.
    ///
    /// # Errors
    ///
    /// A keeper is unknown, or the disk fails.
    pub(crate) async fn open(parts: PacksParts, roots: impl Fn(usize) -> Roots) -> Result<Self, PacksError> {
        let (mut maps, damages) = (HashMap::new(), Arc::<Damages>::default());
        let mut folders = Vec::new();
        for rule in parts.rules.packing() {
            let Some(settings) = &rule.pack else { continue };
            let keeper = &settings.config.keeper;
            let tier = rule.tier;
            let failed = |problem| PacksError { tier, problem };
            let keeper = parts.identities.get(keeper);
            let unknown = || failed(PacksProblem::NoKeeper(settings.config.keeper.clone()));
            let keeper = keeper.ok_or_else(unknown)?;
            let (lake, caller) = (Arc::clone(&parts.lake), Caller::Identity(keeper));
            let (bucket, prefix) = (&settings.bucket, &settings.key_prefix);
            let folder = folder_name(settings);
            let map_parts = MapParts {
                settings: Arc::clone(settings),
                roots: roots(tier),
                at_lake: PacksAtLake::new(lake, bucket, prefix, caller),
                files: open_files(&parts.store, &folder, bucket).await.map_err(failed)?,
                fence: parts.fence,
                damages: Arc::clone(&damages),
            };
            folders.push(folder);
            let map = PackMap::new(MapName::new(bucket, prefix), map_parts);
            maps.insert(rule.number, Arc::new(map));
        }
        remove_others(&parts.store.node_folder().join(MAPS), &folders);
        Ok(Self {
            rules: parts.rules,
            identities: parts.identities,
            maps,
            damages,
        })
    }

    /// Returns the map of the rule that covers a name, if the rule packs.
    pub(crate) fn of(&self, name: &ObjectName) -> Option<&Arc<PackMap>> {
        self.maps.get(&self.rules.back_rule(name)?.number)
    }

    /// Returns true if the name is that of a pack or a table, or lies among them: not one for clients.
    pub(crate) fn hide(&self, name: &ObjectName) -> bool {
        self.of(name).is_some_and(|map| map.at_lake.covers(name))
    }

    /// Returns the map of this name.
    pub(crate) fn named(&self, name: &MapName) -> Option<&Arc<PackMap>> {
        self.all().find(|map| map.name() == name)
    }

    /// Checks that a client may use a name.
    ///
    /// # Errors
    ///
    /// It is that of a pack or a table.
    pub(crate) fn permit(&self, name: &ObjectName) -> Result<(), S3Error> {
        if self.hide(name) {
            return Err(S3Error::new(
                ErrorCode::AccessDenied,
                "Access Denied: Shoal keeps packs of small objects under this name.",
            ));
        }
        Ok(())
    }

    /// All maps.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<PackMap>> {
        self.maps.values()
    }

    /// Returns the maps that may have objects of `bucket` whose keys begin with `prefix`.
    pub(crate) fn below(&self, bucket: &str, prefix: &[u8]) -> impl Iterator<Item = &Arc<PackMap>> {
        self.maps.values().filter(move |map| {
            let (of_bucket, of_prefix) = map.name().parts();
            let overlaps = of_prefix.starts_with(prefix) || prefix.starts_with(of_prefix);
            of_bucket == bucket.as_bytes() && overlaps
        })
    }

    /// The packs and tables that are not as they were written, for operators.
    pub(crate) fn damages(&self) -> &Arc<Damages> {
        &self.damages
    }

    /// Keeps all maps current, and those whose keeper this node is, while the node runs.
    pub(crate) async fn run(&self) -> Infallible {
        let maps: Vec<_> = self.all().map(|map| self.run_map(map)).collect();
        join_all(maps).await;
        pending().await
    }

    async fn run_map(&self, map: &Arc<PackMap>) -> Infallible {
        map.begin_again().await;
        let keeper = Keeper::new(Arc::clone(map), Arc::clone(&self.identities));
        tokio::select! {
            current = map.keep_current() => match current {},
            kept = keeper.run() => match kept {},
        }
    }
}

async fn open_files(store: &Arc<Store>, folder: &str, bucket: &str) -> Result<TableFiles, PacksProblem> {
    let (store, folder) = (Arc::clone(store), folder.to_owned());
    let opening = tokio::task::spawn_blocking(move || {
        let folder = store.node_folder().join(MAPS).join(folder);
        TableFiles::open(&store, folder)
    });
    let opened = opening.await.expect("opening tables does not panic");
    opened.map_err(|error| PacksProblem::Disk {
        bucket: bucket.into(),
        error,
    })
}

/// Returns the name of the folder of a map: a digest, because prefixes may be long and have any bytes.
fn folder_name(settings: &PackSettings) -> String {
    let name = [settings.bucket.as_bytes(), b"/", &settings.key_prefix].concat();
    hex::text(&Sha256::digest(name)[..16])
}

/// Removes the folders of maps that have no rule any more.
fn remove_others(maps: &Path, folders: &[String]) {
    let Ok(entries) = fs::read_dir(maps) else { return };
    for entry in entries.flatten() {
        let is_used = entry
            .file_name()
            .to_str()
            .is_some_and(|name| folders.iter().any(|used| used == name));
        if !is_used && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "the tables of a former rule stay on the disk");
        }
    }
}
