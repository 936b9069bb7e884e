//! Carries a request out at the lake as a change that has begun, so that no other change of the name is on
//! its way there at the same time.

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use shoal_registry::changes::LakeChange;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::operation::Operation;
use shoal_s3::xml::ErrorDocument;

use super::ResponseResult;
use crate::endpoint::{is_undecided, is_undecided_code};
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::tier::TierUnavailable;

/// The answers to writes are short.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The lake's treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::front) enum Verdict {
    /// It has carried the request out.
    Done,
    /// It has not, and will not.
    Refused,
    /// It may have, or may do so later.
    Unknown,
}

/// Sends a request to the lake by `send`, and ends the change by what the lake makes of it. The request goes
/// on if its client goes away, and breaks off if this node may no longer send.
///
/// # Errors
///
/// As for `send`; or the request was carried out, and the registry does not know.
pub(super) async fn carry_out<F>(
    change: LakeChange,
    mut admitted: Box<Admitted>,
    send: impl FnOnce(Box<Admitted>) -> F,
) -> ResponseResult
where
    F: Future<Output = ResponseResult> + Send + 'static,
{
    let operation = admitted.classified.operation;
    admitted.permit = Some(change.permit());
    let request = send(admitted);
    let carried = tokio::spawn(async move {
        let (answered, verdict) = judged(operation, request).await;
        match verdict {
            Verdict::Done => {
                if let Err(error) = change.done().await {
                    TierUnavailable::because(&error);
                    return Err(unknown());
                }
            }
            // The registry hears of it later, if not now.
            Verdict::Refused => drop(change.refused().await),
            Verdict::Unknown => drop(change),
        }
        answered
    });
    carried.await.unwrap_or_else(|_panicked| Err(unknown()))
}

/// Waits for the answer to a request, and for all of it if the lake may send its head early. Returns it with
/// what the lake has made of the request.
pub(in crate::front) async fn judged(
    operation: Operation,
    request: impl Future<Output = ResponseResult>,
) -> (ResponseResult, Verdict) {
    let answered = match request.await {
        Ok(response) if is_answered_early(operation) => whole(response).await,
        answered => answered.map(|response| (response, None)),
    };
    let verdict = verdict(&answered);
    (answered.map(|(response, _)| response), verdict)
}

/// Whether a lake may send the head of its answer before it has carried the request out: a copy, or the
/// completion of an upload. The answers to other requests may be long, such as that of a `select`.
fn is_answered_early(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::PutObject | Operation::CompleteMultipartUpload
    )
}

/// An answer, and the code of the error in its body, if that was read.
type Answer = (Response<ResponseBody>, Option<String>);

/// Reads an answer to its end.
async fn whole(response: Response<ResponseBody>) -> Result<Answer, S3Error> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|_broken_off| unknown())?.to_bytes();
    let error = ErrorDocument::read(&body).ok().flatten();
    let code = error.map(|error| error.code);
    Ok((Response::from_parts(head, ResponseBody::full(body)), code))
}

fn verdict(answered: &Result<Answer, S3Error>) -> Verdict {
    match answered {
        Ok((response, error)) => match (response.status(), error) {
            // An error behind an early 200.
            (StatusCode::OK, Some(code)) if is_undecided_code(code) => Verdict::Unknown,
            (StatusCode::OK, Some(_)) => Verdict::Refused,
            (status, _) if status.is_success() => Verdict::Done,
            (status, _) if is_undecided(status) => Verdict::Unknown,
            _ => Verdict::Refused,
        },
        Err(error) if error.is_undone => Verdict::Refused,
        // The body of the client was wrong, so the lake saw a request that broke off.
        Err(error) if error.code.status().is_client_error() => Verdict::Refused,
        Err(_) => Verdict::Unknown,
    }
}

/// The error when it is not known whether the lake has carried out a request.
pub(super) fn unknown() -> S3Error {
    S3Error::new(
        ErrorCode::ServiceUnavailable,
        "It is not known whether the request was carried out; please look, and try again.",
    )
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};
    use shoal_s3::error::{ErrorCode, S3Error};

    use super::{Verdict, unknown, verdict};
    use crate::front::body::ResponseBody;

    #[test]
    fn only_an_answer_of_the_lake_says_what_became_of_a_request() {
        let answer = |status: u16, code: Option<&str>| {
            let mut response = Response::new(ResponseBody::empty());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            verdict(&Ok((response, code.map(Into::into))))
        };
        for (status, expected) in [
            (200, Verdict::Done),
            (204, Verdict::Done),
            (304, Verdict::Refused),
            (403, Verdict::Refused),
            (412, Verdict::Refused),
            (500, Verdict::Unknown),
            (501, Verdict::Refused),
            (503, Verdict::Refused),
            (504, Verdict::Unknown),
            (507, Verdict::Refused),
        ] {
            assert_eq!(answer(status, None), expected, "{status}");
        }
        assert_eq!(answer(200, Some("InternalError")), Verdict::Unknown);
        assert_eq!(answer(200, Some("InvalidPart")), Verdict::Refused);
        assert_eq!(verdict(&Err(unknown())), Verdict::Unknown);
        for refused in [
            S3Error::new(ErrorCode::BadDigest, "x"),
            S3Error::new(ErrorCode::BadGateway, "x").undone(),
        ] {
            assert_eq!(verdict(&Err(refused)), Verdict::Refused);
        }
    }
}
