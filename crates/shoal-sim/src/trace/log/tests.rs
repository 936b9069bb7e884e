//! Requests of both logs become accesses, and a line that is none is rejected with its number.

use crate::clock::Time;
use crate::trace::tests::{accesses, refusal};
use crate::trace::{Format, Operation};

/// In the form of the examples in the S3 User Guide ("Amazon S3 server access log format"); the values
/// are invented.
const S3_LOG: &str = "\
79a5 bucket [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a5 3E57427F3EXAMPLE REST.GET.VERSIONING - \"GET /bucket?versioning HTTP/1.1\" 200 - 113 - 7 - \"-\" \"S3Console/0.4\" - s9lz SigV4 ECDHE AuthHeader bucket.s3.amazonaws.com TLSV1.2 - -
79a5 bucket [06/Feb/2019:00:00:39 +0000] 192.0.2.3 79a5 A1 REST.GET.OBJECT a/b%2Bc \"GET /bucket/a/b+c HTTP/1.1\" 200 - 4406 4406 28 20 \"-\" \"curl/7.15 (a b)\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:40 +0000] 192.0.2.4 79a5 A2 REST.GET.OBJECT a/b%2Bc \"GET /bucket/a/b+c HTTP/1.1\" 206 - 100 4406 28 20 \"-\" \"-\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:41 +0000] 192.0.2.4 79a5 A3 REST.GET.OBJECT gone \"GET /bucket/gone HTTP/1.1\" 404 NoSuchKey 277 - 28 - \"-\" \"-\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:41 +0000] 192.0.2.4 79a5 A4 REST.PUT.OBJECT a/b%2Bc \"PUT /bucket/a/b+c HTTP/1.1\" 200 - - 500 28 20 \"-\" \"-\" - s9lz SigV4 - - - - - -
79a5 bucket [06/Feb/2019:00:00:42 +0000] 192.0.2.4 79a5 A5 REST.DELETE.OBJECT a/b%2Bc \"DELETE /bucket/a/b+c HTTP/1.1\" 204 - - 500 28 20 \"-\" \"-\" - s9lz SigV4 - - - - - -
";

#[test]
fn reads_writes_and_deletions_of_objects_are_kept() {
    let read = accesses(S3_LOG, Format::S3Log).unwrap();
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
    let told = refusal(&S3_LOG.replace("[06/Feb", "[6th of Feb"), Format::S3Log);
    assert!(told.contains("where the time stands"), "{told}");
    let told = refusal(
        &S3_LOG.replace(" 4406 4406 ", " 18446744073709551616 4406 "),
        Format::S3Log,
    );
    assert!(
        told.starts_with("t:2: found `18446744073709551616` where the bytes sent stand"),
        "{told}"
    );
}

const NODE_LOG: &str = r#"{"timestamp":"2023-11-14T22:13:20.1Z","level":"INFO","message":"ready","target":"shoal::cli"}
{"timestamp":"2023-11-14T22:13:20.2Z","level":"INFO","time":"2023-11-14T22:13:20.000Z","request_id":"A","peer":"10.0.0.1:4000","caller":"AK","operation":"get_object","method":"GET","bucket":"data","key":"a","status":200,"bytes":4096,"duration_ms":1.5,"x_cache":"HIT","local_bytes":4096,"lake_bytes":0,"target":"shoal::access"}
{"timestamp":"2023-11-14T22:13:20.2Z","level":"INFO","time":"2023-11-14T22:13:20.500Z","peer":"10.0.0.1:4001","operation":"head_object","bucket":"data","key":"a","status":200,"bytes":0,"target":"shoal::access"}
{"timestamp":"2023-11-14T22:13:21.2Z","level":"INFO","time":"2023-11-14T22:13:21.000Z","peer":"10.0.0.1:4002","operation":"put_object","bucket":"data","key":"a","status":200,"bytes":0,"target":"shoal::access"}
{"timestamp":"2023-11-14T22:13:21.2Z","level":"INFO","time":"2023-11-14T22:13:22.000Z","peer":"[::1]:4002","operation":"get_object","bucket":"data","key":"b","status":404,"bytes":0,"target":"shoal::access"}
"#;

#[test]
fn requests_of_a_node_that_move_objects_are_kept() {
    let read = accesses(NODE_LOG, Format::AccessLog).unwrap();
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
    let read = accesses(NODE_LOG, Format::AccessLog).unwrap();
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
