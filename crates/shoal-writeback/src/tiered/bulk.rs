//! Handles `DeleteObjects`: removes many objects at once, dirty ones and those that the lake has.
//!
//! The node parses the client's request and writes a request of its own to the lake. Before it sends that
//! request, it begins a separate change for each name that may be dirty and that the caller may remove. The
//! lake reports a result for each key, and each change ends with that result.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, response};
use http_body_util::{BodyExt, Full};
use md5::Md5;
use sha2::{Digest, Sha256};
use shoal_base::send_permit::SendPermit;
use shoal_cache::exchange::{Admitted, Opened, ResponseBody, ResponseResult};
use shoal_cache::lake::errors;
use shoal_cache::lake::unknown;
use shoal_net::endpoint::s3::{CONTENT_MD5, content_md5};
use shoal_net::endpoint::{
    AccountRefusal, EndpointRequest, RequestBody, SendOptions, is_undecided, is_undecided_code,
};
use shoal_registry::changes::LakeChange;
use shoal_s3::error::S3Error;
use shoal_s3::object::ObjectName;
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::xml::{Deletion, DeletionResult, ErrorDocument, Key};

use super::asker::{Asker, without_body};
use super::commits::CommitBound;
use super::deletion::Expected;
use super::errors::{access_denied, malformed, unreadable};
use super::listing::{answered_with, read};
use super::{PARALLEL, TieredLakeParts};
use crate::dirty::{Action, Lookup, beside};

/// Limit on the body of a request: a thousand keys of 1,000 bytes, and as much again for their encoding.
const DELETION_BYTES_MAX: usize = 2 << 20;

const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");

/// The changes that have begun, by name.
type Begun = HashMap<ObjectName, LakeChange>;

/// Keys that are not removed, each with the error to report for it.
type Refused = Vec<(Key, S3Error)>;

/// The lake's response to a bulk deletion.
enum Answered {
    /// A result for each key.
    Result(response::Parts, DeletionResult),
    /// Any other response, to pass on to the client; true if the lake may have removed objects nevertheless.
    Other(Response<ResponseBody>, bool),
}

/// Removes many objects in one request.
#[derive(Clone)]
pub(super) struct BulkDeletions {
    pub(super) parts: Arc<TieredLakeParts>,
    pub(super) commits: Arc<CommitBound>,
}

/// A key and the state of its name in the registry.
struct Looked {
    key: Key,
    name: ObjectName,
    /// `None` if the key is sent without a change.
    found: Option<Box<Lookup>>,
}

impl Looked {
    /// Returns true if a change may begin without asking the lake: the caller wrote the dirty object, or the
    /// name cannot be dirty.
    fn is_free_for(&self, asker: Asker<'_>) -> bool {
        let found = self.found.as_deref();
        found.is_none_or(|lookup| lookup.written_by(asker.caller).is_some())
    }

    fn is_dirty(&self) -> bool {
        let found = self.found.as_ref();
        found.is_some_and(|lookup| lookup.manifest.is_some())
    }
}

/// The keys that the lake lets the caller remove.
enum Permitted {
    /// Keys that may be removed, and those that are refused.
    These(Vec<Looked>, Refused),
    /// No key may be removed; the lake's response to pass on.
    None(Response<ResponseBody>),
}

/// Result of beginning a bulk removal.
enum Begin {
    /// The keys to send to the lake, the changes begun for them, and the refused keys.
    Begun(Vec<Key>, Begun, Refused),
    /// Nothing has begun; the lake's response to pass on.
    Refused(Response<ResponseBody>),
}

/// Decides if the request to the lake includes a key.
enum Judgement {
    /// Included, without a change: no object under this name may be dirty, or the lake will probably refuse
    /// it.
    WithoutChange,
    /// Included, with a change: the name was looked up in the registry.
    Asked(ObjectName, Box<Lookup>),
    /// Not included.
    Refused(S3Error),
}

