//! A packed object: found by the map of its rule, and asked about in the name of a caller.

use std::sync::Arc;

use http::StatusCode;
use shoal_cache::lake::errors::{of_status, unanswered};
use shoal_cache::lake::{LakeRefusal, ReadError};
use shoal_net::endpoint::s3::{CallError, Refusal};
use shoal_pack::table::Map;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::object::ObjectName;

use super::PackedLake;
use crate::dirty::packs::{MapError, NotRead, PackMap, PackedObject};

/// A packed object, and the map that names it.
pub(super) struct Member {
    pub(super) map: Arc<PackMap>,
    pub(super) object: PackedObject,
}

/// A packed object is not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAnswered {
    /// Its pack is not read.
    #[error("the pack of the object is not read: {0}")]
    Pack(#[from] NotRead),
    /// The map is not read.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The lake within does not answer, or the node refuses the read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// For clients: worded for the object, and not for its pack.
impl From<NotAnswered> for ReadError {
    fn from(error: NotAnswered) -> Self {
        let error = match error {
            NotAnswered::Read(error) => return error,
            NotAnswered::Map(error) => return S3Error::from(error).into(),
            NotAnswered::Pack(error) => error,
        };
        Self::Refused(match error {
            NotRead::Refused(StatusCode::BAD_REQUEST) => S3Error::new(
                ErrorCode::InvalidRequest,
                "The lake refuses the headers of the request.",
            ),
            NotRead::Refused(status) => of_status(status),
            NotRead::Gone | NotRead::Wrong(_) => S3Error::new(
                ErrorCode::ServiceUnavailable,
                "The pack that has the object is missing at the lake, or damaged; the operator finds it in \
                 /status.",
            ),
            NotRead::Unanswered(CallError::Unanswered(error)) => unanswered(&error),
            NotRead::Unanswered(error) => {
                tracing::warn!(%error, "a pack was not read to the end");
                of_status(StatusCode::BAD_GATEWAY)
            }
        })
    }
}

/// For tasks and plans.
impl From<NotAnswered> for LakeRefusal {
    fn from(error: NotAnswered) -> Self {
        match error {
            NotAnswered::Pack(NotRead::Refused(status)) => Refusal { status, error: None }.into(),
            NotAnswered::Read(ReadError::Refused(error)) => {
                let status = error.code.status();
                Refusal { status, error: None }.into()
            }
            error => Self::Trouble(error.to_string()),
        }
    }
}

impl Member {
    fn is_where(&self, other: &Self) -> bool {
        (self.object.pack, &self.object.range) == (other.object.pack, &other.object.range)
    }
}

impl PackedLake {
    /// Returns the answer about a packed object; `None` if no pack has an object of this name. If the lake
    /// does not have the bytes, or refuses the pack, the root is read again: the object may be in another
    /// pack by now.
    pub(super) async fn of_member<T, F>(
        &self,
        name: &ObjectName,
        answer: impl Fn(Arc<Member>) -> F,
    ) -> Result<Option<T>, NotAnswered>
    where
        F: Future<Output = Result<T, NotAnswered>>,
    {
        let Some(map) = self.packs().of(name) else {
            return Ok(None);
        };
        let Some(member) = self.member(map, name).await? else {
            return Ok(None);
        };
        let error = match answer(Arc::clone(&member)).await {
            Err(NotAnswered::Pack(error)) if error.is_definite() => error,
            answered => return answered.map(Some),
        };
        let newest = map.newest().await?.map;
        match self.member_in(&newest, map, name)? {
            None => Ok(None),
            Some(same) if same.is_where(&member) => {
                same.object.note_damage(&map.damages, &error);
                Err(error.into())
            }
            Some(moved) => answer(moved).await.map(Some),
        }
    }

    /// Finds a packed object by a map that is current. A table that is damaged on this node's disk comes from
    /// the lake again.
    pub(super) async fn member(
        &self,
        map: &Arc<PackMap>,
        name: &ObjectName,
    ) -> Result<Option<Arc<Member>>, MapError> {
        match self.member_in(&*map.current().await?, map, name) {
            Err(MapError::Block(damaged)) => map.forget(&damaged),
            found => return found,
        }
        self.member_in(&*map.current().await?, map, name)
    }

    fn member_in(
        &self,
        rows: &Map,
        map: &Arc<PackMap>,
        name: &ObjectName,
    ) -> Result<Option<Arc<Member>>, MapError> {
        let Some(row) = rows.get(&name.key)? else {
            return Ok(None);
        };
        let naming = &self.dirty.shared.naming;
        let object = PackedObject::new(name.clone(), &row, &map.at_lake, naming)?;
        let map = Arc::clone(map);
        Ok(Some(Arc::new(Member { map, object })))
    }
}
