//! Decides whether a tier may acknowledge a write: by what the node remembers, else by the lake.

use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts as RequestHead;
use shoal_registry::Lifetime;
use shoal_s3::error::S3Error;
use shoal_s3::identity::{Caller, CallerId};
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Classified;

use super::checksums::creation_headers;
use super::objects::DirtyObjects;
use super::permission::{Action, Permission, PermissionError, Question, SILENCE_MAX, is_versioned};
use super::writing::PendingWrite;
use crate::write::{Uncached, size_to_copy};

/// What becomes of a write for which a tier has room.
#[derive(Clone, Debug)]
pub enum Clearance {
    /// It may be acknowledged before the lake has it.
    Granted,
    /// It goes to the lake at once.
    Through(Uncached),
    /// The lake would refuse it.
    Refused(S3Error),
}

impl DirtyObjects {
    /// Describes a write for which a tier has room. A lifetime that the writer names overrides that of the
    /// rule.
    ///
    /// # Errors
    ///
    /// The reason why it goes to the lake at once.
    pub fn accept(
        &self,
        name: &ObjectName,
        classified: &Classified,
        (parts, lifetime): (&RequestHead, Option<Lifetime>),
        caller: &Caller,
    ) -> Result<PendingWrite, Uncached> {
        let size_bytes = size_to_copy(classified, parts)?;
        let write = PendingWrite::of(name, size_bytes, (parts, lifetime), caller)?;
        self.check_room(&write)?;
        Ok(write)
    }

    fn check_room(&self, write: &PendingWrite) -> Result<(), Uncached> {
        let (_, tier) = self.rule(&write.name).ok_or(Uncached::TierUnavailable)?;
        tier.check_writable()?;
        if write.size_bytes > tier.store.object_bytes_max() {
            return Err(Uncached::TooLarge);
        }
        let has_room = tier.store.has_room(write.size_bytes);
        has_room.then_some(()).ok_or(Uncached::TooDirty)
    }

    /// What the node knows of an accepted write without a question.
    pub fn known_clearance(&self, write: &PendingWrite, caller: &Caller) -> Option<Clearance> {
        let is_versioned = self.known_versioning(&bucket_of(write, caller));
        if is_versioned == Some(true) {
            return Some(Clearance::Through(Uncached::Versioned));
        }
        match self.permissions.known(&self.question(write, caller)?)? {
            Permission::Denied(error) => Some(Clearance::Refused(error)),
            _ => is_versioned.map(|_| Clearance::Granted),
        }
    }

    /// Asks the lake whether it would take an accepted write, and whether the bucket keeps versions.
    ///
    /// # Errors
    ///
    /// There is no answer, and so no permission.
    pub async fn clear(&self, write: &PendingWrite, caller: &Caller) -> Result<Clearance, PermissionError> {
        let Some(question) = self.question(write, caller) else {
            return Ok(Clearance::Through(Uncached::TierUnavailable));
        };
        let (is_versioned, permission) =
            tokio::join!(self.is_versioned(write, caller), self.permissions.ask(question));
        Ok(match permission? {
            Permission::Denied(error) => Clearance::Refused(error),
            Permission::Undecided => Clearance::Through(Uncached::NotPermitted),
            Permission::OtherEtag => Clearance::Through(Uncached::OtherEtag),
            Permission::Granted if is_versioned => Clearance::Through(Uncached::Versioned),
            Permission::Granted => Clearance::Granted,
        })
    }

    /// Checks that there is room for a write, and that the lake would take it from the caller.
    pub(super) async fn permit(&self, write: &PendingWrite, caller: &Caller) -> Result<(), Uncached> {
        self.check_room(write)?;
        let known = self.known_clearance(write, caller).map(Ok);
        let clearance = match known {
            Some(known) => known,
            None => self.clear(write, caller).await,
        };
        match clearance {
            Ok(Clearance::Granted) => Ok(()),
            Ok(Clearance::Through(why)) => Err(why),
            // The lake answers the request itself, in its own words.
            Ok(Clearance::Refused(_)) | Err(_) => Err(Uncached::NotPermitted),
        }
    }

    /// Asks the lake whether a caller may do something with a name that may be dirty, unless the answer is
    /// remembered. `headers` are those of the request on which the answer may depend.
    ///
    /// # Errors
    ///
    /// There is no answer, and so no permission.
    pub async fn may(
        &self,
        (action, name): (Action, &ObjectName),
        headers: HeaderMap,
        caller: &Caller,
    ) -> Result<Permission, PermissionError> {
        let Some((rule, _)) = self.rule(name) else {
            return Ok(Permission::Undecided);
        };
        let question = Question {
            action,
            name: name.clone(),
            rule: rule.number,
            headers,
            caller: caller.clone(),
        };
        self.permissions.ask(question).await
    }

    /// The number of the rule that a name is below.
    pub fn rule_number(&self, name: &ObjectName) -> Option<usize> {
        self.rule(name).map(|(rule, _)| rule.number)
    }

    /// Forgets what the lake has permitted a caller in a bucket, because it has refused the caller something.
    pub fn refused(&self, caller: &Caller, bucket: &str) {
        self.permissions.forget(caller.id(), bucket);
    }

    fn question(&self, write: &PendingWrite, caller: &Caller) -> Option<Question> {
        let (rule, _) = self.rule(&write.name)?;
        Some(Question {
            action: Action::Back,
            name: write.name.clone(),
            rule: rule.number,
            headers: creation_headers(&write.headers),
            caller: caller.clone(),
        })
    }

    /// Returns whether the bucket of a write keeps versions, as the lake said not long ago.
    async fn is_versioned(&self, write: &PendingWrite, caller: &Caller) -> bool {
        let key = bucket_of(write, caller);
        if let Some(is_versioned) = self.known_versioning(&key) {
            return is_versioned;
        }
        let account = self.lake.account_for(caller);
        let Some(is_versioned) = is_versioned(&self.lake, &write.name.bucket, account).await else {
            return self.versioned.get_within(&key, SILENCE_MAX).unwrap_or_default();
        };
        self.versioned.learn(key, is_versioned);
        is_versioned
    }

    /// Returns whether a bucket keeps versions, as far as the node remembers; longer while the lake does not
    /// answer.
    fn known_versioning(&self, bucket: &(CallerId, Arc<str>)) -> Option<bool> {
        let latest = || self.versioned.get_within(bucket, SILENCE_MAX);
        let known = self.versioned.get(bucket);
        known.or_else(|| self.lake.health().is_silent().then(latest).flatten())
    }
}

fn bucket_of(write: &PendingWrite, caller: &Caller) -> (CallerId, Arc<str>) {
    (caller.id(), Arc::clone(&write.name.bucket))
}
