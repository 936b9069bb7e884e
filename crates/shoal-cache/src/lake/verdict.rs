//! The outcome of a request at the lake.

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use shoal_net::endpoint::{is_undecided, is_undecided_code};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::operation::Operation;
use shoal_s3::xml::ErrorDocument;

use crate::exchange::{ResponseBody, ResponseResult};

/// Limit on the responses to writes, which are short.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The outcome of a request at the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The lake carried the request out.
    Done,
    /// The lake did not carry the request out, and will not.
    Refused,
    /// The lake may have carried the request out, or may still do so.
    Unknown,
}

/// Waits for the response to a request, and reads all of it if the lake may send the head early. Returns the
/// response and the lake's verdict.
pub async fn judged(
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

/// Returns true if a lake may send the head of its response before it has carried the request out: for a
/// copy, or the completion of an upload. Other responses may be long, such as that of a `select`, and are not
/// read ahead.
fn is_answered_early(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::PutObject | Operation::CompleteMultipartUpload
    )
}

/// A response, and the error code in its body if the body was read and contains one.
type Answer = (Response<ResponseBody>, Option<String>);

/// Reads a response to its end.
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
            // An error after an early 200.
            (StatusCode::OK, Some(code)) if is_undecided_code(code) => Verdict::Unknown,
            (StatusCode::OK, Some(_)) => Verdict::Refused,
            (status, _) if status.is_success() => Verdict::Done,
            (status, _) if is_undecided(status) => Verdict::Unknown,
            _ => Verdict::Refused,
        },
        Err(error) if error.is_undone => Verdict::Refused,
        // The client's body was invalid, so the lake received an incomplete request.
        Err(error) if error.code.status().is_client_error() => Verdict::Refused,
        Err(_) => Verdict::Unknown,
    }
}

/// Returns the error for a request whose outcome at the lake is unknown.
pub fn unknown() -> S3Error {
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
    use crate::exchange::ResponseBody;

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
