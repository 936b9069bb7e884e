//! The access log of a Shoal node: one JSON object per line (`[log] format = "json"`). Lines with the target
//! `shoal::access` are requests, all others are not.
//!
//! Logs of earlier nodes lack `offset_bytes`, `object_bytes`, `job` and `user_agent`.

use std::borrow::Cow;

use serde::Deserialize;

use crate::timestamp::rfc3339;
use crate::{Mismatch, Request, RequestKind};

const TARGET: &str = "shoal::access";

#[derive(Deserialize)]
struct Line {
    target: String,
    time: Option<String>,
    peer: Option<String>,
    caller: Option<String>,
    operation: Option<String>,
    bucket: Option<String>,
    key: Option<String>,
    status: Option<u16>,
    bytes: Option<u64>,
    offset_bytes: Option<u64>,
    object_bytes: Option<u64>,
    duration_ms: Option<f64>,
    job: Option<String>,
    user_agent: Option<String>,
}

/// Parses one line; `None` if it is no request.
///
/// # Errors
///
/// Fails if the line is not one of a node's log, or a request without a time.
pub fn request(line: &str) -> Result<Option<Request<'_>>, Mismatch> {
    let line: Line = serde_json::from_str(line).map_err(|error| {
        Mismatch::new(
            error.to_string(),
            "a line of the node's log in JSON ([log] format = \"json\")",
        )
    })?;
    if line.target != TARGET {
        return Ok(None);
    }
    let Some(at) = line.time.as_deref().and_then(rfc3339) else {
        let found = line
            .time
            .map_or("no `time`".to_owned(), |time| format!("`time` {time}"));
        return Err(Mismatch::new(found, "a `time` such as 2023-11-14T22:13:20.123Z"));
    };
    let kind = match line.status {
        Some(200 | 204 | 206) => kind_of(line.operation.as_deref().unwrap_or_default()),
        _ => RequestKind::Other,
    };
    Ok(Some(Request {
        at,
        kind,
        bucket: line.bucket.map(Cow::Owned),
        key: line.key.map(Cow::Owned),
        bytes: line.bytes.unwrap_or(0),
        offset_bytes: line.offset_bytes,
        object_bytes: line.object_bytes,
        duration_ms: line.duration_ms,
        client: Cow::Owned(line.peer.map(without_port).unwrap_or_default()),
        identity: line.caller.map(Cow::Owned),
        job: line.job.map(Cow::Owned),
        user_agent: line.user_agent.map(Cow::Owned),
    }))
}

fn kind_of(operation: &str) -> RequestKind {
    match operation {
        "get_object" => RequestKind::Read,
        "put_object" | "complete_multipart_upload" => RequestKind::Write,
        "delete_object" => RequestKind::Delete,
        _ => RequestKind::Other,
    }
}

/// Removes the port from the address of a client: it changes with every connection.
fn without_port(mut peer: String) -> String {
    peer.truncate(peer.rfind(':').unwrap_or(peer.len()));
    peer
}

#[cfg(test)]
mod tests {
    use super::request;
    use crate::RequestKind;

    const LINE: &str = r#"{"timestamp":"2023-11-14T22:13:20.2Z","level":"INFO","time":"2023-11-14T22:13:20.000Z","request_id":"A","peer":"[::1]:4000","caller":"AK","operation":"get_object","method":"GET","bucket":"data","key":"a\"b","status":206,"bytes":4096,"offset_bytes":8192,"object_bytes":12345,"duration_ms":1.5,"job":"etl","user_agent":"x/1","target":"shoal::access"}"#;

    #[test]
    fn a_line_of_the_access_log_is_a_request() {
        let request = request(LINE).unwrap().unwrap();
        assert_eq!(request.kind, RequestKind::Read);
        assert_eq!(request.bucket.as_deref(), Some("data"));
        assert_eq!(request.key.as_deref(), Some("a\"b"));
        assert_eq!(request.client, "[::1]");
        assert_eq!(request.identity.as_deref(), Some("AK"));
        assert_eq!(request.job.as_deref(), Some("etl"));
        assert_eq!(request.user_agent.as_deref(), Some("x/1"));
        assert_eq!(
            (request.bytes, request.offset_bytes, request.object_bytes),
            (4096, Some(8192), Some(12345))
        );
        assert_eq!(request.at.unix_timestamp(), 1_700_000_000);
    }

    #[test]
    fn a_failed_request_moves_no_bytes_and_other_lines_are_no_requests() {
        let failed = LINE.replace("206", "404");
        assert_eq!(request(&failed).unwrap().unwrap().kind, RequestKind::Other);
        assert_eq!(request(r#"{"target":"shoal::cli","message":"ready"}"#), Ok(None));
        assert!(
            request(r#"{"target":"shoal::access"}"#)
                .unwrap_err()
                .found
                .contains("no `time`")
        );
        assert!(request("hello").is_err());
    }
}
