//! The XML body of an error response, in the form of S3.

use bytes::Bytes;

use crate::error::S3Error;
use crate::xml::{Element, ErrorDocument, shown};

/// Renders an error. `resource` is the path as the client sent it; `request_id` is the one in the headers.
pub fn error_xml(error: &S3Error, resource: &str, request_id: RequestId) -> Bytes {
    let details = error.details.iter();
    let details = details.map(|(name, value)| Element::leaf(name, &shown(value)));
    let document = ErrorDocument::write(error.code.as_str(), &error.message)
        .with_all(details)
        .with_leaf("Resource", shown(resource))
        .with_leaf("RequestId", request_id.as_str());
    Bytes::from(document.to_document())
}

/// The ID of a request in its response and in the logs: sixteen random hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId([u8; 16]);

impl RequestId {
    /// Creates an ID from random bits.
    pub fn new(bits: u64) -> Self {
        let digit = |at: usize| b"0123456789ABCDEF"[(bits >> (60 - 4 * at)) as usize & 15];
        Self(std::array::from_fn(digit))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::{RequestId, error_xml};
    use crate::error::{ErrorCode, S3Error};

    fn text(message: &str, resource: &str) -> String {
        rendered(
            &S3Error::new(ErrorCode::AccessDenied, message.to_owned()),
            resource,
        )
    }

    fn rendered(error: &S3Error, resource: &str) -> String {
        let xml = error_xml(error, resource, RequestId::new(0x0123_4567_89AB_CDEF));
        String::from_utf8(xml.to_vec()).unwrap()
    }

    #[test]
    fn further_elements_follow_the_message_and_cannot_write_markup() {
        let error = S3Error::new(ErrorCode::InvalidAccessKeyId, "m").with("AWSAccessKeyId", "a</Error>");
        let xml = rendered(&error, "/b");
        assert!(
            xml.contains("<Message>m</Message><AWSAccessKeyId>a&lt;/Error&gt;</AWSAccessKeyId><Resource>")
        );
    }

    #[test]
    fn an_error_reads_as_s3_writes_it() {
        assert_eq!(
            text("Access Denied", "/bucket/key"),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code>\
             <Message>Access Denied</Message><Resource>/bucket/key</Resource>\
             <RequestId>0123456789ABCDEF</RequestId></Error>"
        );
    }

    #[test]
    fn a_key_cannot_write_markup_into_the_answer() {
        let xml = text("m", "/b/</Resource><Code a=\"1\" b='2'>&");
        assert!(xml.contains(
            "<Resource>/b/&lt;/Resource&gt;&lt;Code a=&quot;1&quot; b=&apos;2&apos;&gt;&amp;</Resource>"
        ));
    }

    #[test]
    fn control_characters_leave_the_answer_well_formed() {
        let xml = text("m", "/b/\u{0}\u{8}\t\r\n\u{1f}\u{ffff}é🐟");
        assert!(xml.contains("<Resource>/b/\u{fffd}\u{fffd}&#x9;&#xD;&#xA;\u{fffd}\u{fffd}é🐟</Resource>"));
    }
}
