//! Handles `DeleteObjects`: removes many objects at once, dirty ones and those that the lake has.
//!
//! The node parses the client's request. It acknowledges what it may at a tombstone each, as for a DELETE,
//! and writes a request of its own to the lake for the rest. Before it sends that request, it begins a
//! separate change for each name that may be dirty and that the caller may remove. The lake reports a result
//! for each key, and each change ends with that result.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, response};
use shoal_base::send_permit::SendPermit;
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::errors;
use shoal_cache::lake::unknown;
use shoal_net::endpoint::s3::CONTENT_MD5;
use shoal_net::endpoint::{AccountRefusal, SendOptions, is_undecided, is_undecided_code};
use shoal_net::trace;
use shoal_registry::changes::LakeChange;
use shoal_s3::error::S3Error;
use shoal_s3::object::ObjectName;
use shoal_s3::xml::{Deletion, DeletionResult, ErrorDocument, Key};

use super::check;
use crate::dirty::errors::{access_denied, malformed, unreadable};
use crate::dirty::{Action, Dirty, Lookup, Trial, beside};
use crate::listing::{answered_with, read};
use crate::tiered::asker::{Asker, without_body};
use crate::tiered::commits::CommitBound;
use crate::tiered::{PARALLEL, TieredLakeParts};

/// Limit on the body of a request: a thousand keys of 1,000 bytes, and as much again for their encoding.
const DELETION_BYTES_MAX: usize = 2 << 20;

const TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");

/// Number of tombstones that one request writes in parallel.
const TOMBSTONES_PARALLEL: usize = 64;

/// The changes that have begun, by name.
type Begun = HashMap<ObjectName, LakeChange>;

/// Keys that are not removed, each with the error to report for it.
type Refused = Vec<(Key, S3Error)>;

/// A response of the lake without a result for each key, or none at all.
struct NoResult {
    answered: ResponseResult,
    /// False if the lake may have removed objects nevertheless.
    is_undone: bool,
}

impl From<S3Error> for NoResult {
    fn from(error: S3Error) -> Self {
        Self {
            is_undone: error.is_undone,
            answered: Err(error),
        }
    }
}

/// Removes many objects in one request.
#[derive(Clone)]
pub(in crate::tiered) struct BulkDeletions {
    pub(in crate::tiered) parts: Arc<TieredLakeParts>,
    pub(in crate::tiered) commits: Arc<CommitBound>,
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
        found.is_none_or(|lookup| lookup.own(asker.caller).is_some())
    }

    fn dirty(&self) -> Option<&Dirty> {
        self.found.as_ref()?.dirty.as_ref()
    }
}

impl BulkDeletions {
    /// Removes many objects, in the tier and at the lake. The lake decides which of them the caller may
    /// remove.
    pub(in crate::tiered) async fn delete(&self, admitted: Box<Admitted>, bucket: &str) -> ResponseResult {
        let (opened, body) = admitted.open()?;
        let body = body
            .collect_at_most(DELETION_BYTES_MAX, "Too many keys in one request.")
            .await?;
        let deletion = Deletion::read(&body).map_err(|_| malformed())?;
        drop(body);
        self.commits
            .pass(&opened.verified.caller, deletion.keys.len())
            .await?;
        let (this, bucket) = (self.clone(), bucket.to_owned());
        // A separate task, because the changes must end with the lake's result even if the client
        // disconnects.
        let removed = trace::spawn(async move { this.remove(&opened, &bucket, deletion).await });
        removed.await.unwrap_or_else(|_panicked| Err(unknown()))
    }

