//! Objects in packs: small objects that the lake has many in one (dissertation 4.5.5, decision 0048).
//!
//! ```text
//! map       the root in the registry ─▶ tables as files of this node ─▶ the pack and range of a name
//! object    a row of a table ─▶ the version that reads return, and its bytes
//! at_lake   requests about packs and tables
//! ```

mod at_lake;
mod files;
mod map;
mod object;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use sha2::{Digest as _, Sha256};
use shoal_base::hex;
use shoal_cache::write::{PackSettings, WriteRules};
use shoal_net::endpoint::Endpoint;
use shoal_registry::MapName;
use shoal_registry::roots::Roots;
use shoal_s3::identity::{Caller, Identities};
use shoal_s3::object::ObjectName;
use shoal_store::Store;

pub(crate) use self::at_lake::{ListedPack, NotRead, PacksAtLake, folder, get_range, open, size};
pub(crate) use self::files::TableFiles;
pub(crate) use self::map::{Look, MapError, MapParts, PackMap, RootedMap};
pub(crate) use self::object::{BytesInMemory, MemberBytes, PackedObject, description};
use crate::tier::Damages;

/// The folder of all maps, in the folder of the node.
const MAPS: &str = "packs";

/// The maps of all rules that pack.
pub(crate) struct Packs {
    rules: WriteRules,
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

/// The maps of a node cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PacksError {
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
            let keeper = parts.identities.get(keeper);
            let keeper = keeper.ok_or_else(|| PacksError::NoKeeper(settings.config.keeper.clone()))?;
            let (lake, caller) = (Arc::clone(&parts.lake), Caller::Identity(keeper));
            let (bucket, prefix) = (&settings.bucket, &settings.key_prefix);
            let folder = folder_name(settings);
            let map_parts = MapParts {
                roots: roots(rule.tier),
                at_lake: PacksAtLake::new(lake, bucket, prefix, caller),
                files: open_files(&parts.store, &folder, bucket).await?,
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

    /// Keeps all maps current while the node runs.
    pub(crate) async fn keep_current(&self) -> Infallible {
        let maps: Vec<_> = self.all().map(|map| Box::pin(map.keep_current())).collect();
        if maps.is_empty() {
            return std::future::pending().await;
        }
        select_all(maps).await.0
    }
}

async fn open_files(store: &Arc<Store>, folder: &str, bucket: &str) -> Result<TableFiles, PacksError> {
    let (store, folder) = (Arc::clone(store), folder.to_owned());
    let opening = tokio::task::spawn_blocking(move || {
        let folder = store.node_folder().join(MAPS).join(folder);
        TableFiles::open(&store, folder)
    });
    let opened = opening.await.expect("opening tables does not panic");
    opened.map_err(|error| PacksError::Disk {
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
