//! An answer of the lake before it is sent, and the errors of S3.

use std::ops::Range;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::object::Content;

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: AnswerBody,
}

pub(super) enum AnswerBody {
    None,
    Content(Content, Range<u64>),
}

impl Answer {
    pub(super) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: AnswerBody::None,
        }
    }

    pub(super) fn xml(status: StatusCode, xml: &str) -> Self {
        let content =
            Content::from(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{xml}").into_bytes());
        let size = content.size();
        let mut answer = Self::empty(status);
        answer
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        answer.headers.insert(CONTENT_LENGTH, size.into());
        answer.body = AnswerBody::Content(content, 0..size);
        answer
    }

    pub(super) fn error(code: &str, resource: &str) -> Self {
        let resource = escape(resource);
        let xml = format!(
            "<Error><Code>{code}</Code><Message>{code}</Message><Resource>{resource}</Resource></Error>"
        );
        Self::xml(status_of(code), &xml)
    }

    /// An error by status alone, as a lake in trouble gives it.
    pub(super) fn trouble(status: StatusCode) -> Self {
        let code = match status.as_u16() {
            503 => "SlowDown",
            500 => "InternalError",
            _ => "Trouble",
        };
        Self {
            status,
            ..Self::error(code, "")
        }
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, HeaderValue::from_str(value).unwrap());
        self
    }

    /// The body as nobody reads it without decoding it. The encoding has only the name of one that there is.
    pub(super) fn encoded(mut self) -> Self {
        if let AnswerBody::Content(content, range) = &self.body {
            let bytes: Vec<u8> = content.read(range.clone()).iter().map(|byte| !byte).collect();
            let range = 0..bytes.len() as u64;
            self.body = AnswerBody::Content(bytes.into(), range);
            self.headers
                .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        self
    }

    /// A body is announced to a HEAD and not sent.
    pub(super) fn without_body(mut self) -> Self {
        self.body = AnswerBody::None;
        self.headers.remove(RETRY_AFTER);
        self
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn status_of(code: &str) -> StatusCode {
    let status = match code {
        "AccessDenied" | "InvalidAccessKeyId" | "SignatureDoesNotMatch" => 403,
        "NoSuchBucket" | "NoSuchBucketPolicy" | "NoSuchKey" | "NoSuchUpload" | "NoSuchVersion" => 404,
        "MethodNotAllowed" => 405,
        "BucketNotEmpty" => 409,
        "MissingContentLength" => 411,
        "PreconditionFailed" => 412,
        "InvalidPartNumber" | "InvalidRange" => 416,
        "NotImplemented" => 501,
        _ => 400,
    };
    StatusCode::from_u16(status).unwrap()
}
