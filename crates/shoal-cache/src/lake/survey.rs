//! Listings and versions for tasks and plans, in the name of an identity.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use shoal_base::causes;
use shoal_net::endpoint::s3::{CallError, Refusal, S3Client};
use shoal_policy::{ObjectId, VersionId};
use shoal_s3::conditions::Conditions;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable, Version};
use shoal_s3::range::RangeRequest;
use shoal_s3::read_head::Question;
use shoal_s3::target;
use shoal_s3::xml::{ListedObject, Listing};

use super::{PlainLake, ReadRequest};
use crate::fetch::read_context::{Purpose, ReadContext};
use crate::grants::freshness::Reuse;
pub use shoal_net::endpoint::s3::{PAGE_KEYS, PageRequest};

/// Why the lake does not say what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LakeRefusal {
    /// It refuses the identity, or has no such bucket or object.
    #[error("the lake answered {answer}")]
    Refused {
        /// The status of its answer.
        status: StatusCode,
        /// The status and the error code, for messages.
        answer: String,
    },
    /// It does not answer, or with an error of its own.
    #[error("{0}")]
    Trouble(String),
    /// The object cannot be cached.
    #[error("the object cannot be cached ({})", .0.as_str())]
    Uncacheable(Uncacheable),
}

/// A version that a task wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The name of the object.
    pub name: &'a ObjectName,
    /// Its version.
    pub version: VersionId,
}

/// The place of an object in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackPlace {
    /// The pack.
    pub pack: ObjectId,
    /// The offset of the object's first byte in it.
    pub start: u64,
}

impl PlainLake {
    pub(super) async fn list_for(
        &self,
        caller: &Caller,
        page: PageRequest<'_>,
    ) -> Result<Vec<ListedObject>, LakeRefusal> {
        let client = S3Client::of_caller(&self.cache().lake, caller);
        let (_, Listing { objects, .. }) = client.list(page).await?;
        if objects.iter().any(|object| !object.key.starts_with(page.prefix)) {
            return Err(LakeRefusal::Trouble(
                "the lake sent keys that were not asked for".into(),
            ));
        }
        Ok(objects)
    }

    pub(super) async fn version_for(
        &self,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<Arc<Version>, LakeRefusal> {
        if !target::fits(name) {
            return Err(LakeRefusal::Trouble("its name is too long".into()));
        }
        let lake = &self.cache().lake;
        let account = lake.account_for(caller);
        let context = ReadContext::of_peer(account, caller.clone(), Some(name.clone()), HeaderMap::new());
        let request = ReadRequest {
            caller: caller.id(),
            object: name.id(lake.url()),
            range: RangeRequest::Whole,
            conditions: Conditions::default(),
            context: Arc::new(context.with_purpose(Purpose::Prefetch)),
            reuse: Reuse::NEVER,
            only_if_cached: false,
            checksum_mode: false,
            question: Question::Plain,
            as_sent: None,
        };
        let stamp = self.stamp_now(&request);
        let answer = self.send(&request, request.context.request(Method::HEAD)).await;
        let (head, _) = answer
            .map_err(|error| LakeRefusal::Trouble(causes::line(&error)))?
            .into_parts();
        if head.status != StatusCode::OK {
            return Err(Refusal {
                status: head.status,
                error: None,
            }
            .into());
        }
        let learnt = self.learn(&request, head.status, &head.headers, stamp);
        learnt
            .map(|(version, _)| version)
            .map_err(LakeRefusal::Uncacheable)
    }
}

impl From<CallError> for LakeRefusal {
    fn from(error: CallError) -> Self {
        Self::Trouble(match error {
            CallError::Refused(refusal) => return refusal.into(),
            CallError::Unanswered(error) => causes::line(&error),
            CallError::TooLong(error) => error.to_string(),
            CallError::BrokenOff(error) => format!("its listing broke off: {error}"),
            CallError::Misunderstood(problem) => format!("the lake sent a listing that {problem}"),
        })
    }
}

impl From<Refusal> for LakeRefusal {
    fn from(Refusal { status, error }: Refusal) -> Self {
        let answer = match error {
            Some(error) => format!("{} {}", status.as_u16(), error.code.escape_debug()),
            None => status.to_string(),
        };
        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            Self::Refused { status, answer }
        } else {
            Self::Trouble(format!("the lake answered {answer}"))
        }
    }
}
