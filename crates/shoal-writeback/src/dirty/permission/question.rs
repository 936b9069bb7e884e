//! The questions. Each needs the same permission as the request that it stands for, and leaves nothing
//! behind.
//!
//! | request | question |
//! |---|---|
//! | a write | create a multipart upload to the same name with the same headers; it is aborted at once |
//! | a removal | remove a [sibling](beside()) name that does not exist |
//! | a change of ACL, tags, locks | as for a write; if that is denied, the same change of a sibling name |
//!
//! The flush of a plain write does not reuse the upload, because the object would get the ETag of a multipart
//! upload.

use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use md5::{Digest as _, Md5};
use shoal_net::endpoint::s3::{
    Answer, CONTENT_MD5, Multipart, S3Client, SendOptions, content_md5, with_query,
};
use shoal_net::endpoint::{Endpoint, EndpointRequest, LakeAccount, RequestBody};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::{Caller, NODE};
use shoal_s3::object::ObjectName;
use shoal_s3::target;
use shoal_s3::xml::ErrorDocument;

use super::beside::beside;
use super::{Permission, PermissionError};
use crate::dirty::record::keys::unversioned;
use crate::headers::those;

const ENCRYPTION: HeaderName = HeaderName::from_static("x-amz-server-side-encryption");
const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// The headers that every permission may depend on.
const OF_PERMISSION: [HeaderName; 7] = [
    header::USER_AGENT,
    header::REFERER,
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-amz-request-payer"),
    HeaderName::from_static("x-amz-expected-bucket-owner"),
    HeaderName::from_static("x-amz-mfa"),
];

/// Returns the headers of a request that every permission may depend on.
pub fn of_permission(sent: &HeaderMap) -> HeaderMap {
    those(sent, |name| OF_PERMISSION.contains(name))
}

/// An action on a name.
#[derive(Clone, Debug)]
pub enum Action {
    /// Write an object whose ETag the node can compute.
    Back,
    /// Write an object.
    Write,
    /// Remove an object.
    Remove,
    /// Remove an object, acknowledged before the lake has removed it.
    RemoveBack,
    /// Change an object's ACL, tags or locks. The target is that of the same change of a sibling name.
    Describe(Method, PathAndQuery),
}

/// Asks the lake if a caller may carry out an action.
#[derive(Clone, Debug)]
pub(in crate::dirty) struct Question {
    /// The action.
    pub(in crate::dirty) action: Action,
    /// The object.
    pub(in crate::dirty) name: ObjectName,
    /// The number of the rule that covers the object.
    pub(in crate::dirty) rule: usize,
    /// The headers of the request that the answer may depend on.
    pub(in crate::dirty) headers: HeaderMap,
    /// The caller.
    pub(in crate::dirty) caller: Caller,
}

impl Question {
    /// Returns the inputs that a denial depends on besides caller, name and action.
    pub(super) fn details(&self) -> impl Hash {
        let change = match &self.action {
            Action::Describe(method, target) => Some((method, target.query())),
            _ => None,
        };
        let headers = self.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        (change, headers)
    }

    /// Sends the question to the lake.
    pub(super) async fn ask(&self, lake: &Arc<Endpoint>) -> Result<Permission, PermissionError> {
        let client = &S3Client::of_caller(lake, &self.caller);
        match &self.action {
            Action::Back | Action::Write => self.ask_to_write(client).await,
            Action::Remove | Action::RemoveBack => self.ask_to_remove(client).await,
            Action::Describe(method, target) => self.ask_to_describe(client, method, target).await,
        }
    }

    async fn ask_to_write(&self, client: &S3Client) -> Result<Permission, PermissionError> {
        let mut permission = self.create(client, self.headers.clone()).await?;
        // The lake may not support some of the headers on this request.
        let is_doubtful = matches!(&permission, Permission::Undecided) || is_invalid(&permission);
        let bare = of_permission(&self.headers);
        if is_doubtful && self.headers != bare {
            permission = self.create(client, bare.clone()).await?;
        }
        if is_invalid(&permission) && self.name.key.ends_with(b"/") {
            return self.ask_to_write_a_folder(client, bare).await;
        }
        Ok(permission)
    }

    /// Asks about a name in the folder, because a lake on a file system accepts no upload to the folder
    /// itself. The lake decides when it gets the request for the folder.
    async fn ask_to_write_a_folder(
        &self,
        client: &S3Client,
        headers: HeaderMap,
    ) -> Result<Permission, PermissionError> {
        let inside = Self {
            name: self.sibling(),
            ..self.clone()
        };
        let permission = inside.create(client, headers).await?;
        let is_no = matches!(permission, Permission::Denied(_)) && !is_invalid(&permission);
        Ok(if is_no { permission } else { Permission::Undecided })
    }

