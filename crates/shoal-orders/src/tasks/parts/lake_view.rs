//! The lake as the identity of a task sees it: which objects there are, and which versions.

use std::sync::Arc;

use http::HeaderMap;
use shoal_cache::lake::{Lake, LakeRefusal, PAGE_KEYS, PageRequest};
use shoal_net::endpoint::Endpoint;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::xml::ListedObject;

/// Asks the lake in the name of one identity.
pub struct LakeView {
    lake: Arc<dyn Lake>,
    /// The URL of the lake, which objects are named by.
    url: Arc<str>,
    caller: Caller,
    block_bytes: u64,
}

impl LakeView {
    /// The lake behind this node, as `caller` sees it.
    pub fn new(lake: &Arc<dyn Lake>, endpoint: &Endpoint, caller: Caller, block_bytes: u64) -> Self {
        Self {
            lake: Arc::clone(lake),
            url: endpoint.url().into(),
            caller,
            block_bytes,
        }
    }

    /// The version that a listed object has if its ETag is the one that the lake sends with the object.
    pub fn listed_version(&self, name: &ObjectName, listed: &ListedObject) -> Version {
        let object = name.id(&self.url);
        Version {
            id: Version::id_of(object, &listed.etag, listed.size_bytes),
            object,
            etag: listed.etag.as_str().into(),
            size_bytes: listed.size_bytes,
            block_bytes: self.block_bytes,
            last_modified: None,
            headers: HeaderMap::new(),
        }
    }

    /// A page of the objects of a bucket whose keys begin with `prefix` and are greater than `after`, in
    /// their order. None means that there are no more.
    pub async fn list(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: &[u8],
    ) -> Result<Vec<ListedObject>, LakeRefusal> {
        let page = PageRequest {
            bucket,
            prefix,
            after: Some(after).filter(|after| !after.is_empty()),
            keys_max: PAGE_KEYS,
        };
        self.lake.list(&self.caller, page).await
    }

    /// The current version of an object, if the identity may read it.
    pub async fn version(&self, name: &ObjectName) -> Result<Arc<Version>, LakeRefusal> {
        self.lake.version(&self.caller, name).await
    }
}