impl BulkDeletions {
    /// Removes many objects, in the tier and at the lake. The lake decides which of them the caller may
    /// remove.
    pub(super) async fn delete(&self, admitted: Box<Admitted>, bucket: &str) -> ResponseResult {
        let (opened, body) = admitted.open()?;
        let body = body
            .collect_at_most(DELETION_BYTES_MAX, "Too many keys in one request.")
            .await?;
        let deletion = Deletion::read(&body).map_err(|_| malformed())?;
        drop(body);
        self.commits.pass(&opened.caller, deletion.keys.len()).await?;
        let (this, bucket) = (self.clone(), bucket.to_owned());
        // A separate task, because the changes must end with the lake's result even if the client
        // disconnects.
        let removed = tokio::spawn(async move { this.remove(&opened, &bucket, deletion).await });
        removed.await.unwrap_or_else(|_panicked| Err(unknown()))
    }

    async fn remove(&self, opened: &Opened, bucket: &str, deletion: Deletion) -> ResponseResult {
        let asker = self.parts.asker_of_opened(opened);
        let (keys, mut begun, refused) = match self.begin_all(asker, bucket, deletion.keys).await? {
            Begin::Begun(keys, begun, refused) => (keys, begun, refused),
            Begin::Refused(answer) => return Ok(answer),
        };
        let permit = begun.values().next().map(LakeChange::permit);
        let asked = self.ask_to_delete(asker, keys.clone(), permit).await;
        let (head, mut result) = match asked {
            Ok(Answered::Result(head, result)) => (head, result),
            Ok(Answered::Other(answer, is_undecided)) => {
                if matches!(answer.status().as_u16(), 401 | 403) {
                    self.parts.dirty.clearances.refused(asker.caller, bucket);
                }
                if !is_undecided {
                    end_all(begun.into_values(), false).await;
                }
                return Ok(answer);
            }
            Err(error) if error.is_undone => {
                end_all(begun.into_values(), false).await;
                return Err(error);
            }
            // The outcome is unknown: dropping the changes leaves them open.
            Err(error) => return Err(error),
        };
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        for key in keys.iter().filter(|key| key.is_current()) {
            let Some(change) = begun.remove(&name_of(bucket, key)) else {
                continue;
            };
            if result.is_removed(key) {
                removed.push((key, change));
            } else if let Some(error) = result.refusal(key) {
                // If the lake may have removed the object after all, the change is dropped and stays open.
                kept.extend((!is_undecided_code(&error.code)).then_some(change));
            } else {
                let message = "The lake does not report the outcome for this object.";
                result.refuse(key, "InternalError", message);
            }
        }
        if !kept.is_empty() {
            self.parts.dirty.clearances.refused(asker.caller, bucket);
        }
        end_all(kept.into_iter(), false).await;
        let (keys, changes): (Vec<_>, Vec<_>) = removed.into_iter().unzip();
        for (key, is_ended) in keys.into_iter().zip(end_all(changes.into_iter(), true).await) {
            if !is_ended {
                let error = unknown();
                result.refuse(key, error.code.as_str(), &error.message);
            }
        }
        for (key, error) in refused {
            result.refuse(&key, error.code.as_str(), &error.message);
        }
        Ok(answered_with(&head, result.write(deletion.is_quiet).into()))
    }

