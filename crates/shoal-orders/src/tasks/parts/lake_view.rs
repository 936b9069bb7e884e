//! The lake as the identity of a task sees it: which objects exist, which versions, and what is in them.

use std::future::poll_fn;
use std::sync::Arc;

use http::HeaderMap;
use shoal_cache::blocks::{BlockReader, BlockStream, ReadAheadWindow};
use shoal_cache::lake::{LakeRefusal, PAGE_KEYS, PackPlace, PageRequest, Wanted};
use shoal_cache::obtain::Obtain;
use shoal_cache::read_context::{Purpose, ReadContext};
use shoal_cache::single_flight::FetchError;
use shoal_policy::Layer;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;
use shoal_s3::target;
use shoal_s3::xml::ListedObject;

use super::TaskParts;
use super::messages::NotFilled;
use super::nodes::pauses;
use super::task_identity::TaskIdentity;

/// Asks the lake in the name of one identity.
pub struct LakeView {
    parts: Arc<TaskParts>,
    identity: TaskIdentity,
}

/// The reason why an object is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectFailure {
    /// It is left alone.
    #[error("{0}")]
    Skipped(String),
    /// It failed for a reason that may pass.
    #[error("{0}")]
    Failed(String),
    /// The lake does not have it, or does not show it to the identity.
    #[error("{0}")]
    Refused(String),
}

impl ObjectFailure {
    /// Returns the same failure with the path that it is about.
    pub(in crate::tasks) fn of(self, path: &str) -> Self {
        match self {
            Self::Skipped(why) => Self::Skipped(format!("{path}: {why}")),
            Self::Failed(why) => Self::Failed(format!("{path}: {why}")),
            Self::Refused(why) => Self::Refused(format!("{path}: {why}")),
        }
    }
}

impl From<LakeRefusal> for ObjectFailure {
    fn from(refusal: LakeRefusal) -> Self {
        let why = refusal.to_string();
        match refusal {
            LakeRefusal::Refused { .. } => Self::Refused(why),
            LakeRefusal::Uncacheable(_) => Self::Skipped(why),
            LakeRefusal::Trouble(_) => Self::Failed(why),
        }
    }
}

impl From<NotFilled> for ObjectFailure {
    fn from(error: NotFilled) -> Self {
        let why = error.to_string();
        match error {
            NotFilled::Denied(_) => Self::Refused(why),
            _ => Self::Failed(why),
        }
    }
}

impl From<FetchError> for ObjectFailure {
    fn from(error: FetchError) -> Self {
        let why = error.to_string();
        match error {
            FetchError::Status(status) if status.is_client_error() => Self::Refused(why),
            _ => Self::Failed(why),
        }
    }
}

impl LakeView {
    /// Shows the lake behind this node to `identity`.
    pub(in crate::tasks) fn new(parts: &Arc<TaskParts>, identity: TaskIdentity) -> Self {
        Self {
            parts: Arc::clone(parts),
            identity,
        }
    }

    /// Returns the version that a listed object has if its ETag is the one that the lake sends with the
    /// object.
    pub fn listed_version(&self, name: &ObjectName, listed: &ListedObject) -> Version {
        let object = name.id(self.parts.cache().lake.url());
        Version {
            id: Version::id_of(object, &listed.etag, listed.size_bytes),
            object,
            etag: listed.etag.as_str().into(),
            size_bytes: listed.size_bytes,
            block_bytes: self.parts.cache().block_bytes,
            last_modified: None,
            headers: HeaderMap::new(),
        }
    }

    /// Lists a page of the objects of a bucket whose keys begin with `prefix` and are greater than `after`,
    /// in their order. An empty page means that there are no more.
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
        self.parts.lake.list(&self.identity.caller().await, page).await
    }

    /// Returns true if the lake may have an object in a pack.
    pub fn may_be_packed(&self, name: &ObjectName) -> bool {
        self.parts.lake.may_be_packed(name)
    }

    /// Returns the places of wanted versions in packs, see [`Lake::places`](shoal_cache::lake::Lake::places).
    pub async fn places(&self, wanted: &[Wanted<'_>]) -> Vec<Option<PackPlace>> {
        self.parts
            .lake
            .places(&self.identity.caller().await, wanted)
            .await
    }

    /// Returns the current version of an object, if the identity may read it. A lake that does not answer is
    /// asked up to `tries` times.
    pub async fn version(&self, name: &ObjectName, tries: u32) -> Result<Arc<Version>, ObjectFailure> {
        if !target::fits(name) {
            return Err(ObjectFailure::Failed("its name is too long".into()));
        }
        let mut pauses = pauses();
        for _ in 1..tries {
            match self.version_once(name).await {
                Err(LakeRefusal::Trouble(_)) => pauses.wait().await,
                answer => return Ok(answer?),
            }
        }
        Ok(self.version_once(name).await?)
    }

    async fn version_once(&self, name: &ObjectName) -> Result<Arc<Version>, LakeRefusal> {
        self.parts.lake.version(&self.identity.caller().await, name).await
    }

    /// Reads a version whole, through the cache. The identity may read it: the lake has named the version to
    /// it.
    pub async fn bytes(&self, name: &ObjectName, version: &Arc<Version>) -> Result<Vec<u8>, ObjectFailure> {
        let (parts, caller) = (&self.parts, self.identity.caller().await);
        let account = parts.cache().lake.account_for(&caller);
        let context = ReadContext::of_peer(account, caller, Some(name.clone()), HeaderMap::new());
        let context = Arc::new(context.with_purpose(Purpose::Prefetch));
        let kept = parts.lake.kept(&context, version, None).await?;
        let reader = BlockReader {
            fetcher: Arc::clone(&parts.fetcher),
            version: Arc::clone(version),
            context,
            obtain: kept.map_or(Obtain::FromHomes(Layer::L1), Obtain::Kept),
        };
        let range = ByteRange::new(0, version.size_bytes);
        let mut blocks = BlockStream::new(reader, range, ReadAheadWindow { now: 1, max: 1 }, None);
        let mut bytes = Vec::new();
        while let Some(piece) = poll_fn(|context| blocks.poll_next(context)).await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }
}
