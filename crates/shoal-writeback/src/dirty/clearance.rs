//! Decides if a tier may acknowledge a write, from remembered answers of the lake or by asking it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use shoal_cache::exchange::Admitted;
use shoal_cache::lake::{Write, is_known};
use shoal_cache::read_context::ReadContext;
use shoal_cache::write::{Uncached, WriteMode, size_to_copy};
use shoal_net::endpoint::EndpointError;
use shoal_net::endpoint::s3::{S3Client, SendOptions};
use shoal_s3::error::S3Error;
use shoal_s3::identity::{Caller, CallerId, NODE};
use shoal_s3::object::ObjectName;
use shoal_s3::xml::Element;

pub use super::permission::Trial;
use super::permission::{
    Action, Memory, Permission, PermissionError, Permissions, Question, SILENCE_MAX, of_permission,
};
use super::record::checksums::creation_headers;
use super::record::keys::unversioned;
use super::record::tombstone::RemovalRecord;
use super::record::writing::{PendingWrite, of_flush};
use super::tiers::entries::Entries;
use crate::tier::is_versioned;

/// How long an answer of the lake on a bucket's versioning is remembered.
const VERSIONED: Duration = Duration::from_mins(1);

/// Number of pairs of caller and bucket for which it is remembered.
const BUCKETS_MAX: usize = 10_000;

/// The decision on a write for which a tier has room.
#[derive(Clone, Debug)]
pub enum Clearance {
    /// The tier may acknowledge the write before the lake has the object.
    Granted,
    /// The write must go to the lake at once.
    Through(Uncached),
    /// The lake would refuse the write; its error.
    Refused(S3Error),
}

/// A removal that may be acknowledged before the lake has carried it out.
#[derive(Clone, Debug)]
pub struct PendingRemoval {
    pub(super) name: ObjectName,
    pub(super) record: RemovalRecord,
}

/// Decides which writes a tier may acknowledge, from remembered answers of the lake or by asking it.
pub struct Clearances {
    entries: Arc<Entries>,
    permissions: Arc<Permissions>,
    /// True for buckets that keep versions, as the lake reported to each caller.
    versioned: Memory<(CallerId, Arc<str>), bool>,
}

impl Clearances {
    /// Asks the lake of `permissions`, and remembers its answers.
    pub(super) fn new(entries: Arc<Entries>, permissions: Arc<Permissions>) -> Self {
        Self {
            entries,
            permissions,
            versioned: Memory::new(VERSIONED, BUCKETS_MAX),
        }
    }

    /// Accepts a write if its tier has room. A lifetime named by the writer overrides the rule's.
    ///
    /// # Errors
    ///
    /// The reason why the write must go to the lake at once.
    pub fn accept(&self, admitted: &Admitted, asked: Write<'_>) -> Result<PendingWrite, Uncached> {
        let size_bytes = size_to_copy(&admitted.classified, &admitted.parts)?;
        let write = PendingWrite::new(admitted, asked, size_bytes)?;
        self.check_room(&write)?;
        Ok(write)
    }

    fn check_room(&self, write: &PendingWrite) -> Result<(), Uncached> {
        let (_, tier) = self.entries.rule(&write.name).ok_or(Uncached::TierUnavailable)?;
        tier.check_registry()?;
        if write.size_bytes > tier.store.object_bytes_max() {
            return Err(Uncached::TooLarge);
        }
        if !tier.keeps_inline(write.size_bytes) {
            tier.store.check()?;
        }
        let has_room = tier.store.has_room(write.size_bytes);
        has_room.then_some(()).ok_or(Uncached::TooDirty)
    }

    /// Decides on an accepted write from remembered answers, or returns `None` if the lake must be asked.
    pub fn known(&self, write: &PendingWrite, caller: &Caller) -> Option<Clearance> {
        let is_versioned = self.known_versioning(&bucket_of(&write.name.bucket, caller));
        if is_versioned == Some(true) {
            return Some(Clearance::Through(Uncached::Versioned));
        }
        match self.permissions.known(&self.question_of(write, caller)?)? {
            Permission::Denied(error) => Some(Clearance::Refused(error)),
            _ => is_versioned.map(|_| Clearance::Granted),
        }
    }

