//! The access log in the form of Amazon S3's server access log: one line for each request, its fields
//! separated by blanks, `-` for a field without a value.
//!
//! `shoal_logs::s3_server` reads it back. Where Amazon writes what a client sent as it came, this log escapes
//! what would end a field or a line: `%22` in words, `\x22` within quotes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderName, HeaderValue, Version};
use shoal_net::log_file::LogFile;
use shoal_s3::auth::Credentials;
use shoal_s3::identity::Caller;
use shoal_s3::operation::{Classified, Operation};
use shoal_s3::target;
use shoal_s3::time::common_log;

use super::access_log::{HEADER_BYTES_MAX, without_credentials};
use super::record::{Record, Subject};

/// Maximum number of bytes of a request's target in a line, before they are escaped.
const TARGET_BYTES_MAX: usize = 4 << 10;

impl Record {
    /// Logs one request, whose response has ended.
    pub(super) fn log_s3(&self, file: &LogFile, subject: &Subject, duration: Duration) {
        file.write(&self.s3_line(subject, duration));
    }

    /// Returns the line of a request.
    fn s3_line(&self, subject: &Subject, duration: Duration) -> String {
        let Subject {
            classified, client, ..
        } = subject;
        let mut line = Line::default();
        let number = |number: u64| number.to_string();
        let name = classified.object.as_ref();
        let requester = match &subject.caller {
            Caller::Anonymous => "",
            caller => caller.name(),
        };
        let header = |name: HeaderName| client.headers.get(name).map(HeaderValue::as_bytes);
        let cut = |value: &'_ [u8]| value[..value.len().min(HEADER_BYTES_MAX)].to_vec();
        // The owner of the bucket is known to the lake alone.
        line.word("");
        line.word(classified.bucket.as_deref().unwrap_or_default());
        line.bracketed(&common_log(subject.at));
        line.word(&subject.peer.ip().to_string());
        line.word(requester);
        line.word(self.request_id.as_str());
        line.word(&operation(classified, client.method.as_str()));
        line.word(&name.map(|name| key(&name.key)).unwrap_or_default());
        line.quoted(Some(&request_line(client)));
        line.word(self.status.as_str());
        line.word(self.error.unwrap_or_default());
        line.word(
            &Some(self.sent_bytes)
                .filter(|bytes| *bytes > 0)
                .map(number)
                .unwrap_or_default(),
        );
        line.word(&self.object_bytes(subject).map(number).unwrap_or_default());
        line.word(&number(duration.as_millis() as u64));
        line.word(&number(self.head_time.as_millis() as u64));
        line.quoted(header(REFERER).map(cut).as_deref());
        line.quoted(header(USER_AGENT).map(cut).as_deref());
        line.word(name.and_then(|name| name.version.as_deref()).unwrap_or_default());
        line.word(self.request_id.as_str());
        let (signature, authentication) = credentials(subject);
        line.word(signature);
        line.word(subject.tls.map_or("", |tls| tls.cipher));
        line.word(authentication);
        let host = header(HOST).map(String::from_utf8_lossy);
        let authority = || client.uri.authority().map(|authority| authority.as_str().into());
        line.word(&host.or_else(authority).unwrap_or_default());
        line.word(subject.tls.map_or("", |tls| tls.version));
        // Access points and ACLs are the lake's.
        line.word("");
        line.word("");
        line.0
    }

    /// Returns the size of the object that a request is about, as far as the node knows it.
    fn object_bytes(&self, subject: &Subject) -> Option<u64> {
        let is_whole = subject.classified.operation == Operation::PutObject
            && subject.classified.copy_source.is_none()
            && self.status.is_success();
        if !is_whole {
            return self.part.map(|(_, object_bytes)| object_bytes);
        }
        let headers = &subject.client.headers;
        let length = headers
            .get("x-amz-decoded-content-length")
            .or_else(|| headers.get(http::header::CONTENT_LENGTH));
        length?.to_str().ok()?.parse().ok()
    }
}

