//! The lake as the identity of a task sees it: which objects there are, and which versions.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable, Version};
use shoal_s3::target;
use shoal_s3::xml::{ListedObject, Listing};

use crate::clock;
pub(crate) use crate::endpoint::s3::PAGE_KEYS;
use crate::endpoint::s3::{CallError, PageRequest, Refusal, S3Client};
use crate::endpoint::{Endpoint, causes};
use crate::fetch::whole_range;
use crate::grants::{Checksums, Grants, is_refusal};
use crate::read_context::{Purpose, ReadContext};

/// Asks the lake in the name of one identity.
pub(crate) struct LakeView {
    lake: Arc<Endpoint>,
    grants: Arc<Grants>,
    caller: Caller,
    block_bytes: u64,
}

/// Why the lake does not say what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LakeRefusal {
    /// It refuses the identity, or has no such bucket or object.
    #[error("the lake answered {0}")]
    Refused(String),
    /// It does not answer, or with an error of its own.
    #[error("{0}")]
    Trouble(String),
    /// The object cannot be cached.
    #[error("the object cannot be cached ({})", .0.as_str())]
    Uncacheable(Uncacheable),
}

impl LakeView {
    /// The lake behind this node, as `caller` sees it.
    pub(crate) fn new(lake: &Arc<Endpoint>, grants: &Arc<Grants>, caller: Caller, block_bytes: u64) -> Self {
        Self {
            lake: Arc::clone(lake),
            grants: Arc::clone(grants),
            caller,
            block_bytes,
        }
    }

    /// How the blocks of an object are fetched.
    pub(crate) fn context(&self, name: &ObjectName) -> Arc<ReadContext> {
        let account = self.lake.account_for(&self.caller);
        let context =
            ReadContext::of_peer(account, self.caller.clone(), Some(name.clone()), HeaderMap::new());
        Arc::new(context.with_purpose(Purpose::Prefetch))
    }

    /// The version that a listed object has if its ETag is the one that the lake sends with the object.
    pub(crate) fn listed_version(&self, name: &ObjectName, listed: &ListedObject) -> Version {
        let object = name.id(self.lake.url());
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

    /// The objects of a bucket whose keys begin with `prefix` and are greater than `after`, in their order.
    /// None means that there are no more: some lakes call a page the last one although others follow.
    pub(crate) async fn list(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: &[u8],
        keys_max: usize,
    ) -> Result<Vec<ListedObject>, LakeRefusal> {
        let client = S3Client::of_caller(&self.lake, &self.caller);
        let page = PageRequest {
            bucket,
            prefix,
            after: Some(after).filter(|after| !after.is_empty()),
            keys_max,
        };
        let (_, Listing { objects, .. }) = client.list(page).await?;
        if objects.iter().any(|object| !object.key.starts_with(prefix)) {
            return Err(LakeRefusal::Trouble(
                "the lake sent keys that were not asked for".into(),
            ));
        }
        Ok(objects)
    }

    /// The current version of an object, if the lake lets the identity read it.
    pub(crate) async fn version(&self, name: &ObjectName) -> Result<Arc<Version>, LakeRefusal> {
        if !target::fits(name) {
            return Err(LakeRefusal::Trouble("its name is too long".into()));
        }
        let (caller, object) = (self.caller.id(), name.id(self.lake.url()));
        let stamp = self.grants.stamp(caller, name, object, clock::instant());
        let answer = self.lake.send(self.context(name).request(Method::HEAD)).await;
        let head = answer
            .map_err(|error| LakeRefusal::Trouble(causes(&error)))?
            .into_parts()
            .0;
        if head.status != StatusCode::OK {
            if is_refusal(head.status) {
                self.grants.revoke(caller, object);
            }
            return Err(Refusal {
                status: head.status,
                error: None,
            }
            .into());
        }
        let size_bytes = whole_range(&head.headers).map(|(_, size_bytes)| size_bytes);
        let size_bytes = size_bytes.ok_or(LakeRefusal::Uncacheable(Uncacheable::NoLength))?;
        let version = Version::from_response(object, &head.headers, size_bytes, self.block_bytes);
        let version = Arc::new(version.map_err(LakeRefusal::Uncacheable)?);
        self.grants
            .learn(caller, name, &version, Checksums::NotRequested, stamp, true);
        Ok(version)
    }
}

impl From<CallError> for LakeRefusal {
    fn from(error: CallError) -> Self {
        Self::Trouble(match error {
            CallError::Refused(refusal) => return refusal.into(),
            CallError::Unanswered(error) => causes(&error),
            CallError::TooLong(error) => error.to_string(),
            CallError::BrokenOff(error) => format!("its listing broke off: {error}"),
            CallError::Misunderstood(problem) => format!("the lake sent a listing that {problem}"),
        })
    }
}

impl From<Refusal> for LakeRefusal {
    fn from(Refusal { status, error }: Refusal) -> Self {
        let said = match error {
            Some(error) => format!("{} {}", status.as_u16(), error.code.escape_debug()),
            None => status.to_string(),
        };
        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            Self::Refused(said)
        } else {
            Self::Trouble(format!("the lake answered {said}"))
        }
    }
}
