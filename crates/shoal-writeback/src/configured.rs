//! The tiers as they are configured: opens their stores.

use std::sync::Arc;
use std::time::Duration;

use shoal_base::causes;
use shoal_cache::write::WriteConfig;
use shoal_net::endpoint::{Endpoint, LakeConfig, NodeCredentials};
use shoal_net::limits::Limits;
use shoal_policy::cleaning::FLUSHES_MAX;
use shoal_registry::worker::Pace;

use crate::dirty::{TierError, TierSettings};
use crate::tier::{
    ByteStore, FolderStore, S3Store, S3StoreConfig, StorageClasses, TierConfig, TierStoreConfig,
};

/// A tier's store is close to the node: beyond these limits it counts as down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Age without a new part after which an upload is aborted.
const UPLOAD_AGE: Duration = Duration::from_hours(24 * 7);

/// Opens the store of each tier.
///
/// # Errors
///
/// Fails if a store cannot be used as configured.
pub async fn open(
    tiers: &[TierConfig],
    limits: &Limits,
) -> Result<Vec<(TierConfig, Arc<dyn ByteStore>)>, TierError> {
    let mut opened = Vec::with_capacity(tiers.len());
    for tier in tiers {
        let store: Result<Arc<dyn ByteStore>, String> = match &tier.store {
            TierStoreConfig::Folder(folder) => match FolderStore::open(folder.clone()).await {
                Ok(store) => Ok(Arc::new(store)),
                Err(error) => Err(error.to_string()),
            },
            TierStoreConfig::S3(bucket) => open_bucket(bucket, limits).await,
        };
        let store = store.map_err(|problem| TierError::new(&tier.name, &problem))?;
        opened.push((tier.clone(), store));
    }
    Ok(opened)
}

async fn open_bucket(bucket: &S3StoreConfig, limits: &Limits) -> Result<Arc<dyn ByteStore>, String> {
    let store = LakeConfig {
        endpoint: bucket.endpoint.clone(),
        region: bucket.region.clone(),
        ca_file: bucket.ca_file.clone(),
        access_key: bucket.keys.as_ref().map(|keys| keys.access_key.clone()),
        secret_key: bucket.keys.as_ref().map(|keys| keys.secret_key.clone()),
        connect_timeout: CONNECT_TIMEOUT,
        answer_timeout: ANSWER_TIMEOUT,
        write_timeout: ANSWER_TIMEOUT,
        ..LakeConfig::default()
    };
    let credentials = NodeCredentials::resolve(&store).await;
    let credentials = credentials.map_err(|error| error.to_string())?;
    let endpoint = Endpoint::new(&store, limits, credentials).map_err(|error| causes::line(&error))?;
    let classes = StorageClasses {
        large: bucket.class_large.clone(),
        large_bytes: S3StoreConfig::LARGE_BYTES,
    };
    Ok(Arc::new(S3Store::new(
        Arc::new(endpoint),
        &bucket.bucket,
        classes,
    )))
}

/// Returns the settings of this node that apply to every tier.
pub fn settings(write: &WriteConfig, lake: &LakeConfig) -> TierSettings {
    TierSettings {
        pace: Pace {
            age: write.age,
            short_age: write.short_age(),
            holds: true,
            parallel: FLUSHES_MAX,
            upload_age: UPLOAD_AGE,
        },
        // A request ends when the lake has sent no byte for the stall timeout. The factor allows for a
        // request that the lake executes late.
        fence: lake.stall_timeout() * 2,
        permission: write.permission,
    }
}