/// A line under construction.
#[derive(Default)]
struct Line(String);

impl Line {
    fn begin(&mut self) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
    }

    /// Adds a field that is one word; `-` if it is empty.
    fn word(&mut self, word: &str) {
        self.begin();
        if word.is_empty() {
            self.0.push('-');
        }
        for byte in word.bytes() {
            if byte.is_ascii_graphic() && byte != b'"' {
                self.0.push(char::from(byte));
            } else {
                self.escape('%', byte);
            }
        }
    }

    fn bracketed(&mut self, text: &str) {
        self.begin();
        self.0.extend(["[", text, "]"]);
    }

    /// Adds a field in quotes; `"-"` if it has no value.
    fn quoted(&mut self, bytes: Option<&[u8]>) {
        self.begin();
        self.0.push('"');
        match bytes {
            None => self.0.push('-'),
            // This would be read as a field without a value.
            Some(b"-") => self.escape('\\', b'-'),
            Some(bytes) => bytes.iter().for_each(|byte| match byte {
                b'"' | b'\\' => self.escape('\\', *byte),
                b' '..=b'~' => self.0.push(char::from(*byte)),
                _ => self.escape('\\', *byte),
            }),
        }
        self.0.push('"');
    }

    fn escape(&mut self, sign: char, byte: u8) {
        let x = if sign == '\\' { "x" } else { "" };
        write!(self.0, "{sign}{x}{byte:02X}").expect("a string takes all text");
    }
}

/// Returns a key as Amazon writes it: percent-encoded twice.
fn key(key: &[u8]) -> String {
    match key {
        // This would be read as a field without a value.
        b"-" => "%252D".into(),
        key => target::key(key).replace('%', "%25"),
    }
}

/// Returns the first line of a request, without the credentials of a presigned URL.
fn request_line(client: &http::request::Parts) -> Vec<u8> {
    let uri = &client.uri;
    let query = uri.query().map(without_credentials);
    let mut target = uri.path().to_owned();
    target.extend(query.iter().flat_map(|query| ["?", query]));
    target.truncate(target.floor_char_boundary(TARGET_BYTES_MAX));
    let version = match client.version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    format!("{} {target} {version}", client.method).into_bytes()
}

/// Returns the version of the signature, and where the request carries it.
fn credentials(subject: &Subject) -> (&'static str, &'static str) {
    let authorization = subject.client.headers.get(http::header::AUTHORIZATION);
    let is_of_version_2 = match subject.credentials {
        Credentials::Header => authorization.is_some_and(|value| value.as_bytes().starts_with(b"AWS ")),
        _ => subject.classified.query.has("AWSAccessKeyId"),
    };
    let version = if is_of_version_2 { "SigV2" } else { "SigV4" };
    match subject.credentials {
        Credentials::None => ("", ""),
        Credentials::Header => (version, "AuthHeader"),
        Credentials::Query { .. } => (version, "QueryString"),
    }
}

/// Returns the operation in Amazon's words.
fn operation(classified: &Classified, method: &str) -> Cow<'static, str> {
    let is_copy = classified.copy_source.is_some();
    let word = match classified.operation {
        Operation::GetObject => "REST.GET.OBJECT",
        Operation::HeadObject => "REST.HEAD.OBJECT",
        Operation::PutObject if is_copy => "REST.COPY.OBJECT",
        Operation::PutObject => "REST.PUT.OBJECT",
        Operation::DeleteObject => "REST.DELETE.OBJECT",
        Operation::DeleteObjects => "REST.POST.MULTI_OBJECT_DELETE",
        Operation::CreateMultipartUpload => "REST.POST.UPLOADS",
        Operation::UploadPart if is_copy => "REST.COPY.PART",
        Operation::UploadPart => "REST.PUT.PART",
        Operation::CompleteMultipartUpload => "REST.POST.UPLOAD",
        Operation::AbortMultipartUpload => "REST.DELETE.UPLOAD",
        Operation::ListObjects => "REST.GET.BUCKET",
        Operation::ListMultipartUploads => "REST.GET.UPLOADS",
        Operation::ListBuckets => "REST.GET.SERVICE",
        Operation::OtherRead | Operation::OtherWrite => {
            return format!("REST.{method}.{}", resource(classified)).into();
        }
    };
    word.into()
}