    async fn remove(&self, opened: &Admitted, bucket: &str, deletion: Deletion) -> ResponseResult {
        let asker = self.parts.asker(opened);
        let (keys, hidden) = self.split_hidden(bucket, deletion.keys);
        let (acknowledged, keys) = self.acknowledge(opened, bucket, keys).await;
        let (keys, mut begun, mut refused) = match self.begin_all(asker, bucket, keys).await {
            Ok(begun) => begun,
            Err(NoResult { answered, .. }) => return answered,
        };
        let trials = self.trials(asker, &begun);
        let permit = (!begun.is_empty()).then(|| LakeChange::permit_of_all(begun.values()));
        let asked = self.ask_to_delete(asker, keys.clone(), permit).await;
        let (head, mut result) = match asked {
            Ok(answer) => answer,
            Err(NoResult { answered, is_undone }) => {
                if let Ok(response) = &answered
                    && matches!(response.status().as_u16(), 401 | 403)
                {
                    self.parts.dirty.clearances.refused(asker.caller, bucket);
                }
                // If the outcome is unknown, dropping the changes leaves them open.
                if is_undone {
                    end_all(begun.into_values(), false).await;
                }
                return answered;
            }
        };
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        for key in keys.iter().filter(|key| key.is_current()) {
            let Some(change) = begun.remove(&name_of(bucket, key)) else {
                continue;
            };
            if result.is_removed(key) {
                if let Some(trial) = trials.get(folder_of(&key.key)).filter(|_| !result.is_marked(key)) {
                    self.parts.dirty.clearances.removed(trial);
                }
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
        let is_ended = end_all(changes.into_iter(), true).await;
        let not_ended = keys.into_iter().zip(is_ended).filter(|(_, is_ended)| !is_ended);
        let not_ended: Vec<_> = not_ended.map(|(key, _)| (key.clone(), unknown())).collect();
        for (key, removed) in acknowledged {
            match removed {
                Ok(()) => result.remove(&key),
                Err(error) => refused.push((key, error)),
            }
        }
        for (key, error) in not_ended.into_iter().chain(refused).chain(hidden) {
            result.refuse(&key, error.code.as_str(), &error.message);
        }
        Ok(answered_with(&head, result.write(deletion.is_quiet).into()))
    }

    /// Returns the keys that a client may remove, and those of packs.
    fn split_hidden(&self, bucket: &str, all: Vec<Key>) -> (Vec<Key>, Refused) {
        let (mut keys, mut hidden) = (Vec::with_capacity(all.len()), Refused::new());
        for key in all {
            match self.parts.dirty.entries.packs.permit(&name_of(bucket, &key)) {
                Ok(()) => keys.push(key),
                Err(error) => hidden.push((key, error)),
            }
        }
        (keys, hidden)
    }

    /// Acknowledges the removal of those objects that need not wait for the lake. Returns the outcome of
    /// each, and the other keys.
    async fn acknowledge(
        &self,
        opened: &Admitted,
        bucket: &str,
        keys: Vec<Key>,
    ) -> (Vec<(Key, Result<(), S3Error>)>, Vec<Key>) {
        let dirty = &self.parts.dirty;
        let removed = keys.into_iter().map(|key| async move {
            let name = name_of(bucket, &key);
            let is_plain = key.version.is_none() && !key.is_conditional();
            if !is_plain || !dirty.entries.may_be_dirty(&name) {
                return Err(key);
            }
            match dirty.clearances.removal(opened, &name).await {
                Some(removal) => Ok((key, dirty.remove(removal).await.map_err(S3Error::from))),
                None => Err(key),
            }
        });
        let removed = stream::iter(removed).buffered(TOMBSTONES_PARALLEL);
        let (mut acknowledged, mut rest) = (Vec::new(), Vec::new());
        for outcome in removed.collect::<Vec<_>>().await {
            match outcome {
                Ok(removed) => acknowledged.push(removed),
                Err(key) => rest.push(key),
            }
        }
        (acknowledged, rest)
    }

    /// Begins a trial for each folder of the names that are to be removed at the lake.
    fn trials(&self, asker: Asker<'_>, begun: &Begun) -> HashMap<String, Trial> {
        let mut trials = HashMap::new();
        for name in begun.keys() {
            let key = String::from_utf8_lossy(&name.key);
            if let Entry::Vacant(vacant) = trials.entry(folder_of(&key).to_owned())
                && let Some(trial) = self.parts.dirty.clearances.try_removal(name, asker.caller)
            {
                vacant.insert(trial);
            }
        }
        trials
    }

    /// Begins a change for each name that may be dirty and that the caller may remove. Returns the keys to
    /// send to the lake, the changes, and the keys that are refused.
    async fn begin_all(
        &self,
        asker: Asker<'_>,
        bucket: &str,
        keys: Vec<Key>,
    ) -> Result<(Vec<Key>, Begun, Refused), NoResult> {
        let looked = stream::iter(keys).map(|key| self.look(bucket, key));
        let looked: Vec<_> = looked.buffered(PARALLEL).try_collect().await?;
        let (permitted, mut refused) = self.permit_all(asker, looked).await?;
        let judged = stream::iter(permitted).map(|looked| judge(asker, looked));
        let judged: Vec<_> = judged.buffered(PARALLEL).try_collect().await?;
        let (mut for_lake, mut names) = (Vec::with_capacity(judged.len()), HashMap::new());
        for (Looked { key, name, found }, judgement) in judged {
            if let Err(error) = judgement {
                refused.push((key, error));
                continue;
            }
            if let Some(lookup) = found {
                let (is_conditional, _) = names.entry(name).or_insert((false, lookup));
                *is_conditional |= key.is_conditional();
            }
            for_lake.push(key);
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
                    let is_of_name = |key: &mut Key| key.is_current() && name_of(bucket, key) == name;
                    let keys = for_lake.extract_if(.., is_of_name);
                    refused.extend(keys.map(|key| (key, error.clone())));
                }
            }
        }
        Ok((for_lake, changes, refused))
    }

    /// Looks a name up in the registry if it may be dirty.
    async fn look(&self, bucket: &str, key: Key) -> Result<Looked, S3Error> {
        let name = name_of(bucket, &key);
        let mut found = None;
        if key.is_current() && self.parts.dirty.entries.may_be_dirty(&name) {
            found = Some(Box::new(self.parts.dirty.entries.find(&name).await?));
        }
        Ok(Looked { key, name, found })
    }

