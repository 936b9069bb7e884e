//! The access log: one line for each request, with the caller, the operation, the response, and where the
//! bytes came from.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use shoal_s3::time::rfc3339;
use tracing::info;

/// The `tracing` target of the lines, so that a filter can select them.
pub const TARGET: &str = "shoal::access";

/// A request and its response, as the access log shows them. Contains no secrets: an access key is public.
#[derive(Clone, Debug)]
pub struct AccessRecord<'request> {
    /// Time of arrival.
    pub at: SystemTime,
    /// The id of the request in its response.
    pub request_id: &'request str,
    /// Address of the client.
    pub peer: std::net::SocketAddr,
    /// Access key that signed the request; `None` for an anonymous request.
    pub access_key: Option<&'request str>,
    /// The operation's label in metrics.
    pub operation: &'static str,
    /// Method of the request.
    pub method: &'request str,
    /// Bucket, if the request names one.
    pub bucket: Option<&'request str>,
    /// Key, percent-decoded, if the request names one.
    pub key: Option<&'request [u8]>,
    /// Query as sent. Its credentials are omitted from the line.
    pub query: Option<&'request str>,
    /// Status of the response.
    pub status: u16,
    /// Bytes of the response's body that were sent.
    pub body_bytes: u64,
    /// The part of an object that the response carries; `None` for other responses.
    pub part: Option<Part>,
    /// Name of the job, from `x-shoal-job`.
    pub job: Option<&'request [u8]>,
    /// The `User-Agent` header.
    pub user_agent: Option<&'request [u8]>,
    /// Time from the request's head to the last byte of the response.
    pub duration: Duration,
    /// `X-Cache` of the response.
    pub x_cache: Option<&'static str>,
    /// Bytes of the body from this node's disk.
    pub local_bytes: u64,
    /// Bytes of the body from other nodes.
    pub peer_bytes: u64,
    /// Bytes of the body from a tier.
    pub tier_bytes: u64,
    /// Bytes of the body from the lake.
    pub lake_bytes: u64,
}

/// The part of an object in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the first byte.
    pub offset_bytes: u64,
    /// Size of the whole object.
    pub object_bytes: u64,
}

/// Maximum number of bytes of a client's header in a line.
const HEADER_BYTES_MAX: usize = 256;

/// Logs one request.
pub fn access_line(access: &AccessRecord<'_>) {
    // Skip rendering if there is no subscriber.
    if !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
        return;
    }
    let key = access.key.map(String::from_utf8_lossy);
    let query = access.query.map(without_credentials);
    let (job, user_agent) = (access.job.map(beginning), access.user_agent.map(beginning));
    info!(
        target: TARGET,
        time = %rfc3339(access.at),
        request_id = access.request_id,
        peer = %access.peer,
        caller = access.access_key.unwrap_or("anonymous"),
        operation = access.operation,
        method = access.method,
        bucket = access.bucket,
        key = key.as_deref(),
        query,
        status = access.status,
        bytes = access.body_bytes,
        offset_bytes = access.part.map(|part| part.offset_bytes),
        object_bytes = access.part.map(|part| part.object_bytes),
        duration_ms = access.duration.as_secs_f64() * 1000.0,
        x_cache = access.x_cache,
        local_bytes = access.local_bytes,
        peer_bytes = access.peer_bytes,
        tier_bytes = access.tier_bytes,
        lake_bytes = access.lake_bytes,
        job = job.as_deref(),
        user_agent = user_agent.as_deref(),
    );
}

/// Returns the beginning of a header as text.
fn beginning(value: &[u8]) -> Cow<'_, str> {
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
    use std::time::{Duration, SystemTime};

    use shoal_s3::operation::Operation;
    use shoal_sim::Granularity;
    use shoal_sim::trace::{self, Format, Trace};

    use super::{AccessRecord, HEADER_BYTES_MAX, Part, access_line, without_credentials};

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

    fn access() -> AccessRecord<'static> {
        AccessRecord {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            request_id: "00000000000000AB",
            peer: "127.0.0.1:4000".parse().unwrap(),
            access_key: Some("AKREADER"),
            operation: Operation::GetObject.as_str(),
            method: "GET",
            bucket: Some("data"),
            key: Some(b"a/\xff\nb"),
            query: Some("versionId=7&X-Amz-Signature=deadbeef"),
            status: 206,
            body_bytes: 4096,
            part: Some(Part {
                offset_bytes: 8192,
                object_bytes: 12_345,
            }),
            job: Some(b"etl \"nightly\"\t\xff"),
            user_agent: Some(b"etl/nightly, Hadoop 3.3.4"),
            duration: Duration::from_micros(1500),
            x_cache: Some("HIT"),
            local_bytes: 4096,
            peer_bytes: 0,
            tier_bytes: 0,
            lake_bytes: 0,
        }
    }

    fn line_of(access: &AccessRecord<'_>, filter: &str) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter(filter)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || access_line(access));
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
            access.operation = operation.as_str();
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
        (access.job, access.user_agent) = (Some(long.as_slice()), Some(long.as_slice()));
        let line = line_of(&access, "info");
        let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(fields["job"].as_str().unwrap().len(), HEADER_BYTES_MAX);
        assert!(line.len() < 2_000, "{} bytes", line.len());
    }

    #[test]
    fn the_line_of_a_plain_request_has_no_fields_without_a_value() {
        let access = AccessRecord {
            part: None,
            job: None,
            user_agent: None,
            ..access()
        };
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
