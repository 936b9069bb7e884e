//! What tasks and plans ask of the lake in the name of an identity: which objects there are, and which
//! versions.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable, Version};
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::target;
use shoal_s3::xml::{ErrorDocument, ListedObject, Listing};

use super::PlainLake;
use crate::clock;
use crate::endpoint::{EndpointRequest, RequestBody, causes};
use crate::fetch::whole_range;
use crate::grants::{Checksums, is_refusal};
use crate::read_context::{Purpose, ReadContext};

/// The number of keys on a page of a listing.
pub const PAGE_KEYS: usize = 1000;

/// The longest page: a thousand keys of a kilobyte, percent-encoded.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// A page of a listing.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The beginning of all keys.
    pub prefix: &'a [u8],
    /// The key before the first one.
    pub after: &'a [u8],
    /// The most keys, up to [`PAGE_KEYS`].
    pub keys_max: usize,
}

/// Why the lake does not say what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LakeRefusal {
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

impl PlainLake {
    pub(super) async fn list_for(
        &self,
        caller: &Caller,
        page: PageRequest<'_>,
    ) -> Result<Vec<ListedObject>, LakeRefusal> {
        let PageRequest {
            bucket,
            prefix,
            after,
            keys_max,
        } = page;
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
            account: self.parts.endpoint.account_for(caller),
            payer: caller.payer(),
        };
        let answer = self.parts.endpoint.send(request).await;
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

    pub(super) async fn version_for(
        &self,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<Arc<Version>, LakeRefusal> {
        if !target::is_sayable(name) {
            return Err(LakeRefusal::Trouble("its name is too long".into()));
        }
        let lake = &self.parts.endpoint;
        let context = ReadContext::of_peer(
            lake.account_for(caller),
            caller.clone(),
            Some(name.clone()),
            HeaderMap::new(),
        );
        let request = context.with_purpose(Purpose::Prefetch).request(Method::HEAD);
        let (caller, object) = (caller.id(), name.id(lake.url()));
        let stamp = self.parts.grants.stamp(caller, name, object, clock::instant());
        let answer = lake.send(request).await;
        let head = answer
            .map_err(|error| LakeRefusal::Trouble(causes(&error)))?
            .into_parts()
            .0;
        if head.status != StatusCode::OK {
            if is_refusal(head.status) {
                self.parts.grants.revoke(caller, object);
            }
            return Err(refusal(head.status, b""));
        }
        let size_bytes = whole_range(&head.headers).map(|(_, size_bytes)| size_bytes);
        let size_bytes = size_bytes.ok_or(LakeRefusal::Uncacheable(Uncacheable::NoLength))?;
        let version = Version::from_response(object, &head.headers, size_bytes, self.parts.block_bytes);
        let version = Arc::new(version.map_err(LakeRefusal::Uncacheable)?);
        self.parts
            .grants
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