    /// Creates an upload and aborts it.
    async fn create(&self, client: &S3Client, headers: HeaderMap) -> Result<Permission, PermissionError> {
        let target = target::of_object(&unversioned(&self.name));
        let target = target.expect("a name that is too long was refused");
        let answer = ask(client, client.create_upload(&target, headers)).await?;
        if !answer.head.status.is_success() {
            return Ok(match permission_of(&answer)? {
                // The lake misses something other than an object.
                Permission::Granted => Permission::Undecided,
                permission => permission,
            });
        }
        let client = S3Client {
            payer: NODE,
            ..client.clone()
        };
        let Ok(upload) = Multipart::created(client, &target, &answer) else {
            return Ok(Permission::Undecided);
        };
        // If the abort fails, an empty upload stays behind.
        upload.abort();
        let encryption = answer.head.headers.get(&ENCRYPTION);
        let is_plain = encryption.is_none_or(|algorithm| algorithm == HeaderValue::from_static("AES256"));
        Ok(if is_plain {
            Permission::Granted
        } else {
            Permission::OtherEtag
        })
    }

    async fn ask_to_remove(&self, client: &S3Client) -> Result<Permission, PermissionError> {
        let target = target::of_object(&self.sibling());
        let target = target.expect("the name is about as long as one that was not refused");
        let answer = ask(client, self.removal(client, target.clone())).await?;
        if let Some(marker) = marker_in(&answer) {
            self.unmark(client.clone(), &target, marker);
        }
        match permission_of(&answer)? {
            // The lake cannot remove such a name.
            Permission::Undecided | Permission::Denied(_) if !is_denied(&answer) => {
                self.create(client, of_permission(&self.headers)).await
            }
            permission => Ok(permission),
        }
    }

    /// Removes the delete marker that the question left in a bucket that keeps versions.
    fn unmark(&self, client: S3Client, target: &PathAndQuery, version: &str) {
        let target = with_query(target, [("versionId", Some(version.as_bytes()))]);
        let removal = self.removal(&client, target.clone());
        tokio::spawn(async move {
            let answered = ask(&client, removal).await;
            if !answered.is_ok_and(|answer| answer.head.status.is_success()) {
                tracing::debug!(%target, "the delete marker of a question was not removed");
            }
        });
    }

    /// Returns a sibling name that does not exist.
    fn sibling(&self) -> ObjectName {
        ObjectName {
            key: beside(&self.name.key).into(),
            ..self.name.clone()
        }
    }

    fn removal(&self, client: &S3Client, target: PathAndQuery) -> EndpointRequest {
        let request = client.request("other_write", Method::DELETE, target);
        request.with_headers(of_permission(&self.headers))
    }

    async fn ask_to_describe(
        &self,
        client: &S3Client,
        method: &Method,
        target: &PathAndQuery,
    ) -> Result<Permission, PermissionError> {
        let permission = self.create(client, of_permission(&self.headers)).await?;
        if !matches!(permission, Permission::Denied(_) | Permission::Undecided) {
            return Ok(permission);
        }
        let Some(document) = document_of(target) else {
            return Ok(permission);
        };
        let is_stranger = matches!(client.account, LakeAccount::Anonymous);
        let question = |client: &S3Client| {
            let request = client.request("other_write", method.clone(), target.clone());
            with_document(request.with_headers(self.headers.clone()), document)
        };
        let answer = ask(client, question(client)).await?;
        match permission_of(&answer)? {
            Permission::Granted if answer.head.status.is_success() => Ok(Permission::Granted),
            // Some lakes return 404 before they check the caller's permission.
            Permission::Granted if !is_stranger => {
                let stranger = S3Client {
                    account: LakeAccount::Anonymous,
                    ..client.clone()
                };
                let answer = ask(&stranger, question(&stranger)).await?;
                Ok(if is_denied(&answer) {
                    Permission::Granted
                } else {
                    permission
                })
            }
            Permission::Denied(error)
                if matches!(permission, Permission::Undecided) && is_denied(&answer) =>
            {
                Ok(Permission::Denied(error))
            }
            _ => Ok(permission),
        }
    }
}

async fn ask(client: &S3Client, question: EndpointRequest) -> Result<Answer, PermissionError> {
    let answer = client.send(question, SendOptions::default()).await;
    Ok(answer.map_err(Arc::new)?)
}

/// Returns a request with a document as its body, unless it has none.
fn with_document(mut request: EndpointRequest, document: &'static str) -> EndpointRequest {
    if request.method == Method::DELETE || document.is_empty() {
        return request;
    }
    let md5 = content_md5(&Md5::digest(document).into());
    request.headers.insert(CONTENT_MD5, md5);
    request.with_body(RequestBody::Whole(Bytes::from_static(document.as_bytes())))
}

/// Returns true if the lake denies the caller permission, whatever else is wrong with the question.
fn is_denied(answer: &Answer) -> bool {
    matches!(answer.head.status.as_u16(), 401 | 403)
}

/// Returns the version of the delete marker that a removal has left.
fn marker_in(answer: &Answer) -> Option<&str> {
    let headers = &answer.head.headers;
    let is_marker = headers.get(&DELETE_MARKER).is_some_and(|value| value == "true");
    let version = headers.get(&VERSION_ID).filter(|_| is_marker)?;
    version.to_str().ok()
}

