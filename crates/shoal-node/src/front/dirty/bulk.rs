//! Removes many objects at once: those that the lake has, and those that it does not know yet.
//!
//! The node parses the client's request once, and writes the request to the lake from the result. The lake
//! answers key by key. The node removes only objects that the lake lists as deleted, in the order of
//! `deletion`: the lake's yes, the hold, the lake again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, response};
use http_body_util::{BodyExt, Full};
use md5::Md5;
use sha2::{Digest, Sha256};
use shoal_s3::error::S3Error;
use shoal_s3::object::ObjectName;
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::xml::{Deletion, DeletionResult, ErrorDocument, Key};

use super::deletion::{Expected, access_denied};
use super::flush::Flusher;
use super::listing::{answered_with, read, unreadable};
use super::multipart::malformed;
use super::permission::{Asker, Permissions, without_body};
use super::{PARALLEL, Shared, try_again};
use crate::dirty::{AuthorityUnreachable, DirtyObjects, Found, Held};
use crate::endpoint::{Endpoint, EndpointRequest, RequestBody};
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::front::lake_errors;
use crate::grants::Grants;

/// A thousand keys of a thousand bytes, and as much again for their encoding.
const DELETION_BYTES_MAX: usize = 2 << 20;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");

/// The objects among the requested keys that the lake does not know, or not as they are now.
type Concerned = HashMap<ObjectName, Found>;

/// The lake's answer.
enum Answered {
    /// The result of each key.
    Result(response::Parts, DeletionResult),
    /// Another answer, for the client.
    Other(Response<ResponseBody>),
}

/// Removes many objects in one request.
pub(super) struct BulkDeletions {
    dirty: Arc<DirtyObjects>,
    grants: Arc<Grants>,
    lake: Arc<Endpoint>,
    permissions: Arc<Permissions>,
    flusher: Arc<Flusher>,
}

impl BulkDeletions {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            dirty: Arc::clone(&shared.dirty),
            grants: Arc::clone(&shared.grants),
            lake: Arc::clone(&shared.lake),
            permissions: Arc::clone(&shared.permissions),
            flusher: Arc::clone(&shared.flusher),
        }
    }

    /// Removes many objects, each from wherever it is. The lake says which of them the caller may remove.
    pub(super) async fn delete(
        &self,
        admitted: Box<Admitted>,
        bucket: &str,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let (opened, body) = admitted.open()?;
        let asker = Asker::from(&opened);
        let body = body
            .collect_at_most(DELETION_BYTES_MAX, "Too many keys in one request.")
            .await?;
        let deletion = Deletion::read(&body).map_err(|_| malformed())?;
        drop(body);
        let mut concerned = self.concerned(bucket, &deletion.keys).await?;
        let (keys, refused) = self
            .meet_conditions(asker, bucket, &deletion.keys, &mut concerned)
            .await?;
        let (head, mut result) = match self.ask_to_delete(asker, keys.clone()).await? {
            Answered::Result(head, result) => (head, result),
            Answered::Other(answer) => return Ok(answer),
        };
        let is_told_otherwise = |key: &Key| refused.iter().any(|(refused, _)| refused == key);
        let is_here = |key: &Key| key.is_current() && concerned.contains_key(&name_of(bucket, key));
        let here = keys.iter().filter(|key| is_here(key) && !result.is_refused(key));
        let here: Vec<Key> = here.filter(|key| !is_told_otherwise(key)).cloned().collect();
        let (removable, untold): (Vec<_>, Vec<_>) = here.into_iter().partition(|key| result.is_removed(key));
        for key in untold {
            result.refuse(
                &key,
                "InternalError",
                "The lake does not report the outcome for this object.",
            );
        }
        if !removable.is_empty()
            && let Some(answer) = self.remove_here(asker, bucket, removable, &mut result).await?
        {
            return Ok(answer);
        }
        for (key, error) in refused {
            if !result.is_refused(&key) {
                result.refuse(&key, error.code.as_str(), &error.message);
            }
        }
        Ok(answered_with(&head, result.write(deletion.is_quiet).into()))
    }

    /// Returns the dirty and lost objects among the keys.
    async fn concerned(&self, bucket: &str, keys: &[Key]) -> Result<Concerned, S3Error> {
        let names = keys.iter().filter(|key| key.is_current());
        let names: HashSet<_> = names.map(|key| name_of(bucket, key)).collect();
        let names = names.into_iter().filter(|name| self.flusher.may_be_dirty(name));
        let found = names.map(|name| async move {
            let found = self.dirty.find(&name).await?;
            Ok((name, found))
        });
        let found: Vec<_> = stream::iter(found)
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await
            .map_err(try_again)?;
        let concerned = found
            .into_iter()
            .filter(|(_, found)| !matches!(found, Found::Nothing));
        Ok(concerned.collect())
    }

    /// Judges the conditions that are set on dirty objects. Returns the keys for the lake, and the keys that
    /// are refused. An object that meets its condition is brought to the lake, which may judge the condition
    /// differently. The lake also judges objects that the caller may not know of.
    async fn meet_conditions(
        &self,
        asker: Asker<'_>,
        bucket: &str,
        keys: &[Key],
        concerned: &mut Concerned,
    ) -> Result<(Vec<Key>, Vec<(Key, S3Error)>), S3Error> {
        let (mut met, mut refused) = (Vec::with_capacity(keys.len()), Vec::new());
        for mut key in keys.iter().cloned() {
            let name = name_of(bucket, &key);
            let is_judged = key.is_current() && key.is_conditional();
            if let Some(Found::Dirty(manifest)) = concerned.get(&name).filter(|_| is_judged) {
                if !self.permissions.may_judge(asker, manifest).await? {
                    refused.push((key.clone(), access_denied()));
                    met.push(key);
                    continue;
                }
                if let Err(error) = Expected::of_key(&key).and_then(|expected| expected.check(manifest)) {
                    refused.push((key, error));
                    continue;
                }
                self.flusher.flush(&name).await?;
                concerned.remove(&name);
                // At the lake, the object is as old as its flush.
                key.last_modified = None;
            }
            met.push(key);
        }
        Ok((met, refused))
    }

    /// Removes dirty objects that the lake lets the caller remove. Returns the lake's answer if it is a no.
    async fn remove_here(
        &self,
        asker: Asker<'_>,
        bucket: &str,
        keys: Vec<Key>,
        result: &mut DeletionResult,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        let names: HashSet<_> = keys.iter().map(|key| name_of(bucket, key)).collect();
        let names = names.into_iter();
        let held = names.map(|name| async move { self.dirty.hold(&name).await });
        let held: Vec<Option<Held>> = stream::iter(held)
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await
            .map_err(try_again)?;
        let again = match self.ask_to_delete(asker, keys.clone()).await? {
            Answered::Result(_, again) => again,
            Answered::Other(answer) => return Ok(Some(answer)),
        };
        let mut stays = Vec::new();
        for key in keys.iter().filter(|key| !again.is_removed(key)) {
            result.refuse(
                key,
                "InternalError",
                "The object was not removed; please try again.",
            );
            stays.push(name_of(bucket, key));
        }
        let mut all_gone = true;
        for held in held.into_iter().flatten() {
            if stays.contains(held.name()) {
                held.release().await;
            } else {
                all_gone &= held.remove().await == Ok(true);
            }
        }
        // If the client asks again, the node removes the rest.
        if all_gone {
            Ok(None)
        } else {
            Err(try_again(AuthorityUnreachable))
        }
    }

    /// Asks the lake to remove these objects and to report the result of each.
    async fn ask_to_delete(&self, asker: Asker<'_>, keys: Vec<Key>) -> Result<Answered, S3Error> {
        if keys.is_empty() {
            return Ok(Answered::Result(nothing_asked(), DeletionResult::default()));
        }
        let bucket = asker.classified.bucket.as_deref().unwrap_or_default();
        // Not quiet, whatever the client asked for: the node does not remove objects that the lake does not
        // report.
        let deletion = Deletion {
            keys,
            is_quiet: false,
        };
        let body = Bytes::from(deletion.write());
        let request = EndpointRequest {
            operation: asker.classified.operation.as_str(),
            method: Method::POST,
            target: asker.classified.target()?,
            headers: headers_of(&body, asker.headers),
            payload: PayloadHash::Sha256(Sha256::digest(&body).into()),
            body: RequestBody::Stream {
                length: Some(body.len() as u64),
                body: Full::new(body).map_err(|never| match never {}).boxed_unsync(),
            },
            expects_continue: false,
            account: self.lake.account_for(asker.caller),
            payer: asker.caller.payer(),
        };
        self.grants.invalidate_bucket(bucket);
        let answered = self.lake.send(request).await;
        self.grants.invalidate_bucket(bucket);
        let (head, body) = answered
            .map_err(|error| lake_errors::unanswered(&error))?
            .into_parts();
        let body = read(body).await?;
        if head.status != StatusCode::OK || matches!(ErrorDocument::read(&body), Ok(Some(_))) {
            return Ok(Answered::Other(answered_with(&head, body)));
        }
        let result = DeletionResult::read(&body).map_err(|_| unreadable())?;
        Ok(Answered::Result(head, result))
    }
}

