//! The node understands a request as the lake does: any head that can be spelled, read by four lakes.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use crate::fuzz::classify::check_request;

/// Pieces of paths and values: bytes that mean something to one reader or another, and plain ones.
const PIECES: [&str; 21] = [
    "b", "k", "a b", "/", "//", ".", "..", "+", "%", "?", "#", "&", "=", ";", "\0", "\u{e9}", ":", "V1", "~",
    "null", " ",
];

const NAMES: [&str; 27] = [
    "versionId",
    "partNumber",
    "uploadId",
    "uploads",
    "prefix",
    "marker",
    "delimiter",
    "list-type",
    "start-after",
    "continuation-token",
    "key-marker",
    "upload-id-marker",
    "max-keys",
    "encoding-type",
    "response-expires",
    "delete",
    "acl",
    "tagging",
    "select",
    "restore",
    "x-id",
    "x-amz-rename-source",
    "x-amz-copy-source",
    "X-Amz-Signature",
    "never=heard",
    "versionid",
    "PREFIX",
];

const HEADERS: [&str; 8] = [
    "x-amz-copy-source",
    "x-amz-rename-source",
    "x-amz-meta-snowball-auto-extract",
    "x-amz-write-offset-bytes",
    "x-minio-extract",
    "x-minio-force-delete",
    "x-amz-meta-a",
    "x-http-method-override",
];

/// One text in one of its spellings: each byte as it is, or escaped in upper or lower case, a blank perhaps
/// as a plus.
fn spelled(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (text, proptest::collection::vec(0..8_u8, 0..40)).prop_map(|(text, ways)| {
        let mut ways = ways.into_iter().cycle();
        let spell = |byte: u8| match (byte, ways.next().unwrap_or(7)) {
            (b' ', 0..=3) => "+".into(),
            (_, 0) => format!("%{byte:02X}"),
            (_, 1) => format!("%{byte:02x}"),
            (b'!'..=b'~', _) if !matches!(byte, b'#' | b'<' | b'>' | b'%') => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        text.bytes().map(spell).collect()
    })
}

fn pieces() -> impl Strategy<Value = String> {
    proptest::collection::vec(select(&PIECES[..]), 0..5).prop_map(|pieces| pieces.concat())
}

fn path() -> impl Strategy<Value = String> {
    let bucket = prop_oneof![3 => Just("b".to_owned()), 1 => pieces()];
    prop_oneof![
        4 => (spelled(bucket), spelled(pieces())).prop_map(|(bucket, key)| format!("/{bucket}/{key}")),
        1 => spelled(pieces()).prop_map(|path| format!("/{path}")),
    ]
}

fn parameter() -> impl Strategy<Value = String> {
    let name = || spelled(select(&NAMES[..]).prop_map(str::to_owned));
    prop_oneof![
        1 => name(),
        3 => (name(), spelled(pieces())).prop_map(|(name, value)| format!("{name}={value}")),
        1 => spelled(pieces()),
    ]
}

/// A few, or one twice.
fn parameters() -> impl Strategy<Value = Vec<String>> {
    let values = || spelled(pieces());
    let twice = (select(&NAMES[..]), values(), values())
        .prop_map(|(name, one, other)| vec![format!("{name}={one}"), format!("{name}={other}")]);
    prop_oneof![
        4 => proptest::collection::vec(parameter(), 0..4),
        1 => twice,
    ]
}

fn target() -> impl Strategy<Value = String> {
    (path(), parameters()).prop_map(|(path, parameters)| {
        if parameters.is_empty() {
            path
        } else {
            format!("{path}?{}", parameters.join("&"))
        }
    })
}

fn method() -> impl Strategy<Value = &'static str> {
    select(
        &[
            "GET", "GET", "HEAD", "PUT", "PUT", "POST", "DELETE", "OPTIONS", "MOVE",
        ][..],
    )
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("localhost:9000".to_owned()),
        pieces().prop_map(|bucket| format!("{bucket}.s3.example.org"))
    ]
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let source =
        (spelled(pieces()), spelled(pieces()), any::<bool>()).prop_map(|(bucket, key, is_versioned)| {
            let version = if is_versioned { "?versionId=V1" } else { "" };
            format!("{bucket}/{key}{version}")
        });
    proptest::collection::vec((select(&HEADERS[..]), source), 0..2)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_lake_reads_in_what_it_is_sent_what_the_node_has_read(
        method in method(),
        target in target(),
        host in host(),
        headers in headers(),
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        check_request(method, &target, &host, &headers);
    }
}

/// A generator of requests that are all refused would show nothing.
#[test]
fn most_spellings_of_a_plain_request_are_understood() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let understood = (0..1000)
        .filter(|_| {
            let target = target().new_tree(&mut runner).unwrap().current();
            check_request("GET", &target, "h", &[])
        })
        .count();
    assert!(understood > 300, "{understood} of 1000");
}