    /// Begins a change for each name that may be dirty and that the caller may remove.
    async fn begin_all(&self, asker: Asker<'_>, bucket: &str, keys: Vec<Key>) -> Result<Begin, S3Error> {
        let looked = stream::iter(keys).map(|key| self.look(bucket, key));
        let looked: Vec<_> = looked.buffered(PARALLEL).try_collect().await?;
        let (looked, mut refused) = match self.permit_all(asker, looked).await? {
            Permitted::These(looked, refused) => (looked, refused),
            Permitted::None(answer) => return Ok(Begin::Refused(answer)),
        };
        let judged = stream::iter(looked).map(|looked| self.judge(asker, looked));
        let judged: Vec<_> = judged.buffered(PARALLEL).try_collect().await?;
        let (mut for_lake, mut names) = (Vec::with_capacity(judged.len()), HashMap::new());
        for (key, judgement) in judged {
            match judgement {
                Judgement::Refused(error) => refused.push((key, error)),
                Judgement::WithoutChange => for_lake.push(key),
                Judgement::Asked(name, lookup) => {
                    let (is_conditional, _) = names.entry(name).or_insert((false, lookup));
                    *is_conditional |= key.is_conditional();
                    for_lake.push(key);
                }
            }
        }
        let begun = names
            .into_iter()
            .map(|(name, (is_conditional, lookup))| async move {
                let begun = if is_conditional {
                    self.parts.dirty.begin_at_lake(&name).await
                } else {
                    self.parts.dirty.begin_removal(&name, *lookup).await
                };
                (name, begun)
            });
        let begun: Vec<_> = stream::iter(begun).buffer_unordered(PARALLEL).collect().await;
        let mut changes = HashMap::with_capacity(begun.len());
        for (name, begun) in begun {
            match begun {
                Ok(change) => drop(changes.insert(name, change)),
                Err(error) => {
                    let error = S3Error::from(error);
                    let is_of_name = |key: &mut Key| key.is_current() && name_of(bucket, key) == name;
                    let keys = for_lake.extract_if(.., is_of_name);
                    refused.extend(keys.map(|key| (key, error.clone())));
                }
            }
        }
        Ok(Begin::Begun(for_lake, changes, refused))
    }

    /// Looks a name up in the registry if it may be dirty.
    async fn look(&self, bucket: &str, key: Key) -> Result<Looked, S3Error> {
        let name = name_of(bucket, &key);
        let may_be_dirty = key.is_current() && self.parts.dirty.entries.may_be_dirty(&name);
        let found = if may_be_dirty {
            Some(Box::new(self.parts.dirty.entries.find(&name).await?))
        } else {
            None
        };
        Ok(Looked { key, name, found })
    }

    /// Determines the keys that the caller may remove. The caller's own dirty objects and names that cannot
    /// be dirty need no check here: the lake checks them itself when it removes them. For the rest, the node
    /// asks about one name under each rule. If that is denied, the lake gets the keys without dirty objects
    /// all the same, but without a change in the registry; and one further request asks about a sibling of
    /// each name with a dirty object.
    async fn permit_all(&self, asker: Asker<'_>, looked: Vec<Looked>) -> Result<Permitted, S3Error> {
        let mut answers: HashMap<Option<usize>, Option<S3Error>> = HashMap::new();
        let (mut permitted, mut doubtful, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for looked in looked {
            if looked.is_free_for(asker) {
                permitted.push(looked);
                continue;
            }
            let rule = self.parts.dirty.clearances.rule_number(&looked.name);
            let denial = match answers.entry(rule) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(asker.denial(Action::Remove, &looked.name).await?),
            };
            match denial {
                None => permitted.push(looked),
                Some(error) if AccountRefusal::of_code(error.code.as_str()).is_some() => {
                    refused.push((looked.key, error.clone()));
                }
                Some(_) if looked.is_dirty() => doubtful.push(looked),
                Some(_) => permitted.push(Looked {
                    found: None,
                    ..looked
                }),
            }
        }
        if doubtful.is_empty() {
            return Ok(Permitted::These(permitted, refused));
        }
        let beside: Vec<_> = doubtful.iter().map(|looked| key_beside(&looked.key)).collect();
        let result = match self.ask_to_delete(asker, beside.clone(), None).await? {
            Answered::Result(_, result) => result,
            Answered::Other(answer, _) => return Ok(Permitted::None(answer)),
        };
        for (looked, beside) in doubtful.into_iter().zip(&beside) {
            match result.refusal(beside) {
                None if result.is_removed(beside) => permitted.push(looked),
                Some(error) if error.code == "NoSuchKey" => permitted.push(looked),
                _ => refused.push((looked.key, access_denied())),
            }
        }
        Ok(Permitted::These(permitted, refused))
    }

