//! Server access log of Amazon S3: one line per request, fields separated by spaces, some quoted or in
//! brackets.
//!
//! Successful `GET`s of objects are reads; `PUT`s, copies and completed uploads are writes, `DELETE`s are
//! deletions. All other requests (heads, lists, failures, 304) move no object bytes and are left out. The log
//! does not give the range of a partial answer (206): it is taken from the start of the object.

use std::io::Read;

use super::log::Log;
use super::timestamp::common_log;
use super::{Access, Operation, Piece, TraceError};

const EXPECTED: &str = "a line of an S3 server access log: owner bucket [time] address requester id operation key \"uri\" status \
                        error bytes size ...";

// Positions of the needed fields.
const BUCKET: usize = 1;
const TIME: usize = 2;
const ADDRESS: usize = 3;
const OPERATION: usize = 6;
const KEY: usize = 7;
const STATUS: usize = 9;
const BYTES_SENT: usize = 11;
const OBJECT_SIZE: usize = 12;

/// Parses the request of `line`; `None` if it moves no bytes of an object.
pub(super) fn access<R: Read>(log: &mut Log<R>, line: &str) -> Result<Option<Access>, TraceError> {
    let fields = split(line);
    if fields.len() <= OBJECT_SIZE {
        return Err(log.lines.error(format!("{} fields", fields.len()), EXPECTED));
    }
    let Some(time) = common_log(fields[TIME]) else {
        let found = format!("`{}` where the time stands", fields[TIME]);
        return Err(log
            .lines
            .error(found, "a time such as [06/Feb/2019:00:00:38 +0000]"));
    };
    let at = log.since.first_line(time);
    let Some(operation) = operation(fields[OPERATION]) else {
        return Ok(None);
    };
    // 206 is a partial answer; a request with a status that is not listed moved nothing.
    if !matches!(fields[STATUS], "200" | "204" | "206") {
        return Ok(None);
    }
    let bytes_of = |name: &str, field: usize| match fields[field] {
        // Stands for none.
        "-" => Ok(None),
        value => value.parse().map(Some).map_err(|_| {
            let found = format!("`{value}` where the {name} stand");
            log.lines.error(found, "a whole number of bytes, or -")
        }),
    };
    let sent_bytes: u64 = bytes_of("bytes sent", BYTES_SENT)?.unwrap_or(0);
    let object_bytes = bytes_of("bytes of the object", OBJECT_SIZE)?.unwrap_or(sent_bytes);
    let bytes = match operation {
        Operation::Read => sent_bytes,
        Operation::Write | Operation::Delete => object_bytes,
    };
    let access = Access {
        at,
        client: log.clients.number(fields[ADDRESS]),
        object: log.objects.number(&(fields[BUCKET], fields[KEY])),
        object_bytes: object_bytes.max(bytes),
        offset_bytes: 0,
        bytes,
        operation,
    };
    log.lines.check(&Piece::from(&access))?;
    Ok(Some(access))
}

fn operation(word: &str) -> Option<Operation> {
    match word {
        "REST.GET.OBJECT" => Some(Operation::Read),
        "REST.PUT.OBJECT" | "REST.COPY.OBJECT" | "REST.POST.OBJECT" | "REST.POST.UPLOAD" => {
            Some(Operation::Write)
        }
        "REST.DELETE.OBJECT" | "BATCH.DELETE.OBJECT" | "S3.EXPIRE.OBJECT" => Some(Operation::Delete),
        _ => None,
    }
}

/// Splits a line into its fields: words, `"quoted words"` and `[words in brackets]`, without their
/// delimiters.
fn split(line: &str) -> Vec<&str> {
    let mut fields = Vec::with_capacity(24);
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = match rest.as_bytes()[0] {
            b'"' => Some('"'),
            b'[' => Some(']'),
            _ => None,
        };
        let field = match end {
            Some(end) => {
                rest = &rest[1..];
                rest.split(end).next().unwrap_or(rest)
            }
            None => rest.split(' ').next().unwrap_or(rest),
        };
        fields.push(field);
        rest = rest[field.len()..].trim_start_matches(['"', ']']).trim_start();
    }
    fields
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
