//! Derives the state of the endpoint and of this node's accounts from each response, before the caller sees
//! it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::DATE;
use http_body_util::BodyExt;
use shoal_s3::xml::ErrorDocument;

use super::refusal::{AccountRefusal, clock_difference};
use super::{EndpointHealth, LakeAccount};
use crate::endpoint::LakeBody;
use crate::endpoint::error::{EndpointError, Failure, RequestContext};
use crate::time::clock;

/// Number of bytes of an error document to read: the code is near the beginning.
const BEGINNING_BYTES: usize = 8 << 10;

/// An error document that does not arrive within this time is passed on without being read.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Number of characters of a lake's message to log.
const MESSAGE_CHARS: usize = 200;

/// The judgement of a response on the account that signed the request.
#[derive(Debug)]
pub(in crate::endpoint) enum Verdict {
    /// The endpoint recognised the account, even if it denied the request.
    Accepted,
    /// The endpoint rejected the account, with this message.
    Refused(AccountRefusal, String),
    /// Unknown, because the response has no body.
    Open,
    /// The endpoint failed to process the request.
    Failed,
}

impl EndpointHealth {
    /// Records if the endpoint answered, and if it accepted the account.
    ///
    /// Fails with the error of the request, or with [`Failure::AccountRefused`] if the endpoint rejects an
    /// account that this node provides: the caller must not mistake the node's refusal for its own.
    pub(in crate::endpoint) async fn check(
        &self,
        outcome: Result<Response<LakeBody>, EndpointError>,
        account: &LakeAccount,
        context: &RequestContext,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let response = outcome.inspect_err(|error| {
            if error.kind().is_silence() {
                self.unanswered();
            }
        })?;
        self.answered();
        let Some((signer, owner)) = account.signer() else {
            return Ok(response);
        };
        let (response, verdict) = Verdict::of(response).await?;
        if matches!(verdict, Verdict::Accepted) {
            self.accepted(owner, &signer.access_key);
        }
        self.check_refusal(response, verdict, account, context)
    }

    /// Like [`check`](Self::check), but acceptance is not recorded.
    pub(in crate::endpoint) fn check_refusal(
        &self,
        response: Response<LakeBody>,
        verdict: Verdict,
        account: &LakeAccount,
        context: &RequestContext,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let Some((signer, owner)) = account.signer() else {
            return Ok(response);
        };
        let refusal = match verdict {
            Verdict::Accepted | Verdict::Failed => return Ok(response),
            Verdict::Open => {
                self.doubted();
                self.refusal_of(owner, &signer.access_key)
            }
            Verdict::Refused(refusal, message) => {
                if self.refused(owner, &signer.access_key, refusal) {
                    let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
                    let clocks = date.and_then(|date| clock_difference(date, clock::utc_now()));
                    tracing::warn!(
                        account = %owner.describe(&signer.access_key),
                        operation = context.operation,
                        lake_says = ?message,
                        clocks,
                        hint = refusal.hint(),
                        "{refusal}: this node's configuration is at fault, not its clients",
                    );
                }
                Some(refusal)
            }
        };
        match refusal.filter(|_| owner.is_the_nodes()) {
            Some(refusal) => Err(context.failed(Failure::AccountRefused, refusal.to_string())),
            None => Ok(response),
        }
    }
}

impl Verdict {
    /// Reads the beginning of an error document, and puts it back into the response.
    pub(in crate::endpoint) async fn of(
        response: Response<LakeBody>,
    ) -> Result<(Response<LakeBody>, Self), EndpointError> {
        let status = response.status();
        if status.is_server_error() {
            return Ok((response, Self::Failed));
        }
        if !AccountRefusal::is_possible(status) {
            return Ok((response, Self::Accepted));
        }
        let (response, beginning) = Box::pin(peek(response)).await?;
        let error = ErrorDocument::read(&beginning).ok().flatten();
        let verdict = match error.filter(|error| !error.code.is_empty()) {
            None => Self::Open,
            Some(error) => match AccountRefusal::of_code(&error.code) {
                None => Self::Accepted,
                Some(refusal) => {
                    let message = error.message.trim().chars().take(MESSAGE_CHARS);
                    Self::Refused(refusal, message.collect())
                }
            },
        };
        Ok((response, verdict))
    }
}

/// Reads the beginning of an error document, and puts it back into the response.
async fn peek(mut response: Response<LakeBody>) -> Result<(Response<LakeBody>, Bytes), EndpointError> {
    let mut beginning = BytesMut::new();
    let reading = async {
        while beginning.len() < BEGINNING_BYTES
            && let Some(frame) = response.body_mut().frame().await
        {
            if let Ok(data) = frame?.into_data() {
                beginning.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    if let Ok(ended) = tokio::time::timeout(TIMEOUT, reading).await {
        ended?;
    }
    let beginning = beginning.freeze();
    response.body_mut().put_back(beginning.clone());
    Ok((response, beginning))
}