    /// Checks the conditions on a dirty object. If they hold, the key is sent to the lake, which evaluates
    /// them again and may decide differently.
    async fn judge(&self, asker: Asker<'_>, looked: Looked) -> Result<(Key, Judgement), S3Error> {
        let Looked { mut key, name, found } = looked;
        let Some(lookup) = found else {
            return Ok((key, Judgement::WithoutChange));
        };
        let judged = match &lookup.manifest {
            Some(manifest) if key.is_conditional() => {
                if asker.may_judge(manifest).await? {
                    let judged = Expected::of_key(&key).and_then(|expected| expected.check(manifest));
                    // At the lake, the object's modification time is that of its flush.
                    key.last_modified = None;
                    judged
                } else {
                    Err(access_denied())
                }
            }
            _ => Ok(()),
        };
        let judgement = match judged {
            Ok(()) => Judgement::Asked(name, lookup),
            Err(error) => Judgement::Refused(error),
        };
        Ok((key, judgement))
    }

    /// Asks the lake to remove `keys` and to report the result of each.
    async fn ask_to_delete(
        &self,
        asker: Asker<'_>,
        keys: Vec<Key>,
        permit: Option<SendPermit>,
    ) -> Result<Answered, S3Error> {
        if keys.is_empty() {
            return Ok(Answered::Result(nothing_asked(), DeletionResult::default()));
        }
        let bucket = asker.classified.bucket.as_deref().unwrap_or_default();
        // Never quiet, even if the client asked for that: the node ends changes only for keys whose result
        // the lake reports.
        let deletion = Deletion {
            keys,
            is_quiet: false,
        };
        let body = Bytes::from(deletion.write());
        let target = asker.classified.target()?;
        let request = asker
            .client()
            .request(asker.classified.operation.as_str(), Method::POST, target);
        let request = EndpointRequest {
            payload: PayloadHash::Sha256(Sha256::digest(&body).into()),
            headers: headers_of(&body, asker.headers),
            ..request.with_body(RequestBody::Stream {
                length: Some(body.len() as u64),
                body: Full::new(body).map_err(|never| match never {}).boxed_unsync(),
            })
        };
        self.parts.grants.invalidate_bucket(bucket);
        let options = SendOptions::permitted_by(permit.as_ref());
        let answered = self.parts.endpoint.send_with(request, options).await;
        self.parts.grants.invalidate_bucket(bucket);
        let (head, body) = answered.map_err(|error| errors::unanswered(&error))?.into_parts();
        let body = read(body).await?;
        let error = ErrorDocument::read(&body).ok().flatten();
        if head.status != StatusCode::OK || error.is_some() {
            let is_undecided = match error {
                Some(error) if head.status == StatusCode::OK => is_undecided_code(&error.code),
                _ => is_undecided(head.status),
            };
            return Ok(Answered::Other(answered_with(&head, body), is_undecided));
        }
        let result = DeletionResult::read(&body).map_err(|_| unreadable())?;
        Ok(Answered::Result(head, result))
    }
}

/// Ends changes as done or as refused. Returns, for each, true if the registry has recorded it.
async fn end_all(changes: impl Iterator<Item = LakeChange>, is_done: bool) -> Vec<bool> {
    let ended = changes.map(|change| async move {
        let ended = if is_done {
            change.done().await
        } else {
            change.refused().await
        };
        ended.is_ok()
    });
    stream::iter(ended).buffered(PARALLEL).collect().await
}

fn name_of(bucket: &str, key: &Key) -> ObjectName {
    ObjectName {
        bucket: bucket.into(),
        key: key.key.as_bytes().into(),
        version: None,
    }
}

/// Returns a sibling of `key` under which no object exists.
fn key_beside(key: &Key) -> Key {
    Key {
        key: String::from_utf8_lossy(&beside(key.key.as_bytes())).into_owned(),
        version: key.version.clone(),
        ..Key::default()
    }
}

/// Returns the headers for a body that this node wrote, with a digest if the client sent one, as S3 requires.
fn headers_of(body: &[u8], sent: &HeaderMap) -> HeaderMap {
    let mut headers = without_body(sent);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    let is_digest = |name: &HeaderName| {
        [CONTENT_MD5, TRAILER].contains(name) || name.as_str().starts_with("x-amz-checksum-")
    };
    if sent.keys().any(is_digest) {
        headers.insert(CONTENT_MD5, content_md5(&Md5::digest(body).into()));
    }
    headers
}

/// Returns the head of a response for which the lake was not asked.
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
