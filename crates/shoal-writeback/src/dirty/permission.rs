//! Asks the lake for a caller's permission before the registry or the store of a tier holds anything of that
//! caller, and remembers the answers.
//!
//! | answer | is remembered for | for the time |
//! |---|---|---|
//! | granted, to acknowledge | caller, rule and folder of the key | `[write] permission` |
//! | granted, to begin a change | caller, rule and kind of change | `[write] permission` |
//! | granted, to acknowledge | the same, while the lake is silent | [`SILENCE_MAX`] |
//! | denied | the same question about the same name | [`DENIAL`] |
//! | the lake rejects the caller's account | all questions of the caller | [`DENIAL`] |
//!
//! The lake decides each change again when it gets the request, so a remembered permission to begin one may
//! be broad. It does not see a write that a tier acknowledges before the flush, so that permission extends no
//! further than the folder, which is as fine as policies usually are. The same holds for a removal: instead
//! of a question there is a [`Trial`], a removal that the lake gets at once.
//!
//! A refusal of any request revokes the caller's permissions for the bucket, including those of questions in
//! flight. Concurrent requests of one caller that need the same permission share one question. A denial for
//! one name does not apply to others: requests for those then ask for themselves, one after the other.

mod beside;
mod memory;
mod question;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::StatusCode;
use parking_lot::Mutex;
use shoal_net::endpoint::{AccountRefusal, Endpoint, EndpointError};
use shoal_net::trace;
use shoal_s3::error::S3Error;
use shoal_s3::identity::CallerId;
use shoal_s3::object::ObjectName;

pub use self::beside::beside;
use self::memory::{GrantMemory, Stamp};
pub(super) use self::memory::{Memory, SILENCE_MAX};
pub(super) use self::question::Question;
pub use self::question::{Action, of_permission};

/// How long a denial is remembered.
const DENIAL: Duration = Duration::from_secs(5);

/// Number of names for which denials are remembered. When it is exceeded, all are forgotten.
const DENIALS_MAX: usize = 4096;

/// The lake's answer.
#[derive(Clone, Debug)]
pub enum Permission {
    /// The lake would carry the action out.
    Granted,
    /// The lake would accept the object, under an ETag that the node cannot predict.
    OtherEtag,
    /// The lake would refuse the action, with this error.
    Denied(S3Error),
    /// The lake does not support the question; its response to the request itself decides.
    Undecided,
}

/// The reason why the permission is unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PermissionError {
    /// The lake did not answer.
    #[error(transparent)]
    Lake(#[from] Arc<EndpointError>),
    /// The lake cannot answer at present.
    #[error("the lake answered {0}")]
    Status(StatusCode),
    /// The question was abandoned.
    #[error("the question to the lake was given up")]
    GivenUp,
}

/// The scope of a permission: requests in the same group share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    caller: CallerId,
    bucket: Arc<str>,
    rule: usize,
    /// The kind of the action.
    kind: Discriminant<Action>,
    /// The folder of the keys. Empty for permissions that extend to the whole rule.
    folder: Box<[u8]>,
}

impl Group {
    /// Returns the same group, for the permission to begin a write.
    fn write(&self) -> Self {
        Self {
            kind: discriminant(&Action::Write),
            folder: Box::default(),
            ..self.clone()
        }
    }
}

/// A request that the lake decides on: if the lake carries it out, that is a permission for others like it.
pub struct Trial {
    group: Group,
    stamp: Stamp,
}

/// Identifies a question: two with the same id get the same denial.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QuestionId {
    group: Group,
    name: ObjectName,
    /// A digest of the other inputs.
    details: u64,
}

/// A question in flight. All requests that wait for it get its answer.
#[derive(Clone)]
struct UnderWay {
    id: QuestionId,
    answer: Shared<BoxFuture<'static, Result<Permission, PermissionError>>>,
}

/// Callers' permissions at the lake.
pub(crate) struct Permissions {
    pub(super) lake: Arc<Endpoint>,
    granted: GrantMemory,
    denials: Memory<QuestionId, S3Error>,
    /// The callers whose account the lake rejects.
    refused_accounts: Memory<CallerId, S3Error>,
    under_way: Mutex<HashMap<Group, UnderWay>>,
    hasher: foldhash::fast::RandomState,
}

