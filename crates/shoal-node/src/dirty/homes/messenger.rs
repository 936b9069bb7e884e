//! Saying something to another node, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::uri::PathAndQuery;
use shoal_policy::NodeId;

use super::request::Request;
use super::uploads::UploadRequest;
use crate::cooperation::Cooperation;
use crate::peer::PeerError;

/// A question is answered from memory.
const PATIENCE: Duration = Duration::from_secs(1);

/// Blocks are waited for before a manifest is kept; a commit waits for that.
const KEEP_PATIENCE: Duration = Duration::from_secs(8);
const COMMIT_PATIENCE: Duration = Duration::from_secs(20);

/// A flush under way may have sent its last byte: then the lake's answer is waited for.
const HOLD_PATIENCE: Duration = Duration::from_mins(1);
const FLUSH_PATIENCE: Duration = Duration::from_mins(2);

/// What a node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is so, or was done.
    Done(Bytes),
    /// There is no such object.
    Nothing,
    /// There was one, and a part of it is gone.
    Lost(Bytes),
    /// It sees the cluster otherwise, or has not heard from everybody yet.
    Unsettled,
    /// It does not do that, for want of room or of blocks, or because the name was written again.
    Refused,
    /// Too much is asked of it at a time.
    Busy,
    /// It tried, in vain.
    Failed,
    /// It does not understand.
    Misunderstood,
}

impl Answer {
    /// The status that says it.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Done(_) => StatusCode::OK,
            Self::Nothing => StatusCode::NOT_FOUND,
            Self::Lost(_) => StatusCode::GONE,
            Self::Unsettled => StatusCode::CONFLICT,
            Self::Refused => StatusCode::INSUFFICIENT_STORAGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed => StatusCode::BAD_GATEWAY,
            Self::Misunderstood => StatusCode::BAD_REQUEST,
        }
    }

    /// The answer that a status and a body say.
    pub fn of(status: StatusCode, body: Bytes) -> Self {
        match status {
            StatusCode::OK => Self::Done(body),
            StatusCode::NOT_FOUND => Self::Nothing,
            StatusCode::GONE => Self::Lost(body),
            StatusCode::INSUFFICIENT_STORAGE => Self::Refused,
            StatusCode::BAD_GATEWAY => Self::Failed,
            StatusCode::BAD_REQUEST => Self::Misunderstood,
            // A node that is too busy may do it later, too.
            _ => Self::Unsettled,
        }
    }

    /// What comes with it.
    pub fn into_body(self) -> Bytes {
        match self {
            Self::Done(body) | Self::Lost(body) => body,
            _ => Bytes::new(),
        }
    }
}

/// A node has not answered.
#[derive(Debug, thiserror::Error)]
pub(in crate::dirty) enum Unheard {
    /// It is no longer there.
    #[error("it is not there")]
    Gone,
    /// It has failed often: it is left alone for a moment.
    #[error("{0} is left alone for a moment")]
    LeftAlone(String),
    /// It did not answer.
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// Speaks to other nodes.
#[derive(Debug)]
pub(in crate::dirty) struct Messenger(pub Arc<Cooperation>);

impl Messenger {
    /// Says something to another node.
    pub(in crate::dirty) async fn say(&self, node: NodeId, request: &Request) -> Result<Answer, Unheard> {
        self.tell(node, request.verb(), request.target(), patience(request))
            .await
    }

    /// Says something about an upload to another node.
    pub(in crate::dirty) async fn say_of_upload(
        &self,
        node: NodeId,
        request: &UploadRequest,
    ) -> Result<Answer, Unheard> {
        self.tell(node, request.verb(), request.target(), request.patience())
            .await
    }

    async fn tell(
        &self,
        node: NodeId,
        verb: &'static str,
        target: Option<PathAndQuery>,
        patience: Duration,
    ) -> Result<Answer, Unheard> {
        let peer = self.0.peer(node).ok_or(Unheard::Gone)?;
        if !peer.is_reachable() {
            return Err(Unheard::LeftAlone(peer.name().into()));
        }
        let target = target.ok_or(PeerError::TooLong)?;
        let (status, body) = peer.call(verb, target, patience).await?;
        Ok(Answer::of(status, body))
    }
}

const fn patience(request: &Request) -> Duration {
    match request {
        Request::Name { .. } | Request::Keep(_) => KEEP_PATIENCE,
        Request::Commit { .. } => COMMIT_PATIENCE,
        Request::Hold { .. } => HOLD_PATIENCE,
        Request::Flush { .. } => FLUSH_PATIENCE,
        _ => PATIENCE,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Answer;

    #[test]
    fn what_one_node_answers_the_other_one_hears() {
        let body = Bytes::from_static(b"manifest");
        for answer in [
            Answer::Done(body.clone()),
            Answer::Nothing,
            Answer::Lost(body),
            Answer::Unsettled,
            Answer::Refused,
            Answer::Failed,
            Answer::Misunderstood,
        ] {
            let heard = Answer::of(answer.status(), answer.clone().into_body());
            assert_eq!(heard, answer);
        }
    }

    #[test]
    fn a_busy_node_is_asked_again_like_one_that_is_not_settled() {
        let heard = Answer::of(Answer::Busy.status(), Bytes::new());
        assert_eq!(heard, Answer::Unsettled);
    }
}