/// Returns the permission that a response implies to any question but the creation of an upload. A 404
/// implies that it is granted.
fn permission_of(answer: &Answer) -> Result<Permission, PermissionError> {
    let status = answer.head.status;
    match status.as_u16() {
        200..300 => Ok(Permission::Granted),
        404 => match answer.error() {
            Some(error) if error.code == "NoSuchBucket" => {
                Ok(Permission::Denied(refusal_of(status, Some(error))))
            }
            _ => Ok(Permission::Granted),
        },
        400 | 401 | 403 => Ok(Permission::Denied(refusal_of(status, answer.error()))),
        429 | 500 | 502 | 503 | 504 => Err(PermissionError::Status(status)),
        _ => Ok(Permission::Undecided),
    }
}

/// Returns true if the question was denied as invalid.
fn is_invalid(permission: &Permission) -> bool {
    matches!(permission, Permission::Denied(error) if error.code.status() == StatusCode::BAD_REQUEST)
}

/// Returns the lake's refusal as an error for the client.
fn refusal_of(status: StatusCode, error: Option<ErrorDocument>) -> S3Error {
    let known = error.as_ref().and_then(|error| {
        let code = ErrorCode::named(&error.code);
        code.filter(|code| code.status() == status)
    });
    let code = known.unwrap_or(match status {
        StatusCode::BAD_REQUEST => ErrorCode::InvalidRequest,
        StatusCode::NOT_FOUND => ErrorCode::NoSuchBucket,
        _ => ErrorCode::AccessDenied,
    });
    let message = error
        .map(|error| error.message)
        .filter(|message| !message.is_empty());
    S3Error::new(code, message.unwrap_or_else(|| "Access Denied".into()))
}

/// Returns a document that would change nothing of an unused name. `None` if a lake might mistake the request
/// for another one and create an object.
fn document_of(target: &PathAndQuery) -> Option<&'static str> {
    const DOCUMENTS: [(&str, &str); 5] = [
        ("acl", ""),
        ("tagging", "<Tagging><TagSet></TagSet></Tagging>"),
        ("retention", "<Retention></Retention>"),
        ("legal-hold", "<LegalHold><Status>OFF</Status></LegalHold>"),
        ("restore", "<RestoreRequest><Days>1</Days></RestoreRequest>"),
    ];
    let mut parameters = target
        .query()?
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or(pair));
    parameters.find_map(|name| {
        let found = DOCUMENTS.iter().find(|(resource, _)| *resource == name);
        found.map(|(_, document)| *document)
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue, Response};
    use shoal_s3::xml::ErrorDocument;

    use super::{Answer, Permission, document_of, of_permission, permission_of};

    fn refusal(status: u16, code: &str) -> String {
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = status.try_into().unwrap();
        let body = Bytes::from(ErrorDocument::write(code, "m").to_document());
        let answer = Answer { head, body: Ok(body) };
        match permission_of(&answer) {
            Ok(Permission::Denied(error)) => {
                format!("{} {}", error.code.status().as_u16(), error.code.as_str())
            }
            Ok(permission) => format!("{permission:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_lakes_words_and_an_outage_is_none() {
        for (status, code, expected) in [
            (403, "AccessDenied", "403 AccessDenied"),
            (403, "InvalidAccessKeyId", "403 InvalidAccessKeyId"),
            (403, "AllAccessDisabled", "403 AccessDenied"),
            (401, "Unauthorized", "403 AccessDenied"),
            (400, "KeyTooLongError", "400 KeyTooLongError"),
            (404, "NoSuchBucket", "404 NoSuchBucket"),
            (404, "NoSuchKey", "Granted"),
            (204, "", "Granted"),
            (405, "MethodNotAllowed", "Undecided"),
            (501, "NotImplemented", "Undecided"),
            (
                500,
                "InternalError",
                "the lake answered 500 Internal Server Error",
            ),
            (503, "SlowDown", "the lake answered 503 Service Unavailable"),
        ] {
            assert_eq!(refusal(status, code), expected, "{status} {code}");
        }
    }

    #[test]
    fn only_what_no_lake_takes_for_a_new_object_is_asked_about_another_name() {
        let document = |target: &'static str| document_of(&target.parse().unwrap());
        assert_eq!(document("/b/k?acl"), Some(""));
        assert!(document("/b/k?versionId=null&tagging").is_some());
        assert!(document("/b/k?restore=").is_some());
        for target in ["/b/k", "/b/k?acls", "/b/k?x=acl", "/b/k?torrent"] {
            assert_eq!(document(target), None, "{target}");
        }
    }

    #[test]
    fn a_question_says_what_permission_depends_on_and_nothing_else() {
        let mut sent = HeaderMap::new();
        for name in ["referer", "x-amz-request-payer", "content-md5", "if-match"] {
            sent.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        let asked = of_permission(&sent);
        assert!(asked.len() == 2 && asked.contains_key("referer"));
    }
}
