//! The access log of a Shoal node: one JSON object per line (`[log] format = "json"`). Lines with the target
//! `shoal::access` are requests.
//!
//! Successful `get_object`s are reads, `put_object`s and `complete_multipart_upload`s are writes, and
//! `delete_object`s are deletions. The log does not give the range of a partial answer (206): it is taken
//! from the start of the object.

use std::io::Read;

use serde::Deserialize;

use super::log::Log;
use super::timestamp::rfc3339;
use super::{Access, Operation, Piece, TraceError};

const TARGET: &str = "shoal::access";

#[derive(Deserialize)]
struct Line {
    target: String,
    time: Option<String>,
    peer: Option<String>,
    operation: Option<String>,
    bucket: Option<String>,
    key: Option<String>,
    status: Option<u16>,
    bytes: Option<u64>,
}

/// Parses the request of `line`; `None` if it moves no bytes of an object.
pub(super) fn access<R: Read>(log: &mut Log<R>, line: &str) -> Result<Option<Access>, TraceError> {
    let expected = "a line of the node's log in JSON ([log] format = \"json\")";
    let line: Line =
        serde_json::from_str(line).map_err(|error| log.lines.error(error.to_string(), expected))?;
    if line.target != TARGET {
        return Ok(None);
    }
    let Some(time) = line.time.as_deref().and_then(rfc3339) else {
        let found = line
            .time
            .map_or("no `time`".to_owned(), |time| format!("`time` {time}"));
        return Err(log
            .lines
            .error(found, "a `time` such as 2023-11-14T22:13:20.123Z"));
    };
    let at = log.since.first_line(time);
    let operation = line.operation.as_deref().and_then(operation);
    let (Some(operation), Some(bucket), Some(key)) = (operation, line.bucket, line.key) else {
        return Ok(None);
    };
    if !matches!(line.status, Some(200 | 204 | 206)) {
        return Ok(None);
    }
    // The port of a client changes with every connection.
    let peer = line.peer.unwrap_or_default();
    let client = peer
        .rsplit_once(':')
        .map_or(peer.as_str(), |(address, _port)| address);
    let bytes = line.bytes.unwrap_or(0);
    let access = Access {
        at,
        client: log.clients.number(client),
        object: log.objects.number(&(bucket, key)),
        object_bytes: bytes,
        offset_bytes: 0,
        bytes,
        operation,
    };
    log.lines.check(&Piece::from(&access))?;
    Ok(Some(access))
}

fn operation(word: &str) -> Option<Operation> {
    match word {
        "get_object" => Some(Operation::Read),
        "put_object" | "complete_multipart_upload" => Some(Operation::Write),
        "delete_object" => Some(Operation::Delete),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::tests::{accesses, refusal};
    use crate::trace::{Format, Operation};

    const LOG: &str = r#"{"timestamp":"2023-11-14T22:13:20.1Z","level":"INFO","message":"ready","target":"shoal::cli"}
{"timestamp":"2023-11-14T22:13:20.2Z","level":"INFO","time":"2023-11-14T22:13:20.000Z","request_id":"A","peer":"10.0.0.1:4000","caller":"AK","operation":"get_object","method":"GET","bucket":"data","key":"a","status":200,"bytes":4096,"duration_ms":1.5,"x_cache":"HIT","local_bytes":4096,"lake_bytes":0,"target":"shoal::access"}
{"timestamp":"2023-11-14T22:13:20.2Z","level":"INFO","time":"2023-11-14T22:13:20.500Z","peer":"10.0.0.1:4001","operation":"head_object","bucket":"data","key":"a","status":200,"bytes":0,"target":"shoal::access"}
{"timestamp":"2023-11-14T22:13:21.2Z","level":"INFO","time":"2023-11-14T22:13:21.000Z","peer":"10.0.0.1:4002","operation":"put_object","bucket":"data","key":"a","status":200,"bytes":0,"target":"shoal::access"}
{"timestamp":"2023-11-14T22:13:21.2Z","level":"INFO","time":"2023-11-14T22:13:22.000Z","peer":"[::1]:4002","operation":"get_object","bucket":"data","key":"b","status":404,"bytes":0,"target":"shoal::access"}
"#;

    #[test]
    fn requests_that_move_objects_are_kept() {
        let read = accesses(LOG, Format::AccessLog).unwrap();
        let seen: Vec<_> = read
            .iter()
            .map(|a| (a.at.as_secs_f64(), a.client, a.object, a.bytes, a.operation))
            .collect();
        assert_eq!(
            seen,
            [
                (0.0, 0, 0, 4096, Operation::Read),
                (1.0, 0, 0, 0, Operation::Write)
            ]
        );
    }

    #[test]
    fn a_written_object_has_the_length_that_the_log_showed_before() {
        let read = accesses(LOG, Format::AccessLog).unwrap();
        assert_eq!(read[1].operation, Operation::Write);
        assert_eq!((read[1].bytes, read[1].object_bytes), (0, 4096));
    }

    #[test]
    fn a_log_in_text_is_told_how_to_become_json() {
        let told = refusal("2023-11-14 INFO shoal::access: time=...\n", Format::AccessLog);
        assert!(
            told.starts_with("t:1:") && told.contains("format = \"json\""),
            "{told}"
        );
    }
}
