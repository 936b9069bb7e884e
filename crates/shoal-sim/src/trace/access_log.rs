//! The access log of a Shoal node: one JSON object per line (`[log] format = "json"`). Lines with the target
//! `shoal::access` are requests.
//!
//! Successful `get_object`s are reads, `put_object`s and `complete_multipart_upload`s are writes, and
//! `delete_object`s are deletions. Logs of earlier nodes do not give the range of a partial answer (206): it
//! is taken from the start of the object.

use std::io::Read;

use shoal_logs::{RequestKind, node};

use super::log::{Log, operation};
use super::{Access, Piece, TraceError};

/// Parses the request of `line`; `None` if it moves no bytes of an object.
pub(super) fn access<R: Read>(log: &mut Log<R>, line: &str) -> Result<Option<Access>, TraceError> {
    let Some(request) = node::request(line).map_err(|mismatch| log.lines.mismatch(mismatch))? else {
        return Ok(None);
    };
    let at = log.since.first_line(request.at);
    let (Some(operation), Some(bucket), Some(key)) = (operation(request.kind), request.bucket, request.key)
    else {
        return Ok(None);
    };
    // The body of an answer to a write is not the object.
    let is_read = request.kind == RequestKind::Read;
    let offset_bytes = request.offset_bytes.filter(|_| is_read).unwrap_or(0);
    let end_bytes = offset_bytes.saturating_add(request.bytes);
    let access = Access {
        at,
        client: log.clients.number(&*request.client),
        object: log.objects.number(&(bucket, key)),
        object_bytes: request.object_bytes.unwrap_or(end_bytes).max(end_bytes),
        offset_bytes,
        bytes: request.bytes,
        operation,
    };
    log.lines.check(&Piece::from(&access))?;
    Ok(Some(access))
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
