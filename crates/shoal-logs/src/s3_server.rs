//! Server access log of Amazon S3: one line per request, fields separated by spaces, some quoted or in
//! brackets.
//!
//! The log does not give the range of a partial answer, nor headers of the client other than `Referer` and
//! `User-Agent`. A node writes such lines, too (`[log] access = "s3"`); within quotes it escapes bytes as
//! `\x22`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::timestamp::common_log;
use crate::{Mismatch, Request, RequestKind};

const EXPECTED: &str = "a line of an S3 server access log: owner bucket [time] address requester id operation key \"uri\" status \
                        error bytes size ...";

// Positions of the needed fields.
const BUCKET: usize = 1;
const TIME: usize = 2;
const ADDRESS: usize = 3;
const REQUESTER: usize = 4;
const OPERATION: usize = 6;
const KEY: usize = 7;
const STATUS: usize = 9;
const BYTES_SENT: usize = 11;
const OBJECT_SIZE: usize = 12;
const TOTAL_MS: usize = 13;
const USER_AGENT: usize = 16;

/// Parses one line.
///
/// # Errors
///
/// Fails if the line has too few fields, or one that is not of its form.
pub fn request(line: &str) -> Result<Request<'_>, Mismatch> {
    let fields = split(line);
    if fields.len() <= OBJECT_SIZE {
        return Err(Mismatch::new(format!("{} fields", fields.len()), EXPECTED));
    }
    let Some(at) = common_log(fields[TIME]) else {
        let found = format!("`{}` where the time stands", fields[TIME]);
        return Err(Mismatch::new(
            found,
            "a time such as [06/Feb/2019:00:00:38 +0000]",
        ));
    };
    let kind = match fields[STATUS] {
        // 206 is a partial answer; a request with a status that is not listed moved nothing.
        "200" | "204" | "206" => kind_of(fields[OPERATION]),
        _ => RequestKind::Other,
    };
    // The numbers of a request that moved nothing are not read.
    let moved = |field: usize| fields.get(field).copied().filter(|_| kind != RequestKind::Other);
    let bytes_of = |name: &str, field: usize| {
        let value = moved(field).filter(|value| *value != "-");
        let parsed = value.map(|value| {
            let found = || format!("`{value}` where the {name} stand");
            let parsed = value.parse::<u64>();
            parsed.map_err(|_| Mismatch::new(found(), "a whole number of bytes, or -"))
        });
        parsed.transpose()
    };
    let sent_bytes = bytes_of("bytes sent", BYTES_SENT)?.unwrap_or(0);
    let object_bytes = bytes_of("bytes of the object", OBJECT_SIZE)?;
    let word = |field: usize| {
        fields
            .get(field)
            .copied()
            .filter(|word| !matches!(*word, "-" | ""))
    };
    let text = |field: usize| word(field).map(Cow::Borrowed);
    Ok(Request {
        at,
        kind,
        bucket: text(BUCKET),
        key: word(KEY).map(decoded_key),
        bytes: match kind {
            RequestKind::Read => sent_bytes,
            _ => object_bytes.unwrap_or(sent_bytes),
        },
        offset_bytes: None,
        object_bytes,
        duration_ms: moved(TOTAL_MS).and_then(|ms| ms.parse().ok()),
        client: Cow::Borrowed(fields[ADDRESS]),
        identity: text(REQUESTER),
        job: None,
        user_agent: word(USER_AGENT).map(unescaped),
    })
}

/// Decodes a key to the spelling of clients. AWS encodes some characters of the field twice.
fn decoded_key(key: &str) -> Cow<'_, str> {
    match decoded(key) {
        Cow::Owned(once) => Cow::Owned(decoded(&once).into_owned()),
        unchanged @ Cow::Borrowed(_) => unchanged,
    }
}

fn kind_of(operation: &str) -> RequestKind {
    match operation {
        "REST.GET.OBJECT" => RequestKind::Read,
        "REST.PUT.OBJECT" | "REST.COPY.OBJECT" | "REST.POST.OBJECT" | "REST.POST.UPLOAD" => {
            RequestKind::Write
        }
        "REST.DELETE.OBJECT" | "BATCH.DELETE.OBJECT" | "S3.EXPIRE.OBJECT" => RequestKind::Delete,
        _ => RequestKind::Other,
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
            // Elsewhere a word may begin with a bracket.
            b'[' if fields.len() == TIME => Some(']'),
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

/// Replaces `\x22` by a quote and so on, as nodes escape bytes within quotes.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains("\\x") {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split("\\x");
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let escaped = part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = escaped {
            bytes.push(byte);
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        } else {
            bytes.extend_from_slice(b"\\x");
            bytes.extend_from_slice(part.as_bytes());
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Replaces `%3D` by `=` and so on. An incomplete escape stays as it is.
fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::{decoded_key, request, unescaped};
    use crate::RequestKind;

    /// In the form of the examples in the S3 User Guide ("Amazon S3 server access log format"); the values
    /// are invented.
    const LINE: &str = "79a5 bucket [06/Feb/2019:00:00:39 +0000] 192.0.2.3 arn:aws:iam::123456789012:user/etl A1 \
                        REST.GET.OBJECT dt%3D2019-02-05/a \"GET /bucket/dt%3D2019-02-05/a HTTP/1.1\" 206 - 100 4406 28 \
                        20 \"-\" \"etl/nightly, Hadoop 3.3.4\" - s9lz SigV4 - - - - - -";

    #[test]
    fn a_line_of_the_log_is_a_request() {
        let request = request(LINE).unwrap();
        assert_eq!(request.kind, RequestKind::Read);
        assert_eq!(request.key.as_deref(), Some("dt=2019-02-05/a"));
        assert_eq!(
            request.identity.as_deref(),
            Some("arn:aws:iam::123456789012:user/etl")
        );
        assert_eq!(request.user_agent.as_deref(), Some("etl/nightly, Hadoop 3.3.4"));
        assert_eq!((request.bytes, request.object_bytes), (100, Some(4406)));
        assert_eq!(request.duration_ms, Some(28.0));
        assert_eq!(request.job, None);
    }

    #[test]
    fn a_key_that_was_encoded_twice_is_decoded_twice() {
        assert_eq!(decoded_key("dt%253D2019/a%2520b"), "dt=2019/a b");
        assert_eq!(decoded_key("100%/a%zz"), "100%/a%zz");
        assert_eq!(decoded_key("%E2%82%AC%FF"), "\u{20ac}\u{fffd}");
    }

    #[test]
    fn escapes_of_nodes_are_undone_within_quotes() {
        for (written, read) in [
            (r"etl\x22\x5C", "etl\"\\"),
            (r"\xE2\x82\xAC\xFF", "\u{20ac}\u{fffd}"),
            (r"a\x", r"a\x"),
            (r"a\xZZ\x4", r"a\xZZ\x4"),
            (r"\x2", r"\x2"),
            (r"plain \ text", r"plain \ text"),
        ] {
            assert_eq!(unescaped(written), read, "{written}");
        }
    }
}
