//! Requests that a proxy captured: one JSON object per line with the method, the target, headers of the
//! request and of its answer.
//!
//! | field | meaning |
//! |---|---|
//! | `t` | arrival, in seconds since 1970 |
//! | `m` `p` | method; path and query, with the bucket as its first segment |
//! | `status` `len` `ar` `ms` | of the answer: status, `Content-Length`, `Content-Range`, milliseconds |
//! | `user_agent` `x_shoal_job` `x_amz_copy_source` | headers of the request |
//! | `caller` | the identity that signed it |
//!
//! Other fields are left out.

use std::borrow::Cow;

use serde::Deserialize;

use crate::s3_server::decoded;
use crate::timestamp::unix_seconds;
use crate::{Mismatch, Request, RequestKind};

const EXPECTED: &str = "a captured request in JSON, with `t`, `m`, `p` and `status`";

#[derive(Deserialize)]
struct Line<'line> {
    t: f64,
    #[serde(borrow)]
    m: Cow<'line, str>,
    #[serde(borrow)]
    p: Cow<'line, str>,
    status: Number<'line>,
    #[serde(borrow, default)]
    len: Option<Number<'line>>,
    #[serde(borrow, default)]
    ar: Option<Cow<'line, str>>,
    #[serde(default)]
    ms: Option<f64>,
    #[serde(borrow, default)]
    user_agent: Option<Cow<'line, str>>,
    #[serde(borrow, default)]
    x_shoal_job: Option<Cow<'line, str>>,
    #[serde(borrow, default)]
    caller: Option<Cow<'line, str>>,
}

/// A number, or a number in quotes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number<'line> {
    Number(u64),
    #[serde(borrow)]
    Text(Cow<'line, str>),
}

impl Number<'_> {
    fn value(&self) -> Option<u64> {
        match self {
            Self::Number(value) => Some(*value),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// Parses one line.
///
/// # Errors
///
/// Fails if the line is no captured request.
pub fn request(line: &str) -> Result<Request<'_>, Mismatch> {
    let line: Line<'_> =
        serde_json::from_str(line).map_err(|error| Mismatch::new(error.to_string(), EXPECTED))?;
    let Some(at) = unix_seconds(line.t) else {
        return Err(Mismatch::new(format!("`t` {}", line.t), "seconds since 1970"));
    };
    let Some(status) = line.status.value() else {
        return Err(Mismatch::new("a `status` that is no number", EXPECTED));
    };
    let (path, query) = line.p.split_once('?').unwrap_or((&line.p, ""));
    let (bucket, key) = path
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or((path.trim_start_matches('/'), ""));
    let is_moved = matches!(status, 200 | 204 | 206) && !key.is_empty();
    let kind = if is_moved {
        kind_of(&line.m, query)
    } else {
        RequestKind::Other
    };
    let range = line.ar.as_deref().and_then(content_range);
    let length = line.len.as_ref().and_then(Number::value);
    let text = |text: &str| (!text.is_empty()).then(|| Cow::Owned(decoded(text).into_owned()));
    Ok(Request {
        bucket: text(bucket),
        key: text(key),
        bytes: length.unwrap_or(0),
        offset_bytes: range.map(|(first, _)| first).or((status == 200).then_some(0)),
        object_bytes: match range {
            Some((_, object_bytes)) => Some(object_bytes),
            None => length.filter(|_| status == 200 && kind == RequestKind::Read),
        },
        duration_ms: line.ms,
        identity: line.caller,
        job: line.x_shoal_job,
        user_agent: line.user_agent,
        ..Request::new(at, kind)
    })
}

/// Requests for a part of an object or its whole move bytes; those for its tags, its ACL and so on do not.
fn kind_of(method: &str, query: &str) -> RequestKind {
    let mut names = query
        .split('&')
        .filter_map(|parameter| parameter.split('=').next())
        .filter(|name| !name.is_empty());
    let bytes_only = |name: &str| {
        let name = name.to_ascii_lowercase();
        matches!(name.as_str(), "x-id" | "versionid" | "partnumber")
            || name.starts_with("x-amz-")
            || name.starts_with("response-")
    };
    match method {
        "GET" if names.all(bytes_only) => RequestKind::Read,
        "PUT" if names.all(bytes_only) => RequestKind::Write,
        "POST"
            if names
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case("uploadId")) =>
        {
            RequestKind::Write
        }
        "DELETE" if names.all(bytes_only) => RequestKind::Delete,
        _ => RequestKind::Other,
    }
}

/// The first byte and the length of the object in `bytes 5-9/20`.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, length) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, length.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::request;
    use crate::RequestKind;

    fn line(method: &str, target: &str, status: &str) -> String {
        format!(
            r#"{{"t": 1795197493.884, "m": "{method}", "p": "{target}", "cl": null, "user_agent": "u/1", "status": "{status}", "len": "8", "ar": "bytes 20-27/28", "ms": 38.0, "x_shoal_job": "j"}}"#
        )
    }

    #[test]
    fn a_captured_read_has_its_range_and_its_object() {
        let text = line("GET", "/lake/dt%3D1/a.parquet?x-id=GetObject", "206");
        let request = request(&text).unwrap();
        assert_eq!(request.kind, RequestKind::Read);
        assert_eq!(request.bucket.as_deref(), Some("lake"));
        assert_eq!(request.key.as_deref(), Some("dt=1/a.parquet"));
        assert_eq!(
            (request.offset_bytes, request.bytes, request.object_bytes),
            (Some(20), 8, Some(28))
        );
        assert_eq!(request.job.as_deref(), Some("j"));
        assert_eq!(request.at.unix_timestamp(), 1_795_197_493);
    }

    #[test]
    fn only_requests_for_bytes_of_an_object_move_them() {
        for (method, target, status, kind) in [
            ("GET", "/lake/?list-type=2&prefix=a", "200", RequestKind::Other),
            ("GET", "/lake/a?tagging", "200", RequestKind::Other),
            ("GET", "/lake/a", "404", RequestKind::Other),
            ("HEAD", "/lake/a", "200", RequestKind::Other),
            ("PUT", "/lake/a", "200", RequestKind::Write),
            (
                "PUT",
                "/lake/a?partNumber=1&uploadId=u",
                "200",
                RequestKind::Other,
            ),
            ("POST", "/lake/a?uploadId=u", "200", RequestKind::Write),
            ("POST", "/lake/a?uploads", "200", RequestKind::Other),
            ("DELETE", "/lake/a", "204", RequestKind::Delete),
        ] {
            let text = line(method, target, status);
            assert_eq!(request(&text).unwrap().kind, kind, "{method} {target} {status}");
        }
    }

    #[test]
    fn a_line_that_is_no_captured_request_is_refused() {
        assert!(request("{}").unwrap_err().expected.contains("captured request"));
        assert!(
            request(&line("GET", "/a/b", "x"))
                .unwrap_err()
                .found
                .contains("status")
        );
    }
}