    /// Asks the lake if it would accept a write, and if the bucket keeps versions.
    ///
    /// # Errors
    ///
    /// The lake does not answer, so there is no permission.
    pub async fn clear(&self, write: &PendingWrite, caller: &Caller) -> Result<Clearance, PermissionError> {
        let Some(question) = self.question_of(write, caller) else {
            return Ok(Clearance::Through(Uncached::TierUnavailable));
        };
        let (is_versioned, permission) = tokio::join!(
            self.is_versioned(&write.name.bucket, caller),
            self.permissions.ask(question)
        );
        Ok(match permission? {
            Permission::Denied(error) => Clearance::Refused(error),
            Permission::Undecided => Clearance::Through(Uncached::NotPermitted),
            Permission::OtherEtag => Clearance::Through(Uncached::OtherEtag),
            Permission::Granted if is_versioned => Clearance::Through(Uncached::Versioned),
            Permission::Granted => Clearance::Granted,
        })
    }

    /// Checks that there is room for a write and that the lake would accept it from the caller.
    pub(super) async fn permit(&self, write: &PendingWrite, caller: &Caller) -> Result<(), Uncached> {
        self.check_room(write)?;
        let clearance = match self.known(write, caller) {
            Some(known) => Ok(known),
            None => self.clear(write, caller).await,
        };
        match clearance {
            Ok(Clearance::Granted) => Ok(()),
            Ok(Clearance::Through(why)) => Err(why),
            // The request is sent to the lake, which words its own refusal.
            Ok(Clearance::Refused(_)) | Err(_) => Err(Uncached::NotPermitted),
        }
    }

    /// Asks the lake if a caller may do something with a name that may be dirty, unless the answer is
    /// remembered. `headers` are those of the request that the answer may depend on.
    ///
    /// # Errors
    ///
    /// The lake does not answer, so there is no permission.
    pub async fn may(
        &self,
        action: Action,
        name: &ObjectName,
        headers: HeaderMap,
        caller: &Caller,
    ) -> Result<Permission, PermissionError> {
        match self.question(action, name, headers, caller) {
            Some(question) => self.permissions.ask(question).await,
            None => Ok(Permission::Undecided),
        }
    }

    /// Accepts the removal of an object, if its tier may acknowledge it: the request is plain, and the lake
    /// has recently carried out a removal of the caller in the same folder, in a bucket that keeps no
    /// versions.
    pub async fn removal(&self, admitted: &Admitted, name: &ObjectName) -> Option<PendingRemoval> {
        let (caller, sent) = (&admitted.verified.caller, &admitted.parts.headers);
        let rules = &self.entries.shared.parts.rules;
        let is_plain =
            name.version.is_none() && rules.mode(name, sent) == Ok(WriteMode::Back) && of_flush(sent).is_ok();
        let (Caller::Identity(identity), true) = (caller, is_plain) else {
            return None;
        };
        let (_, tier) = self.entries.rule(name)?;
        tier.check_registry().ok()?;
        let question = self.question(Action::RemoveBack, name, HeaderMap::new(), caller)?;
        let is_granted = matches!(self.permissions.known(&question), Some(Permission::Granted));
        if !is_granted || self.is_versioned(&name.bucket, caller).await {
            return None;
        }
        // An object that another identity wrote and the lake does not have ends by the lake's word only.
        let lookup = self.entries.find(name).await.ok()?;
        if lookup.dirty.is_some_and(|dirty| !dirty.is_of(caller)) {
            return None;
        }
        Some(PendingRemoval {
            name: name.clone(),
            record: RemovalRecord {
                writer: identity.name().into(),
                headers: of_permission(sent),
            },
        })
    }

    /// Begins a removal that the lake decides on. If the lake carries it out, later ones in the folder may be
    /// acknowledged.
    pub fn try_removal(&self, name: &ObjectName, caller: &Caller) -> Option<Trial> {
        let question = self.question(Action::RemoveBack, name, HeaderMap::new(), caller)?;
        Some(self.permissions.begin_trial(&question))
    }

    /// Remembers that the lake has carried out a removal.
    pub fn removed(&self, trial: &Trial) {
        self.permissions.learn(trial);
    }

    /// Returns the number of the rule that covers a name.
    pub fn rule_number(&self, name: &ObjectName) -> Option<usize> {
        self.entries.rule(name).map(|(rule, _)| rule.number)
    }

