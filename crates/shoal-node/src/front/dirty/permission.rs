//! Asks for the lake's permission before the node does anything to a dirty object for a caller.
//!
//! The lake does not have the object, so the node cannot ask for the operation itself. It asks for something
//! harmless that needs the same permission and leaves nothing behind. Whatever it asks, only a clear yes
//! counts.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};
use shoal_s3::error::S3Error;
use shoal_s3::hop_by_hop::end_to_end;
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Classified;
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::target;

use super::is_writer;
use crate::dirty::{DirtyObjects, Manifest};
use crate::endpoint::{Endpoint, EndpointRequest, LakeBody, RequestBody};
use crate::front::admission::{Admitted, Opened};
use crate::front::lake_errors;

/// Headers on which a permission may depend.
const OF_PERMISSION: [HeaderName; 7] = [
    header::USER_AGENT,
    header::REFERER,
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-amz-request-payer"),
    HeaderName::from_static("x-amz-expected-bucket-owner"),
    HeaderName::from_static("x-amz-mfa"),
];

/// The caller in whose name the node asks the lake, and its request.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) classified: &'a Classified,
    pub(super) caller: &'a Caller,
}

impl<'a> From<&'a Admitted> for Asker<'a> {
    fn from(admitted: &'a Admitted) -> Self {
        Self {
            headers: &admitted.parts.headers,
            classified: &admitted.classified,
            caller: &admitted.verified.caller,
        }
    }
}

impl<'a> From<&'a Opened> for Asker<'a> {
    fn from(opened: &'a Opened) -> Self {
        Self {
            headers: &opened.parts.headers,
            classified: &opened.classified,
            caller: &opened.caller,
        }
    }
}

/// Asks the lake what a caller may do.
pub(super) struct Permissions {
    lake: Arc<Endpoint>,
    dirty: Arc<DirtyObjects>,
}

impl Permissions {
    /// Asks `lake`.
    pub(super) fn new(lake: Arc<Endpoint>, dirty: Arc<DirtyObjects>) -> Self {
        Self { lake, dirty }
    }

    /// Returns whether the lake lets the caller know of an object. The node asks for its head in the caller's
    /// name; the lake returns it, or says that there is none. S3 does neither for a caller that may not read
    /// the object or list its bucket.
    pub(super) async fn may_know(&self, asker: Asker<'_>, name: &ObjectName) -> Result<bool, S3Error> {
        let headers = of_permission(asker.headers);
        let question = self.ask_lake(asker, ("head_object", Method::HEAD), path_of(name), headers);
        Ok(is_known(question.await?.status()))
    }

    /// Returns whether the lake would take an object of this name from the caller.
    pub(super) async fn may_write(&self, asker: Asker<'_>, name: &ObjectName) -> bool {
        self.dirty.may_write(&path_of(name), asker.caller).await
    }

    /// Returns whether a caller may keep others from changing a dirty object while the lake decides if the
    /// caller may remove it.
    pub(super) async fn may_remove(&self, asker: Asker<'_>, manifest: &Manifest) -> bool {
        is_writer(asker.caller, &manifest.writer) || self.may_write(asker, &manifest.name).await
    }

    /// Returns whether a caller may know if a dirty object meets its conditions.
    pub(super) async fn may_judge(&self, asker: Asker<'_>, manifest: &Manifest) -> Result<bool, S3Error> {
        Ok(is_writer(asker.caller, &manifest.writer) || self.may_know(asker, &manifest.name).await?)
    }

    /// Returns whether the lake shows the caller the subject of a request about a whole bucket, such as its
    /// policy or its versions.
    pub(super) async fn may_see(&self, asker: Asker<'_>) -> Result<bool, S3Error> {
        let target = asker.classified.target()?;
        let asked = match target.query() {
            Some(_) => ("other_read", Method::GET),
            None => ("other_read", Method::HEAD),
        };
        let headers = of_permission(asker.headers);
        let answer = self.ask_lake(asker, asked, target, headers).await?;
        Ok(is_known(answer.status()))
    }

    /// Asks the lake in the caller's name, without a body.
    pub(super) async fn ask_lake(
        &self,
        asker: Asker<'_>,
        (operation, method): (&'static str, Method),
        target: PathAndQuery,
        headers: HeaderMap,
    ) -> Result<Response<LakeBody>, S3Error> {
        let request = EndpointRequest {
            operation,
            method,
            target,
            headers,
            body: RequestBody::Empty,
            expects_continue: false,
            payload: PayloadHash::empty(),
            account: self.lake.account_for(asker.caller),
            payer: asker.caller.payer(),
        };
        let answered = self.lake.send(request).await;
        answered.map_err(|error| lake_errors::unanswered(&error))
    }
}

/// Returns whether an answer to a read says that the caller may know what there is, even if there is nothing.
fn is_known(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_FOUND
}

fn of_permission(sent: &HeaderMap) -> HeaderMap {
    let kept = sent.iter().filter(|(name, _)| OF_PERMISSION.contains(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The headers of a request without those of its body.
pub(super) fn without_body(sent: &HeaderMap) -> HeaderMap {
    let mut headers = end_to_end(sent);
    let is_of_body = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("content-")
            || name.starts_with("x-amz-checksum-")
            || [
                "x-amz-decoded-content-length",
                "x-amz-trailer",
                "x-amz-sdk-checksum-algorithm",
            ]
            .contains(&name)
    };
    let of_body: Vec<_> = headers.keys().filter(|name| is_of_body(name)).cloned().collect();
    for name in of_body {
        headers.remove(name);
    }
    headers
}

/// Returns the path of an object at the lake.
fn path_of(name: &ObjectName) -> PathAndQuery {
    let path = target::path(Some(&name.bucket), Some(&name.key));
    PathAndQuery::try_from(path).expect("what is percent-encoded is a path")
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
    use shoal_s3::object::ObjectName;

    use super::{is_known, of_permission, path_of, without_body};

    #[test]
    fn only_a_clear_yes_counts() {
        let statuses = [200, 206, 404, 301, 304, 400, 401, 403, 412, 500, 503];
        let known = statuses.map(|status| is_known(StatusCode::from_u16(status).unwrap()));
        assert_eq!(known.map(u8::from), [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_question_names_the_object_in_one_spelling() {
        let name = ObjectName {
            bucket: "b.c-d".into(),
            key: b"a b/%?#\xff".as_slice().into(),
            version: None,
        };
        assert_eq!(path_of(&name).as_str(), "/b.c-d/a%20b/%25%3F%23%FF");
    }

    #[test]
    fn a_question_says_what_permission_depends_on_and_nothing_of_a_body() {
        let mut sent = HeaderMap::new();
        for name in [
            "referer",
            "x-amz-request-payer",
            "content-md5",
            "x-amz-checksum-crc32",
            "if-match",
        ] {
            sent.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        let asked = of_permission(&sent);
        assert!(asked.len() == 2 && asked.contains_key("referer"));
        let bare = without_body(&sent);
        assert!(bare.len() == 3 && bare.contains_key("if-match"));
    }
}
