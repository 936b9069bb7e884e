//! The lake as the identity of a task sees it: which objects there are, and which versions.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable, Version};
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::target;
use shoal_s3::xml::{ErrorDocument, ListedObject, Listing};

use crate::clock;
use crate::endpoint::{Endpoint, EndpointRequest, RequestBody, causes};
use crate::fetch::whole_range;
use crate::grants::{Checksums, Grants, is_refusal};
use crate::read_context::{Purpose, ReadContext};

/// The number of keys on a page of a listing.
pub(crate) const PAGE_KEYS: usize = 1000;

/// The longest page: a thousand keys of a kilobyte, percent-encoded.
const PAGE_BYTES_MAX: usize = 8 << 20;

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
        let keys_max = keys_max.to_string();
        let query = [
            ("encoding-type", Some(&b"url"[..])),
            ("list-type", Some(b"2")),
            ("max-keys", Some(keys_max.as_bytes())),
            ("prefix", Some(prefix)),
            ("start-after", Some(after)),
        ];
        let query = query.into_iter().filter(|(name, value)| {
            let is_empty = value.is_some_and(<[u8]>::is_empty);
            !is_empty || !matches!(*name, "prefix" | "start-after")
        });
        let target = target::with_query(target::path(Some(bucket), None), query);
        let request = EndpointRequest {
            operation: "list_objects",
            method: Method::GET,
            target: target.map_err(|error| LakeRefusal::Trouble(error.to_string()))?,
            headers: HeaderMap::new(),
            body: RequestBody::Empty,
            expects_continue: false,
            payload: PayloadHash::empty(),
            account: self.lake.account_for(&self.caller),
            payer: self.caller.payer(),
        };
        let answer = self.lake.send(request).await;
        let (head, body) = answer
            .map_err(|error| LakeRefusal::Trouble(causes(&error)))?
            .into_parts();
        let body = Limited::new(body, PAGE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| LakeRefusal::Trouble(format!("its listing broke off: {error}")))?;
        let body = body.to_bytes();
        if head.status != StatusCode::OK {
            return Err(refusal(head.status, &body));
        }
        let misread = |what: &str| LakeRefusal::Trouble(format!("the lake sent {what}"));
        let listing = Listing::read(&body).map_err(|_| misread("a listing that is not one of S3"))?;
        let objects = listing.objects;
        let keys = std::iter::once(after).chain(objects.iter().map(|object| &*object.key));
        // Otherwise the next page might miss some, or be this one again.
        if !keys.is_sorted_by(|one, other| one < other || one.is_empty()) {
            return Err(misread("a listing that is not in the order of its keys"));
        }
        if objects.iter().any(|object| !object.key.starts_with(prefix)) {
            return Err(misread("keys that were not asked for"));
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
            return Err(refusal(head.status, b""));
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

fn refusal(status: StatusCode, body: &[u8]) -> LakeRefusal {
    let said = match ErrorDocument::read(body) {
        Ok(Some(error)) => format!("{} {}", status.as_u16(), error.code.escape_debug()),
        _ => status.to_string(),
    };
    if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
        LakeRefusal::Refused(said)
    } else {
        LakeRefusal::Trouble(format!("the lake answered {said}"))
    }
}