impl Permissions {
    /// Asks `lake`, and remembers a granted permission for the time `lasts`.
    pub(super) fn new(lake: Arc<Endpoint>, lasts: Duration) -> Self {
        Self {
            lake,
            granted: GrantMemory::new(lasts),
            denials: Memory::new(DENIAL, DENIALS_MAX),
            refused_accounts: Memory::new(DENIAL, DENIALS_MAX),
            under_way: Mutex::default(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    /// Forgets a caller's permissions for a bucket, because the lake has refused the caller something there.
    pub(super) fn forget(&self, caller: CallerId, bucket: &str) {
        self.granted.forget(caller, bucket);
    }

    /// Returns the remembered answer to a question.
    pub(super) fn known(&self, question: &Question) -> Option<Permission> {
        let group = group_of(question);
        let is_description = matches!(question.action, Action::Describe(..));
        let is_yes = self.granted.has(&group) || is_description && self.granted.has(&group.write());
        if is_yes || self.lake.health.is_silent() && self.holds_for_silence(&group) {
            return Some(Permission::Granted);
        }
        let no = self.refused_accounts.get(&group.caller);
        no.or_else(|| self.denials.get(&self.id(question)))
            .map(Permission::Denied)
    }

    /// Begins a trial, before its request is sent.
    pub(super) fn begin_trial(&self, question: &Question) -> Trial {
        let group = group_of(question);
        let stamp = self.granted.stamp(&group);
        Trial { group, stamp }
    }

    /// Remembers that the lake has carried out the request of a trial.
    pub(super) fn learn(&self, Trial { group, stamp }: &Trial) {
        self.granted.learn(group, *stamp);
    }

    /// Returns true if the tier may acknowledge a write or a removal although the lake is silent, because the
    /// lake has permitted one in the same folder recently. Other actions need the lake in any case.
    fn holds_for_silence(&self, group: &Group) -> bool {
        let is_acknowledged = [Action::Back, Action::RemoveBack].map(|action| discriminant(&action));
        is_acknowledged.contains(&group.kind) && self.granted.has_within(group, SILENCE_MAX)
    }

    /// Returns the remembered answer, or asks the lake.
    ///
    /// # Errors
    ///
    /// The lake does not answer, so there is no permission.
    pub(super) async fn ask(self: &Arc<Self>, question: Question) -> Result<Permission, PermissionError> {
        let question = Arc::new(question);
        let id = self.id(&question);
        loop {
            if let Some(permission) = self.known(&question) {
                return Ok(permission);
            }
            // If permissions are not remembered, each request asks for itself.
            if self.granted.is_forgetful() {
                return Box::pin(self.ask_lake(&question, id)).await;
            }
            let under_way = self.join(&question, &id);
            let is_own = under_way.id == id;
            match trace::wait("wait_for_permission", under_way.answer).await {
                // The answer applies to another name only.
                Ok(Permission::Denied(_) | Permission::OtherEtag | Permission::Undecided) if !is_own => {}
                Err(PermissionError::GivenUp) => {
                    self.under_way.lock().remove(&id.group);
                    return Err(PermissionError::GivenUp);
                }
                Err(_) if self.holds_for_silence(&id.group) => return Ok(Permission::Granted),
                answer => return answer,
            }
        }
    }

    /// Joins the group's question in flight, or sends this one.
    fn join(self: &Arc<Self>, question: &Arc<Question>, id: &QuestionId) -> UnderWay {
        let mut all = self.under_way.lock();
        let begun = all.entry(id.group.clone()).or_insert_with(|| {
            let (this, question, id) = (Arc::clone(self), Arc::clone(question), id.clone());
            let of_task = id.clone();
            // A separate task, because the request that asked first may be cancelled.
            let asked = trace::spawn(async move {
                let answer = Box::pin(this.ask_lake(&question, of_task.clone())).await;
                this.under_way.lock().remove(&of_task.group);
                answer
            });
            let answer = asked.map(|answer| answer.unwrap_or(Err(PermissionError::GivenUp)));
            UnderWay {
                id,
                answer: answer.boxed().shared(),
            }
        });
        begun.clone()
    }

    async fn ask_lake(&self, question: &Question, id: QuestionId) -> Result<Permission, PermissionError> {
        let stamp = self.granted.stamp(&id.group);
        let permission = question.ask(&self.lake).await?;
        match &permission {
            Permission::Granted => {
                self.granted.learn(&id.group, stamp);
                if matches!(question.action, Action::Back) {
                    self.granted.learn(&id.group.write(), stamp);
                }
            }
            Permission::OtherEtag => self.granted.learn(&id.group.write(), stamp),
            Permission::Denied(error) => {
                self.granted.forget(id.group.caller, &id.group.bucket);
                if AccountRefusal::of_code(error.code.as_str()).is_some() {
                    self.refused_accounts.learn(id.group.caller, error.clone());
                } else {
                    self.denials.learn(id, error.clone());
                }
            }
            Permission::Undecided => {}
        }
        Ok(permission)
    }

    fn id(&self, question: &Question) -> QuestionId {
        QuestionId {
            group: group_of(question),
            name: question.name.clone(),
            details: self.hasher.hash_one(question.details()),
        }
    }
}

/// Returns the group of a question.
fn group_of(question: &Question) -> Group {
    Group {
        caller: question.caller.id(),
        bucket: Arc::clone(&question.name.bucket),
        rule: question.rule,
        kind: discriminant(&question.action),
        folder: match question.action {
            Action::Back | Action::RemoveBack => folder_of(&question.name.key).into(),
            _ => Box::default(),
        },
    }
}

/// Returns a key up to its last slash.
fn folder_of(key: &[u8]) -> &[u8] {
    let slash = key.iter().rposition(|byte| *byte == b'/');
    &key[..slash.map_or(0, |slash| slash + 1)]
}
