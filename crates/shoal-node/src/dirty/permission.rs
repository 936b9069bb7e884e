//! Asks the lake what a caller may do, before the registry or the store of a tier holds anything of it; and
//! remembers the answers for a while.
//!
//! | answer | is remembered | for |
//! |---|---|---|
//! | yes, to acknowledge a write | for the caller, the rule and the folder of the key | `[write] permission`
//! |
//! | yes, to let a change begin | for the caller, the rule and the kind of change | `[write] permission` |
//! | yes, to acknowledge a write | the same, while the lake does not answer | [`SILENCE_MAX`] |
//! | no | for the same question about the same name | [`DENIAL`] |
//! | the lake does not accept the caller's account | for all that this caller asks | [`DENIAL`] |
//!
//! The lake decides each change that begins, whatever is remembered. It does not see a write that a tier
//! acknowledges before the flush, so there a yes reaches no further than the folder, as policies do.
//!
//! A refusal of any request ends the caller's yes for the bucket, and one that is still on its way. Requests
//! of one caller that need the same yes at the same time share one question. A no for one name is none for
//! another: whoever waits for it then asks for itself, one after the other.

mod beside;
mod memory;
mod question;
mod versions;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::StatusCode;
use parking_lot::Mutex;
use shoal_s3::error::S3Error;
use shoal_s3::identity::CallerId;
use shoal_s3::object::ObjectName;

pub use self::beside::beside;
use self::memory::GrantMemory;
pub(super) use self::memory::{Memory, SILENCE_MAX};
pub(super) use self::question::Question;
pub use self::question::{Action, of_permission};
pub(super) use self::versions::is_versioned;
use crate::endpoint::{AccountRefusal, Endpoint, EndpointError};

/// How long a no is remembered.
const DENIAL: Duration = Duration::from_secs(5);

/// The number of names that a no is remembered for. Beyond it, all are forgotten.
const DENIALS_MAX: usize = 4096;

/// The lake's answer.
#[derive(Clone, Debug)]
pub enum Permission {
    /// The lake would do it.
    Granted,
    /// The lake would take the object, under an ETag that the node cannot know beforehand.
    OtherEtag,
    /// The lake would not do it, and says why.
    Denied(S3Error),
    /// The lake does not understand the question: the answer to the request itself decides.
    Undecided,
}

/// The reason why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PermissionError {
    /// The lake gave none.
    #[error(transparent)]
    Lake(#[from] Arc<EndpointError>),
    /// The lake cannot answer now.
    #[error("the lake answered {0}")]
    Status(StatusCode),
    /// The question was given up.
    #[error("the question to the lake was given up")]
    GivenUp,
}

/// What a yes is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// To write, so that the object has the ETag that the node computes.
    Back,
    /// To write.
    Write,
    /// To remove.
    Remove,
    /// To change what belongs to an object: its ACL, its tags.
    Describe,
}

/// Those who need the same yes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    caller: CallerId,
    bucket: Arc<str>,
    rule: usize,
    kind: Kind,
    /// The beginning of the keys. Empty for all below the rule.
    folder: Box<[u8]>,
}

/// Names a question, as far as a no depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QuestionId {
    group: Group,
    name: ObjectName,
    /// A digest of the rest.
    details: u64,
}

/// A question that is under way. All who wait for it get its answer.
#[derive(Clone)]
struct UnderWay {
    id: QuestionId,
    answer: Shared<BoxFuture<'static, Result<Permission, PermissionError>>>,
}

/// What the lake lets callers do.
pub(super) struct Permissions {
    lake: Arc<Endpoint>,
    granted: GrantMemory,
    denials: Memory<QuestionId, S3Error>,
    /// The callers whose account the lake does not accept.
    refused_accounts: Memory<CallerId, S3Error>,
    under_way: Mutex<HashMap<Group, UnderWay>>,
    hasher: foldhash::fast::RandomState,
}

impl Permissions {
    /// Asks `lake`, and remembers a yes for the time `lasts`.
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

    /// Forgets every yes to a caller about a bucket: the lake has refused it something there.
    pub(super) fn forget(&self, caller: CallerId, bucket: &str) {
        self.granted.forget(caller, bucket);
    }

    /// The remembered answer to a question.
    pub(super) fn known(&self, question: &Question) -> Option<Permission> {
        let group = Group::of(question);
        let is_yes =
            self.granted.has(&group) || group.kind == Kind::Describe && self.granted.has(&group.write());
        if is_yes || self.lake.health().is_silent() && self.holds_for_silence(&group) {
            return Some(Permission::Granted);
        }
        let no = self.refused_accounts.get(&group.caller);
        no.or_else(|| self.denials.get(&self.id(question)))
            .map(Permission::Denied)
    }

    /// Returns whether the tier acknowledges a write although the lake does not answer: it has said yes not
    /// long ago. Only such a write needs nothing else of the lake now.
    fn holds_for_silence(&self, group: &Group) -> bool {
        group.kind == Kind::Back && self.granted.has_for_silence(group)
    }

    /// Asks the lake, unless the answer is remembered.
    ///
    /// # Errors
    ///
    /// There is no answer, and so no permission.
    pub(super) async fn ask(self: &Arc<Self>, question: Question) -> Result<Permission, PermissionError> {
        let question = Arc::new(question);
        let id = self.id(&question);
        loop {
            if let Some(permission) = self.known(&question) {
                return Ok(permission);
            }
            // Where no yes is remembered, each request has a question of its own.
            if self.granted.is_forgetful() {
                return Box::pin(self.ask_lake(&question, id)).await;
            }
            let under_way = self.join(&question, &id);
            let is_own = under_way.id == id;
            match under_way.answer.await {
                // Another name's.
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

    /// The question of the group that is under way, or this one, which begins.
    fn join(self: &Arc<Self>, question: &Arc<Question>, id: &QuestionId) -> UnderWay {
        let mut all = self.under_way.lock();
        let begun = all.entry(id.group.clone()).or_insert_with(|| {
            let (this, question, id) = (Arc::clone(self), Arc::clone(question), id.clone());
            let of_task = id.clone();
            // A task of its own: whoever asked first may go away.
            let asked = tokio::spawn(async move {
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
                if id.group.kind == Kind::Back {
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
            group: Group::of(question),
            name: question.name.clone(),
            details: self.hasher.hash_one(question.details()),
        }
    }
}

impl Group {
    fn of(question: &Question) -> Self {
        Self {
            caller: question.caller.id(),
            bucket: Arc::clone(&question.name.bucket),
            rule: question.rule,
            kind: question.action.kind(),
            folder: match question.action {
                Action::Back => folder_of(&question.name.key).into(),
                _ => Box::default(),
            },
        }
    }

    /// The same, to let a write begin.
    fn write(&self) -> Self {
        Self {
            kind: Kind::Write,
            folder: Box::default(),
            ..self.clone()
        }
    }
}

/// A key up to its last slash.
fn folder_of(key: &[u8]) -> &[u8] {
    let slash = key.iter().rposition(|byte| *byte == b'/');
    &key[..slash.map_or(0, |slash| slash + 1)]
}
