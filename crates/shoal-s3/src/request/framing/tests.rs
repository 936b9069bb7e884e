//! Requests that the framing accepts and refuses, in whatever pieces they arrive.

use http::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Uri};
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::{Just, Strategy};
use proptest::{collection, prop_oneof};

use super::{Framing, MAX_FIELDS, MAX_HEAD_BYTES, Position};
use crate::error::ErrorCode;

/// The outcome of a whole stream: bytes passed, heads passed, the position, and the refusal.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    passed: usize,
    heads: u64,
    position: Position,
    refusal: Option<(ErrorCode, String)>,
}

/// Shows `stream` in pieces that end at `cuts`, the way a socket would.
fn follow_in_pieces(stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> Outcome {
    let mut framing = Framing::default();
    let mut passed = 0;
    let mut refusal = None;
    for end in cuts.into_iter().chain([stream.len()]) {
        let outcome = framing.follow(&stream[passed..end.max(passed)]);
        passed += outcome.pass_bytes;
        if let Some(error) = outcome.refusal {
            assert!(error.close, "a refused connection is closed");
            refusal = Some((error.code, error.message.into_owned()));
            break;
        }
    }
    Outcome {
        passed,
        heads: framing.heads(),
        position: framing.position(),
        refusal,
    }
}

fn follow(stream: &[u8]) -> Outcome {
    let whole = follow_in_pieces(stream, []);
    let trickled = follow_in_pieces(stream, 1..stream.len());
    assert_eq!(whole, trickled, "arriving byte by byte changes nothing");
    whole
}

/// The message with which the stream is refused, after `passed` bytes of it.
fn refused_after(stream: &[u8], passed: usize) -> String {
    let outcome = follow(stream);
    assert_eq!(outcome.passed, passed, "{outcome:?}");
    let (code, message) = outcome
        .refusal
        .unwrap_or_else(|| panic!("accepted: {}", stream.escape_ascii()));
    assert!(matches!(
        code,
        ErrorCode::BadRequest | ErrorCode::InvalidUri | ErrorCode::RequestHeaderSectionTooLarge
    ));
    message
}

fn refused(stream: impl AsRef<[u8]>) -> String {
    refused_after(stream.as_ref(), 0)
}

/// Asserts that the stream is `heads` whole requests and nothing else.
fn accepted(stream: impl AsRef<[u8]>, heads: u64) {
    let stream = stream.as_ref();
    let expected = Outcome {
        passed: stream.len(),
        heads,
        position: Position::BetweenRequests,
        refusal: None,
    };
    assert_eq!(follow(stream), expected, "{}", stream.escape_ascii());
}

/// A GET with these lines after `Host`.
fn with_lines(lines: &str) -> String {
    format!("GET /b/k HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

/// A PUT with a chunked body.
fn chunked(body: &str) -> (String, usize) {
    let head = "PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    (format!("{head}{body}"), head.len())
}

#[test]
fn ordinary_requests_pass() {
    accepted(
        "GET /b/k?x=1 HTTP/1.1\r\nHost: localhost:9000\r\nRange: bytes=0-9\r\n\r\n",
        1,
    );
    accepted(
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        1,
    );
    accepted("PUT /b/k HTTP/1.1\r\nHost: h\r\ncontent-length:  0 \r\n\r\n", 1);
    accepted("GET / HTTP/1.0\r\n\r\n", 1);
    accepted("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 1);
    accepted("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 1);
    accepted(with_lines("X-Empty:\r\nx-amz-meta-n: caf\u{e9}\t!\r\n"), 1);
    accepted(chunked("5\r\nhello\r\n0\r\n\r\n").0, 1);
    accepted(
        chunked("5;a=b;c=\"d\"\r\nhello\r\n00A\r\n0123456789\r\n0\r\nx-amz-checksum-crc32: a\r\n\r\n").0,
        1,
    );
}

#[test]
fn pipelined_requests_are_told_apart() {
    let stream = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n\
                  PUT /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 30\r\n\r\nGET /x HTTP/1.1\r\nHost: h\r\n\r\n \
                  GET /3 HTTP/1.1\r\nHost: h\r\n\r\n";
    accepted(stream, 3);
    let (one, _) = chunked("1\r\nx\r\n0\r\n\r\n");
    accepted(format!("{one}{one}"), 2);
}

#[test]
fn good_requests_pass_before_a_bad_one_is_refused() {
    let good = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n";
    let message = refused_after(
        format!("{good}{good}GET /2 HTTP/1.1\nHost: h\r\n\r\n").as_bytes(),
        2 * good.len(),
    );
    assert_eq!(message, "A line must end with CR LF.");
}

#[test]
fn two_lengths_are_refused_in_every_form() {
    let cases = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ];
    for lines in cases {
        refused(with_lines(lines));
    }
}

#[test]
fn a_content_length_is_digits_and_nothing_else() {
    for value in [
        "",
        "+5",
        "-5",
        "0x5",
        "5 5",
        "5;",
        "1e3",
        "\u{664}",
        "9223372036854775808",
        "99999999999999999999",
    ] {
        let message = refused(with_lines(&format!("Content-Length: {value}\r\n")));
        assert_eq!(message, "The Content-Length is not a number of bytes.", "{value}");
    }
    let huge = follow(with_lines("Content-Length: 9223372036854775807\r\n").as_bytes());
    assert_eq!((huge.refusal, huge.position), (None, Position::InBody));
}

#[test]
fn a_transfer_encoding_is_chunked_and_nothing_else() {
    for value in [
        "",
        "gzip",
        "gzip, chunked",
        "chunked, chunked",
        "identity",
        "chunked;q=1",
        "xchunked",
        "\"chunked\"",
    ] {
        refused(with_lines(&format!("Transfer-Encoding: {value}\r\n")));
    }
    accepted(
        format!("{}0\r\n\r\n", with_lines("Transfer-Encoding: Chunked\r\n")),
        1,
    );
    refused("PUT / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
}

#[test]
fn lines_end_with_crlf_alone() {
    refused("GET / HTTP/1.1\nHost: h\n\n");
    refused("GET / HTTP/1.1\r\nHost: h\n\r\n");
    refused("GET / HTTP/1.1\r\nHost: h\r\n\n");
    refused("GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n");
    refused("GET / HTTP/1.1\rHost: h\r\n\r\n");
    refused("\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
    refused("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n");
}

#[test]
fn header_lines_are_whole_and_plain() {
    let cases = [
        " folded: yes\r\n",
        "X: a\r\n b\r\n",
        "X: a\r\n\tb\r\n",
        "Content-Length : 5\r\n",
        "Content-Length\t: 5\r\n",
        "Transfer-Encoding\u{b}: chunked\r\n",
        "no colon\r\n",
        ": nameless\r\n",
        "X\u{e9}: y\r\n",
        "X(y): z\r\n",
        "X: a\0b\r\n",
        "X: a\u{1}b\r\n",
        "X: a\u{7f}b\r\n",
        "X: a\u{b}b\r\n",
    ];
    for lines in cases {
        refused(with_lines(lines));
    }
}

#[test]
fn a_request_names_one_host() {
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), "The request has no Host.");
    assert_eq!(
        refused(with_lines("Host: h\r\n")),
        "The request has more than one Host."
    );
    for host in [
        "", "a b", "a,b", "a/b", "user@a", "a:b", "a:123456", "[::1", "[::1]x", "[zz]", ":80", "a\\b", "a%20",
    ] {
        refused(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    }
    for host in [
        "a",
        "my_bucket.s3.example.org:9000",
        "127.0.0.1",
        "[::1]",
        "[fe80::1]:9000",
        "a:",
    ] {
        accepted(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 1);
    }
}

#[test]
fn an_absolute_target_must_agree_with_the_host() {
    accepted(
        "GET http://H.example:80/b/k?q HTTP/1.1\r\nHost: h.example:80\r\n\r\n",
        1,
    );
    accepted("GET HTTPS://h HTTP/1.1\r\nHost: h\r\n\r\n", 1);
    for target in [
        "http://other/b",
        "http://h:80/b",
        "http://user@h/b",
        "http://h@other/b",
        "ftp://h/b",
        "http:///b",
    ] {
        refused(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
    }
    refused("GET http://h/ HTTP/1.0\r\n\r\n");
}

#[test]
fn targets_and_request_lines_that_mean_nothing_are_refused() {
    let cases = [
        "GET /\r\nHost: h\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: h\r\n\r\n",
        "GET / a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        "GET / http/1.1\r\nHost: h\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
        "CONNECT /b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET b/k HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET ?x HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /b#x HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /b<x> HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /b\0 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GE(T / HTTP/1.1\r\nHost: h\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    for case in cases {
        refused(case);
    }
    refused(b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n");
    accepted("GET /\u{1f41f}?\u{e9} HTTP/1.1\r\nHost: h\r\n\r\n", 1);
}

#[test]
fn a_tls_handshake_on_a_plain_port_is_told_at_once() {
    assert_eq!(refused(b"\x16\x03\x01\x02\x00"), "This is not an HTTP request.");
}

#[test]
fn heads_are_bounded() {
    let room = MAX_HEAD_BYTES - with_lines("X: \r\n").len();
    accepted(with_lines(&format!("X: {}\r\n", "a".repeat(room))), 1);
    refused(with_lines(&format!("X: {}\r\n", "a".repeat(room + 1))));
    let endless = follow_in_pieces(&vec![b'a'; MAX_HEAD_BYTES], []);
    assert_eq!(
        endless.refusal.unwrap().0,
        ErrorCode::RequestHeaderSectionTooLarge
    );
    let short = follow_in_pieces(&vec![b'a'; MAX_HEAD_BYTES - 1], []);
    assert_eq!((short.refusal, short.position), (None, Position::InHead));

    accepted(with_lines(&"X: y\r\n".repeat(MAX_FIELDS - 1)), 1);
    refused(with_lines(&"X: y\r\n".repeat(MAX_FIELDS)));
}

#[test]
fn chunk_sizes_are_hexadecimal_digits_and_nothing_else() {
    let cases = [
        "\r\n",
        "x\r\n",
        "5\n",
        "5 \r\n",
        " 5\r\n",
        "0x5\r\n",
        "+5\r\n",
        "-5\r\n",
        "5 ;a\r\n",
        "5,5\r\n",
        "8000000000000000\r\n",
        "fffffffffffffffff\r\n",
        "5;a\0\r\n",
        "5;a\rb\r\n",
    ];
    for body in cases {
        let (stream, head) = chunked(&format!("{body}hello\r\n0\r\n\r\n"));
        refused_after(stream.as_bytes(), head);
    }
}

#[test]
fn chunk_extensions_are_bounded_each_and_together() {
    let (stream, head) = chunked(&format!("1;{}\r\n", "a".repeat(300)));
    refused_after(stream.as_bytes(), head);
    let one = format!("1;{}\r\nx\r\n", "a".repeat(200));
    let (stream, _) = chunked(&one.repeat(60));
    let outcome = follow(stream.as_bytes());
    assert_eq!(outcome.refusal.unwrap().1, "The chunk extensions are too long.");
}

#[test]
fn a_chunk_ends_where_its_size_says() {
    let (stream, head) = chunked("5\r\nhello!\r\n0\r\n\r\n");
    refused_after(stream.as_bytes(), head + 8);
    let (stream, head) = chunked("5\r\nhello\n0\r\n\r\n");
    refused_after(stream.as_bytes(), head + 8);
    let (stream, head) = chunked("5\r\nhell\r\n0\r\n\r\n");
    refused_after(stream.as_bytes(), head + 8);
}

#[test]
fn trailers_cannot_change_the_request() {
    let cases = [
        "Content-Length: 5\r\n",
        "transfer-encoding: chunked\r\n",
        "Host: other\r\n",
        "Authorization: x\r\n",
        "X: a\r\n b\r\n",
        "X : a\r\n",
        "X: a\n",
        "X: \0\r\n",
    ];
    for trailer in cases {
        let (stream, head) = chunked(&format!("0\r\n{trailer}\r\n"));
        let outcome = follow(stream.as_bytes());
        assert!(outcome.refusal.is_some(), "{trailer}");
        assert!(outcome.passed >= head + 3);
        assert_eq!(outcome.position, Position::InBody);
    }
    let (stream, _) = chunked(&format!("0\r\nX: {}\r\n\r\n", "a".repeat(9000)));
    assert_eq!(
        follow(stream.as_bytes()).refusal.unwrap().0,
        ErrorCode::RequestHeaderSectionTooLarge
    );
    let (stream, _) = chunked(&format!("0\r\n{}\r\n", "X: y\r\n".repeat(MAX_FIELDS + 1)));
    assert!(follow(stream.as_bytes()).refusal.is_some());
}

#[test]
fn a_refusal_is_final() {
    let mut framing = Framing::default();
    assert!(framing.follow(b"GET / HTTP/9\r\n").refusal.is_some());
    let outcome = framing.follow(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(outcome.pass_bytes, 0);
    assert!(outcome.refusal.is_some());
}

#[test]
fn the_position_tells_what_is_awaited() {
    let mut framing = Framing::default();
    assert_eq!(framing.position(), Position::BetweenRequests);
    framing.follow(b"P");
    assert_eq!(framing.position(), Position::InHead);
    framing.follow(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n");
    assert_eq!((framing.position(), framing.heads()), (Position::InBody, 1));
    framing.follow(b"a");
    assert_eq!(framing.position(), Position::InBody);
    framing.follow(b"b");
    assert_eq!(framing.position(), Position::BetweenRequests);
}

/// Pieces from which requests, right and wrong, are made.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "GET /b/k HTTP/1.1\r\n",
        "PUT /b?x HTTP/1.1\r\n",
        "GET http://h/b HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "Host: h\r\n",
        "Host: h\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "X-A: b\r\n",
        "Content-Length: 3, 3\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        ":",
        "abc",
        "3\r\n",
        "0\r\n\r\n",
        "3;x=y\r\nabc\r\n",
        "X: a\r\n b\r\n",
    ]);
    prop_oneof![
        30 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => collection::vec(any::<u8>(), 1..4),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    collection::vec(fragment(), 1..16).prop_map(|fragments| fragments.concat())
}

/// A head that is mostly right, so that many are accepted.
fn likely_head() -> impl Strategy<Value = Vec<u8>> {
    let target = prop_oneof![
        4 => "/[!-~]{0,20}(\\?[!-~]{0,20})?",
        1 => "/\\PC{0,8}(\\?\\PC{0,8})?",
        1 => "http://[a-z0-9.:@\\[\\]-]{1,10}/[!-~]{0,8}",
    ];
    let field = prop_oneof![
        4 => ("[!-~]{1,12}", "[ -~\t]{0,20}").prop_map(|(name, value)| format!("{name}: {value}")),
        1 => Just("Content-Length: 7".to_owned()),
        1 => Just("Transfer-Encoding: chunked".to_owned()),
        1 => "[ -~\\PC]{0,12}:\\PC{0,12}",
    ];
    (
        "[A-Z]{1,7}|[!-~]{1,4}",
        target,
        prop_oneof![9 => Just("1.1"), 1 => Just("1.0")],
        collection::vec(field, 0..6),
    )
        .prop_map(|(method, target, version, fields)| {
            let lines: String = fields.into_iter().map(|line| line + "\r\n").collect();
            format!("{method} {target} HTTP/{version}\r\nHost: h\r\n{lines}\r\n").into_bytes()
        })
}

/// The length of the head and of its body, as the HTTP library would see them.
fn as_the_http_library_reads(stream: &[u8]) -> Option<(usize, Option<u64>)> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head) = request.parse(stream).ok()? else {
        return None;
    };
    Method::from_bytes(request.method?.as_bytes()).ok()?;
    let uri = Uri::try_from(request.path?).ok()?;
    // The library must neither cut nor change what the client signed.
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let target = request.path?;
    assert!(path == target || !target.starts_with('/') && target.ends_with(path.trim_start_matches('/')));
    let mut body = Some(0);
    for field in request.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(field.value).ok()?;
        if name == TRANSFER_ENCODING {
            body = None;
        } else if name == CONTENT_LENGTH {
            body = Some(value.to_str().ok()?.parse().ok()?);
        }
    }
    Some((head, body))
}

proptest! {
    #[test]
    fn any_split_of_the_input_gives_the_same_verdict(
        stream in stream(),
        cuts in collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(follow_in_pieces(&stream, cuts), follow_in_pieces(&stream, []));
        prop_assert_eq!(follow_in_pieces(&stream, 1..stream.len()), follow_in_pieces(&stream, []));
    }

    #[test]
    fn a_head_that_passes_is_framed_as_the_http_library_frames_it(head in prop_oneof![likely_head(), stream()]) {
        let mut framing = Framing::default();
        let passed = framing.follow(&head).pass_bytes;
        if framing.heads() > 0 {
            let read = as_the_http_library_reads(&head);
            prop_assert!(read.is_some(), "accepted, but not by the HTTP library: {}", head.escape_ascii());
            let (length, body) = read.unwrap();
            prop_assert!(passed >= length, "heads pass whole");
            // The same stream, cut off after its first head, leaves the framing where the library would be.
            let mut first = Framing::default();
            first.follow(&head[..length]);
            prop_assert_eq!(first.heads(), 1);
            let expected = if body == Some(0) { Position::BetweenRequests } else { Position::InBody };
            prop_assert_eq!(first.position(), expected);
        }
    }
}
