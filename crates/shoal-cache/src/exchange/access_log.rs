//! The access log: one line for each request, with the caller, the operation, the response, and where the
//! bytes came from.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use shoal_policy::Source;
use shoal_s3::hop_by_hop::JOB_HEADER;
use shoal_s3::time::rfc3339;
use tracing::info;

use super::record::{CacheStatus, Record, Subject};
use crate::blocks::ReadTally;

/// The `tracing` target of the lines, so that a filter can select them.
pub const TARGET: &str = "shoal::access";

/// Maximum number of bytes of a client's header in a line.
pub(super) const HEADER_BYTES_MAX: usize = 256;

impl Record {
    /// Logs one request, whose response has ended. `tally` counts the sources of its blocks.
    pub(super) fn log_access(&self, subject: &Subject, tally: ReadTally, duration: Duration) {
        // Skip rendering if there is no subscriber.
        if !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            return;
        }
        let Subject {
            classified, client, ..
        } = subject;
        let name = classified.object.as_ref();
        let key = name.map(|name| String::from_utf8_lossy(&name.key));
        let query = client.uri.query().map(without_credentials);
        let [job, user_agent] = [JOB_HEADER, USER_AGENT].map(|name| client.headers.get(name).map(beginning));
        info!(
            target: TARGET,
            time = %rfc3339(subject.at),
            request_id = self.request_id.as_str(),
            peer = %subject.peer,
            caller = subject.caller.name(),
            operation = self.operation.as_str(),
            method = client.method.as_str(),
            bucket = classified.bucket.as_deref(),
            key = key.as_deref(),
            query,
            status = self.status.as_u16(),
            bytes = self.sent_bytes,
            offset_bytes = self.part.map(|(range, _)| range.start),
            object_bytes = self.part.map(|(_, object_bytes)| object_bytes),
            duration_ms = duration.as_secs_f64() * 1000.0,
            x_cache = self.cache.map(CacheStatus::as_str),
            local_bytes = tally.bytes(Source::Local),
            peer_bytes = tally.bytes(Source::Peer),
            tier_bytes = tally.bytes(Source::Tier),
            lake_bytes = tally.bytes(Source::Lake),
            job = job.as_deref(),
            user_agent = user_agent.as_deref(),
        );
    }
}

/// Returns the beginning of a header as text.
fn beginning(value: &HeaderValue) -> Cow<'_, str> {
    let value = value.as_bytes();
    String::from_utf8_lossy(&value[..value.len().min(HEADER_BYTES_MAX)])
}

/// Query parameters with which a reader of the log could repeat the request.
const CREDENTIALS: [&str; 4] = [
    "x-amz-signature",
    "x-amz-security-token",
    "x-amz-credential",
    "signature",
];

