//! Server access log of Amazon S3: one line per request, fields separated by spaces, some quoted or in
//! brackets.
//!
//! Successful `GET`s of objects are reads; `PUT`s, copies and completed uploads are writes, `DELETE`s are
//! deletions. All other requests (heads, lists, failures, 304) move no object bytes and are left out. The log
//! does not give the range of a partial answer (206): it is taken from the start of the object.

use std::io::Read;

use shoal_logs::s3_server;

use super::log::{Log, operation};
use super::{Access, Piece, TraceError};

/// Parses the request of `line`; `None` if it moves no bytes of an object.
pub(super) fn access<R: Read>(log: &mut Log<R>, line: &str) -> Result<Option<Access>, TraceError> {
    let request = s3_server::request(line).map_err(|mismatch| log.lines.mismatch(mismatch))?;
    let at = log.since.first_line(request.at);
    let Some(operation) = operation(request.kind) else {
        return Ok(None);
    };
    let access = Access {
        at,
        client: log.clients.number(&*request.client),
        object: log.objects.number(&(request.bucket, request.key)),
        object_bytes: request.object_bytes.unwrap_or(request.bytes).max(request.bytes),
        offset_bytes: 0,
        bytes: request.bytes,
        operation,
    };
    log.lines.check(&Piece::from(&access))?;
    Ok(Some(access))
}

#[cfg(test)]
mod tests {
    use crate::clock::Time;
    use crate::trace::tests::{accesses, refusal};
    use crate::trace::{Format, Operation};

    /// In the form of the examples in the S3 User Guide ("Amazon S3 server access log format"); the values
    /// are invented.
    const LOG: &str = "\
79a5 bucket [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a5 3E57427F3EXAMPLE REST.GET.VERSIONING - \"GET /bucket?versioning HTTP/1.1\" 200 - 113 - 7 - \"-\" \"S3Console/0.4\" - s9lz SigV4 ECDHE AuthHeader bucket.s3.amazonaws.com TLSV1.2 - -
79a5 bucket [06/Feb/2019:00:00:39 +0000] 192.0.2.3 79a5 A1 REST.GET.OBJECT a/b%2Bc \"GET /bucket/a/b+c HTTP/1.1\" 200 - 4406 4406 28 20 \"-\" \"curl/7.15 (a b)\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:40 +0000] 192.0.2.4 79a5 A2 REST.GET.OBJECT a/b%2Bc \"GET /bucket/a/b+c HTTP/1.1\" 206 - 100 4406 28 20 \"-\" \"-\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:41 +0000] 192.0.2.4 79a5 A3 REST.GET.OBJECT gone \"GET /bucket/gone HTTP/1.1\" 404 NoSuchKey 277 - 28 - \"-\" \"-\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:41 +0000] 192.0.2.4 79a5 A4 REST.PUT.OBJECT a/b%2Bc \"PUT /bucket/a/b+c HTTP/1.1\" 200 - - 500 28 20 \"-\" \"-\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:42 +0000] 192.0.2.4 79a5 A5 REST.DELETE.OBJECT a/b%2Bc \"DELETE /bucket/a/b+c HTTP/1.1\" 204 - - 500 28 20 \"-\" \"-\" - s9lz SigV4 - - - - - -
";

    #[test]
    fn reads_writes_and_deletions_of_objects_are_kept() {
        let read = accesses(LOG, Format::S3Log).unwrap();
        let seen: Vec<_> = read
            .iter()
            .map(|a| {
                (
                    a.at.as_secs_f64(),
                    a.client,
                    a.object,
                    a.bytes,
                    a.object_bytes,
                    a.operation,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (1.0, 0, 0, 4406, 4406, Operation::Read),
                (2.0, 1, 0, 100, 4406, Operation::Read),
                // All of the previous content is out of date.
                (3.0, 1, 0, 500, 4406, Operation::Write),
                (4.0, 1, 0, 500, 4406, Operation::Delete),
            ]
        );
        assert_eq!(read[0].at, Time(1_000_000_000));
    }

    #[test]
    fn a_line_that_is_no_log_entry_is_refused_with_its_number() {
        let told = refusal("hello world\n", Format::S3Log);
        assert!(
            told.starts_with("t:1: found 2 fields\nhint: expected a line of an S3"),
            "{told}"
        );
        let told = refusal(&LOG.replace("[06/Feb", "[6th of Feb"), Format::S3Log);
        assert!(told.contains("where the time stands"), "{told}");
        let told = refusal(
            &LOG.replace(" 4406 4406 ", " 18446744073709551616 4406 "),
            Format::S3Log,
        );
        assert!(
            told.starts_with("t:2: found `18446744073709551616` where the bytes sent stand"),
            "{told}"
        );
    }
}