    /// Forgets a caller's permissions in a bucket, because the lake has refused the caller something there.
    pub fn refused(&self, caller: &Caller, bucket: &str) {
        self.permissions.forget(caller.id(), bucket);
    }

    fn question(
        &self,
        action: Action,
        name: &ObjectName,
        headers: HeaderMap,
        caller: &Caller,
    ) -> Option<Question> {
        let (rule, _) = self.entries.rule(name)?;
        Some(Question {
            action,
            name: name.clone(),
            rule: rule.number,
            headers,
            caller: caller.clone(),
        })
    }

    fn question_of(&self, write: &PendingWrite, caller: &Caller) -> Option<Question> {
        let headers = creation_headers(&write.headers);
        self.question(Action::Back, &write.name, headers, caller)
    }

    /// Returns true if the bucket of a write keeps versions, from memory or by asking the lake. If the lake
    /// does not answer, the last answer counts for up to [`SILENCE_MAX`], and then false.
    async fn is_versioned(&self, bucket: &Arc<str>, caller: &Caller) -> bool {
        let key = bucket_of(bucket, caller);
        if let Some(is_versioned) = self.known_versioning(&key) {
            return is_versioned;
        }
        let Some(is_versioned) = self.ask_if_versioned(bucket, caller).await else {
            return self.versioned.get_within(&key, SILENCE_MAX).unwrap_or_default();
        };
        self.versioned.learn(key, is_versioned);
        is_versioned
    }

    /// Returns true if a bucket keeps versions or has kept them: objects that die young in a tier would never
    /// become versions. Returns `None` if the lake does not answer. Objects in such a bucket may also be
    /// locked. If the lake does not let the caller know, the node assumes that there are none.
    async fn ask_if_versioned(&self, bucket: &str, caller: &Caller) -> Option<bool> {
        let client = S3Client {
            payer: NODE,
            ..S3Client::of_caller(&self.permissions.lake, caller)
        };
        let question = client.setting(bucket, "versioning");
        let answer = client.send(question, SendOptions::default()).await.ok()?;
        let (head, body) = (answer.head, answer.body.ok()?);
        let is_answer = !head.status.is_server_error();
        is_answer.then(|| head.status == StatusCode::OK && says_versioned(&body))
    }

    /// Returns the remembered answer on a bucket's versioning. Answers are valid longer while the lake is
    /// silent.
    fn known_versioning(&self, bucket: &(CallerId, Arc<str>)) -> Option<bool> {
        let latest = || self.versioned.get_within(bucket, SILENCE_MAX);
        let known = self.versioned.get(bucket);
        known.or_else(|| self.permissions.lake.health.is_silent().then(latest).flatten())
    }

    /// Returns true if the lake lets a caller know about an object. The node sends a HEAD on the caller's
    /// behalf; success and 404 both count as permission, because S3 returns neither to a caller that may not
    /// read the object or list its bucket. `headers` are those of the caller's request.
    ///
    /// # Errors
    ///
    /// The lake does not answer.
    pub async fn may_know(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        name: &ObjectName,
    ) -> Result<bool, EndpointError> {
        let account = self.permissions.lake.account_for(caller);
        let headers = of_permission(headers);
        let context = ReadContext::of_peer(account, caller.clone(), Some(unversioned(name)), headers);
        let answer = self.permissions.lake.send(context.request(Method::HEAD)).await?;
        Ok(is_known(answer.status()))
    }
}

fn bucket_of(bucket: &Arc<str>, caller: &Caller) -> (CallerId, Arc<str>) {
    (caller.id(), Arc::clone(bucket))
}

fn says_versioned(document: &[u8]) -> bool {
    Element::from_answer(document).is_ok_and(|setting| is_versioned(&setting))
}

#[cfg(test)]
mod tests {
    use super::says_versioned;

    #[test]
    fn a_bucket_that_keeps_or_kept_versions_says_so() {
        let says = |inside: &str| {
            let document = format!("<VersioningConfiguration xmlns=\"x\">{inside}</VersioningConfiguration>");
            says_versioned(document.as_bytes())
        };
        assert!(says("<Status>Enabled</Status>") && says("<Status>Suspended</Status>"));
        assert!(!says("") && !says("<Status/>") && !says_versioned(b"no document"));
    }
}
