//! Time limits of an endpoint: to connect, to respond, and between two frames of a body. Pure.

use std::time::Duration;

use crate::endpoint::LakeConfig;
use crate::endpoint::request::RequestClass;
use crate::limits::STALL_TIMEOUT;

const NODE_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeouts of one endpoint.
#[derive(Clone, Copy, Debug)]
pub(in crate::endpoint) struct Timeouts {
    /// The time limit to resume a body that broke off, and the time after which a read is not retried. Its
    /// last attempt ends within this time, so that all attempts together take little more than twice this
    /// time: less than an SDK waits.
    pub(in crate::endpoint) answer: Duration,
    by_class: [RequestTimeouts; RequestClass::ALL.len()],
}

/// The timeouts of one request. They restart when the endpoint accepts bytes of the request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::endpoint) struct RequestTimeouts {
    /// To connect: name resolution, TCP and TLS together.
    pub(in crate::endpoint) connect: Duration,
    /// To the response head.
    pub(in crate::endpoint) head: Duration,
    /// To the next bytes of the response body.
    pub(in crate::endpoint) body: Duration,
}

impl Timeouts {
    pub(in crate::endpoint) fn new(config: &LakeConfig) -> Self {
        let (answer, stall, connect) = (
            config.answer_timeout,
            config.stall_timeout(),
            config.connect_timeout,
        );
        let by_class = RequestClass::ALL.map(|class| {
            let (head, body) = match class {
                RequestClass::Read => (answer, stall),
                RequestClass::Write => (config.write_timeout, stall),
                // S3 responds with 200 at once and sends whitespace while it works; other stores are silent
                // until they are done.
                RequestClass::Long => (config.long_write_timeout, config.long_write_timeout),
            };
            RequestTimeouts { connect, head, body }
        });
        Self { answer, by_class }
    }

    /// Returns the timeouts towards another node, which has its own timeouts towards the lake. The peer
    /// client gives up earlier than this.
    pub(in crate::endpoint) fn with_a_node() -> Self {
        let of_request = RequestTimeouts {
            connect: NODE_CONNECT_TIMEOUT,
            head: STALL_TIMEOUT,
            body: STALL_TIMEOUT,
        };
        Self {
            answer: STALL_TIMEOUT,
            by_class: RequestClass::ALL.map(|_| of_request),
        }
    }

    pub(in crate::endpoint) fn of_request(&self, class: RequestClass) -> RequestTimeouts {
        self.by_class[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderMap, HeaderValue, Method};
    use shoal_s3::operation::Operation;

    use super::{LakeConfig, RequestClass, Timeouts};

    /// How long SDKs wait for a byte of a response by default (boto3's `read_timeout`).
    const SDK_TIMEOUT: Duration = Duration::from_mins(1);

    #[test]
    fn only_what_makes_the_lake_work_may_take_long() {
        let plain = HeaderMap::new();
        let mut copy = HeaderMap::new();
        copy.insert("x-amz-copy-source", HeaderValue::from_static("/b/k"));
        let class =
            |method, operation: Operation, headers| RequestClass::of(&method, operation.as_str(), headers);
        let table = [
            (Method::GET, Operation::GetObject, &plain, RequestClass::Read),
            (Method::HEAD, Operation::HeadObject, &plain, RequestClass::Read),
            (Method::GET, Operation::ListObjects, &plain, RequestClass::Read),
            (Method::OPTIONS, Operation::OtherRead, &plain, RequestClass::Read),
            (Method::PUT, Operation::PutObject, &plain, RequestClass::Write),
            (Method::PUT, Operation::UploadPart, &plain, RequestClass::Write),
            (Method::PUT, Operation::OtherWrite, &plain, RequestClass::Write),
            (
                Method::DELETE,
                Operation::DeleteObject,
                &plain,
                RequestClass::Write,
            ),
            (
                Method::POST,
                Operation::CreateMultipartUpload,
                &plain,
                RequestClass::Write,
            ),
            (Method::PUT, Operation::PutObject, &copy, RequestClass::Long),
            (Method::PUT, Operation::UploadPart, &copy, RequestClass::Long),
            (
                Method::POST,
                Operation::CompleteMultipartUpload,
                &plain,
                RequestClass::Long,
            ),
            (Method::POST, Operation::DeleteObjects, &plain, RequestClass::Long),
            (Method::POST, Operation::OtherRead, &plain, RequestClass::Long),
        ];
        for (method, operation, headers, expected) in table {
            assert_eq!(class(method, operation, headers), expected, "{operation:?}");
        }
    }

    /// SDKs give up on a silent server after a minute.
    #[test]
    fn every_answer_that_is_not_long_comes_before_an_sdk_gives_up() {
        let lake = LakeConfig::default();
        let timeouts = Timeouts::new(&lake);
        assert!(lake.connect_timeout + lake.write_timeout < SDK_TIMEOUT);
        let last_try = lake.connect_timeout + timeouts.of_request(RequestClass::Read).head;
        assert!(lake.answer_timeout + crate::endpoint::retry::RETRY_AFTER_MAX + last_try < SDK_TIMEOUT);
        assert!(lake.stall_timeout() + timeouts.answer < SDK_TIMEOUT);
        assert!(lake.answer_timeout >= timeouts.answer, "no further try");
    }
}