/// Returns the resource of an operation that the node does not distinguish. Amazon's words for sub-resources
/// are their names, but for these.
fn resource(classified: &Classified) -> Cow<'static, str> {
    let is_of_object = classified.object.is_some();
    let is_name = |name: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !name.is_empty() && name.len() <= 32 && name.bytes().all(is_plain) && !name.starts_with("X-Amz-")
    };
    let sub_resource = classified.query.iter().map(|(name, _)| name).find(is_name);
    match (sub_resource, is_of_object) {
        (None, true) => "OBJECT_OTHER".into(),
        (None, false) => "BUCKET".into(),
        (Some("tagging"), true) => "OBJECT_TAGGING".into(),
        (Some("policy"), _) => "BUCKETPOLICY".into(),
        (Some("versions"), _) => "BUCKETVERSIONS".into(),
        (Some("uploadId"), _) => "UPLOAD".into(),
        (Some("object-lock"), _) => "OBJECT_LOCK_CONFIGURATION".into(),
        // Not the words that mean one object.
        (Some(name), _) if ["object", "upload"].contains(&&*name.to_ascii_lowercase()) => "OTHER".into(),
        (Some(name), _) => name.to_ascii_uppercase().replace('-', "_").into(),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, REFERER, USER_AGENT};
    use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
    use shoal_logs::{RequestKind, s3_server};
    use shoal_net::http::tls::TlsSession;
    use shoal_s3::auth::Credentials;
    use shoal_s3::error_xml::RequestId;
    use shoal_s3::identity::{Caller, Identity};
    use shoal_s3::operation::classify;
    use shoal_s3::range::ByteRange;
    use shoal_s3::target;

    use super::{HEADER_BYTES_MAX, Operation, Record, Subject};

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    /// A request and its response.
    fn access(method: &Method, target: &str, headers: &[(HeaderName, &[u8])]) -> (Record, Subject) {
        let request = Request::builder().method(method).uri(target).body(()).unwrap();
        let (mut client, ()) = request.into_parts();
        for (name, value) in headers {
            client
                .headers
                .append(name, HeaderValue::from_bytes(value).unwrap());
        }
        let target = client.uri.path_and_query().unwrap();
        let classified = classify(method, target, None, &client.headers, None).unwrap();
        let mut record = Record::begin(&Arc::default(), RequestId::new(0xab));
        record.operation = classified.operation;
        record.status = StatusCode::OK;
        let subject = Subject {
            at: AT + Duration::from_secs(1_700_000_000),
            peer: "127.0.0.1:4000".parse().unwrap(),
            caller: Caller::Identity(Identity::new("AKREADER", "secret").into()),
            classified,
            client: client.into(),
            credentials: Credentials::Header,
            tls: None,
            s3_log: None,
        };
        (record, subject)
    }

    fn line(method: &Method, target: &str) -> String {
        let (record, subject) = access(method, target, &[]);
        record.s3_line(&subject, Duration::ZERO)
    }

    #[test]
    fn a_line_has_the_fields_of_amazon_in_their_order() {
        let (mut record, mut subject) = access(
            &Method::GET,
            "/data/dt=2019/a%20b?versionId=7&X-Amz-Signature=deadbeef",
            &[
                (HOST, b"s3.example.org:9000"),
                (REFERER, b"https://page/\"x\""),
                (USER_AGENT, b"etl/nightly, Hadoop 3.3.4"),
                (AUTHORIZATION, b"AWS4-HMAC-SHA256 Credential=..."),
            ],
        );
        record.status = StatusCode::PARTIAL_CONTENT;
        record.part = Some((ByteRange { start: 0, end: 100 }, 4406));
        record.head_time = Duration::from_millis(20);
        record.sent(100);
        subject.tls = Some(TlsSession {
            version: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
        });
        assert_eq!(
            record.s3_line(&subject, Duration::from_micros(28_900)),
            "- data [14/Nov/2023:22:13:20 +0000] 127.0.0.1 AKREADER 00000000000000AB REST.GET.OBJECT \
             dt%253D2019/a%2520b \"GET /data/dt=2019/a%20b?versionId=7&X-Amz-Signature=hidden HTTP/1.1\" 206 - \
             100 4406 28 20 \"https://page/\\x22x\\x22\" \"etl/nightly, Hadoop 3.3.4\" 7 00000000000000AB SigV4 \
             TLS_AES_128_GCM_SHA256 AuthHeader s3.example.org:9000 TLSv1.3 - -"
        );
    }

    #[test]
    fn an_error_of_the_node_and_a_stranger_have_their_fields() {
        let (mut record, mut subject) = access(&Method::GET, "/data/k", &[]);
        record.status = StatusCode::SERVICE_UNAVAILABLE;
        record.error = Some("SlowDown");
        (subject.caller, subject.credentials) = (Caller::Anonymous, Credentials::None);
        assert_eq!(
            record.s3_line(&subject, Duration::ZERO),
            "- data [14/Nov/2023:22:13:20 +0000] 127.0.0.1 - 00000000000000AB REST.GET.OBJECT k \
             \"GET /data/k HTTP/1.1\" 503 SlowDown - - 0 0 \"-\" \"-\" - 00000000000000AB - - - - - - -"
        );
    }

    #[test]
    fn operations_have_the_words_of_amazon() {
        for (method, target, expected) in [
            (Method::GET, "/b/k", "REST.GET.OBJECT"),
            (Method::HEAD, "/b/k", "REST.HEAD.OBJECT"),
            (Method::PUT, "/b/k", "REST.PUT.OBJECT"),
            (Method::DELETE, "/b/k", "REST.DELETE.OBJECT"),
            (Method::POST, "/b?delete", "REST.POST.MULTI_OBJECT_DELETE"),
            (Method::POST, "/b/k?uploads", "REST.POST.UPLOADS"),
            (Method::PUT, "/b/k?partNumber=1&uploadId=x", "REST.PUT.PART"),
            (Method::POST, "/b/k?uploadId=x", "REST.POST.UPLOAD"),
            (Method::DELETE, "/b/k?uploadId=x", "REST.DELETE.UPLOAD"),
            (Method::GET, "/b/k?uploadId=x", "REST.GET.UPLOAD"),
            (Method::GET, "/b?list-type=2", "REST.GET.BUCKET"),
            (Method::GET, "/b?uploads", "REST.GET.UPLOADS"),
            (Method::GET, "/", "REST.GET.SERVICE"),
            (Method::HEAD, "/b", "REST.HEAD.BUCKET"),
            (Method::GET, "/b/k?tagging", "REST.GET.OBJECT_TAGGING"),
            (Method::GET, "/b?tagging", "REST.GET.TAGGING"),
            (Method::PUT, "/b/k?acl", "REST.PUT.ACL"),
            (Method::GET, "/b?policy", "REST.GET.BUCKETPOLICY"),
            (Method::GET, "/b/k?object", "REST.GET.OTHER"),
            (Method::POST, "/b/k?upload", "REST.POST.OTHER"),
        ] {
            let line = line(&method, target);
            assert_eq!(line.split(' ').nth(7), Some(expected), "{method} {target}");
        }
    }

    #[test]
    fn the_size_of_an_object_that_is_written_is_that_of_its_body() {
        let size = |headers: &[(HeaderName, &[u8])], status| {
            let (mut record, subject) = access(&Method::PUT, "/b/k", headers);
            record.status = status;
            record.object_bytes(&subject)
        };
        let decoded = HeaderName::from_static("x-amz-decoded-content-length");
        assert_eq!(size(&[(CONTENT_LENGTH, b"7")], StatusCode::OK), Some(7));
        assert_eq!(
            size(&[(CONTENT_LENGTH, b"90"), (decoded, b"7")], StatusCode::OK),
            Some(7)
        );
        assert_eq!(size(&[(CONTENT_LENGTH, b"7")], StatusCode::FORBIDDEN), None);
        let copy = HeaderName::from_static("x-amz-copy-source");
        assert_eq!(
            size(&[(CONTENT_LENGTH, b"0"), (copy, b"/b/other")], StatusCode::OK),
            None
        );
    }

    /// The text of bytes, or nothing where the log writes a field without a value.
    fn text(bytes: &[u8]) -> Option<String> {
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Bytes that an HTTP header may have, with those that a log must escape among them.
    fn header_value() -> impl Strategy<Value = Vec<u8>> {
        let is_allowed = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        let hostile = proptest::sample::select(b"\"\\ -][x2%\t\xff\xc3".to_vec());
        let byte = proptest::prop_oneof![hostile, any::<u8>().prop_filter("a header's", is_allowed)];
        vec(byte, 0..300)
    }

    proptest! {
        #[test]
        fn every_line_is_read_back_as_it_was_written(
            bucket in "[a-z0-9.-]{3,20}",
            key in vec(proptest::prop_oneof![proptest::sample::select(b"\" %-[]\n\r/+\\".to_vec()), any::<u8>()], 1..60),
            user_agent in option::of(header_value()),
            referer in option::of(header_value()),
            host in header_value(),
            // A single dash in the log means a request without credentials.
            access_key in "[!#-+.-9;-<>-~][!#-+.-9;-<>-~-]{0,39}",
            sent in 0..1_u64 << 40,
            millis in 0..1_u64 << 30,
            seconds in 0..1_u64 << 31,
        ) {
            let target = format!("/{bucket}/{}", target::key(&key));
            let named = [(USER_AGENT, &user_agent), (REFERER, &referer), (HOST, &Some(host))];
            let headers = named.into_iter().filter_map(|(name, value)| Some((name, &**value.as_ref()?)));
            let headers: Vec<_> = headers.collect();
            // Keys such as `..` are refused before they are logged, and others are no plain read.
            let parsed = target.parse::<http::uri::PathAndQuery>();
            let is_served = |target| classify(&Method::GET, &target, None, &http::HeaderMap::new(), None);
            if !parsed.is_ok_and(|target| is_served(target).is_ok_and(|found| found.operation == Operation::GetObject)) {
                return Ok(());
            }
            let (mut record, mut subject) = access(&Method::GET, &target, &headers);
            subject.at = AT + Duration::from_secs(seconds);
            subject.caller = Caller::Identity(Identity::new(&access_key, "secret").into());
            record.sent(sent as usize);
            record.part = Some((ByteRange { start: 0, end: sent }, sent + 1));
            let line = record.s3_line(&subject, Duration::from_millis(millis));
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
            let read = s3_server::request(&line).unwrap();
            prop_assert_eq!(SystemTime::from(read.at), subject.at);
            prop_assert_eq!(read.kind, RequestKind::Read);
            prop_assert_eq!(read.bucket.as_deref(), Some(&*bucket));
            prop_assert_eq!(read.key.as_deref(), Some(&*String::from_utf8_lossy(&key)));
            prop_assert_eq!((read.bytes, read.object_bytes), (sent, Some(sent + 1)));
            prop_assert_eq!(read.duration_ms, Some(millis as f64));
            prop_assert_eq!(&*read.client, "127.0.0.1");
            prop_assert_eq!(read.identity.as_deref(), Some(&*access_key));
            let kept = user_agent.as_ref().map(|value| &value[..value.len().min(HEADER_BYTES_MAX)]);
            prop_assert_eq!(read.user_agent.map(Cow::into_owned), kept.and_then(text));
        }
    }
}