/// Returns the query with the values of its credentials replaced by `hidden`.
pub fn without_credentials(query: &str) -> String {
    let shown = |parameter: &str| -> String {
        let name = parameter.split('=').next().unwrap_or_default();
        // The lake also accepts percent-encoded parameter names.
        let decoded = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
        if CREDENTIALS
            .iter()
            .any(|credential| decoded.eq_ignore_ascii_case(credential))
        {
            format!("{name}=hidden")
        } else {
            parameter.to_owned()
        }
    };
    query.split('&').map(shown).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use http::request::Parts;
    use http::{Request, StatusCode};
    use shoal_s3::auth::Credentials;
    use shoal_s3::error_xml::RequestId;
    use shoal_s3::identity::{Caller, Identity};
    use shoal_s3::operation::{Operation, classify};
    use shoal_s3::range::ByteRange;
    use shoal_sim::Granularity;
    use shoal_sim::trace::{self, Format, Trace};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A request and its response.
    struct Access {
        record: Record,
        subject: Subject,
    }

    fn client(job: &[u8], user_agent: &[u8]) -> Parts {
        let request = Request::get("/data/a/%FF%0Ab?versionId=7&X-Amz-Signature=deadbeef");
        let (mut client, ()) = request.body(()).unwrap().into_parts();
        for (name, value) in [(JOB_HEADER, job), (USER_AGENT, user_agent)] {
            client
                .headers
                .insert(name, HeaderValue::from_bytes(value).unwrap());
        }
        client
    }

    fn access() -> Access {
        let client = client(b"etl \"nightly\"\t\xff", b"etl/nightly, Hadoop 3.3.4");
        let target = client.uri.path_and_query().unwrap();
        let identity = Identity::new("AKREADER", "secret");
        let mut record = Record::begin(&Arc::default(), RequestId::new(0xab));
        record.operation = Operation::GetObject;
        record.status = StatusCode::PARTIAL_CONTENT;
        let (start, end) = (8192, 12_288);
        record.part = Some((ByteRange { start, end }, 12_345));
        record.cache = Some(CacheStatus::Hit);
        record.sent(4096);
        Access {
            record,
            subject: Subject {
                at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
                peer: "127.0.0.1:4000".parse().unwrap(),
                caller: Caller::Identity(identity.into()),
                classified: classify(&client.method, target, None, &client.headers, None).unwrap(),
                client: client.into(),
                credentials: Credentials::Header,
                tls: None,
                s3_log: None,
            },
        }
    }

    fn line_of(access: &Access, filter: &str) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter(filter)
            .with_writer(move || writer.clone())
            .finish();
        let mut tally = ReadTally::default();
        tally.add(Source::Local, 4096);
        let duration = Duration::from_micros(1500);
        tracing::subscriber::with_default(subscriber, || {
            access.record.log_access(&access.subject, tally, duration);
        });
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_line_names_the_caller_the_request_and_the_answer() {
        let line: serde_json::Value = serde_json::from_str(&line_of(&access(), "info")).unwrap();
        assert_eq!(line["target"], "shoal::access");
        let fields = &line;
        assert_eq!(fields["time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(fields["caller"], "AKREADER");
        assert_eq!(fields["operation"], "get_object");
        assert_eq!(fields["bucket"], "data");
        assert_eq!(fields["key"], "a/\u{fffd}\nb");
        assert_eq!(fields["status"], 206);
        assert_eq!(fields["bytes"], 4096);
        assert_eq!(fields["offset_bytes"], 8192);
        assert_eq!(fields["object_bytes"], 12_345);
        assert_eq!(fields["job"], "etl \"nightly\"\t\u{fffd}");
        assert_eq!(fields["user_agent"], "etl/nightly, Hadoop 3.3.4");
        assert_eq!(fields["duration_ms"], 1.5);
        assert_eq!(fields["x_cache"], "HIT");
        assert_eq!(fields["local_bytes"], 4096);
        assert_eq!(fields["peer_bytes"], 0);
        assert_eq!(fields["tier_bytes"], 0);
        assert_eq!(fields["lake_bytes"], 0);
        assert_eq!(fields["request_id"], "00000000000000AB");
    }

    #[test]
    fn a_line_of_the_access_log_can_be_simulated() {
        let simulated = |operation: Operation| -> Vec<_> {
            let mut access = access();
            access.record.operation = operation;
            let line = std::io::Cursor::new(line_of(&access, "info"));
            let trace = Trace::read(
                line,
                Path::new("access.log"),
                Format::AccessLog,
                Granularity::Objects,
            )
            .unwrap();
            trace.accesses().map(|access| access.unwrap().operation).collect()
        };
        assert_eq!(simulated(Operation::GetObject), [trace::Operation::Read]);
        assert_eq!(simulated(Operation::PutObject), [trace::Operation::Write]);
        assert_eq!(
            simulated(Operation::CompleteMultipartUpload),
            [trace::Operation::Write]
        );
        assert_eq!(simulated(Operation::DeleteObject), [trace::Operation::Delete]);
        assert_eq!(simulated(Operation::HeadObject), []);
    }

    #[test]
    fn a_key_with_a_line_break_stays_on_one_line() {
        assert_eq!(line_of(&access(), "info").matches('\n').count(), 1);
    }

    #[test]
    fn a_long_name_of_a_job_is_cut() {
        let long = vec![b'j'; 100_000];
        let mut access = access();
        access.subject.client = client(&long, &long).into();
        let line = line_of(&access, "info");
        let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(fields["job"].as_str().unwrap().len(), HEADER_BYTES_MAX);
        assert!(line.len() < 2_000, "{} bytes", line.len());
    }

    #[test]
    fn the_line_of_a_plain_request_has_no_fields_without_a_value() {
        let mut access = access();
        access.record.part = None;
        let mut client = client(b"", b"");
        client.headers.clear();
        access.subject.client = client.into();
        let line = line_of(&access, "info");
        for field in ["job", "user_agent", "offset_bytes", "object_bytes"] {
            assert!(!line.contains(&format!("\"{field}\"")), "{line}");
        }
    }

    #[test]
    fn a_filter_can_turn_the_access_log_off() {
        assert_eq!(line_of(&access(), "info,shoal::access=off"), "");
    }

    #[test]
    fn credentials_of_presigned_urls_are_not_written() {
        assert!(!line_of(&access(), "info").contains("deadbeef"));
        assert_eq!(
            without_credentials(
                "a=1&X-Amz-Signature=s&x-amz-security-token=t&X-Amz-Credential=c&Signature=d&b"
            ),
            "a=1&X-Amz-Signature=hidden&x-amz-security-token=hidden&X-Amz-Credential=hidden&Signature=hidden&b"
        );
        assert_eq!(
            without_credentials("%58-Amz-%53ignature=s"),
            "%58-Amz-%53ignature=hidden"
        );
    }
}
