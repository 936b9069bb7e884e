//! Reads of names that may be dirty: versions for clients, tasks and plans, and pages of names.
//!
//! The registry entry of a name is read first, then the lake. If the lake reports that there is no object,
//! the entry is checked again: an object may have been written and flushed in between. If the entry changed,
//! the question starts over.

use std::sync::Arc;

use futures_util::FutureExt as _;
use http::{HeaderMap, StatusCode};
use shoal_cache::lake::{
    Asked, LakeRefusal, PageRequest, PinOutcome, Pinned, ReadError, ReadRequest, Unchanged, says_absent,
};
use shoal_cache::obtain::KeptBytes;
use shoal_net::endpoint::s3::Refusal;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::xml::ListedObject;

use super::TieredLake;
use crate::dirty::errors::no_such_key;
use crate::dirty::{Dirty, Lookup, Manifest, Scope, unversioned};
use crate::listing::NewerNames;

/// Number of attempts if a name changes while it is read.
const ATTEMPTS: usize = 4;

impl TieredLake {
    pub(super) async fn pin_by_entry(&self, request: &ReadRequest) -> Result<PinOutcome, ReadError> {
        let entries = &self.parts.dirty.entries;
        let (name, context) = (&unversioned(request.name()), &request.context);
        for _ in 0..ATTEMPTS {
            let lookup = self.look(&context.caller, context.headers(), name).await?;
            match entries.readable_by(&lookup, &context.caller) {
                Some(Dirty::Object(manifest))
                    if request.is_understood() && request.follows_from(&manifest.version) =>
                {
                    return Ok(PinOutcome::Version(Pinned {
                        kept: Some(self.bytes(&lookup, manifest)),
                        ..Pinned::granted(Arc::clone(&manifest.version))
                    }));
                }
                Some(Dirty::Tombstone(_)) if is_about_current(request) => {
                    return Err(no_such_key().into());
                }
                Some(_) => {
                    self.parts.flush(name).await?;
                    continue;
                }
                None => {}
            }
            let outcome = self.parts.within.pin(request).await?;
            let is_absence =
                matches!(&outcome, PinOutcome::Relay(response) if says_absent(response.status()));
            if !is_absence || entries.is_as_found(&lookup).await? {
                return Ok(outcome);
            }
        }
        Err(ReadError::ChangesTooOften)
    }

    pub(super) async fn ask_by_entry(
        &self,
        request: &ReadRequest,
        is_answerable: bool,
    ) -> Result<Asked, ReadError> {
        let entries = &self.parts.dirty.entries;
        let (name, context) = (&unversioned(request.name()), &request.context);
        for _ in 0..ATTEMPTS {
            let lookup = self.look(&context.caller, context.headers(), name).await?;
            match entries.readable_by(&lookup, &context.caller) {
                Some(Dirty::Object(manifest))
                    if is_answerable
                        && request.is_understood()
                        && request.follows_from(&manifest.version) =>
                {
                    return Ok(Asked::Known(Arc::clone(&manifest.version)));
                }
                Some(Dirty::Tombstone(_)) if is_about_current(request) => {
                    return Err(no_such_key().into());
                }
                Some(_) => {
                    self.parts.flush(name).await?;
                    continue;
                }
                None => {}
            }
            return Ok(match self.parts.within.ask(request, is_answerable).await? {
                Asked::AtLake(mut question) => {
                    question.unchanged = Some(self.unchanged(lookup));
                    Asked::AtLake(question)
                }
                known @ Asked::Known(_) => known,
            });
        }
        Err(ReadError::ChangesTooOften)
    }

    pub(super) async fn version_by_entry(
        &self,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<Arc<Version>, LakeRefusal> {
        let entries = &self.parts.dirty.entries;
        let (name, headers) = (&unversioned(name), &HeaderMap::new());
        let trouble = |error: ReadError| LakeRefusal::Trouble(error.to_string());
        for _ in 0..ATTEMPTS {
            let lookup = self.look(caller, headers, name).await.map_err(trouble)?;
            match entries.readable_by(&lookup, caller) {
                Some(Dirty::Object(manifest)) => return Ok(Arc::clone(&manifest.version)),
                Some(Dirty::Tombstone(_)) => {
                    let (status, error) = (StatusCode::NOT_FOUND, None);
                    return Err(Refusal { status, error }.into());
                }
                None => {}
            }
            let answer = self.parts.within.version(caller, name).await;
            if !matches!(answer, Err(LakeRefusal::Refused { .. })) {
                return answer;
            }
            let is_as_found = entries.is_as_found(&lookup).await;
            if is_as_found.map_err(|error| trouble(error.into()))? {
                return answer;
            }
        }
        Err(trouble(ReadError::ChangesTooOften))
    }

    /// Returns a page of the lake with the dirty objects between its own. A caller that may list a bucket may
    /// see all names in it.
    pub(super) async fn list_with_entries(
        &self,
        caller: &Caller,
        page: PageRequest<'_>,
    ) -> Result<Vec<ListedObject>, LakeRefusal> {
        let (scope, entries) = (Scope::all(page.prefix), &self.parts.dirty.entries);
        let mut after = page.after.unwrap_or_default().to_vec();
        loop {
            // The entries first: an object that is flushed meanwhile is on the lake's page.
            let dirty = entries.list_page(page.bucket, &scope, &after, page.keys_max);
            let dirty = dirty.await;
            let dirty = dirty.map_err(|error| LakeRefusal::Trouble(error.to_string()))?;
            let from = PageRequest {
                after: Some(&*after).filter(|after| !after.is_empty()),
                ..page
            };
            let listed = self.parts.within.list(caller, from).await?;
            let merged = NewerNames::from(&dirty).merge(listed, page.keys_max);
            // An empty page means the end, and this is none: all its objects are removed.
            let Some(until) = merged.nothing_until else {
                return Ok(merged.objects);
            };
            after = until;
        }
    }

    /// Looks a name without a version up in the registry for a caller with a request of these headers. A
    /// dirty object or a tombstone that the caller may not see without the lake is flushed if the lake lets
    /// the caller know about the object; the lake then decides the read.
    async fn look(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        name: &ObjectName,
    ) -> Result<Lookup, ReadError> {
        let dirty = &self.parts.dirty;
        let lookup = dirty.entries.find(name).await?;
        if lookup.dirty.is_some() {
            // Remembered answers of the lake about this name are out of date, even once the object is
            // flushed.
            dirty.invalidate(name);
            let is_readable = dirty.entries.readable_by(&lookup, caller).is_some();
            if !is_readable && dirty.clearances.may_know(caller, headers, name).await? {
                self.parts.flush(name).await?;
            }
        }
        Ok(lookup)
    }

    fn unchanged(&self, lookup: Lookup) -> Unchanged {
        let (dirty, lookup) = (Arc::clone(&self.parts.dirty), Arc::new(lookup));
        Box::new(move || {
            let (dirty, lookup) = (Arc::clone(&dirty), Arc::clone(&lookup));
            async move { Ok(dirty.entries.is_as_found(&lookup).await?) }.boxed()
        })
    }

    pub(super) fn bytes(&self, lookup: &Lookup, manifest: &Manifest) -> Arc<dyn KeptBytes> {
        Arc::new(self.parts.dirty.bytes(lookup, manifest))
    }
}

/// Returns true if a read of an absent object has one answer, which the node knows.
fn is_about_current(request: &ReadRequest) -> bool {
    request.is_understood() && request.name().version.is_none()
}