fn name_of(bucket: &str, key: &Key) -> ObjectName {
    ObjectName {
        bucket: bucket.into(),
        key: key.key.as_bytes().into(),
        version: None,
    }
}

/// Returns the headers for a body that this node wrote. They include a digest, as S3 wants, if the client
/// sent one.
fn headers_of(body: &[u8], sent: &HeaderMap) -> HeaderMap {
    let mut headers = without_body(sent);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    let is_digest = |name: &HeaderName| {
        [CONTENT_MD5, TRAILER].contains(name) || name.as_str().starts_with("x-amz-checksum-")
    };
    if sent.keys().any(is_digest) {
        let digest = STANDARD.encode(Md5::digest(body));
        let digest = HeaderValue::try_from(digest).expect("base 64 is a header value");
        headers.insert(CONTENT_MD5, digest);
    }
    headers
}

/// Returns the head of an answer for which the node asked the lake nothing.
fn nothing_asked() -> response::Parts {
    let (mut head, ()) = Response::new(()).into_parts();
    head.headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    head
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::headers_of;

    #[test]
    fn the_body_for_the_lake_has_a_digest_of_its_own_if_the_clients_had_one() {
        let of = |names: &[&'static str]| {
            let sent = names
                .iter()
                .map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x")));
            headers_of(b"body", &sent.collect::<HeaderMap>())
        };
        for name in ["content-md5", "x-amz-checksum-crc32", "x-amz-trailer"] {
            let headers = of(&[
                name,
                "content-encoding",
                "x-amz-sdk-checksum-algorithm",
                "x-amz-mfa",
            ]);
            assert_eq!(headers["content-md5"], "hBotaJrYa9FhFEdFPCLG/A==", "{name}");
            let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, ["content-md5", "content-type", "x-amz-mfa"]);
        }
        assert!(!of(&["x-amz-mfa"]).contains_key("content-md5"));
    }
}