    /// Determines the keys that the caller may remove, and those that are refused. The caller's own dirty
    /// objects and names that cannot be dirty need no check here: the lake checks them itself when it removes
    /// them. For the rest, the node asks about one name under each rule. If that is denied, the lake gets the
    /// keys without dirty objects all the same, but without a change in the registry; and one further request
    /// asks about a sibling of each name with a dirty object.
    async fn permit_all(
        &self,
        asker: Asker<'_>,
        looked: Vec<Looked>,
    ) -> Result<(Vec<Looked>, Refused), NoResult> {
        let mut answers: HashMap<Option<usize>, Option<S3Error>> = HashMap::new();
        let (mut permitted, mut doubtful, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for mut looked in looked {
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
                Some(_) if looked.dirty().is_some() => doubtful.push(looked),
                Some(_) => {
                    looked.found = None;
                    permitted.push(looked);
                }
            }
        }
        if doubtful.is_empty() {
            return Ok((permitted, refused));
        }
        let beside: Vec<_> = doubtful.iter().map(|looked| key_beside(&looked.key)).collect();
        let (_, result) = self.ask_to_delete(asker, beside.clone(), None).await?;
        for (looked, beside) in doubtful.into_iter().zip(&beside) {
            match result.refusal(beside) {
                None if result.is_removed(beside) => permitted.push(looked),
                Some(error) if error.code == "NoSuchKey" => permitted.push(looked),
                _ => refused.push((looked.key, access_denied())),
            }
        }
        Ok((permitted, refused))
    }

    /// Asks the lake to remove `keys` and to report the result of each.
    async fn ask_to_delete(
        &self,
        asker: Asker<'_>,
        keys: Vec<Key>,
        permit: Option<SendPermit>,
    ) -> Result<(response::Parts, DeletionResult), NoResult> {
        if keys.is_empty() {
            return Ok((nothing_asked(), DeletionResult::default()));
        }
        let bucket = asker.classified.bucket.as_deref().unwrap_or_default();
        // Never quiet, even if the client asked for that: the node ends changes only for keys whose result
        // the lake reports.
        let mut request = asker.client().delete_many(bucket, keys);
        request.target = asker.classified.target()?;
        request.headers = headers_of(request.headers, asker.headers);
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
            return Err(NoResult {
                answered: Ok(answered_with(&head, body)),
                is_undone: !is_undecided,
            });
        }
        let result = DeletionResult::read(&body).map_err(|_| unreadable())?;
        Ok((head, result))
    }
}

/// Checks the conditions on a dirty object. If they hold, the key is sent to the lake, which evaluates them
/// again and may decide differently.
async fn judge(asker: Asker<'_>, mut looked: Looked) -> Result<(Looked, Result<(), S3Error>), S3Error> {
    let Some(dirty @ Dirty::Object(manifest)) = looked.dirty().filter(|_| looked.key.is_conditional()) else {
        return Ok((looked, Ok(())));
    };
    if !asker.may_judge(dirty).await? {
        return Ok((looked, Err(access_denied())));
    }
    let judgement = check(&looked.key, manifest);
    // At the lake, the object's modification time is that of its flush.
    looked.key.last_modified = None;
    Ok((looked, judgement))
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

/// Returns a key up to its last slash.
fn folder_of(key: &str) -> &str {
    key.rfind('/').map_or("", |slash| &key[..=slash])
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

/// Returns the headers of the node's own request, and those of the client's. The lake gets a digest of the
/// body if the client sent one, as S3 requires.
fn headers_of(mut own: HeaderMap, sent: &HeaderMap) -> HeaderMap {
    let is_digest = |name: &HeaderName| {
        [CONTENT_MD5, TRAILER].contains(name) || name.as_str().starts_with("x-amz-checksum-")
    };
    if !sent.keys().any(is_digest) {
        own.remove(CONTENT_MD5);
    }
    own.extend(without_body(sent));
    own
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
            let map = |names: &[&'static str], value: &'static str| {
                let headers = names
                    .iter()
                    .map(|name| (HeaderName::from_static(name), HeaderValue::from_static(value)));
                headers.collect::<HeaderMap>()
            };
            headers_of(map(&["content-md5", "content-type"], "own"), &map(names, "sent"))
        };
        for name in ["content-md5", "x-amz-checksum-crc32", "x-amz-trailer"] {
            let headers = of(&[
                name,
                "content-encoding",
                "x-amz-sdk-checksum-algorithm",
                "x-amz-mfa",
            ]);
            let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, ["content-md5", "content-type", "x-amz-mfa"]);
            assert_eq!(headers["content-md5"], "own", "{name}");
        }
        assert!(!of(&["x-amz-mfa"]).contains_key("content-md5"));
    }
}
